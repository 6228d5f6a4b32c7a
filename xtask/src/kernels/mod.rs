//! Checks kernels without a GPU: compiles every source of the catalogue for every AMD target and checks its resource
//! usage.
//!
//! This needs only clang, not ROCm: its assembly ends with the metadata that the runtime reads. `cargo xtask rocm`
//! checks the sources with hiprtc, the compiler of real installations.

mod clang;
pub mod models;
mod needs;
pub mod nvrtc;
pub mod page;
pub mod set;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shard::Shard;
use crate::test::Outcome;
use crate::workspace::Workspace;
use crate::{built, shell, workers};
pub use clang::Clang;
use needs::ResourceTable;
use usage::Usage;

/// One target of each family that clang 19 supports: Vega, CDNA 2 and 3, RDNA 2, 3, 3.5 and 4.
const TARGETS: [&str; 7] = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1201"];

/// The number of parts into which compiler checks split the catalogue: each commit checks the next part. It is a prime
/// number, so that every part meets every target of kernel sets.
pub const PARTS: usize = 17;

/// What to do with the list of resources.
#[derive(Clone, PartialEq, Eq)]
pub enum List {
    /// Compile everything, or the kernels with these names, and write the list.
    Write(Vec<String>),
    /// Compile one part of the kernels. Their lines in the list must match, if the same compiler wrote them.
    Check(Shard),
}

/// A line of the catalogue: one launch on one target.
struct Launch {
    target: String,
    label: String,
    file: PathBuf,
    kernel: String,
    args_bytes: u32,
    threads: u32,
    dynamic_lds: u32,
}

/// Compiles the catalogue, or a part of it, and checks the resources of each kernel.
///
/// # Errors
/// A source does not compile, a kernel exceeds its budget, or the list is out of date. A missing compiler is a skip.
pub fn run(workspace: &Workspace, list: &List) -> Result<Outcome> {
    let clang = match Clang::find(workspace) {
        Ok(clang) => clang,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let all = catalogue(workspace, "kernels", &TARGETS)?;
    let labels: BTreeSet<String> = all.iter().map(|launch| launch.label.clone()).collect();
    let keys: BTreeSet<needs::Key> = all.iter().map(Launch::key).collect();
    let (shard, only): (Shard, &[String]) = match list {
        List::Check(shard) => (*shard, &[]),
        List::Write(only) => (Shard::WHOLE, only),
    };
    let chosen: BTreeSet<String> = shard.of(labels.into_iter().collect()).into_iter().collect();
    let is_due = |launch: &Launch| chosen.contains(&launch.label) && (only.is_empty() || only.contains(&launch.kernel));
    let launches: Vec<Launch> = all.into_iter().filter(is_due).collect();
    let usages = compile(&clang, &launches)?;
    let mut faults = Vec::new();
    for (launch, usage) in launches.iter().zip(&usages) {
        let found = usage.faults(&launch.kernel, launch.args_bytes, launch.threads, launch.dynamic_lds);
        faults.extend(found.into_iter().map(|fault| format!("{} on {}: {fault}", launch.label, launch.target)));
    }
    if !faults.is_empty() {
        bail!("kernels exceed their budget\n  {}", faults.join("\n  "));
    }
    let mut found = ResourceTable::new(clang.version());
    for (launch, usage) in launches.iter().zip(&usages) {
        found.add(launch.key(), usage, launch.dynamic_lds);
    }
    match list {
        List::Write(only) => {
            if !only.is_empty() {
                found.keep(ResourceTable::read(workspace)?, &keys)?;
            }
            found.write(workspace)?;
            page::write(workspace)?;
        }
        List::Check(_) => {
            let faults = ResourceTable::read(workspace)?.faults(&keys, &found);
            if let [first, ..] = &faults[..] {
                bail!("{} is out of date: {first}\n  help: cargo xtask kernels", needs::FILE);
            }
        }
    }
    let targets = TARGETS.len();
    Ok(Outcome::Passed(format!(
        "{} steps for {targets} targets with {}{}",
        chosen.len(),
        clang.version(),
        shard.note()
    )))
}

impl Launch {
    fn key(&self) -> needs::Key {
        needs::Key { step: self.label.clone(), kernel: self.kernel.clone(), target: self.target.clone() }
    }
}

/// The launches of the catalogue on targets, with the sources in a folder under `target/`.
fn catalogue(workspace: &Workspace, folder: &str, targets: &[impl AsRef<OsStr>]) -> Result<Vec<Launch>> {
    let folder = workspace.target().join(folder);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    shell::run(Command::new(built::example(workspace, "kernel-catalogue", "catalogue")?).arg(&folder).args(targets))?;
    let list = fs::read_to_string(folder.join("list.tsv")).context("the catalogue printed no list")?;
    list.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [target, label, file, kernel, args_bytes, threads, dynamic_lds] = fields[..] else {
                bail!("unexpected line from the catalogue: {line:?}");
            };
            let (target, label, kernel) = (target.to_owned(), label.to_owned(), kernel.to_owned());
            let (args_bytes, threads, dynamic_lds) = (args_bytes.parse()?, threads.parse()?, dynamic_lds.parse()?);
            Ok(Launch { target, label, file: folder.join(file), kernel, args_bytes, threads, dynamic_lds })
        })
        .collect()
}

/// Compiles each source once for each target, on all processors.
fn compile(clang: &Clang, launches: &[Launch]) -> Result<Vec<Usage>> {
    let mut jobs: Vec<(&PathBuf, &str)> = launches.iter().map(|launch| (&launch.file, &*launch.target)).collect();
    jobs.sort();
    jobs.dedup();
    let made = workers::on_all_processors(&jobs, |&(file, target)| {
        clang.assembly(file, target).and_then(|assembly| Usage::all(&assembly))
    })?;
    let done: BTreeMap<_, _> = jobs.into_iter().zip(made).collect();
    launches
        .iter()
        .map(|launch| {
            let (label, target) = (&launch.label, &launch.target);
            let made = done.get(&(&launch.file, &*launch.target)).context("a kernel source was not compiled")?;
            let usages =
                made.as_ref().map_err(|error| anyhow::anyhow!("{label} does not compile for {target}: {error:#}"))?;
            let usage = usages.get(&launch.kernel);
            usage.cloned().with_context(|| format!("{label}: no kernel {} for {target}", launch.kernel))
        })
        .collect()
}
