//! Elementwise chains become one step.
use crate::{
    Step,
    expr::{Expr, Ref},
    lower::Origin,
    plan::Draft,
    prim::{BufferId, Map, Prim},
};

/// Beyond this a map reads more than it saves.
const MAX_INPUTS: usize = 8;
const MAX_OPERATIONS: usize = 48;

/// Moves every map whose result only one other map reads into that one.
pub(super) fn fuse(draft: &mut Draft) {
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    for at in 0..steps.len() {
        while let Some((input, producer)) = candidate(&steps, at, &uses, draft) {
            let (Some(consumer), Some(producer)) = (steps[at].take(), steps[producer].take()) else { break };
            steps[at] = Some(merge(consumer, input, producer));
        }
    }
    draft.steps = steps.into_iter().flatten().collect();
}

/// How often each buffer is written and by whom, and how many steps read it. Merging two steps never adds a reader, so
/// the counts stay upper bounds.
pub(super) struct Uses {
    pub writers: Vec<u32>,
    pub last_writer: Vec<Option<usize>>,
    pub readers: Vec<u32>,
}

impl Uses {
    pub(super) fn count(steps: &[Option<Step>], draft: &Draft) -> Self {
        let count = draft.buffers.len();
        let mut uses = Self { writers: vec![0; count], last_writer: vec![None; count], readers: vec![0; count] };
        for (at, step) in steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let mut seen: Vec<BufferId> = Vec::new();
            for view in &step.inputs {
                if !seen.contains(&view.buffer) {
                    seen.push(view.buffer);
                    uses.readers[view.buffer.0 as usize] += 1;
                }
            }
            for view in &step.outputs {
                uses.writers[view.buffer.0 as usize] += 1;
                uses.last_writer[view.buffer.0 as usize] = Some(at);
            }
        }
        // Whoever wants the outputs reads them too.
        for buffer in &draft.output_buffers {
            uses.readers[buffer.0 as usize] += 1;
        }
        uses
    }
}

/// An input of the step at `at` that a map makes for it alone.
fn candidate(steps: &[Option<Step>], at: usize, uses: &Uses, draft: &Draft) -> Option<(usize, usize)> {
    let consumer = steps[at].as_ref()?;
    let Prim::Map(outer) = &consumer.prim else { return None };
    consumer.inputs.iter().enumerate().find_map(|(input, view)| {
        let id = view.buffer.0 as usize;
        if draft.buffers[id].origin != Origin::Step || uses.readers[id] != 1 || uses.writers[id] != 1 {
            return None;
        }
        let made = uses.last_writer[id]?;
        let producer = steps[made].as_ref()?;
        let Prim::Map(inner) = &producer.prim else { return None };
        let same = producer.outputs.first() == Some(view)
            && consumer.inputs.iter().all(|v| v.buffer != view.buffer || v == view);
        let small = consumer.inputs.len() + producer.inputs.len() <= MAX_INPUTS
            && outer.expr.nodes().len() + inner.expr.nodes().len() <= MAX_OPERATIONS;
        (same && small && made < at).then_some((input, made))
    })
}

/// The consumer with the producer's expression in place of one of its inputs.
fn merge(consumer: Step, input: usize, producer: Step) -> Step {
    let (Prim::Map(outer), Prim::Map(inner)) = (&consumer.prim, &producer.prim) else { return consumer };
    let replaced = &consumer.inputs[input];
    let mut inputs: Vec<_> = consumer.inputs.iter().filter(|view| *view != replaced).cloned().collect();
    let mut expr = Expr::new();
    let read = |inputs: &mut Vec<_>, expr: &mut Expr, view: &crate::View| {
        let number = inputs.iter().position(|known| known == view).unwrap_or_else(|| {
            inputs.push(view.clone());
            inputs.len() - 1
        });
        expr.input(number as u16, view.dtype)
    };
    let arguments: Vec<Ref> = producer.inputs.iter().map(|view| read(&mut inputs, &mut expr, view)).collect();
    let made = expr.inline(&inner.expr, &arguments);
    // What would have been stored in half precision is rounded to it.
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
