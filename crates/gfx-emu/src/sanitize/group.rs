//! The state of the workgroup that a thread runs: its waves, barriers and LDS.

use super::races::{Cell, How, Mark};
use super::waits::Outstanding;

/// One wave.
#[derive(Default)]
pub(super) struct WaveState {
    pub outstanding: Outstanding,
    /// The lanes that it started with.
    pub lanes: u64,
    /// Barriers that it has signalled, and those that it has passed.
    pub signals: u16,
    pub passed: u16,
    pub has_ended: bool,
    /// The instruction where it waits for a barrier.
    pub waits_at: Option<usize>,
    /// The newest release that it has acquired.
    pub acquired: u64,
    /// Addresses of atomic operations that are executed now: their effects are known when the next event comes.
    pub acquires: Vec<u64>,
    /// How many operations of the LDS unit were complete at its last signals.
    complete_at_signal: [u32; 4],
}

impl WaveState {
    /// Signals a barrier.
    pub fn signal(&mut self) {
        self.signals = self.signals.wrapping_add(1);
        self.complete_at_signal[usize::from(self.signals) % 4] = self.outstanding.lds_complete();
    }
}

/// One workgroup.
#[derive(Default)]
pub(super) struct Group {
    /// Its number in the grid, from 1 on.
    pub number: u32,
    pub waves: Vec<WaveState>,
    /// The newest release that one of its waves has acquired.
    pub acquired: u64,
    cells: Vec<Cell>,
    /// The bytes of each word of LDS that were written.
    written: Vec<u8>,
}

/// What is wrong with an access to a word of LDS.
pub(super) enum LdsBug {
    Race(Mark),
    /// As for a race, but a barrier lies between: the store was not complete when its wave reached it.
    NotWaitedFor(Mark),
    Uninitialised,
}

impl Group {
    /// Starts the next workgroup.
    pub fn start(&mut self, number: u32, lds_bytes: u32) {
        let words = (lds_bytes as usize).div_ceil(4);
        self.number = number;
        self.waves.clear();
        self.acquired = 0;
        // Cells of other workgroups are recognised by their number.
        self.cells.resize(words, Cell::EMPTY);
        self.written.clear();
        self.written.resize(words, 0);
    }

    /// The state of a wave.
    pub fn wave(&mut self, wave: u32) -> &mut WaveState {
        let wave = wave as usize;
        if self.waves.len() <= wave {
            self.waves.resize_with(wave + 1, WaveState::default);
        }
        &mut self.waves[wave]
    }

    /// A wave that waits for a barrier which this one has not signalled.
    pub fn waits_for(&self, wave: u32) -> Option<(u32, usize)> {
        let signals = self.waves.get(wave as usize)?.signals;
        let waits = |(wave, state): (u32, &WaveState)| state.waits_at.map(|index| (wave, index));
        (0..).zip(&self.waves).filter(|(_, state)| state.signals > signals).find_map(waits)
    }

    /// A wave that has ended without signalling this wave's barrier.
    pub fn ended_before(&self, wave: u32) -> Option<u32> {
        let signals = self.waves.get(wave as usize)?.signals;
        (0..).zip(&self.waves).find(|(_, state)| state.has_ended && state.signals < signals).map(|(wave, _)| wave)
    }

    /// Notes an access to some bytes of a word of LDS.
    pub fn lds_access(&mut self, word: usize, now: Mark, reads: bool) -> Option<LdsBug> {
        let Group { waves, cells, written, .. } = self;
        let passed = waves.get(usize::from(now.wave)).map_or(0, |wave| wave.passed);
        let is_complete = |earlier: &Mark| {
            let wave = waves.get(usize::from(earlier.wave));
            !earlier.how.writes()
                || wave.is_some_and(|wave| earlier.time < wave.complete_at_signal[usize::from(passed) % 4])
        };
        let is_before = |earlier: &Mark| earlier.epoch <= passed;
        let ordered = |earlier: &Mark| earlier.group != now.group || is_before(earlier) && is_complete(earlier);
        if let Some(earlier) = cells.get_mut(word)?.access(now, false, ordered) {
            return Some(if is_before(&earlier) { LdsBug::NotWaitedFor(earlier) } else { LdsBug::Race(earlier) });
        }
        let written = &mut written[word];
        let is_missing = reads && now.bytes & !*written != 0;
        if now.how != How::Read {
            *written |= now.bytes;
        }
        is_missing.then_some(LdsBug::Uninitialised)
    }
}
