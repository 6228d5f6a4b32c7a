//! Merges the rotation of keys and queries into the cache update that stores the keys.
use crate::lower::Val;
use crate::plan::Draft;
use crate::plan::uses::Uses;
use crate::prim::{Append, Prim, Rotary};
use crate::{Step, View};

/// Merges rotations into the update of the cache that stores the rotated keys.
pub(super) fn merge(draft: &mut Draft) {
    let mut steps: Vec<Option<Step>> = std::mem::take(&mut draft.steps).into_iter().map(Some).collect();
    let uses = Uses::count(&steps, draft);
    for at in 0..steps.len() {
        let finder = Finder { steps: &steps, uses: &uses };
        let Some(Found { step, gone }) = finder.joined(at) else { continue };
        gone.into_iter().for_each(|gone| steps[gone] = None);
        steps[at] = Some(step);
    }
    draft.steps = steps.into_iter().flatten().collect();
}

/// The update with the rotations merged in, and the steps that it replaces.
struct Found {
    step: Step,
    gone: Vec<usize>,
}

struct Finder<'a> {
    steps: &'a [Option<Step>],
    uses: &'a Uses,
}

impl Finder<'_> {
    fn joined(&self, at: usize) -> Option<Found> {
        let update = self.steps[at].as_ref()?;
        let Prim::Append(append @ Append { rotary: None, .. }) = &update.prim else { return None };
        let keys = by_head(&update.inputs[1]);
        let (from, rotation, rotary) = self.rotation(at, &keys)?;
        let (x, made) = (&rotation.inputs[0], &rotation.outputs[0]);
        // If both are rotated in one step, the queries come first.
        let others = made.shape[2].checked_sub(keys.shape[2])?;
        if !is_same(&keys, &heads(made, others, keys.shape[2])) {
            return None;
        }
        let attention = self.attention(at)?;
        let asked = by_head(&attention.inputs[0]);
        // The rotated values must have no readers other than keys and queries.
        let others_read = update.inputs.iter().enumerate().filter(|(input, _)| *input != 1).map(|(_, view)| view);
        let mut others_read = others_read.chain(&attention.inputs[1..]);
        if others_read.any(|view| view.buffer == made.buffer || view.buffer == asked.buffer) {
            return None;
        }
        let readers = self.uses.readers_of(made);
        let (queries, turned, mut gone) = if others > 0 {
            let turned = heads(made, 0, others);
            let alone = readers == 2 && is_same(&asked, &turned);
            alone.then(|| (heads(x, 0, others), turned, vec![from]))?
        } else {
            let (from_queries, other, same) = self.rotation(at, &asked)?;
            let angles = other.inputs[1..] == rotation.inputs[1..] && same == rotary;
            let size = other.inputs[0].shape[3] == x.shape[3];
            let early = self.steps[from_queries + 1..at].iter().flatten().flat_map(|step| &step.inputs);
            let unread = early.into_iter().all(|view| view.buffer != asked.buffer);
            let fits = readers == 1 && from != from_queries && angles && size && unread;
            fits.then(|| (other.inputs[0].clone(), other.outputs[0].clone(), vec![from_queries]))?
        };
        gone.push(from);
        let mut step = update.clone();
        step.prim = Prim::Append(Append { rotary: Some(*rotary), ..*append });
        step.inputs[1] = by_head(&heads(x, others, keys.shape[2]));
        step.inputs.push(by_head(&queries));
        step.inputs.extend_from_slice(&rotation.inputs[1..]);
        step.outputs.push(by_head(&turned));
        Some(Found { step, gone })
    }

    /// The rotation before `at` that is the only writer of a view's buffer.
    fn rotation(&self, at: usize, view: &View) -> Option<(usize, &Step, &Rotary)> {
        let from = self.uses.maker(at, view)?;
        let step = self.steps[from].as_ref()?;
        let Prim::Rotary(rotary) = &step.prim else { return None };
        Some((from, step, rotary))
    }

    /// The attention over the cache that the step at `at` updates.
    fn attention(&self, at: usize) -> Option<&Step> {
        let present = self.steps[at].as_ref()?.outputs[0].buffer;
        let reads = |step: &&Step| matches!(step.prim, Prim::CachedAttention(_)) && step.inputs[1].buffer == present;
        self.steps[at + 1..].iter().flatten().find(reads)
    }
}

/// `[batch, rows, heads, size]` as `[batch, heads, rows, size]`, or the other way round.
fn by_head(view: &View) -> View {
    Val::from(view).permuted(&[0, 2, 1, 3]).view_of(view.buffer)
}

/// Some heads of `[batch, rows, heads, size]`.
fn heads(view: &View, first: usize, count: usize) -> View {
    Val::from(view).sliced(2, first, 1, count).view_of(view.buffer)
}

/// True if two views show the same elements in the same order.
pub(super) fn is_same(a: &View, b: &View) -> bool {
    let strides = |view: &View| -> Vec<isize> {
        let extents = view.shape.iter().zip(&view.strides);
        extents.filter(|(extent, _)| **extent > 1).map(|(_, &stride)| stride).collect()
    };
    (a.buffer, a.dtype, &a.shape, a.offset) == (b.buffer, b.dtype, &b.shape, b.offset) && strides(a) == strides(b)
}
