//! Constant folding: work that depends only on constants is done once, during planning.
use std::collections::HashMap;

use crate::lower::Origin;
use crate::plan::budget::walked;
use crate::plan::{Draft, OutputSpec, Plan, place};
use crate::prim::BufferId;
use crate::{Step, Tensor};

/// Results, and repetitions read on the way, may be this many times larger than their inputs; a constant broadcast to a
/// large shape is not folded.
const GROWTH: usize = 8;
const SMALL_BYTES: usize = 1 << 20;

/// Runs the steps that read only constants, and replaces them with their results.
///
/// Independent steps are evaluated separately: plans for other shapes then contain the same parts, and the evaluator
/// may reuse its results for them.
pub(super) fn fold(draft: &mut Draft, evaluate: &mut dyn FnMut(&Plan) -> Option<Vec<Tensor>>) {
    let constant = constant_steps(draft);
    let mut wanted = vec![false; draft.buffers.len()];
    for (step, _) in draft.steps.iter().zip(&constant).filter(|(_, constant)| !**constant) {
        step.inputs.iter().for_each(|view| wanted[view.buffer.0 as usize] = true);
    }
    let mut done = vec![false; draft.steps.len()];
    for part in parts(draft, &constant) {
        let made = part.iter().flat_map(|&at| &draft.steps[at].outputs).map(|view| view.buffer);
        let made: Vec<BufferId> = made.filter(|buffer| wanted[buffer.0 as usize]).collect();
        // An unused part is dropped without evaluating it.
        if !made.is_empty() {
            let prologue = place::place(prologue(draft, &part, &made));
            let Some(results) = evaluate(&prologue).filter(|results| results.len() == made.len()) else { continue };
            for (id, tensor) in made.iter().zip(results) {
                draft.buffers[id.0 as usize].origin = Origin::Constant(tensor);
            }
        }
        part.iter().for_each(|&at| done[at] = true);
    }
    let mut done = done.into_iter();
    draft.steps.retain(|_| !done.next().unwrap_or(false));
}

/// The constant steps in groups that share no result, each in order.
fn parts(draft: &Draft, constant: &[bool]) -> Vec<Vec<usize>> {
    let mut part_of_buffer: Vec<Option<usize>> = vec![None; draft.buffers.len()];
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for (at, step) in draft.steps.iter().enumerate().filter(|(at, _)| constant[*at]) {
        let mut joined: Vec<usize> =
            step.inputs.iter().filter_map(|view| part_of_buffer[view.buffer.0 as usize]).collect();
        joined.sort_unstable();
        joined.dedup();
        let mut steps: Vec<usize> = joined.iter().flat_map(|&part| std::mem::take(&mut parts[part])).collect();
        steps.push(at);
        steps.sort_unstable();
        let part = joined.first().copied().unwrap_or_else(|| {
            parts.push(Vec::new());
            parts.len() - 1
        });
        for view in steps.iter().flat_map(|&at| &draft.steps[at].outputs) {
            part_of_buffer[view.buffer.0 as usize] = Some(part);
        }
        parts[part] = steps;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The steps of a part as a separate draft, with renumbered buffers.
fn prologue(draft: &Draft, part: &[usize], made: &[BufferId]) -> Draft {
    let mut steps: Vec<Step> = part.iter().map(|&at| draft.steps[at].clone()).collect();
    let mut numbers: HashMap<BufferId, BufferId> = HashMap::new();
    let mut buffers = Vec::new();
    for view in steps.iter_mut().flat_map(|step| step.inputs.iter_mut().chain(&mut step.outputs)) {
        view.buffer = *numbers.entry(view.buffer).or_insert_with(|| {
            buffers.push(draft.buffers[view.buffer.0 as usize].clone());
            BufferId(buffers.len() as u32 - 1)
        });
    }
    Draft {
        buffers,
        steps,
        output_buffers: made.iter().filter_map(|id| numbers.get(id).copied()).collect(),
        outputs: made.iter().map(|id| whole(draft, *id)).collect(),
    }
}

/// Which steps read only constants and results of such steps.
fn constant_steps(draft: &Draft) -> Vec<bool> {
    let mut writers = vec![0usize; draft.buffers.len()];
    for view in draft.steps.iter().flat_map(|step| &step.outputs) {
        writers[view.buffer.0 as usize] += 1;
    }
    let is_given = |at: usize| matches!(draft.buffers[at].origin, Origin::Constant(_));
    let mut known: Vec<bool> = (0..draft.buffers.len()).map(is_given).collect();
    let mut constant = vec![false; draft.steps.len()];
    for (at, step) in draft.steps.iter().enumerate() {
        let bytes = |views: &[crate::View]| {
            let sizes = views.iter().map(|view| &draft.buffers[view.buffer.0 as usize]);
            sizes.map(|buffer| buffer.elems * buffer.dtype.bytes()).fold(0, usize::saturating_add)
        };
        let most = bytes(&step.inputs).saturating_mul(GROWTH).saturating_add(SMALL_BYTES);
        // The bytes written or read, whichever are more; repeated reads count again.
        let work = walked(step).map_or(0, |(_, bytes)| bytes).max(bytes(&step.outputs));
        let alone = !step.inputs.is_empty() && step.inputs.iter().all(|view| known[view.buffer.0 as usize]);
        // A buffer that several steps fill in parts, or that is an output of the run, is left alone.
        let simple = step
            .outputs
            .iter()
            .all(|view| writers[view.buffer.0 as usize] == 1 && !draft.output_buffers.contains(&view.buffer));
        constant[at] = alone && simple && work <= most;
        if constant[at] {
            for view in &step.outputs {
                known[view.buffer.0 as usize] = true;
            }
        }
    }
    constant
}

/// A buffer as one flat output.
fn whole(draft: &Draft, id: BufferId) -> OutputSpec {
    let buffer = &draft.buffers[id.0 as usize];
    OutputSpec { dtype: buffer.dtype, shape: crate::Shape::from_slice(&[buffer.elems]), shown: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::expr::Expr;
    use crate::lower::Buffer;
    use crate::prim::{Map, Prim, View};

    fn view(buffer: u32) -> View {
        let (shape, strides) = (crate::Shape::from_slice(&[2]), crate::shape::dense_strides(&[2]));
        View { buffer: BufferId(buffer), dtype: DType::F32, shape, strides, offset: 0 }
    }

    /// Buffers 0 and 1 are constants; each step copies one of its buffers to another.
    fn draft(steps: &[(&[u32], u32)], output: u32) -> Draft {
        let count = 1 + steps.iter().map(|(_, output)| *output).max().unwrap_or(0);
        let constant = || Origin::Constant(Tensor::from_bytes(DType::F32, &[2], &[0; 8]).unwrap());
        let origin = |at: u32| {
            if at < 2 {
                constant()
            } else if at == 2 {
                Origin::Input(0)
            } else {
                Origin::Step
            }
        };
        let buffers = (0..count).map(|at| Buffer { dtype: DType::F32, elems: 2, origin: origin(at) }).collect();
        let step = |(inputs, output): &(&[u32], u32)| Step {
            node: 0,
            prim: Prim::Map(Map { expr: Expr::copy(DType::F32, DType::F32) }),
            inputs: inputs.iter().map(|&at| view(at)).collect(),
            outputs: vec![view(*output)],
        };
        let steps = steps.iter().map(step).collect();
        let mut draft = Draft { buffers, steps, output_buffers: vec![BufferId(output)], outputs: Vec::new() };
        draft.outputs.push(whole(&draft, BufferId(output)));
        draft
    }

    #[test]
    fn independent_steps_are_evaluated_separately() {
        // 3 and 4 come from constants only, 5 from both of them, 6 from constant 1; 7 needs the input.
        let mut draft = draft(&[(&[0], 3), (&[1], 4), (&[3, 4], 5), (&[1], 6), (&[2, 5, 6], 7)], 7);
        let mut sizes = Vec::new();
        fold(&mut draft, &mut |prologue| {
            sizes.push((prologue.steps.len(), prologue.places.len()));
            Some(vec![Tensor::from_bytes(DType::F32, &[2], &[1; 8]).unwrap()])
        });
        assert_eq!(sizes, [(3, 5), (1, 2)]);
        assert_eq!(draft.steps.len(), 1);
        assert!(matches!(draft.buffers[5].origin, Origin::Constant(_)));
        assert!(matches!(draft.buffers[6].origin, Origin::Constant(_)));
    }

    #[test]
    fn a_part_that_cannot_be_evaluated_stays_in_the_plan() {
        let mut draft = draft(&[(&[0], 3), (&[1], 4), (&[2, 3, 4], 5)], 5);
        let mut calls = 0;
        fold(&mut draft, &mut |_| {
            calls += 1;
            (calls == 1).then(|| vec![Tensor::from_bytes(DType::F32, &[2], &[1; 8]).unwrap()])
        });
        assert_eq!(draft.steps.len(), 2);
        assert!(matches!(draft.buffers[3].origin, Origin::Constant(_)));
        assert_eq!(draft.buffers[4].origin, Origin::Step);
    }
}
