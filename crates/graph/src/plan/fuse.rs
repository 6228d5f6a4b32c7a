//! Fuses elementwise chains into one step.
use crate::expr::{Expr, Node, Ref};
use crate::lower::Val;
use crate::plan::Draft;
use crate::plan::uses::Uses;
use crate::prim::{Map, Prim};
use crate::{Shape, Step, View};

/// Above these limits a fused map reads more than it saves.
const MAX_INPUTS: usize = 8;
const MAX_OPERATIONS: usize = 48;

/// Merges every map into the only other map that reads its result.
pub(super) fn fuse(draft: &mut Draft) {
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    for at in 0..steps.len() {
        while let Some((input, made, producer)) = candidate(&steps, at, &uses) {
            let Some(consumer) = steps[at].take() else { break };
            steps[made] = None;
            steps[at] = Some(merge(consumer, input, producer));
        }
    }
    draft.steps = steps.into_iter().flatten().collect();
}

/// An input of the step at `at` that a map computes for this step only, the map's position, and the map in the input's
/// shape.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses) -> Option<(usize, usize, Step)> {
    let consumer = steps[at].as_ref()?;
    let Prim::Map(outer) = &consumer.prim else { return None };
    consumer.inputs.iter().enumerate().find_map(|(input, view)| {
        let made = uses.maker_for(at, view)?;
        let producer = steps[made].as_ref()?;
        let Prim::Map(inner) = &producer.prim else { return None };
        let same = consumer.inputs.iter().all(|v| v.buffer != view.buffer || v == view);
        let small = consumer.inputs.len() + producer.inputs.len() <= MAX_INPUTS
            && outer.expr.nodes().len() + inner.expr.nodes().len() <= MAX_OPERATIONS;
        (same && small).then(|| Some((input, made, in_shape_of(producer, inner, view)?)))?
    })
}

/// A map changed to produce this view of its result; `None` if the view is not the result in its own order.
fn in_shape_of(producer: &Step, map: &Map, view: &View) -> Option<Step> {
    let output = producer.outputs.first()?;
    if output == view {
        return Some(producer.clone());
    }
    let is_whole = |view: &View| view.is_dense() && view.offset == 0;
    let same = is_whole(output) && is_whole(view) && output.elems() == view.elems() && output.dtype == view.dtype;
    // In another shape the indices differ.
    if !same || map.expr.nodes().iter().any(|(node, _)| matches!(node, Node::Index(_))) {
        return None;
    }
    let inputs = producer.inputs.iter().map(|input| reshaped(input, &view.shape)).collect::<Option<_>>()?;
    Some(Step { inputs, outputs: vec![view.clone()], ..producer.clone() })
}

/// A view with another shape, if that needs no copy.
fn reshaped(view: &View, to: &Shape) -> Option<View> {
    Some(Val::from(view).reshaped_in_place(to)?.view_of(view.buffer))
}

/// The consumer with one of its inputs replaced by the producer's expression.
fn merge(consumer: Step, input: usize, producer: Step) -> Step {
    let (Prim::Map(outer), Prim::Map(inner)) = (&consumer.prim, &producer.prim) else { return consumer };
    let replaced = &consumer.inputs[input];
    let mut inputs: Vec<_> = consumer.inputs.iter().filter(|view| *view != replaced).cloned().collect();
    let mut expr = Expr::new();
    let read = |inputs: &mut Vec<_>, expr: &mut Expr, view: &View| {
        let number = inputs.iter().position(|known| known == view).unwrap_or_else(|| {
            inputs.push(view.clone());
            inputs.len() - 1
        });
        expr.input(number as u16, view.dtype)
    };
    let arguments: Vec<Ref> = producer.inputs.iter().map(|view| read(&mut inputs, &mut expr, view)).collect();
    let made = expr.inline(&inner.expr, &arguments);
    // A result that would have been stored in half precision is rounded to it.
    let made = if replaced.dtype == replaced.dtype.compute() { made } else { expr.cast(made, replaced.dtype) };
    let arguments: Vec<Ref> = consumer
        .inputs
        .iter()
        .map(|view| if view == replaced { made } else { read(&mut inputs, &mut expr, view) })
        .collect();
    let result = expr.inline(&outer.expr, &arguments);
    expr.finish(result);
    Step { node: consumer.node, prim: Prim::Map(Map { expr }), inputs, outputs: consumer.outputs }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::DType;
    use crate::expr::{Binary, Unary};
    use crate::lower::{Buffer, Origin};
    use crate::plan::OutputSpec;
    use crate::prim::BufferId;
    use crate::shape::dense_strides;

    fn view(buffer: u32, extents: &[usize]) -> View {
        let strides = dense_strides(extents);
        View { buffer: BufferId(buffer), dtype: DType::F32, shape: extents.into(), strides, offset: 0 }
    }

    /// Buffer 2 is the sum of a matrix and a row; buffer 3 its exponentials, viewed in `shape`.
    fn chain(shape: &[usize], turned: bool) -> Draft {
        let mut sum = Expr::new();
        let (a, b) = (sum.input(0, DType::F32), sum.input(1, DType::F32));
        sum.binary(Binary::Add, a, b);
        let mut exp = Expr::new();
        let x = exp.input(0, DType::F32);
        exp.unary(Unary::Exp, x);
        let row = View { strides: [0isize, 1].into_iter().collect(), ..view(1, &[4, 6]) };
        let mut read = view(2, shape);
        if turned {
            read.strides.reverse();
            read.shape.reverse();
        }
        let step =
            |expr, inputs, output| Step { node: 0, prim: Prim::Map(Map { expr }), inputs, outputs: vec![output] };
        let steps =
            vec![step(sum, vec![view(0, &[4, 6]), row], view(2, &[4, 6])), step(exp, vec![read], view(3, shape))];
        let buffer = |elems, origin| Buffer { dtype: DType::F32, elems, origin };
        let buffers = vec![
            buffer(24, Origin::Input(0)),
            buffer(6, Origin::Input(1)),
            buffer(24, Origin::Step),
            buffer(24, Origin::Step),
        ];
        let outputs = vec![OutputSpec { dtype: DType::F32, shape: shape.into(), shown: None }];
        Draft { buffers, steps, output_buffers: vec![BufferId(3)], outputs }
    }

    #[test]
    fn a_reshaped_result_is_still_fused() {
        for (shape, strides) in [(&[2usize, 2, 6][..], [0isize, 0, 1]), (&[4, 2, 3], [0, 3, 1])] {
            let mut draft = chain(shape, false);
            fuse(&mut draft);
            assert_eq!(draft.steps.len(), 1, "{shape:?}");
            assert_eq!(draft.steps[0].inputs[0], view(0, shape));
            assert_eq!(draft.steps[0].inputs[1].strides.as_slice(), strides);
        }
    }

    #[test]
    fn views_that_need_a_copy_are_not_fused() {
        // Rows of 8 end within the repeated row of 6.
        let mut draft = chain(&[3, 8], false);
        fuse(&mut draft);
        assert_eq!(draft.steps.len(), 2);
        let mut draft = chain(&[6, 4], true);
        fuse(&mut draft);
        assert_eq!(draft.steps.len(), 2);
    }
}
