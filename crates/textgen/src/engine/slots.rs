//! Slots: who runs in which row of the cache, and which tokens each row holds.
//!
//! A decoding step runs on the first rows of the cache, so sequences take the lowest free slot and move down when one
//! becomes free. The tokens of a sequence that ended stay in its slot. Before a slot with such tokens is used for
//! another sequence, they move to the idle slot that was unused for the longest time.

/// Shorter beginnings are not copied between slots: running them is as fast.
pub(super) const SHORTEST_COPY: usize = 16;

/// All slots, with what runs in them.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    /// Counts uses, to find the slot that was unused for the longest time.
    clock: u64,
}

/// One row of the cache.
#[derive(Debug)]
pub(super) struct Slot<T> {
    /// The tokens whose keys and values the row holds.
    pub tokens: Vec<u32>,
    /// The sequence that runs here.
    pub running: Option<T>,
    used: u64,
}

/// Copies the first `tokens` tokens of a row to another row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub from: usize,
    pub to: usize,
    pub tokens: usize,
}

/// Which beginnings of a prompt may come from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reuse {
    /// None.
    Nothing,
    /// Those that are worth a copy.
    Prefix,
    /// Any, because the prompt ran just before.
    Whole,
}

impl<T> Slots<T> {
    pub fn new(count: usize) -> Slots<T> {
        let slot = |_| Slot { tokens: Vec::new(), running: None, used: 0 };
        Slots { slots: (0..count).map(slot).collect(), clock: 0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot<T>> {
        self.slots.iter_mut()
    }

    pub fn get(&self, slot: usize) -> &Slot<T> {
        &self.slots[slot]
    }

    pub fn get_mut(&mut self, slot: usize) -> &mut Slot<T> {
        &mut self.slots[slot]
    }

    pub fn idle(&self) -> usize {
        self.slots.iter().filter(|slot| slot.running.is_none()).count()
    }

    /// The slots whose sequence a condition holds for.
    pub fn running(&self, condition: impl Fn(&Slot<T>, &T) -> bool) -> Vec<usize> {
        let holds = |slot: &Slot<T>| slot.running.as_ref().is_some_and(|running| condition(slot, running));
        (0..self.slots.len()).filter(|&index| holds(&self.slots[index])).collect()
    }

    /// Reserves a slot for a prompt, and returns it with the copies to make, in this order. Afterwards the slot holds
    /// as much of the prompt as can be reused, but not its last token: that one must run. `None` if all slots run.
    pub fn place(&mut self, prompt: &[u32], reuse: Reuse) -> Option<(usize, Vec<Copy>)> {
        let slot = self.slots.iter().position(|slot| slot.running.is_none())?;
        let most = prompt.len().saturating_sub(1);
        let held = |slot: &Slot<T>| common(&slot.tokens, prompt).min(most);
        let in_place = held(&self.slots[slot]);
        let (best, length) = (0..self.slots.len())
            .map(|index| (index, held(&self.slots[index])))
            .max_by_key(|&(index, length)| (length, index == slot))
            .unwrap_or((slot, in_place));
        let (source, kept) = match reuse {
            Reuse::Nothing => (slot, 0),
            Reuse::Prefix if length < in_place + SHORTEST_COPY => (slot, in_place),
            Reuse::Prefix | Reuse::Whole => (best, length),
        };
        let mut copies = Vec::new();
        if reuse != Reuse::Nothing && self.slots[slot].tokens.len() >= in_place + SHORTEST_COPY {
            copies.extend(self.saved(slot, source));
        }
        if source != slot {
            copies.push(Copy { from: source, to: slot, tokens: kept });
            self.clock += 1;
            self.slots[source].used = self.clock;
        }
        self.slots[slot].tokens.clear();
        self.slots[slot].tokens.extend(&prompt[..kept]);
        Some((slot, copies))
    }

    /// Looks again for the beginning of a prompt before a part of it runs: another sequence may have run it by now.
    pub fn catch_up(&mut self, slot: usize, prompt: &[u32]) -> Option<Copy> {
        let most = prompt.len().saturating_sub(1);
        let others = (0..self.slots.len()).filter(|&other| other != slot);
        let held = others.map(|other| (common(&self.slots[other].tokens, prompt).min(most), other));
        let (tokens, from) = held.max_by_key(|&(tokens, _)| tokens)?;
        if tokens < self.slots[slot].tokens.len() + SHORTEST_COPY {
            return None;
        }
        self.slots[slot].tokens = prompt[..tokens].to_vec();
        Some(Copy { from, to: slot, tokens })
    }

    /// Moves a sequence down if a step then runs on fewer rows. `rows` is the number of rows for a number of slots.
    pub fn compact(&mut self, rows: impl Fn(usize) -> usize) -> Option<Vec<Copy>> {
        let free = self.slots.iter().position(|slot| slot.running.is_none())?;
        let last = self.slots.iter().rposition(|slot| slot.running.is_some())?;
        let count = self.slots.iter().filter(|slot| slot.running.is_some()).count();
        if rows(count) >= rows(last + 1) {
            return None;
        }
        let mut copies: Vec<Copy> = self.saved(free, last).into_iter().collect();
        copies.push(Copy { from: last, to: free, tokens: self.slots[last].tokens.len() });
        self.slots.swap(free, last);
        // What was in the free slot is overwritten.
        self.forget(last);
        Some(copies)
    }

    /// Ends the sequence of a slot. Its tokens stay.
    pub fn release(&mut self, slot: usize) -> Option<T> {
        self.clock += 1;
        self.slots[slot].used = self.clock;
        self.slots[slot].running.take()
    }

    /// Drops the tokens of a slot.
    pub fn forget(&mut self, slot: usize) {
        (self.slots[slot].tokens, self.slots[slot].used) = (Vec::new(), 0);
    }

    /// Saves the tokens of an idle slot in another one that was unused for longer, if there is one besides `keep`.
    fn saved(&mut self, slot: usize, keep: usize) -> Option<Copy> {
        let tokens = self.slots[slot].tokens.len();
        // Another slot may hold them too.
        let is_double = |other: usize| other != slot && self.slots[other].tokens.starts_with(&self.slots[slot].tokens);
        if tokens < SHORTEST_COPY || (0..self.slots.len()).any(is_double) {
            return None;
        }
        let is_free = |&other: &usize| other != slot && other != keep && self.slots[other].running.is_none();
        let to = (0..self.slots.len()).filter(is_free).min_by_key(|&other| self.slots[other].used)?;
        if !self.slots[to].tokens.is_empty() && self.slots[to].used > self.slots[slot].used {
            return None;
        }
        (self.slots[to].tokens, self.slots[to].used) = (self.slots[slot].tokens.clone(), self.slots[slot].used);
        Some(Copy { from: slot, to, tokens })
    }
}

/// Length of the common beginning.
fn common(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests;
