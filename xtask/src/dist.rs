//! The shippable files.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::kernels;
use crate::stage::{self, Profile};
use crate::symbols;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// Writes `dist/lib` and `dist/bin` from a release build, after checking what the libraries export and need, and kernels
/// for some targets.
///
/// # Errors
/// When the build or the check fails, or a file cannot be written.
pub fn run(workspace: &Workspace, targets: &[String]) -> Result<()> {
    let root = workspace.path("dist");
    let stage = stage::run_into(workspace, Profile::Release, root.clone())?;
    symbols::run(&stage)?;
    if !targets.is_empty() {
        match kernels::set::run(workspace, targets, None, &root.join("lib/kernels"))? {
            Outcome::Passed(note) => println!("{note}"),
            Outcome::Skipped(reason) => bail!("the kernels can't be compiled: {reason}"),
        }
    }
    for folder in ["lib", "bin"] {
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot list dist/{folder}"))? {
            let entry = entry?;
            println!("{:>9} KiB  {}", entry.metadata()?.len() / 1024, workspace.relative(&entry.path()));
        }
    }
    Ok(())
}
