//! Sets of precompiled kernels, in the format of the kernel cache.
//!
//! A session that finds a set beside the library (`lib/kernels`, or `AMDGPU_EP_KERNEL_PATH`) compiles only missing
//! kernels. A set contains the catalogue. Sources of a model's own kernels, which the simulator writes to its folder, can
//! be added.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::clang::Clang;
use crate::test::Outcome;
use crate::workspace::Workspace;
use crate::{built, shell, workers};

/// Chips of one target differ in the number of compute units, which affects the choice of kernels: small, medium,
/// large.
const COMPUTE_UNITS: [u32; 3] = [16, 64, 304];

/// A source to compile for a target.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Job {
    kernel: String,
    text: PathBuf,
    target: String,
}

/// Compiles the catalogue, and the sources in the folder `texts` if given, for targets into the set `out`.
///
/// # Errors
/// A source does not compile, or the set cannot be written. A missing compiler is a skip.
pub fn run(workspace: &Workspace, targets: &[String], texts: Option<&Path>, out: &Path) -> Result<Outcome> {
    let clang = match Clang::find(workspace) {
        Ok(clang) => clang,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut jobs = jobs(workspace, targets)?;
    if let Some(folder) = texts {
        jobs.extend(own_texts(folder, targets)?);
    }
    let work = workspace.target().join("kernel-set-code");
    fs::create_dir_all(&work)?;
    let jobs: Vec<(Job, PathBuf)> =
        jobs.into_iter().enumerate().map(|(number, job)| (job, work.join(format!("{number}.co")))).collect();
    let made = workers::on_all_processors(&jobs, |(job, code)| clang.code(&job.text, &job.target, code))?;
    let (mut list, mut faults) = (String::new(), Vec::new());
    for ((job, code), made) in jobs.iter().zip(made) {
        let (text, code) = (job.text.display(), code.display());
        match made {
            Ok(()) => writeln!(list, "{}\t{text}\t{}\t{code}", job.kernel, job.target)?,
            Err(error) => faults.push(format!("{text} for {}: {error:#}", job.target)),
        }
    }
    if !faults.is_empty() {
        bail!("{} kernel sources do not compile\n  {}", faults.len(), faults.join("\n  "));
    }
    let file = work.join("list.tsv");
    fs::write(&file, list)?;
    shell::run(Command::new(built::example(workspace, "kernels", "ship")?).args([&*file, out]))?;
    fs::remove_dir_all(&work)?;
    let bytes: u64 =
        fs::read_dir(out)?.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum();
    let (count, shown) = (jobs.len(), out.display());
    Ok(Outcome::Passed(format!("{count} kernels, {} KiB in {shown}, compiled by {}", bytes / 1024, clang.version())))
}

/// Makes a set, and looks up every kernel in it as a session without a compiler does.
///
/// # Errors
/// The set cannot be made, or lacks a kernel.
pub fn check(workspace: &Workspace, targets: &[&str]) -> Result<Outcome> {
    let out = workspace.target().join("kernel-set");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let named: Vec<String> = targets.iter().map(|&target| target.to_owned()).collect();
    let outcome = run(workspace, &named, None, &out)?;
    if matches!(outcome, Outcome::Passed(_)) {
        let mut test = Command::new(built::test(workspace, "kernels", "compilers")?);
        test.env("AMDGPU_EP_TEST_KERNEL_SET", format!("{}={}", out.display(), targets.join(",")));
        shell::run(test.args(["--nocapture", "a_set_made_beforehand"]))?;
    }
    Ok(outcome)
}

fn jobs(workspace: &Workspace, targets: &[String]) -> Result<BTreeSet<Job>> {
    let sized: Vec<String> =
        targets.iter().flat_map(|target| COMPUTE_UNITS.map(|units| format!("{target}@{units}"))).collect();
    let launches = super::catalogue(workspace, "kernel-set-texts", &sized)?;
    Ok(launches.into_iter().map(|one| Job { kernel: one.kernel, text: one.file, target: one.target }).collect())
}

/// The sources in a folder, named `KERNEL-DIGEST.hip`, as the simulator writes them.
fn own_texts(folder: &Path, targets: &[String]) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let text = entry?.path();
        let name = text.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let Some((kernel, _)) = name.rsplit_once('-').filter(|_| text.extension().is_some_and(|e| e == "hip")) else {
            continue;
        };
        let job = |target: &String| Job { kernel: kernel.to_owned(), text: text.clone(), target: target.clone() };
        jobs.extend(targets.iter().map(job));
    }
    Ok(jobs)
}
