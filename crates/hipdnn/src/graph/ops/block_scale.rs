//! Quantisation with one scale per block of elements.

use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::{TensorId, axis_order, packed_in};
use crate::sys::{AttributeName as A, DescriptorType};

/// Quantises `x` to `y` with one `scale` per `block` elements along `axis` (the last one if `None`); `transposes` makes
/// that axis the innermost.
pub(in crate::graph) fn quantize(
    x: TensorId,
    [y, scale]: [TensorId; 2],
    block: i32,
    axis: Option<i64>,
    transposes: bool,
) -> Operation {
    let mut settings = vec![
        (A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, Setting::I32s(vec![block])),
        (A::OPERATION_BLOCK_SCALE_QUANTIZE_TRANSPOSE_EXT, Setting::Bool(transposes)),
    ];
    settings.extend(axis.map(|axis| (A::OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT, Setting::I64s(vec![axis]))));
    let rule = move |tensors: &mut Tensors| {
        let mut dims = tensors.dims(x).to_vec();
        let at = axis.unwrap_or(dims.len() as i64 - 1);
        let Some(extent) = usize::try_from(at).ok().and_then(|at| dims.get_mut(at)) else {
            return tensors.refuse(x, format!("it has no axis {at}"));
        };
        if block <= 0 || *extent % i64::from(block) != 0 {
            return tensors.refuse(x, format!("extent {extent} cannot be divided into blocks of {block}"));
        }
        *extent /= i64::from(block);
        let data = tensors.dims(x).to_vec();
        if transposes && tensors.get(y).strides.is_empty() {
            let mut order = axis_order(&tensors.get(x).strides);
            order.retain(|&other| other as i64 != at);
            order.push(at as usize);
            tensors.get_mut(y).strides = packed_in(&data, &order);
        }
        tensors.set_result(y, &data, Some(x))?;
        tensors.set_result(scale, &dims, Some(x))
    };
    Operation {
        name: "block-scale quantize",
        descriptor: DescriptorType::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR,
        compute_type: A::OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC,
        reads: vec![(A::OPERATION_BLOCK_SCALE_QUANTIZE_XDESC, x)],
        makes: vec![
            (A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, y),
            (A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC, scale),
        ],
        settings,
        rule: Box::new(rule),
    }
}

/// Multiplies each block of `x` by its `scale`; `blocks` contains the block's extents along the last axes.
pub(in crate::graph) fn dequantize(x: TensorId, scale: TensorId, y: TensorId, blocks: &[i32]) -> Operation {
    let settings = vec![
        (A::OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE, Setting::I32s(blocks.to_vec())),
        (A::OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE, Setting::Bool(false)),
    ];
    let blocks = blocks.to_vec();
    let rule = move |tensors: &mut Tensors| {
        let data = tensors.dims(x).to_vec();
        if blocks.is_empty() || blocks.len() > data.len() || blocks.iter().any(|&block| block <= 0) {
            return tensors.refuse(x, format!("blocks of {blocks:?} do not match its {} axes", data.len()));
        }
        let scales = tensors.dims(scale).len();
        if scales != data.len() {
            return tensors.refuse(scale, format!("it has {scales} axes, but the data has {}", data.len()));
        }
        tensors.set_result(y, &data, Some(x))
    };
    Operation {
        name: "block-scale dequantize",
        descriptor: DescriptorType::OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR,
        compute_type: A::OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC,
        reads: vec![
            (A::OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC, x),
            (A::OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC, scale),
        ],
        makes: vec![(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC, y)],
        settings,
        rule: Box::new(rule),
    }
}
