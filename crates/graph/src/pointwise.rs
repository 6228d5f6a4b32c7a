//! Convolutions that are matrix products: one tap on every element.
use crate::expr::{Binary, Expr};
use crate::prim::{Epilogue, MatMul, Product, ProductKind};
use crate::shape::Strides;
use crate::{Step, View};

/// The same step as a product of matrices: positions times channels, channels times output channels. A bias becomes
/// the first part of the epilogue. `None` if the step is something else, or if positions are not evenly spaced.
pub fn as_matmul(step: &Step) -> Option<Step> {
    let Product { kind: ProductKind::Conv(conv), prologue: None, epilogue, gate: None } = step.prim.product()? else {
        return None;
    };
    let (x, w, out) = (step.inputs.first()?, step.inputs.get(1)?, step.outputs.first()?);
    let is_pointwise = conv.groups == 1
        && w.shape.get(2..)?.iter().all(|&taps| taps == 1)
        && conv.strides.iter().all(|&stride| stride == 1)
        && conv.pads.iter().all(|&pad| pad == 0)
        && x.shape.get(2..) == out.shape.get(2..);
    if !is_pointwise {
        return None;
    }
    let weights = View {
        shape: [1, w.shape[1], w.shape[0]].as_slice().into(),
        strides: [0, w.strides[1], w.strides[0]].into_iter().collect(),
        ..w.clone()
    };
    let result = matrix(out)?;
    let mut inputs = vec![matrix(x)?, weights];
    let own = inputs.len();
    if conv.bias {
        let bias = step.inputs.get(2)?;
        let strides: Strides = [0, 0, bias.strides[0]].into_iter().collect();
        inputs.push(View { shape: result.shape.clone(), strides, ..bias.clone() });
    }
    for operand in step.inputs.get(step.own_inputs()..)? {
        inputs.push(matrix(operand)?);
    }
    let product = Product::from(ProductKind::MatMul(MatMul { alpha: 1.0 }));
    let product = if inputs.len() == own && epilogue.is_none() {
        product
    } else {
        product.with_epilogue(with_bias(conv.bias, epilogue.as_ref(), &inputs[own..], own, out))
    };
    Some(Step { node: step.node, prim: product.into(), inputs, outputs: vec![result] })
}

/// `[n, c, spatial…]` as `[1, positions, c]`.
fn matrix(view: &View) -> Option<View> {
    let mut merged: Option<(usize, isize)> = None;
    for axis in std::iter::once(0).chain(2..view.shape.len()) {
        let (extent, stride) = (view.shape[axis], view.strides[axis]);
        merged = match merged {
            _ if extent == 1 => merged,
            None => Some((extent, stride)),
            Some((count, outer)) if outer == stride * extent as isize => Some((count * extent, stride)),
            Some(_) => return None,
        };
    }
    let (positions, stride) = merged.unwrap_or((1, 0));
    let strides = [0, stride, *view.strides.get(1)?].into_iter().collect();
    Some(View { shape: [1, positions, view.shape[1]].as_slice().into(), strides, ..view.clone() })
}

/// The epilogue of the product: the bias is its first operand.
fn with_bias(has_bias: bool, epilogue: Option<&Epilogue>, operands: &[View], own: usize, out: &View) -> Epilogue {
    let dtype = epilogue.map_or(out.dtype, |epilogue| epilogue.dtype);
    let mut expr = Expr::new();
    let mut values: Vec<_> = std::iter::once(dtype)
        .chain(operands.iter().map(|view| view.dtype))
        .enumerate()
        .map(|(number, dtype)| expr.input(number as u16, dtype))
        .collect();
    if has_bias {
        let bias = values.remove(1);
        values[0] = expr.binary(Binary::Add, values[0], bias);
    }
    let value = match epilogue {
        Some(epilogue) => expr.inline(&epilogue.expr, &values),
        None => expr.cast(values[0], out.dtype),
    };
    expr.finish(value);
    Epilogue { operands: own, dtype, expr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::prim::{BufferId, Conv};
    use crate::shape::dense_strides;

    fn view(buffer: u32, shape: &[usize], strides: &[isize]) -> View {
        let strides = strides.iter().copied().collect();
        View { buffer: BufferId(buffer), dtype: DType::F16, shape: shape.into(), strides, offset: 0 }
    }

    /// 2 images of 3 x 5 positions and 8 channels, channels last, to 16 channels.
    fn step(taps: usize, stride: usize, pad: isize, bias: bool) -> Step {
        let conv = Conv {
            strides: [stride; 2].into_iter().collect(),
            pads: [pad; 2].into_iter().collect(),
            dilations: [1; 2].into_iter().collect(),
            groups: 1,
            bias,
        };
        let w = [16, 8, taps, taps];
        let mut inputs = vec![view(0, &[2, 8, 3, 5], &[120, 1, 40, 8]), view(1, &w, &dense_strides(&w))];
        inputs.extend(bias.then(|| view(2, &[16], &[1])));
        let outputs = vec![view(3, &[2, 16, 3, 5], &[240, 1, 80, 16])];
        Step { node: 0, prim: ProductKind::Conv(conv).into(), inputs, outputs }
    }

    #[test]
    fn positions_become_rows_and_channels_columns() {
        let product = as_matmul(&step(1, 1, 0, true)).unwrap();
        let shapes: Vec<&[usize]> = product.inputs.iter().chain(&product.outputs).map(|view| &view.shape[..]).collect();
        assert_eq!(shapes, [&[1, 30, 8][..], &[1, 8, 16], &[1, 30, 16], &[1, 30, 16]]);
        let strides: Vec<&[isize]> =
            product.inputs.iter().chain(&product.outputs).map(|view| &view.strides[..]).collect();
        assert_eq!(strides, [&[0, 8, 1][..], &[0, 1, 8], &[0, 0, 1], &[0, 16, 1]]);
        let epilogue = product.prim.product().unwrap().epilogue.clone().unwrap();
        let value = |sum: f64, bias: f64| {
            epilogue.expr.eval(&[crate::Scalar::Float(sum), crate::Scalar::Float(bias)], &[]).as_f64()
        };
        assert_eq!((epilogue.operands, value(1.5, 2.0)), (2, 3.5));
        let plain = as_matmul(&step(1, 1, 0, false)).unwrap();
        assert_eq!(plain.prim, crate::Prim::matmul(1.0));
    }

    #[test]
    fn other_convolutions_stay() {
        assert!(as_matmul(&step(3, 1, 1, false)).is_none());
        assert!(as_matmul(&step(1, 2, 0, false)).is_none());
        assert!(as_matmul(&step(1, 1, 1, false)).is_none());
        // Two images with channels first: positions are not evenly spaced.
        let mut first = step(1, 1, 0, false);
        first.inputs[0].strides = dense_strides(&[2, 8, 3, 5]);
        assert!(as_matmul(&first).is_none());
        assert!(as_matmul(&Step { prim: crate::Prim::matmul(1.0), ..first }).is_none());
    }
}
