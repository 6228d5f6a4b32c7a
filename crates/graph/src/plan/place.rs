//! Places every buffer; intermediate buffers share one arena.
use crate::lower::Origin;
use crate::plan::{BufferPlace, Draft, Plan};
use crate::prim::{BufferId, Prim};

/// Every buffer is aligned to this, as drivers' own allocations are.
pub const ALIGNMENT: usize = 256;

/// The first and last step that use a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    first: usize,
    last: usize,
}

impl Life {
    fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A piece of the arena, used by one buffer or by several in turn.
#[derive(Clone, Debug)]
struct Slot {
    life: Life,
    bytes: usize,
    buffers: Vec<BufferId>,
}

/// Places the buffers of a draft.
pub(super) fn place(draft: Draft) -> Plan {
    let mut places = vec![BufferPlace::Unused; draft.buffers.len()];
    let mut constants = Vec::new();
    let lives = lives(&draft);
    for (at, buffer) in draft.buffers.iter().enumerate() {
        match &buffer.origin {
            Origin::Input(number) => places[at] = BufferPlace::Input(*number),
            Origin::Constant(tensor) if lives[at].is_some() => {
                constants.push(tensor.clone());
                places[at] = BufferPlace::Constant(constants.len() - 1);
            }
            _ => {}
        }
    }
    for (number, buffer) in draft.output_buffers.iter().enumerate() {
        places[buffer.0 as usize] = BufferPlace::Output(number);
    }
    let slots = slots(&draft, &lives, &places);
    let offsets = pack(&slots);
    let mut arena_bytes = 0;
    for (slot, offset) in slots.iter().zip(offsets) {
        arena_bytes = arena_bytes.max(offset.saturating_add(slot.bytes));
        for buffer in &slot.buffers {
            places[buffer.0 as usize] = BufferPlace::Arena(offset);
        }
    }
    let live_bytes = live_bytes(&slots);
    Plan { steps: draft.steps, places, constants, outputs: draft.outputs, arena_bytes, live_bytes }
}

/// The most bytes of slots alive at the same step; the maximum is at some slot's first step.
fn live_bytes(slots: &[Slot]) -> usize {
    let at = |step: usize| Life { first: step, last: step };
    let alive = |step| {
        slots.iter().filter(|slot| slot.life.meets(at(step))).map(|slot| slot.bytes).fold(0, usize::saturating_add)
    };
    slots.iter().map(|slot| alive(slot.life.first)).max().unwrap_or(0)
}

/// When each buffer is used; `None` if never.
fn lives(draft: &Draft) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; draft.buffers.len()];
    for (at, step) in draft.steps.iter().enumerate() {
        for view in step.inputs.iter().chain(&step.outputs) {
            let life = lives[view.buffer.0 as usize].get_or_insert(Life { first: at, last: at });
            life.last = at;
        }
    }
    lives
}

/// One slot per buffer in the arena; a map reuses the slot of an input with the same layout that is not used again.
fn slots(draft: &Draft, lives: &[Option<Life>], places: &[BufferPlace]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut slot_of: Vec<Option<usize>> = vec![None; draft.buffers.len()];
    for (at, step) in draft.steps.iter().enumerate() {
        for view in &step.outputs {
            let id = view.buffer.0 as usize;
            let Some(life) = lives[id].filter(|life| life.first == at && places[id] == BufferPlace::Unused) else {
                continue;
            };
            if slot_of[id].is_some() {
                continue;
            }
            let bytes = draft.buffers[id].elems * draft.buffers[id].dtype.bytes();
            let whole = view.is_dense() && view.offset == 0 && view.elems() == draft.buffers[id].elems;
            let heir = step.inputs.iter().find_map(|input| {
                let from = input.buffer.0 as usize;
                let slot = slot_of[from]?;
                let hands_on = lives[from].is_some_and(|life| life.last == at)
                    && slots[slot].life.last == at
                    && input.dtype.bytes() == view.dtype.bytes()
                    && (&input.shape, &input.strides, input.offset) == (&view.shape, &view.strides, view.offset)
                    // Every other view of the same slot in this step must read the same elements at the same time.
                    && step.inputs.iter().all(|other| slot_of[other.buffer.0 as usize] != Some(slot) || other == input);
                hands_on.then_some(slot)
            });
            let taken = heir.filter(|_| whole && matches!(step.prim, Prim::Map(_)) && step.outputs.len() == 1);
            let slot = taken.unwrap_or_else(|| {
                slots.push(Slot { life, bytes: 0, buffers: Vec::new() });
                slots.len() - 1
            });
            let owner = &mut slots[slot];
            owner.life.last = owner.life.last.max(life.last);
            owner.bytes = owner.bytes.max(bytes.next_multiple_of(ALIGNMENT));
            owner.buffers.push(view.buffer);
            slot_of[id] = Some(slot);
        }
    }
    slots
}

/// An offset for each slot such that slots alive at the same time do not overlap: the largest first, each at the lowest
/// free offset.
fn pack(slots: &[Slot]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slots.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(slots[at].bytes), slots[at].life.first));
    let mut offsets = vec![0usize; slots.len()];
    let mut placed: Vec<usize> = Vec::new();
    for at in order {
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(|&&other| slots[other].life.meets(slots[at].life))
            .map(|&other| (offsets[other], offsets[other].saturating_add(slots[other].bytes)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0usize;
        for (start, end) in taken {
            if start >= offset.saturating_add(slots[at].bytes) {
                break;
            }
            offset = offset.max(end);
        }
        offsets[at] = offset;
        placed.push(at);
    }
    offsets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn slot(first: usize, length: usize, bytes: usize) -> Slot {
        Slot { life: Life { first, last: first + length }, bytes: bytes * ALIGNMENT, buffers: Vec::new() }
    }

    #[test]
    fn slots_with_disjoint_lifetimes_share_memory() {
        let slots = [slot(0, 1, 4), slot(2, 1, 4), slot(0, 3, 2)];
        assert_eq!(pack(&slots), [0, 0, 4 * ALIGNMENT]);
    }

    proptest! {
        #[test]
        fn live_slots_never_overlap_and_the_arena_is_nearly_minimal(
            raw in prop::collection::vec((0usize..30, 0usize..8, 1usize..20), 0..60),
        ) {
            let slots: Vec<Slot> = raw.into_iter().map(|(first, length, bytes)| slot(first, length, bytes)).collect();
            let offsets = pack(&slots);
            for a in 0..slots.len() {
                for b in 0..a {
                    let apart = offsets[a] + slots[a].bytes <= offsets[b] || offsets[b] + slots[b].bytes <= offsets[a];
                    prop_assert!(apart || !slots[a].life.meets(slots[b].life));
                }
            }
            let peak = (0..40).map(|at| slots.iter().filter(|s| s.life.meets(Life { first: at, last: at })).map(|s| s.bytes).sum::<usize>()).max().unwrap_or(0);
            let arena = slots.iter().zip(&offsets).map(|(s, o)| o + s.bytes).max().unwrap_or(0);
            prop_assert!(arena <= peak * 2, "arena {arena}, floor {peak}");
        }
    }
}
