//! Work that depends on constants alone is done once, when the plan is made.
use crate::{
    Step, Tensor,
    lower::Origin,
    plan::{Draft, OutputSpec, Plan, place},
    prim::BufferId,
};

/// Results may be this much larger than what they are made from; a constant that is spread over a large shape stays work.
const GROWTH: usize = 8;
const SMALL_BYTES: usize = 1 << 20;

/// Runs the steps that read nothing but constants, and puts their results in their place.
pub(super) fn fold(draft: &mut Draft, evaluate: &mut dyn FnMut(&Plan) -> Option<Vec<Tensor>>) {
    let constant = constant_steps(draft);
    let wanted = results(draft, &constant);
    if wanted.is_empty() {
        return;
    }
    let pick = |keep: bool| -> Vec<Step> {
        let steps = draft.steps.iter().zip(&constant);
        steps.filter(|(_, constant)| **constant == keep).map(|(step, _)| step.clone()).collect()
    };
    let prologue = Draft {
        buffers: draft.buffers.clone(),
        steps: pick(true),
        outputs: wanted.iter().map(|id| whole(draft, *id)).collect(),
        output_buffers: wanted.clone(),
    };
    let Some(results) = evaluate(&place::place(prologue)).filter(|results| results.len() == wanted.len()) else {
        return;
    };
    draft.steps = pick(false);
    for (id, tensor) in wanted.iter().zip(results) {
        draft.buffers[id.0 as usize].origin = Origin::Constant(tensor);
    }
}

/// Which steps read nothing but constants and results of such steps.
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
            sizes.map(|buffer| buffer.elems * buffer.dtype.bytes()).sum::<usize>()
        };
        let alone = !step.inputs.is_empty() && step.inputs.iter().all(|view| known[view.buffer.0 as usize]);
        // A buffer that several steps fill in parts, or that is an output of the run, is left alone.
        let simple = step
            .outputs
            .iter()
            .all(|view| writers[view.buffer.0 as usize] == 1 && !draft.output_buffers.contains(&view.buffer));
        constant[at] = alone && simple && bytes(&step.outputs) <= bytes(&step.inputs) * GROWTH + SMALL_BYTES;
        if constant[at] {
            for view in &step.outputs {
                known[view.buffer.0 as usize] = true;
            }
        }
    }
    constant
}

/// Buffers made by constant steps that others read.
fn results(draft: &Draft, constant: &[bool]) -> Vec<BufferId> {
    let steps = || draft.steps.iter().zip(constant);
    let made: Vec<BufferId> = steps()
        .filter(|(_, constant)| **constant)
        .flat_map(|(step, _)| &step.outputs)
        .map(|view| view.buffer)
        .collect();
    let mut wanted: Vec<BufferId> = steps()
        .filter(|(_, constant)| !**constant)
        .flat_map(|(step, _)| &step.inputs)
        .map(|view| view.buffer)
        .filter(|buffer| made.contains(buffer))
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// A buffer as one flat output.
fn whole(draft: &Draft, id: BufferId) -> OutputSpec {
    let buffer = &draft.buffers[id.0 as usize];
    OutputSpec { dtype: buffer.dtype, shape: crate::Shape::from_slice(&[buffer.elems]) }
}
