//! Quantisation with one scale per block of elements.

use graph::DType;
use hipdnn::sys::{AttributeName as A, DataType};
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};
use crate::format::Format;

impl Lowering {
    /// Divides each block by its scale, which maps the block's largest magnitude to the largest number of the result's
    /// type. The scale is rounded first, so that multiplying by the stored scale restores the numbers.
    pub(super) fn block_scale_quantize(&mut self, operation: &Descriptor) -> Answer {
        let x = self.read(operation, A::OPERATION_BLOCK_SCALE_QUANTIZE_XDESC)?;
        let to = format_of(operation, A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC)?;
        let scaled_by = format_of(operation, A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC)?;
        let largest = to.largest().ok_or_else(|| format!("data cannot be quantised to {to:?}"))?;
        let rank = x.dims.len() as i64;
        let axis = operation.i64s(A::OPERATION_BLOCK_SCALE_QUANTIZE_AXIS_EXT).first().copied().unwrap_or(rank - 1);
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < x.dims.len()).ok_or("no such axis")?;
        let block = i64::from(operation.number(A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE).unwrap_or(0));
        if block <= 0 || x.dims[axis] % block != 0 {
            return Err(format!("{} elements cannot be split into blocks of {block}", x.dims[axis]));
        }
        let mut counts = x.dims.clone();
        counts[axis] /= block;
        let blocks = self.in_blocks(&x, &counts)?;
        let size = self.elementwise("Abs", &[&blocks])?;
        let most = self.reduce("ReduceMax", &size, &[2 * axis + 1])?;
        let most_of_type = self.scalar(largest);
        let exact = self.elementwise("Div", &[&most, &most_of_type])?;
        let scale = self.rounded(&exact, scaled_by)?;
        let (zero, one) = (self.scalar(0.0), self.scalar(1.0));
        let is_zero = self.elementwise_to("Equal", &[&scale, &zero], DType::Bool)?;
        let divisor = self.elementwise("Where", &[&is_zero, &one, &scale])?;
        let y = self.elementwise("Div", &[&blocks, &divisor])?;
        let y = self.clipped(&y, -largest, largest)?;
        let (y, scale) = (self.reshape(&y, &x.dims)?, self.reshape(&scale, &counts)?);
        self.write(operation, A::OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, &y)?;
        self.write(operation, A::OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC, &scale)
    }

    /// Multiplies each block by its scale. The number of elements per scale on an axis follows from the extents, and
    /// must be one of the sizes that the operation lists.
    pub(super) fn block_scale_dequantize(&mut self, operation: &Descriptor) -> Answer {
        if operation.flag(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE) {
            return Err("negative scales are not supported".into());
        }
        let x = self.read(operation, A::OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC)?;
        let scale = self.read(operation, A::OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC)?;
        let sizes = operation.i32s(A::OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE);
        let fits = x.dims.len() == scale.dims.len()
            && x.dims.iter().zip(&scale.dims).all(|(&extent, &count)| {
                let size = extent / count;
                extent % count == 0 && (size == 1 || sizes.iter().any(|&known| i64::from(known) == size))
            });
        if !fits {
            return Err(format!("scales {:?} do not match data {:?} in blocks of {sizes:?}", scale.dims, x.dims));
        }
        let counts = scale.dims.clone();
        let blocks = self.in_blocks(&x, &counts)?;
        let alone: Vec<i64> = counts.iter().flat_map(|&count| [count, 1]).collect();
        let scale = self.reshape(&scale, &alone)?;
        let y = self.elementwise("Mul", &[&blocks, &scale])?;
        let y = self.reshape(&y, &x.dims)?;
        self.write(operation, A::OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC, &y)
    }

    /// Splits each axis in two: the block, and the position in it.
    fn in_blocks(&mut self, made: &LoweredValue, counts: &[i64]) -> Answer<LoweredValue> {
        let dims: Vec<i64> =
            made.dims.iter().zip(counts).flat_map(|(&extent, &count)| [count, extent / count]).collect();
        self.reshape(made, &dims)
    }
}

fn format_of(operation: &Descriptor, name: A) -> Answer<Format> {
    let tensor = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
    let code = DataType(tensor.number(A::TENSOR_DATA_TYPE).unwrap_or(-1));
    Format::of(code).ok_or_else(|| format!("data of {code:?}"))
}
