//! The sanitizer for kernels on an emulated machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::machine::Machine;
use crate::output;

/// What the sanitizer finds in the programs on a machine.
pub struct Findings {
    log: PathBuf,
}

impl Findings {
    /// Switches the sanitizer on.
    pub fn of(machine: &mut Machine) -> Self {
        let log = machine.folder().join("findings.txt");
        let _ = fs::remove_file(&log);
        machine.set("AMD_MODEL_SANITIZE", "1");
        machine.set("AMD_MODEL_SANITIZE_LOG", log.clone());
        // Small buffers get allocations of their own, so that accesses outside them are found.
        machine.set("HSA_DISABLE_FRAGMENT_ALLOCATOR", "1");
        Self { log }
    }

    /// Prints and removes what was found since the last call.
    ///
    /// # Errors
    /// When there is a finding.
    pub fn check(&self) -> Result<()> {
        let Ok(found) = fs::read_to_string(&self.log) else { return Ok(()) };
        fs::remove_file(&self.log)?;
        output::say(found.trim_end());
        let findings: Vec<&str> = found.split("\n\n").filter(|finding| !finding.trim().is_empty()).collect();
        match findings.first() {
            Some(first) => {
                bail!("{} findings of the sanitizer, first: {}", findings.len(), first.replace("\n  ", "; "))
            }
            None => Ok(()),
        }
    }
}
