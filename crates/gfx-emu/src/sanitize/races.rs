//! Races: shadow cells of the last accesses to each word, and what orders them.
//!
//! Waves of a workgroup are ordered by barriers, and all waves by atomic operations: one that follows another on the same
//! word synchronises with it. Where this is not certain, the order is assumed, so that a report is never wrong for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::access::{Access, Action, Data};
use crate::effects::reads_old;
use crate::wave::Wave;

/// Bytes of memory that one page of cells covers.
const PAGE: u64 = 4096;
/// Words of memory on a page.
const CELLS: usize = PAGE as usize / 4;
/// The most pages of one dispatch: 256 MiB of memory.
const MOST_PAGES: usize = 65_536;

/// How an access takes part in races.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Read,
    Write,
    /// An atomic load, or one that bypasses caches.
    CoherentRead,
    /// An atomic operation, or a store that bypasses caches.
    Atomic,
}

impl How {
    pub fn writes(self) -> bool {
        matches!(self, How::Write | How::Atomic)
    }

    fn is_atomic(self) -> bool {
        matches!(self, How::CoherentRead | How::Atomic)
    }
}

/// One access to a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    /// The workgroup's number, from 1 on.
    pub group: u32,
    /// The instruction's distance from the kernel's first one.
    pub offset: i32,
    /// For device memory: how often the workgroup had released. For LDS: the number of the wave's operation.
    pub time: u32,
    /// The number of the barrier that releases this access.
    pub epoch: u16,
    pub wave: u8,
    /// The bytes of the word, one bit each.
    pub bytes: u8,
    pub how: How,
    /// What a store writes to the word.
    pub value: u32,
}

impl Mark {
    const NONE: Mark = Mark { group: 0, offset: 0, time: 0, epoch: 0, wave: 0, bytes: 0, how: How::Read, value: 0 };

    fn same_wave(&self, other: &Mark) -> bool {
        self.group == other.group && self.wave == other.wave
    }
}

/// The last accesses to one word: a write, and reads of two different waves.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    writer: Mark,
    readers: [Mark; 2],
}

impl Cell {
    pub const EMPTY: Cell = Cell { writer: Mark::NONE, readers: [Mark::NONE; 2] };

    /// Notes an access. Returns an earlier one that it races with; `ordered` says whether an earlier one comes before.
    pub fn access(&mut self, now: Mark, lenient: bool, ordered: impl Fn(&Mark) -> bool) -> Option<Mark> {
        let races = |earlier: &Mark| {
            let conflict = earlier.group != 0
                && earlier.bytes & now.bytes != 0
                && (earlier.how.writes() || now.how.writes())
                && !(earlier.how.is_atomic() && now.how.is_atomic())
                && !earlier.same_wave(&now);
            // Where an atomic store looks like any other, a store and an atomic access may both be atomic.
            let both_may_be_atomic = lenient
                && (earlier.how == How::Write && now.how.is_atomic()
                    || earlier.how.is_atomic() && now.how == How::Write);
            // Stores of the same value have one result in any order.
            let same_value = earlier.how == How::Write
                && now.how == How::Write
                && (earlier.bytes, earlier.value) == (now.bytes, now.value);
            conflict && !both_may_be_atomic && !same_value && !ordered(earlier)
        };
        let found = std::iter::once(&self.writer).chain(&self.readers).find(|mark| races(mark)).copied();
        if now.how.writes() {
            self.writer = now;
            if now.bytes == 0xf {
                self.readers = [Mark::NONE; 2];
            }
        } else if self.readers[0].group == 0 || self.readers[0].same_wave(&now) {
            self.readers[0] = now;
        } else {
            self.readers[1] = now;
        }
        found
    }

    /// The last write, if there was one.
    pub fn writer(&self) -> Option<Mark> {
        (self.writer.group != 0).then_some(self.writer)
    }
}

/// Cells of one page of device memory.
pub(super) type Page = Mutex<Box<[Cell; CELLS]>>;

/// The pages of a dispatch.
#[derive(Default)]
pub(super) struct Pages {
    all: RwLock<HashMap<u64, Arc<Page>>>,
}

impl Pages {
    /// The number of the page of an address, and the index of its word.
    pub fn place(address: u64) -> (u64, usize) {
        (address / PAGE, (address % PAGE / 4) as usize)
    }

    /// A page, which is made on first use; `None` if there are too many.
    pub fn page(&self, number: u64) -> Option<Arc<Page>> {
        if let Some(page) = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Some(Arc::clone(page));
        }
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_PAGES && !all.contains_key(&number) {
            return None;
        }
        let page = all.entry(number).or_insert_with(|| Arc::new(Mutex::new(Box::new([Cell::EMPTY; CELLS]))));
        Some(Arc::clone(page))
    }
}

/// What atomic operations have ordered so far in a dispatch. Every release has a serial number.
#[derive(Default)]
pub(super) struct Synchronisation {
    used: AtomicBool,
    state: Mutex<Releases>,
}

#[derive(Default)]
struct Releases {
    serial: u64,
    /// The last release at each address.
    at: HashMap<u64, u64>,
    /// The releases of each workgroup.
    of: HashMap<u32, Vec<u64>>,
}

impl Synchronisation {
    fn state(&self) -> std::sync::MutexGuard<'_, Releases> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a workgroup has released.
    pub fn time(&self, group: u32) -> u32 {
        if !self.used.load(Ordering::Acquire) {
            return 0;
        }
        self.state().of.get(&group).map_or(0, |releases| releases.len() as u32)
    }

    /// A workgroup releases all its accesses until now at an address.
    pub fn release(&self, group: u32, address: u64) {
        self.used.store(true, Ordering::Release);
        let mut state = self.state();
        state.serial += 1;
        let serial = state.serial;
        state.at.insert(address, serial);
        state.of.entry(group).or_default().push(serial);
    }

    /// Whether an address was used for synchronisation.
    pub fn knows(&self, address: u64) -> bool {
        self.used.load(Ordering::Acquire) && self.state().at.contains_key(&address)
    }

    /// The last release at an address, which an atomic operation there acquires.
    pub fn acquire(&self, address: u64) -> u64 {
        if !self.used.load(Ordering::Acquire) {
            return 0;
        }
        self.state().at.get(&address).copied().unwrap_or(0)
    }

    /// Whether the first release after an access was acquired.
    pub fn orders(&self, earlier: &Mark, acquired: u64) -> bool {
        if acquired == 0 {
            return false;
        }
        let state = self.state();
        let released = state.of.get(&earlier.group).and_then(|releases| releases.get(earlier.time as usize));
        released.is_some_and(|serial| *serial <= acquired)
    }
}

/// How an access takes part in races, and whether it reads.
pub(super) fn how(access: &Access) -> (How, bool) {
    match access.action {
        Action::Load(_) | Action::Load2(_) if access.coherent => (How::CoherentRead, true),
        Action::Load(_) | Action::Load2(_) => (How::Read, true),
        Action::Store(_) | Action::Store2(_) if access.coherent => (How::Atomic, false),
        Action::Store(_) | Action::Store2(_) => (How::Write, false),
        Action::Atomic(op, _) => (How::Atomic, reads_old(op)),
    }
}

/// Calls `each` with each word of a range and the bytes of it that the range covers, one bit each.
pub(super) fn for_words(address: u64, bytes: u32, mut each: impl FnMut(u64, u8)) {
    let (mut at, end) = (address, address.saturating_add(u64::from(bytes)));
    while at < end {
        let next = (at / 4 * 4 + 4).min(end);
        let part = ((1u16 << (next - at)) - 1) << (at % 4);
        each(at / 4 * 4, part as u8);
        at = next;
    }
}

/// The bytes that a store writes to the word at `word`, in their places; 0 for other accesses. `second` is the second
/// place of a double store.
pub(super) fn stored(access: &Access, wave: &Wave, lane: u32, (address, word): (u64, u64), second: bool) -> u32 {
    let (Action::Store(data) | Action::Store2(data)) = access.action else { return 0 };
    let register = if second { access.data2 } else { access.data };
    let at = |index: u64| wave.lane(register + index as u16, lane);
    match data {
        Data::Words(count) => {
            // An unaligned store writes parts of two registers to a word.
            let shift = (address % 4) as u32 * 8;
            let index = (word / 4).wrapping_sub(address / 4);
            let low = if index < u64::from(count) { at(index) } else { 0 };
            let high = if index == 0 { 0 } else { at(index - 1) };
            if shift == 0 { low } else { low << shift | high >> (32 - shift) }
        }
        Data::HalfU8(true) | Data::HalfI8(true) | Data::Half(true) => narrow(at(0) >> 16, data, address, word),
        _ => narrow(at(0), data, address, word),
    }
}

/// A value of one or two bytes in its place in a word.
fn narrow(value: u32, data: Data, address: u64, word: u64) -> u32 {
    let bytes = u64::from(value) & ((1 << (8 * data.bytes())) - 1);
    let wide = bytes << (8 * (address % 4));
    if word == address / 4 * 4 { wide as u32 } else { (wide >> 32) as u32 }
}
