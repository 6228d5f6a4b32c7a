//! Counters of the kernels that run on an emulated machine.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::machine::Machine;
use crate::workspace::Workspace;
use crate::{built, shell};

/// What the kernels of a machine do.
pub struct Counters {
    log: PathBuf,
}

impl Counters {
    /// Switches the counters on.
    pub fn of(machine: &mut Machine) -> Self {
        let log = machine.folder().join("counters.tsv");
        let _ = fs::remove_file(&log);
        machine.set("AMD_MODEL_COUNTERS", log.clone());
        Self { log }
    }

    /// Prints them as a table.
    ///
    /// # Errors
    /// When the program that prints it cannot be built.
    pub fn print(&self, workspace: &Workspace) -> Result<()> {
        if self.log.exists() {
            let program = built::example(workspace, "amd-model", "counters")?;
            println!("{}", shell::capture_stdout(Command::new(program).arg(&self.log))?);
        }
        Ok(())
    }
}
