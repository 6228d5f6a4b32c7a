//! Moves the scaling of a product's operand into the product's factor.
//!
//! Models often scale queries or keys before they multiply them. The product applies the factor to its sums for free,
//! and the map that would read and write the whole operand is gone.
use crate::expr::{Binary, Expr, Node, Ref};
use crate::lower::Val;
use crate::plan::uses::{Uses, take_in};
use crate::plan::{Draft, epilogue};
use crate::prim::{MatMul, Prim, ProductKind};
use crate::{DType, Shape, Step, View};

/// Larger factors, or smaller ones than the inverse, could make sums overflow that do not overflow in the model.
const MAX_FACTOR: f64 = 65536.0;

/// Merges scalings into matrix products.
pub(super) fn merge(draft: &mut Draft) {
    // Both operands may be scaled, and a call merges one step into each product.
    take_in(draft, candidate);
    take_in(draft, candidate);
}

/// The product at `at` without the scaling of an operand, and the position of that scaling.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, _: &Draft) -> Option<(usize, Step)> {
    let product = steps[at].as_ref()?;
    let Some(&ProductKind::MatMul(MatMul { alpha })) = product.prim.plain_product() else { return None };
    let [left, right] = &product.inputs[..] else { return None };
    [left, right].into_iter().enumerate().filter(|_| left.buffer != right.buffer).find_map(|(side, view)| {
        let from = uses.maker_for(at, view)?;
        let map = steps[from].as_ref()?;
        let (Prim::Map(work), [source], [made]) = (&map.prim, &map.inputs[..], &map.outputs[..]) else { return None };
        if source.dtype != view.dtype || made.dtype != view.dtype {
            return None;
        }
        let alpha = scaled(alpha, factor(&work.expr)?, view.dtype)?;
        let mut inputs = product.inputs.clone();
        inputs[side] = seen_through(view, made, source)?;
        Some((from, Step { prim: Prim::matmul(alpha), inputs, ..product.clone() }))
    })
}

/// The factor, if an expression only scales its input.
fn factor(expr: &Expr) -> Option<f64> {
    let nodes = expr.nodes();
    let is_input = |at: Ref| nodes[usize::from(at)].0 == Node::Input(0);
    let number = |at: Ref| match nodes[usize::from(at)].0 {
        Node::Const(value) => Some(value.as_f64()),
        _ => None,
    };
    match nodes.last()?.0 {
        Node::Binary(Binary::Mul, a, b) if is_input(a) => number(b),
        Node::Binary(Binary::Mul, a, b) if is_input(b) => number(a),
        Node::Binary(Binary::Div, a, b) if is_input(a) => Some(1.0 / number(b)?),
        _ => None,
    }
}

/// The factor of a product that also scales its operand; `None` if results would be less accurate than the model's.
fn scaled(alpha: f32, factor: f64, dtype: DType) -> Option<f32> {
    let wanted = f64::from(alpha) * factor;
    let found = wanted as f32;
    let is_exact = match dtype {
        DType::F32 => true,
        DType::F64 => f64::from(found) == wanted,
        // The model rounds the scaled operand: only a power of two leaves all of its bits as they are.
        DType::F16 | DType::Bf16 => factor.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1,
        _ => false,
    };
    let is_moderate = (1.0 / MAX_FACTOR..=MAX_FACTOR).contains(&factor.abs());
    (is_exact && is_moderate && found.is_normal()).then_some(found)
}

/// The elements of `source` that a map writes to the elements of `made` that `view` shows; `None` if a product would
/// read them slowly.
fn seen_through(view: &View, made: &View, source: &View) -> Option<View> {
    if !made.is_dense() || made.offset != 0 || view.elems() != made.elems() {
        return None;
    }
    let order = epilogue::dense_order(view)?;
    let shape: Shape = order.iter().map(|&axis| view.shape[axis]).collect();
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
    let seen = Val::from(source).reshaped_in_place(&shape)?.permuted(&back).view_of(source.buffer);
    let is_contiguous =
        seen.shape.iter().zip(&seen.strides).skip(1).any(|(&extent, &stride)| extent == 1 || stride == 1);
    is_contiguous.then_some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;

    #[test]
    fn only_scalings_by_a_number_have_a_factor() {
        let with = |write: fn(&mut Expr, Ref, Ref) -> Ref| {
            let mut expr = Expr::new();
            let (input, number) = (expr.input(0, DType::F32), expr.constant(Scalar::Float(4.0), DType::F32));
            let value = write(&mut expr, input, number);
            expr.finish(value);
            factor(&expr)
        };
        assert_eq!(with(|expr, x, four| expr.binary(Binary::Mul, x, four)), Some(4.0));
        assert_eq!(with(|expr, x, four| expr.binary(Binary::Mul, four, x)), Some(4.0));
        assert_eq!(with(|expr, x, four| expr.binary(Binary::Div, x, four)), Some(0.25));
        assert_eq!(with(|expr, x, four| expr.binary(Binary::Div, four, x)), None);
        assert_eq!(with(|expr, x, four| expr.binary(Binary::Add, x, four)), None);
        assert_eq!(with(|expr, x, _| expr.binary(Binary::Mul, x, x)), None);
    }

    #[test]
    fn factors_that_would_change_results_stay_in_the_map() {
        assert_eq!(scaled(0.5, 0.3, DType::F32), Some(0.15));
        assert_eq!(scaled(0.5, 0.25, DType::F16), Some(0.125));
        assert_eq!(scaled(1.0, 0.3, DType::F16), None, "the model rounds");
        assert_eq!((scaled(1.0, 0.3, DType::F64), scaled(1.0, 0.375, DType::F64)), (None, Some(0.375)));
        for extreme in [0.0, 1e-9, 1e9, f64::INFINITY, f64::NAN] {
            assert_eq!(scaled(1.0, extreme, DType::F32), None, "{extreme}");
        }
        assert_eq!(scaled(1.0, 2.0, DType::I32), None);
    }
}
