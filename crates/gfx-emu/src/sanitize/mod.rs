//! A sanitizer for kernels: finds bugs that give right results by luck.
//!
//! ```no_run
//! # use gfx_emu::{Chip, Dispatch, Fault, Memory};
//! use gfx_emu::sanitize::Sanitizer;
//!
//! # fn demo(chip: &Chip, dispatch: &Dispatch) -> Result<(), Fault> {
//! let sanitizer = Sanitizer::new();
//! let memory = Memory::owned().watched_by(&sanitizer);
//! // ... place the code object, the arguments and the buffers in `memory` ...
//! sanitizer.run(chip, dispatch, &memory)?;
//! sanitizer.findings().iter().for_each(|finding| eprintln!("{finding}"));
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `shadow` | allocations and freed memory, and which bytes were written |
//! | `races` | the last accesses to each word of device memory, and what orders them |
//! | `group` | barriers and LDS of one workgroup |
//! | `waits` | operations that may still be outstanding, by each family's counters |
//! | `symbols` | names of kernels and source lines |
//! | `watch`, `device`, `lds` | the observer that puts them together |

mod device;
mod finding;
mod group;
mod image;
mod lds;
mod races;
mod shadow;
mod symbols;
mod waits;
mod watch;

use std::sync::{Arc, Mutex, PoisonError};

pub use finding::{Accessed, Bug, Finding, Place};
pub use shadow::{Shadow, Visibility};
pub use symbols::Symbols;
pub use watch::Watch;

use crate::chip::{Chip, Dispatch, Stats};
use crate::{Fault, Memory};
use finding::Findings;

/// Finds bugs in the kernels that it runs. Clones share what they know and find.
#[derive(Debug, Clone, Default)]
pub struct Sanitizer {
    shared: Arc<Shared>,
}

/// What all runs have in common.
#[derive(Debug, Default)]
struct Shared {
    shadow: Arc<Shadow>,
    symbols: Symbols,
    findings: Mutex<Findings>,
}

impl Sanitizer {
    /// A sanitizer that knows no allocations.
    pub fn new() -> Sanitizer {
        Sanitizer::default()
    }

    /// What it knows about memory. Tell it about allocations and copies.
    pub fn shadow(&self) -> &Arc<Shadow> {
        &self.shared.shadow
    }

    /// The code objects that it knows.
    pub fn symbols(&self) -> &Symbols {
        &self.shared.symbols
    }

    /// Runs a grid and looks for bugs.
    ///
    /// # Errors
    /// As for [`Chip::run`]. An access outside all allocations stops the grid.
    pub fn run(&self, chip: &Chip, dispatch: &Dispatch, memory: &Memory) -> Result<Stats, Fault> {
        let mut watch = Watch::new(Arc::clone(&self.shared), chip, dispatch, memory)?;
        let result = chip.run_observed(dispatch, memory, &mut watch);
        if let Err(Fault::Deadlock { group, waiting }) = &result {
            watch.report_hang(*group, *waiting);
        }
        result
    }

    /// All reports.
    pub fn findings(&self) -> Vec<Finding> {
        self.shared.findings().all()
    }

    /// The reports that came since the last call.
    pub fn new_findings(&self) -> Vec<Finding> {
        self.shared.findings().take_new()
    }

    /// Findings that were not reported because there were too many places.
    pub fn left_out(&self) -> u64 {
        self.shared.findings().left_out()
    }
}

impl Shared {
    fn findings(&self) -> std::sync::MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
