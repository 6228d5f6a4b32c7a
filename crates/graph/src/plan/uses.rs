//! Which steps write and read each buffer of a draft.
use crate::plan::Draft;
use crate::prim::BufferId;
use crate::{Step, View};

/// How often each buffer is written and by which step last, and how many steps read it. Merging two steps never adds a
/// reader, so the counts stay upper bounds. Inputs and constants are never written.
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
        // The caller reads the outputs too.
        for buffer in &draft.output_buffers {
            uses.readers[buffer.0 as usize] += 1;
        }
        uses
    }

    /// How many steps read a view's buffer.
    pub(super) fn readers_of(&self, view: &View) -> u32 {
        self.readers[view.buffer.0 as usize]
    }

    /// The step before `at` that is the only writer of a view's buffer.
    pub(super) fn maker(&self, at: usize, view: &View) -> Option<usize> {
        let id = view.buffer.0 as usize;
        self.last_writer[id].filter(|&from| self.writers[id] == 1 && from < at)
    }

    /// The step before `at` that is the only writer of a view's buffer, if the step at `at` is its only reader.
    pub(super) fn maker_for(&self, at: usize, view: &View) -> Option<usize> {
        self.maker(at, view).filter(|_| self.readers_of(view) == 1)
    }
}

/// Finds a step that the step at this index can absorb; returns its index and the merged step.
type Candidate = fn(&[Option<Step>], usize, &Uses, &Draft) -> Option<(usize, Step)>;

/// Merges steps into later ones, at most one into each.
pub(super) fn take_in(draft: &mut Draft, candidate: Candidate) {
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    for at in 0..steps.len() {
        let Some((from, made)) = candidate(&steps, at, &uses, draft) else { continue };
        steps[from] = None;
        steps[at] = Some(made);
    }
    draft.steps = steps.into_iter().flatten().collect();
}
