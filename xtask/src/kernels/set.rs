//! Sets of precompiled kernels, one file per target, compiled by AMD's own hiprtc.
//!
//! A session that finds a set beside the library (`lib/kernels`, or `AMDGPU_EP_KERNEL_PATH`) compiles only the kernels
//! that the set lacks. A set contains the catalogue, and the kernels of models if their sources are given. Code is
//! cached by its source, so a set is cheap to make again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::output::{self, Output};
use crate::shard::{self, Shard};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, rocm, shell, workers};

/// The number of parts into which CI splits the targets: each commit makes the sets of the next one.
const PARTS: usize = 12;

/// The targets for which a release contains sets.
///
/// # Errors
/// When the program that lists them cannot be built.
pub fn shipped(workspace: &Workspace) -> Result<Vec<String>> {
    let list = shell::capture_stdout(&mut Command::new(compiler(workspace)?))?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Compiles the catalogue, and the sources in the folder `texts` if given, for targets into sets in the folder `out`.
///
/// # Errors
/// A source does not compile, or a set cannot be written. A missing compiler is a skip.
pub fn run(workspace: &Workspace, targets: &[String], texts: Option<&Path>, out: &Path) -> Result<Outcome> {
    run_part(workspace, targets, texts, out, Shard::WHOLE)
}

/// Compiles only the sources in the folder `texts` for a target into a set in the folder `out`.
///
/// # Errors
/// As for [`run`].
pub fn run_texts(workspace: &Workspace, target: &str, texts: &Path, out: &Path) -> Result<Outcome> {
    run_part(workspace, &[target.to_owned()], Some(texts), out, Shard::NOTHING)
}

fn run_part(
    workspace: &Workspace,
    targets: &[String],
    texts: Option<&Path>,
    out: &Path,
    shard: Shard,
) -> Result<Outcome> {
    let program = compiler(workspace)?;
    if let Err(reason) = rocm::with_newest(workspace, &program) {
        return Ok(Outcome::Skipped(reason));
    }
    fs::create_dir_all(out)?;
    let cache = workspace.target().join("kernel-code");
    let to = Output::here();
    // Within a process, hiprtc compiles one source at a time.
    let made = workers::on_all_processors(targets, |target| {
        let (made, said) = output::captured(|| {
            let mut compile = rocm::with_newest(workspace, &program).map_err(anyhow::Error::msg)?;
            compile.args([out, &cache]).arg(target).args(texts).env(shard::VARIABLE, shard.variable());
            shell::run(&mut compile)
        });
        to.say(said.trim_end());
        made
    })?;
    made.into_iter().collect::<Result<()>>()?;
    let bytes: u64 =
        fs::read_dir(out)?.flatten().filter_map(|entry| entry.metadata().ok()).map(|file| file.len()).sum();
    Ok(Outcome::Passed(format!("{} sets, {} KiB in {}", targets.len(), bytes / 1024, workspace.relative(out))))
}

/// Makes the sets that are due from the part of the catalogue that is due, and looks up every kernel in them as a
/// session without a compiler does.
///
/// # Errors
/// A set cannot be made, or lacks a kernel.
pub fn check(context: &Context<'_>) -> Result<Outcome> {
    let (workspace, shard) = (context.workspace, context.due(super::PARTS, 2));
    let out = workspace.target().join("kernel-set");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    let targets = context.due(PARTS, 0).of(shipped(workspace)?);
    let outcome = run_part(workspace, &targets, None, &out, shard)?;
    if matches!(outcome, Outcome::Passed(_)) {
        let mut test = Command::new(built::test(workspace, "kernel-catalogue", "compilers")?);
        test.env("AMDGPU_EP_TEST_KERNEL_SET", format!("{}={}", out.display(), targets.join(",")));
        test.env(shard::VARIABLE, shard.variable());
        shell::run(test.args(["--nocapture", "a_precompiled_set"]))?;
    }
    Ok(outcome.with(&format!(": {}{}", targets.join(", "), shard.note())))
}

fn compiler(workspace: &Workspace) -> Result<PathBuf> {
    built::example(workspace, "kernel-catalogue", "compile_set")
}
