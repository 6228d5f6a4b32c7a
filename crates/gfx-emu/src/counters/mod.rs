//! Counts what a kernel does, and estimates what would limit it on a real chip.
//!
//! | module | contents |
//! |---|---|
//! | `occupancy` | waves that a SIMD holds, from registers and LDS |
//! | `record` | counts as text, and a table of them |
//! | `roofline` | peak figures of a few chips, and the least time that they need |

mod occupancy;
mod record;
mod roofline;

use std::collections::HashSet;

pub use occupancy::{Limit, Occupancy};
pub use record::{Record, table};
pub use roofline::{Bound, CHIPS, Estimate, Peaks};

use crate::access::{Access, Action, Space, bits};
use crate::effects::Class;
use crate::observer::{Event, Observer, Site};
use crate::wave::LANES;
use crate::{Fault, Wave};

/// Bytes of a cache line.
pub const LINE: u64 = 128;
/// Banks of LDS, four bytes wide each.
const BANKS: u64 = 32;
/// The most different cache lines that are counted: 2 GiB.
const MOST_LINES: usize = 1 << 24;

/// What one or more dispatches did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Waves.
    pub waves: u64,
    /// Instructions of each class, in the order of [`Class::ALL`].
    pub instructions: [u64; Class::ALL.len()],
    /// Floating-point operations of vector instructions, of active lanes.
    pub vector_flops: u64,
    /// Operations of matrix instructions.
    pub matrix_flops: u64,
    /// Bytes that active lanes asked for in device memory. Scalar loads are not among them.
    pub bytes_requested: u64,
    /// Cache lines that each access touched, added up. Lines shared by lanes of one access count once.
    pub line_accesses: u64,
    /// Cycles of the LDS unit without conflicts, and those that bank conflicts add.
    pub lds_cycles: u64,
    /// Cycles that bank conflicts add to them.
    pub lds_conflicts: u64,
    lines: HashSet<u64>,
}

impl Counters {
    /// Instructions of a class.
    pub fn of(&self, class: Class) -> u64 {
        Class::ALL.iter().position(|known| *known == class).map_or(0, |at| self.instructions[at])
    }

    /// All instructions.
    pub fn total(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// Bytes of the different cache lines that were touched: the least that comes from or goes to memory.
    pub fn bytes_touched(&self) -> u64 {
        self.lines.len() as u64 * LINE
    }

    /// The part of the touched cache lines that lanes asked for, counting each access by itself: 1 is perfect. Lanes that
    /// read the same bytes can make it larger.
    pub fn coalescing(&self) -> Option<f64> {
        (self.line_accesses > 0).then(|| self.bytes_requested as f64 / (self.line_accesses * LINE) as f64)
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: Counters) {
        self.waves += other.waves;
        self.instructions.iter_mut().zip(other.instructions).for_each(|(sum, more)| *sum += more);
        self.vector_flops += other.vector_flops;
        self.matrix_flops += other.matrix_flops;
        self.bytes_requested += other.bytes_requested;
        self.line_accesses += other.line_accesses;
        self.lds_cycles += other.lds_cycles;
        self.lds_conflicts += other.lds_conflicts;
        let room = MOST_LINES.saturating_sub(self.lines.len());
        self.lines.extend(other.lines.into_iter().take(room));
    }

    fn instruction(&mut self, site: &Site<'_>, wave: &Wave) {
        let effects = site.program.effects(site.index);
        if let Some(at) = Class::ALL.iter().position(|known| *known == effects.class) {
            self.instructions[at] += 1;
        }
        match effects.class {
            Class::Matrix => self.matrix_flops += u64::from(effects.flops),
            _ => self.vector_flops += u64::from(effects.flops) * u64::from(wave.exec().count_ones()),
        }
    }

    fn memory(&mut self, addresses: &[u64], mask: u64, bytes: u32) {
        let mut touched = [0; 4 * LANES];
        let mut count = 0;
        for lane in bits(mask) {
            let first = addresses[lane as usize];
            self.bytes_requested += u64::from(bytes);
            let (first, last) = (first / LINE, first.saturating_add(u64::from(bytes).saturating_sub(1)) / LINE);
            for line in first..=last {
                if count < touched.len() && !touched[..count].contains(&line) {
                    touched[count] = line;
                    count += 1;
                }
            }
        }
        self.line_accesses += count as u64;
        touched[..count].iter().for_each(|line| self.line(*line));
    }

    fn line(&mut self, line: u64) {
        if self.lines.len() < MOST_LINES {
            self.lines.insert(line);
        }
    }

    /// The unit serves 128 bytes in a cycle: 32 lanes of four bytes, 16 of eight, 8 of sixteen. In each such group, lanes
    /// that need different words of the same bank wait for each other.
    fn lds(&mut self, access: &Access, addresses: &[u64], mask: u64, bytes: u32) {
        let places = match access.action {
            Action::Load2(_) | Action::Store2(_) => [Some(access.offset), Some(access.offset2)],
            _ => [Some(0), None],
        };
        let words = u64::from(bytes.div_ceil(4)).max(1);
        let group = (BANKS / words).max(1) as u32;
        for offset in places.into_iter().flatten() {
            for first in (0..2 * LANES as u32).step_by(group as usize) {
                let lanes = mask >> first & (u64::MAX >> (64 - group));
                if lanes == 0 {
                    continue;
                }
                let mut needed = HashSet::new();
                for lane in bits(lanes) {
                    let address = addresses[(first + lane) as usize].wrapping_add_signed(i64::from(offset)) / 4;
                    needed.extend((0..words).map(|word| address.wrapping_add(word)));
                }
                let mut banks = [0u64; BANKS as usize];
                needed.iter().for_each(|word| banks[(word % BANKS) as usize] += 1);
                self.lds_cycles += 1;
                self.lds_conflicts += banks.iter().max().copied().unwrap_or(1).saturating_sub(1);
            }
        }
    }
}

impl Observer for Counters {
    fn fork(&self) -> Counters {
        Counters::default()
    }

    fn join(&mut self, other: Counters) {
        self.add(other);
    }

    fn event(&mut self, site: &Site<'_>, event: Event<'_>) -> Result<(), Fault> {
        match event {
            Event::Start(_) => self.waves += 1,
            Event::Instruction(_, wave) => self.instruction(site, wave),
            Event::Access { access, space, addresses, mask, bytes, .. } => match space {
                Space::Lds => self.lds(access, addresses, mask, bytes),
                Space::Global | Space::Flat => self.memory(addresses, mask, bytes),
                Space::Scalar => {
                    let first = addresses[0] / LINE;
                    let last = addresses[0].saturating_add(u64::from(bytes).saturating_sub(1)) / LINE;
                    (first..=last).for_each(|line| self.line(line));
                }
                Space::Scratch => {}
            },
            Event::Arrive(_) | Event::Pass | Event::End => {}
        }
        Ok(())
    }
}
