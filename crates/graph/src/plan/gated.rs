//! Merges work on both halves of a product's columns into the product, on devices that support it.
//!
//! A gate and the value it gates are one product (pass `merged-products`). For few rows, a block that computes column n
//! of both halves can store one element for the two. That saves the launch that would read them again.
use crate::expr::{Expr, Node};
use crate::lower::Val;
use crate::plan::uses::{Uses, take_in};
use crate::plan::{Draft, normed};
use crate::prim::{Gate, Prim, ProductKind};
use crate::{DType, Shape, Step, View};

/// The most rows: above that, products use other kernels, and a launch costs little in comparison.
const MAX_ROWS: usize = 8;

/// Merges maps of both halves into products.
pub(super) fn merge(draft: &mut Draft) {
    take_in(draft, candidate);
}

/// The map at `at` merged into the product whose halves it reads, and the product's position.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, draft: &Draft) -> Option<(usize, Step)> {
    let map = steps[at].as_ref()?;
    let Prim::Map(work) = &map.prim else { return None };
    let first = map.inputs.first()?;
    let buffer = &draft.buffers[first.buffer.0 as usize];
    let from = uses.maker_for(at, first)?;
    let product = steps[from].as_ref()?;
    let [made] = &product.outputs[..] else { return None };
    let [1, rows, columns] = made.shape[..] else { return None };
    let fused = product.prim.product().filter(|fused| fused.epilogue.is_none() && fused.gate.is_none())?;
    let is_product = match &fused.kind {
        ProductKind::QuantMatMul(_) => true,
        ProductKind::MatMul(_) => {
            rows <= normed::MAX_PLAIN_ROWS && normed::is_read_once(product) && product.inputs[1].strides[2] == 1
        }
        _ => false,
    };
    let is_float = matches!(made.dtype, DType::F32 | DType::F16 | DType::Bf16);
    let whole = made.is_dense() && made.offset == 0 && made.elems() == buffer.elems;
    let counts = work.expr.nodes().iter().any(|(node, _)| matches!(node, Node::Index(_)));
    if !is_product || !is_float || !whole || counts || rows > MAX_ROWS || columns % 2 != 0 {
        return None;
    }
    let shape: Shape = [1, rows, columns / 2].into_iter().collect();
    let halves: Vec<usize> = map.inputs.iter().map(|view| half(view, made, &shape)).collect::<Option<_>>()?;
    let output = map.outputs.first().filter(|output| output.dtype == made.dtype)?;
    let output = Val::from(output).reshaped_in_place(&shape)?.view_of(output.buffer);
    if !(halves.contains(&0) && halves.contains(&1)) || (output.strides[2] != 1 && columns > 2) {
        return None;
    }
    let mut expr = Expr::new();
    let parts = [0, 1].map(|number| {
        let part = expr.input(number, made.dtype);
        // A result that would have been stored in half precision is rounded to it.
        if made.dtype == made.dtype.compute() { part } else { expr.cast(part, made.dtype) }
    });
    let arguments: Vec<_> = halves.into_iter().map(|half| parts[half]).collect();
    let value = expr.inline(&work.expr, &arguments);
    expr.finish(value);
    let prim = fused.clone().with_gate(Gate { dtype: made.dtype, expr }).into();
    Some((from, Step { node: map.node, prim, inputs: product.inputs.clone(), outputs: vec![output] }))
}

/// Which half of a product's columns a view shows, row by row.
fn half(view: &View, made: &View, shape: &Shape) -> Option<usize> {
    if view.buffer != made.buffer || view.dtype != made.dtype {
        return None;
    }
    let seen = Val::from(view).reshaped_in_place(shape)?.view_of(view.buffer);
    let (rows, columns) = (shape[1], shape[2]);
    let fits = |axis: usize, stride: usize| shape[axis] == 1 || seen.strides[axis] == stride as isize;
    let half = (0..2).find(|half| seen.offset == (half * columns) as isize)?;
    (fits(1, 2 * columns) && fits(2, 1) && rows * columns > 0).then_some(half)
}
