//! Accesses to device memory: allocations, written bytes and races.

use std::sync::{Arc, PoisonError};

use super::finding::{Accessed, Bug};
use super::races::{How, Mark, Page, Pages, for_words, how, stored};
use super::watch::Watch;
use crate::Fault;
use crate::access::{Access, Action, Address, Space, bits};
use crate::observer::Site;
use crate::wave::Wave;

/// Atomic operations of more lanes than this are data, not synchronisation.
const MOST_SYNCHRONISING_LANES: u32 = 4;

/// A word that one lane accesses.
pub(super) struct Touch {
    page: u64,
    cell: usize,
    bytes: u8,
    value: u32,
    lane: u32,
    address: u64,
}

impl Watch<'_> {
    /// The wave's last atomic operation has been executed: it has acquired what was released there.
    pub(super) fn settle(&mut self, site: &Site<'_>) {
        let state = self.group.wave(site.wave);
        if state.acquires.is_empty() {
            return;
        }
        let addresses = std::mem::take(&mut state.acquires);
        for address in addresses {
            if self.stores_may_be_atomic() {
                self.adopt_release(address);
            }
            let acquired = self.run.sync.acquire(address);
            self.group.acquired = self.group.acquired.max(acquired);
            let state = self.group.wave(site.wave);
            state.acquired = state.acquired.max(acquired);
        }
    }

    /// Before gfx12, and before gfx942, atomic stores have no mark.
    fn stores_may_be_atomic(&self) -> bool {
        !self.run.target.marks_atomic_stores()
    }

    /// An atomic operation meets a store that may have been atomic: it has released what came before it.
    fn adopt_release(&mut self, address: u64) {
        let (number, cell) = Pages::place(address);
        let Some(page) = self.page(number) else { return };
        let writer = page.lock().unwrap_or_else(PoisonError::into_inner)[cell].writer();
        if let Some(writer) = writer.filter(|writer| writer.how == How::Write) {
            self.run.sync.release(writer.group, address);
        }
    }

    fn page(&mut self, number: u64) -> Option<Arc<Page>> {
        self.pages.entry(number).or_insert_with(|| self.run.pages.page(number)).clone()
    }

    /// Checks an access to device memory.
    pub(super) fn device(
        &mut self,
        site: &Site<'_>,
        (access, wave): (&Access, &Wave),
        (space, bytes): (Space, u32),
        at: &[u64],
        mask: u64,
    ) -> Result<(), Fault> {
        let (how, reads) = how(access);
        let mut touches = std::mem::take(&mut self.touches);
        touches.clear();
        let mut previous = None;
        for lane in bits(mask) {
            let address = at[lane as usize];
            if previous == Some(address) || self.shared.shadow.is_unchecked(address) {
                continue;
            }
            previous = Some(address);
            let bytes = match access.address {
                // The resource limits these.
                Address::ScalarBuffer(..) => bytes.min(4),
                _ => bytes,
            };
            let accessed = Accessed { space, address, bytes, writes: how.writes(), allocation: None };
            if !self.lane(site, lane, accessed, reads)? {
                continue;
            }
            for_words(address, bytes, |word, part| {
                let (page, cell) = Pages::place(word);
                let value = stored(access, wave, lane, (address, word), false);
                touches.push(Touch { page, cell, bytes: part, value, lane, address });
            });
        }
        self.races(site, space, bytes, how, &touches);
        self.touches = touches;
        self.synchronise(site, access, how, at, mask);
        Ok(())
    }

    /// Checks where one lane's access goes. False if it cannot be part of a race.
    fn lane(&mut self, site: &Site<'_>, lane: u32, mut accessed: Accessed, reads: bool) -> Result<bool, Fault> {
        let Accessed { address, bytes, .. } = accessed;
        let is_scalar = accessed.space == Space::Scalar;
        // Compilers load three words as four where no page can end between them.
        let needed = if is_scalar { u64::from(bytes).min(16 - address % 16) } else { u64::from(bytes) };
        let is_argument = self.is_argument;
        if is_argument {
            let end = address.wrapping_sub(self.run.kernarg).saturating_add(needed);
            if end > self.run.kernarg_bytes {
                let known = self.run.kernarg_bytes;
                self.report(Bug::OutsideArguments, site, Some(lane), Some(accessed), || {
                    format!("the kernel has {known} bytes of arguments at {:#x}", self.run.kernarg)
                });
                return Ok(false);
            }
        }
        let known = self.last.take().filter(|last| last.covers(address, needed));
        let known = known.or_else(|| self.shared.shadow.containing(address));
        let Some(allocation) = known.filter(|allocation| allocation.covers(address, needed)) else {
            return Err(self.outside(site, lane, accessed));
        };
        accessed.allocation = Some((allocation.first, allocation.bytes));
        if let Some(written) = &allocation.written {
            let offset = address - allocation.first;
            // The host writes the arguments before it starts the kernel.
            if reads
                && !is_argument
                && let Some(missing) = written.first_missing(offset, needed)
            {
                if self.is_untouched(allocation.first + missing, written.filled_with) {
                    self.report(Bug::Uninitialised, site, Some(lane), Some(accessed), || {
                        format!("byte {} of the access", missing - offset)
                    });
                } else {
                    written.set(offset, needed);
                }
            }
            if accessed.writes {
                written.set(offset, u64::from(bytes));
            }
        }
        self.last = Some(allocation);
        Ok(true)
    }

    /// Whether a byte still has the value that the allocation was filled with.
    fn is_untouched(&self, address: u64, filled_with: Option<u8>) -> bool {
        filled_with.is_none_or(|filler| self.memory.read(address, 1).is_some_and(|byte| byte == [filler]))
    }

    /// Reports an access outside all allocations, and makes the fault that stops the dispatch.
    fn outside(&self, site: &Site<'_>, lane: u32, mut accessed: Accessed) -> Fault {
        let address = accessed.address;
        let (bug, allocation, detail) = match self.shared.shadow.freed_at(address) {
            Some(freed) => (Bug::UseAfterFree, Some(freed), "the allocation was freed"),
            None => {
                let below = self.shared.shadow.below(address);
                (Bug::OutOfBounds, below.map(|below| (below.first, below.bytes)), "no allocation covers the access")
            }
        };
        accessed.allocation = allocation;
        self.report(bug, site, Some(lane), Some(accessed), || detail.to_owned());
        let line = site.line();
        let Accessed { bytes, space, .. } = accessed;
        Fault::BadAddress { address, bytes, space, lane, text: line.text.clone(), pc: line.address }
    }

    fn races(&mut self, site: &Site<'_>, space: Space, bytes: u32, how: How, touches: &[Touch]) {
        let lenient = self.stores_may_be_atomic();
        let time = self.run.sync.time(self.group.number);
        let mut now = Mark { time, ..self.mark(site, how) };
        let (group_acquired, state) = (self.group.acquired, self.group.wave(site.wave));
        let (passed, acquired) = (state.passed, state.acquired);
        let run = Arc::clone(&self.run);
        let ordered = |earlier: &Mark| {
            if earlier.group == now.group {
                earlier.epoch <= passed || run.sync.orders(earlier, acquired)
            } else {
                run.sync.orders(earlier, group_acquired)
            }
        };
        let mut found = None;
        for run in touches.chunk_by(|one, next| one.page == next.page) {
            let Some(page) = self.page(run[0].page) else { continue };
            let mut cells = page.lock().unwrap_or_else(PoisonError::into_inner);
            for touch in run {
                (now.bytes, now.value) = (touch.bytes, touch.value);
                let earlier = cells[touch.cell].access(now, lenient, ordered);
                found = found.or(earlier.map(|earlier| (touch.lane, touch.address, earlier)));
            }
        }
        if let Some((lane, address, earlier)) = found {
            let allocation = self.shared.shadow.containing(address).map(|one| (one.first, one.bytes));
            let accessed = Accessed { space, address, bytes, writes: how.writes(), allocation };
            self.report(Bug::Race, site, Some(lane), Some(accessed), || {
                format!("not ordered after {}", self.other(site, &earlier))
            });
        }
    }

    /// Atomic operations of few lanes order accesses of different workgroups.
    fn synchronise(&mut self, site: &Site<'_>, access: &Access, how: How, at: &[u64], mask: u64) {
        if mask.count_ones() > MOST_SYNCHRONISING_LANES || how == How::Read {
            return;
        }
        for lane in bits(mask) {
            let address = at[lane as usize];
            let may_release = how == How::Write && self.stores_may_be_atomic() && self.run.sync.knows(address);
            if how == How::Atomic || may_release {
                self.run.sync.release(self.group.number, address);
            }
            if how == How::CoherentRead || matches!(access.action, Action::Atomic(..)) {
                self.group.wave(site.wave).acquires.push(address);
            }
        }
    }
}
