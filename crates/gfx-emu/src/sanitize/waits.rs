//! Operations of a wave that may still be outstanding, by the rules of each family's counters.

use crate::Family;
use crate::effects::{Effects, Issued, Registers};
use crate::inst::Waits;

/// The largest value of a counter: a wave stalls before it has more operations outstanding.
const LARGEST: u8 = 63;

/// An operation that no wait has covered yet.
#[derive(Debug, Clone, Copy)]
struct Entry {
    issued: Issued,
    /// A flat access, which also counts as one of the LDS unit.
    flat: bool,
    writes: Registers,
    /// The instruction's index in its program.
    index: usize,
}

/// The outstanding operations of a wave, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    entries: Vec<Entry>,
    /// All registers that they will write.
    pending: Registers,
    /// Operations of the LDS unit so far, and those that are known to be complete.
    lds_issued: u32,
    lds_complete: u32,
}

/// A register that is used before the load that writes it is complete.
#[derive(Debug)]
pub(super) struct TooEarly {
    pub register: String,
    /// The index of the load.
    pub load: usize,
    pub counter: &'static str,
}

impl Outstanding {
    /// The number of the next operation of the LDS unit.
    pub fn next_lds(&self) -> u32 {
        self.lds_issued
    }

    /// How many operations of the LDS unit are complete.
    pub fn lds_complete(&self) -> u32 {
        self.lds_complete
    }

    /// Looks at an instruction that is about to run. Each register is reported once.
    pub fn check(&mut self, effects: &Effects, family: Family) -> Option<TooEarly> {
        if self.entries.is_empty() {
            return None;
        }
        let mut found = None;
        if self.pending.meets(&effects.touched) {
            found = self.entries.iter().position(|entry| entry.writes.meets(&effects.touched));
        }
        if found.is_none() && self.pending.meets(&effects.written_later) {
            // Loads of the same kind write their results in the order of their issue, except scalar loads.
            let other = |entry: &Entry| Some(entry.issued) != effects.issued || entry.issued == Issued::Scalar;
            found = self.entries.iter().position(|entry| entry.writes.meets(&effects.written_later) && other(entry));
        }
        let entry = self.entries.remove(found?);
        self.refresh();
        let mut used = effects.touched;
        used.merge(&effects.written_later);
        let register = entry.writes.first_common(&used).unwrap_or_default();
        Some(TooEarly { register, load: entry.index, counter: counter(entry.issued, family) })
    }

    /// The instruction starts an operation.
    pub fn issue(&mut self, issued: Issued, flat: bool, writes: Registers, index: usize) {
        if issued == Issued::Lds {
            self.lds_issued += 1;
        }
        self.pending.merge(&writes);
        self.entries.push(Entry { issued, flat, writes, index });
        if self.entries.len() > 4 * LARGEST as usize {
            self.keep(LARGEST, |entry| matches!(entry.issued, Issued::Load | Issued::Store));
            self.keep(LARGEST, |entry| entry.issued == Issued::Lds);
            self.refresh();
        }
    }

    /// The wave waits.
    pub fn wait(&mut self, waits: Waits, family: Family) {
        if self.entries.is_empty() {
            return;
        }
        let (stores, scalars) = match family {
            Family::Cdna => (waits.vector, waits.lds),
            Family::Rdna2 | Family::Rdna3 => (waits.store, waits.lds),
            Family::Rdna4 => (waits.store, waits.scalar),
        };
        if waits.lds == 0 {
            self.entries.retain(|entry| !entry.flat);
        }
        if family == Family::Cdna {
            // Loads and stores share a counter and complete in order.
            self.keep(waits.vector, |entry| matches!(entry.issued, Issued::Load | Issued::Store));
        } else {
            self.keep(waits.vector, |entry| entry.issued == Issued::Load);
            self.keep(stores, |entry| entry.issued == Issued::Store);
        }
        self.keep(waits.lds, |entry| entry.issued == Issued::Lds);
        // Scalar loads complete in any order: only a wait for all of them says something.
        if scalars == 0 {
            self.entries.retain(|entry| entry.issued != Issued::Scalar);
        }
        self.refresh();
    }

    /// At most the newest `limit` operations of an ordered kind are outstanding.
    fn keep(&mut self, limit: u8, of: impl Fn(&Entry) -> bool) {
        if limit == u8::MAX {
            return;
        }
        let count = self.entries.iter().filter(|entry| of(entry)).count();
        let mut drop_first = count.saturating_sub(usize::from(limit));
        self.entries.retain(|entry| {
            let gone = drop_first > 0 && of(entry);
            drop_first -= usize::from(gone);
            !gone
        });
    }

    fn refresh(&mut self) {
        self.pending = Registers::default();
        self.entries.iter().for_each(|entry| self.pending.merge(&entry.writes));
        let left = self.entries.iter().filter(|entry| entry.issued == Issued::Lds).count() as u32;
        self.lds_complete = self.lds_issued.saturating_sub(left);
    }
}

/// The counter that a wait must name.
fn counter(issued: Issued, family: Family) -> &'static str {
    match (issued, family) {
        (Issued::Load | Issued::Store, Family::Rdna4) => "loadcnt",
        (Issued::Lds, Family::Rdna4) => "dscnt",
        (Issued::Scalar, Family::Rdna4) => "kmcnt",
        (Issued::Load | Issued::Store, _) => "vmcnt",
        (Issued::Lds | Issued::Scalar, _) => "lgkmcnt",
    }
}
