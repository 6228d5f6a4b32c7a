//! What the sanitizer reports.

use std::collections::HashMap;
use std::fmt;

use crate::Space;

/// A kind of bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bug {
    /// An access to memory that no allocation covers, or past the end of LDS.
    OutOfBounds,
    /// An access to memory that was freed.
    UseAfterFree,
    /// A read of memory that nothing has written.
    Uninitialised,
    /// Two accesses without an order, at least one of which writes.
    Race,
    /// A barrier that some waves or lanes of the workgroup do not reach.
    DivergentBarrier,
    /// A use of a register whose load is still outstanding.
    MissingWait,
    /// A read of kernel arguments that do not exist.
    OutsideArguments,
}

impl fmt::Display for Bug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Bug::OutOfBounds => "out of bounds",
            Bug::UseAfterFree => "use after free",
            Bug::Uninitialised => "read of memory that was never written",
            Bug::Race => "race",
            Bug::DivergentBarrier => "divergent barrier",
            Bug::MissingWait => "missing wait",
            Bug::OutsideArguments => "read outside the kernel's arguments",
        })
    }
}

/// An instruction of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The disassembler's text.
    pub text: String,
    /// Its address.
    pub address: u64,
    /// Its distance from the kernel's first instruction.
    pub offset: i64,
    /// File and line, if the code object has them.
    pub source: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(formatter, "{source}, ")?;
        }
        write!(formatter, "`{}` at code offset {:#x}", self.text, self.offset)
    }
}

/// The memory that an access went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accessed {
    /// Which memory.
    pub space: Space,
    /// Where.
    pub address: u64,
    /// How many bytes of one lane.
    pub bytes: u32,
    /// Whether it writes.
    pub writes: bool,
    /// The allocation: the one accessed, or the nearest one below. First address and bytes.
    pub allocation: Option<(u64, u64)>,
}

/// One report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of bug it is.
    pub bug: Bug,
    /// The kernel's name, if its code object was registered.
    pub kernel: Option<String>,
    /// Where it happened.
    pub place: Place,
    /// The workgroup's id.
    pub group: [u32; 3],
    /// The wave in the workgroup.
    pub wave: u32,
    /// The lane of the wave; `None` if it concerns the whole wave.
    pub lane: Option<u32>,
    /// The access, if there is one.
    pub accessed: Option<Accessed>,
    /// What else to know: the other access of a race, the register of a missing wait.
    pub detail: String,
    /// How often it happened at this place.
    pub count: u64,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.bug)?;
        if !self.detail.is_empty() {
            write!(formatter, ": {}", self.detail)?;
        }
        let kernel = self.kernel.as_deref().unwrap_or("unknown");
        write!(formatter, "\n  kernel {kernel}, workgroup {:?}, wave {}", self.group, self.wave)?;
        if let Some(lane) = self.lane {
            write!(formatter, ", lane {lane}")?;
        }
        write!(formatter, "\n  at {}", self.place)?;
        if let Some(accessed) = &self.accessed {
            let verb = if accessed.writes { "write" } else { "read" };
            write!(
                formatter,
                "\n  {verb} of {} bytes at {:#x} ({:?})",
                accessed.bytes, accessed.address, accessed.space
            )?;
            if let Some((first, bytes)) = accessed.allocation {
                let offset = accessed.address.wrapping_sub(first).cast_signed();
                write!(formatter, ", offset {offset} of the allocation of {bytes} bytes at {first:#x}")?;
            }
        }
        if self.count > 1 {
            write!(formatter, "\n  {} times", self.count)?;
        }
        Ok(())
    }
}

/// The most places that are reported.
const MOST: usize = 100;

/// All reports, one for each kind and place.
#[derive(Debug, Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    by_place: HashMap<(Bug, u64), usize>,
    left_out: u64,
    taken: usize,
}

impl Findings {
    /// Counts one more, and makes the report if it is the first at its place.
    pub fn add(&mut self, bug: Bug, address: u64, make: impl FnOnce() -> Finding) {
        match self.by_place.get(&(bug, address)) {
            Some(&at) => self.all[at].count += 1,
            None if self.all.len() >= MOST => self.left_out += 1,
            None => {
                self.by_place.insert((bug, address), self.all.len());
                self.all.push(make());
            }
        }
    }

    pub fn all(&self) -> Vec<Finding> {
        self.all.clone()
    }

    /// Those that came since the last call.
    pub fn take_new(&mut self) -> Vec<Finding> {
        let new = self.all[self.taken..].to_vec();
        self.taken = self.all.len();
        new
    }

    /// Findings at places beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
