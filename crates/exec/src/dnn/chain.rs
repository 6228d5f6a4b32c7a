//! Attention as a chain of operations in one graph: the product of queries and keys, its scores and softmax operation
//! by operation, and the product with the values. The chain can express what hipDNN's own attention operation cannot (a
//! limit on scores, rows that see no keys). It is also the fallback where a library has no engine for that operation.
use graph::prim::Attention;
use graph::{Declined, Step, View};
use hipdnn::TensorId;
use hipdnn::sys::{PointwiseMode as M, ReduceOp};

use super::attention::{Heads, four_axes};
use super::epilogue::{Counts, Epilogue};
use super::sketch::{Repeats, Sketch};

/// Builds the chain for an attention step.
pub(super) fn chain(step: &Step, prim: &Attention) -> Result<Sketch, Declined> {
    let ([queries, keys, values, operands @ ..], [y]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("its queries, keys, values or result are missing"));
    };
    if ![queries, keys, values].iter().all(|view| matches!(view.shape.len(), 3 | 4)) {
        return Err(Declined::new("its queries, keys or values have unsupported axes"));
    }
    let mut sketch = Sketch::new("attention_chain", queries.dtype)?;
    let [queries, keys, values] = prim.batches([queries, keys, values]);
    let heads = Heads::of(prim, &queries)?;
    let total = keys.shape[3];
    if total < 2 {
        return Err(Declined::new("its softmax is over one key"));
    }
    let groups = Groups { shared: heads.shared, group: heads.group };
    let q = sketch.read(0, &groups.split(&heads.queries(&queries)?), 4, Repeats::Never)?;
    let k = sketch.read(1, &groups.whole(&heads.shared(&keys, [2, 3])), 4, Repeats::Never)?;
    let v = sketch.read(2, &groups.whole(&heads.shared(&values, [2, 3])), 4, Repeats::Never)?;
    let mut product = sketch.graph.matmul(q, k);
    if prim.alpha != 1.0 {
        let alpha = sketch.number(prim.alpha.into());
        product = sketch.pointwise(M::MUL, &[product, alpha]);
    }
    let mut known: Vec<Option<TensorId>> = vec![None; operands.len()];
    let mut input = |sketch: &mut Sketch, number: usize| {
        let Some(further) = number.checked_sub(1) else { return Ok(product) };
        if let Some(id) = known[further] {
            return Ok(id);
        }
        let view = groups.split(&four_axes(&operands[further]));
        let id = sketch.read(3 + further, &view, 4, Repeats::Anywhere)?;
        known[further] = Some(id);
        Ok(id)
    };
    let counts = Some(Counts { axes: prim.shape.len(), rank: groups.rank() });
    let scores = Epilogue { expr: &prim.scores, input: &mut input, made: Vec::new(), counts }.write(&mut sketch)?;
    let one_of_row = groups.extents([heads.batch, heads.rows, 1]);
    let mut weights = softmax(&mut sketch, scores, &one_of_row);
    if prim.zero_if_hidden {
        let (never, zero) = (sketch.number(f64::NEG_INFINITY), sketch.number(0.0));
        let is_hidden = sketch.pointwise(M::CMP_EQ, &[scores, never]);
        weights = sketch.pointwise(M::BINARY_SELECT, &[zero, weights, is_hidden]);
    }
    let made = sketch.graph.matmul(weights, v);
    sketch.write(step.inputs.len(), made, &groups.split(&four_axes(y)), 4)?;
    Ok(sketch)
}

/// The softmax of each row. `one_of_row` has the extents of the scores, with one element in the last axis.
fn softmax(sketch: &mut Sketch, scores: TensorId, one_of_row: &[i64]) -> TensorId {
    let most = sketch.graph.reduction(ReduceOp::MAX, scores, one_of_row);
    let below = sketch.pointwise(M::SUB, &[scores, most]);
    let exp = sketch.pointwise(M::EXP, &[below]);
    let sum = sketch.graph.reduction(ReduceOp::ADD, exp, one_of_row);
    sketch.pointwise(M::DIV, &[exp, sum])
}

/// How heads share keys. Where they do, heads take two axes: products broadcast an axis of one element, but not part of
/// an axis.
#[derive(Clone, Copy)]
struct Groups {
    shared: usize,
    group: usize,
}

impl Groups {
    fn rank(self) -> usize {
        if self.group > 1 { 5 } else { 4 }
    }

    /// A view of four axes with query heads, split into key heads and groups.
    fn split(self, view: &View) -> View {
        let mut view = view.clone();
        if self.group > 1 {
            let head = view.strides[1];
            view.shape[1] = self.group;
            view.shape.insert(1, self.shared);
            view.strides.insert(1, head * self.group.cast_signed());
        }
        view
    }

    /// A view of four axes with key heads.
    fn whole(self, view: &View) -> View {
        let mut view = view.clone();
        if self.group > 1 {
            view.shape.insert(2, 1);
            view.strides.insert(2, 0);
        }
        view
    }

    /// The extents of a result with this batch, rows and columns.
    fn extents(self, [batch, rows, columns]: [usize; 3]) -> Vec<i64> {
        let heads = if self.group > 1 { vec![self.shared, self.group] } else { vec![self.shared] };
        let all = [&[batch], &heads[..], &[rows, columns]].concat();
        all.into_iter().map(|extent| extent as i64).collect()
    }
}
