//! Attention as two products, with the scores stored between them.
use graph::expr::{Binary, Expr, Node, Ref};
use graph::prim::{Attention, Map, Softmax};
use graph::shape::dense_strides;
use graph::{DType, Prim, Scalar, Shape, Step, View};

use super::part::Parts;

/// Larger scores are not stored: our own attention, which stores none, is the better choice.
const MAX_SCORES_BYTES: usize = 64 << 20;

/// The products of an attention step, with maps and a softmax between them.
pub(super) fn products(step: &Step, first: u32) -> Option<Parts> {
    let Prim::Attention(prim) = &step.prim else { return None };
    parts(prim, step, first)
}

/// Like [`products`], but the factor of the first product moves into the scores, so that each product is one operation.
pub(super) fn bare_products(step: &Step, first: u32) -> Option<Parts> {
    let Prim::Attention(prim) = &step.prim else { return None };
    let dtype = step.inputs.first()?.dtype;
    let mut scores = Expr::new();
    let product = scores.input(0, dtype);
    let alpha = scores.constant(Scalar::Float(prim.alpha.into()), dtype);
    let scaled = scores.binary(Binary::Mul, product, alpha);
    let operands = (1..).zip(step.inputs.get(3..)?).map(|(number, view)| scores.input(number, view.dtype));
    let arguments: Vec<Ref> = [scaled].into_iter().chain(operands).collect();
    let value = scores.inline(&prim.scores, &arguments);
    scores.finish(value);
    parts(&Attention { alpha: 1.0, scores, ..prim.clone() }, step, first).filter(|_| prim.alpha != 1.0)
}

fn parts(prim: &Attention, step: &Step, first: u32) -> Option<Parts> {
    let ([queries, keys, values, operands @ ..], [made]) = (&step.inputs[..], &step.outputs[..]) else { return None };
    let mut parts = Parts::new(step.node, first);
    let [queries, keys, values] = [queries, keys, values].map(|view| matrices(view, &mut parts));
    let (batch, rows, total) = (queries.shape[0], queries.shape[1], keys.shape[2]);
    let elems = prim.shape.iter().product::<usize>();
    let fits = batch * rows * total == elems && elems * queries.dtype.compute().bytes() <= MAX_SCORES_BYTES;
    if !fits || keys.shape[0] != batch || values.shape[0] != batch {
        return None;
    }
    // Without its factor, a product may exceed the largest half.
    let (dtype, is_bare) = (queries.dtype, prim.alpha == 1.0);
    let like = View { dtype: if is_bare { dtype.compute() } else { dtype }, ..queries.clone() };
    let product = between(&mut parts, &like, &[batch, rows, total]);
    parts.push(Prim::matmul(prim.alpha), vec![queries, keys], product.clone());
    let weights = shares(&mut parts, prim, dtype, &under(&product, &prim.shape), operands);
    let weights = under(&weights, &[batch, rows, total]);
    let width = values.shape[2];
    let last = Prim::matmul(1.0);
    match with_rows(made, rows).filter(|view| view.shape[..] == [batch, rows, width]) {
        Some(output) => parts.push(last, vec![weights, values], output),
        None => {
            let result = between(&mut parts, &weights, &[batch, rows, width]);
            parts.push(last, vec![weights, values], result.clone());
            copy(&mut parts, under(&result, &made.shape), made.clone());
        }
    }
    Some(parts)
}

/// Adds the scores of a product and their softmax, in this type.
fn shares(parts: &mut Parts, prim: &Attention, dtype: DType, product: &View, operands: &[View]) -> View {
    let mut scores = product.clone();
    let is_copy = prim.scores.nodes().iter().all(|(node, _)| matches!(node, Node::Input(0) | Node::Cast(_)));
    if !is_copy || product.dtype != dtype {
        scores = between(parts, &View { dtype, ..product.clone() }, &prim.shape);
        let inputs = [std::slice::from_ref(product), operands].concat();
        parts.push(Prim::Map(Map { expr: prim.scores.clone() }), inputs, scores.clone());
    }
    let weights = between(parts, &scores, &prim.shape);
    parts.push(Prim::Softmax(Softmax { log: false }), vec![scores.clone()], weights.clone());
    if !prim.zero_if_hidden {
        return weights;
    }
    let mut expr = Expr::new();
    let [score, weight] = [0, 1].map(|number| expr.input(number, dtype));
    let [never, zero] = [f64::NEG_INFINITY, 0.0].map(|value| expr.constant(Scalar::Float(value), dtype));
    let is_hidden = expr.binary(Binary::Eq, score, never);
    let value = expr.select(is_hidden, zero, weight);
    let value = expr.cast(value, dtype);
    expr.finish(value);
    let shown = between(parts, &weights, &prim.shape);
    parts.push(Prim::Map(Map { expr }), vec![scores, weights], shown.clone());
    shown
}

/// A new buffer of this shape.
fn between(parts: &mut Parts, like: &View, shape: &[usize]) -> View {
    let shape = Shape::from_slice(shape);
    let strides = dense_strides(&shape);
    parts.between(&View { shape, ..like.clone() }, strides)
}

/// A dense view reshaped.
fn under(view: &View, shape: &[usize]) -> View {
    View { shape: Shape::from_slice(shape), strides: dense_strides(shape), ..view.clone() }
}

fn copy(parts: &mut Parts, from: View, to: View) {
    let expr = Expr::copy(from.dtype, to.dtype);
    parts.push(Prim::Map(Map { expr }), vec![from], to);
}

/// Matrices with a single batch axis: the view itself, or a copy if its batch axes cannot be merged.
fn matrices(view: &View, parts: &mut Parts) -> View {
    if let Some(view) = one_batch(view) {
        return view;
    }
    let dense = between(parts, view, &view.shape);
    copy(parts, view.clone(), dense.clone());
    one_batch(&dense).unwrap_or(dense)
}

/// The view with all axes before the last two merged into one, if its strides allow it.
fn one_batch(view: &View) -> Option<View> {
    let (batches, matrix) = view.shape.split_at_checked(view.shape.len().checked_sub(2)?)?;
    let mut merged: Option<(usize, isize)> = None;
    for (&extent, &stride) in batches.iter().zip(&view.strides).rev().filter(|(extent, _)| **extent != 1) {
        merged = match merged {
            None => Some((extent, stride)),
            Some((inner, step)) if stride == step * inner.cast_signed() => Some((inner * extent, step)),
            Some(_) => return None,
        };
    }
    let (extent, stride) = merged.unwrap_or((1, 0));
    let strides = &view.strides[batches.len()..];
    Some(View {
        shape: [extent, matrix[0], matrix[1]].as_slice().into(),
        strides: [stride, strides[0], strides[1]].as_slice().into(),
        ..view.clone()
    })
}

/// A result as matrices of this many rows. Heads that share keys are stacked below each other.
fn with_rows(made: &View, rows: usize) -> Option<View> {
    if made.is_dense() {
        let width = *made.shape.last()?;
        let batch = made.elems().checked_div(rows * width)?;
        return Some(under(made, &[batch, rows, width]));
    }
    one_batch(made).filter(|view| view.shape[1] == rows)
}
