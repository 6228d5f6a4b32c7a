//! Merges elementwise work on a product's result into the product, before the result is stored.
use crate::expr::{Expr, Node, Ref};
use crate::lower::Val;
use crate::plan::Draft;
use crate::plan::uses::{Uses, take_in};
use crate::prim::{Epilogue, Prim};
use crate::{DType, Shape, Step, View};

/// The most operands of the expression besides the result itself.
const MAX_OPERANDS: usize = 4;

/// Merges every map into the product whose result only it reads.
pub(super) fn merge(draft: &mut Draft) {
    take_in(draft, candidate);
}

/// The map at `at` merged with the product it reads, and the product's position.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, draft: &Draft) -> Option<(usize, Step)> {
    let consumer = steps[at].as_ref()?;
    let Prim::Map(map) = &consumer.prim else { return None };
    // The product's indices differ from the map's.
    if map.expr.nodes().iter().any(|(node, _)| matches!(node, Node::Index(_))) {
        return None;
    }
    // The last of several products: the results of the others exist by then.
    let mut made: Vec<(usize, &View)> =
        consumer.inputs.iter().filter_map(|view| Some((product_of(steps, at, view, uses, draft)?, view))).collect();
    made.sort_by_key(|(producer, _)| std::cmp::Reverse(*producer));
    made.into_iter().find_map(|(producer, view)| Some((producer, fuse(steps[producer].as_ref()?, consumer, view)?)))
}

/// The product that fills all of a view's buffer, if only the step at `at` reads that.
fn product_of(steps: &[Option<Step>], at: usize, view: &View, uses: &Uses, draft: &Draft) -> Option<usize> {
    let buffer = &draft.buffers[view.buffer.0 as usize];
    let made = uses.maker_for(at, view)?;
    let step = steps[made].as_ref()?;
    let output = step.outputs.first()?;
    let summed = matches!(output.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::F64 | DType::I32 | DType::I64);
    let whole = output.is_dense() && output.offset == 0 && output.elems() == buffer.elems;
    // A map over a part of the result writes fewer elements than the product.
    let whole = whole && view.elems() == buffer.elems;
    (step.prim.plain_product().is_some() && whole && summed && output.dtype == view.dtype).then_some(made)
}

/// The map as an epilogue of the product that computes `result`; `None` if the map's views do not match the product's
/// shape.
fn fuse(product: &Step, map: &Step, result: &View) -> Option<Step> {
    let Prim::Map(work) = &map.prim else { return None };
    let one_view = map.inputs.iter().all(|view| view.buffer != result.buffer || view == result);
    let operands: Vec<&View> = map.inputs.iter().filter(|view| *view != result).collect();
    if !one_view || operands.len() > MAX_OPERANDS {
        return None;
    }
    let made = product.outputs.first()?;
    // A dense view may still show only the first part of the result.
    if result.elems() != made.elems() {
        return None;
    }
    let order = dense_order(result)?;
    let output = reordered(map.outputs.first()?, &order, &made.shape)?;
    // Products store whole rows, which must be contiguous.
    let innermost = output.shape.iter().zip(&output.strides).rev().find(|(extent, _)| **extent > 1);
    if innermost.is_some_and(|(_, &stride)| stride != 1) {
        return None;
    }
    let mut inputs = product.inputs.clone();
    for view in &operands {
        inputs.push(reordered(view, &order, &made.shape)?);
    }
    let mut expr = Expr::new();
    let mut sum = expr.input(0, made.dtype);
    // A result that would have been stored in half precision is rounded to it.
    if made.dtype != made.dtype.compute() {
        sum = expr.cast(sum, made.dtype);
    }
    let mut number = 0;
    let arguments: Vec<Ref> = map
        .inputs
        .iter()
        .map(|view| {
            if view == result {
                return sum;
            }
            number += 1;
            expr.input(number, view.dtype)
        })
        .collect();
    let value = expr.inline(&work.expr, &arguments);
    expr.finish(value);
    let epilogue = Epilogue { operands: product.inputs.len(), dtype: made.dtype, expr };
    let prim = product.prim.product()?.clone().with_epilogue(epilogue).into();
    Some(Step { node: map.node, prim, inputs, outputs: vec![output] })
}

/// The order of axes in which a view shows its whole buffer contiguously.
pub(super) fn dense_order(view: &View) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = (0..view.shape.len()).collect();
    order.sort_by_key(|&axis| (view.shape[axis] != 1, std::cmp::Reverse(view.strides[axis])));
    let sorted = View {
        shape: order.iter().map(|&axis| view.shape[axis]).collect(),
        strides: order.iter().map(|&axis| view.strides[axis]).collect(),
        ..view.clone()
    };
    (sorted.is_dense() && view.offset == 0).then_some(order)
}

/// A view with its axes reordered, then reshaped.
pub(super) fn reordered(view: &View, order: &[usize], to: &Shape) -> Option<View> {
    Some(Val::from(view).permuted(order).reshaped_in_place(to)?.view_of(view.buffer))
}
