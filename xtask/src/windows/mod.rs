//! Builds the libraries, the command and the wheel for Windows, and tests them under Wine in Windows' ONNX Runtime.
//!
//! Neither the compiler nor Wine has to be installed: both come from Debian's packages, unpacked under
//! `target/windows`. Without them, the rest is skipped with a reason.

mod compiler;
mod python;
mod suites;
mod wine;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::backends::Backends;
use crate::build_paths::BuildPaths;
use crate::platform::Platform;
use crate::shard::Shard;
use crate::stage::{self, Stage};
use crate::test::{Context, Outcome};
use crate::{pytest, setup, wheel};

use compiler::Compiler;
pub use compiler::TARGET;
use wine::Wine;

/// Libraries of Windows that ours may need. A library of MinGW would be missing on other machines.
const SYSTEM_LIBRARIES: [&str; 14] = [
    "advapi32.dll",
    "bcrypt.dll",
    "bcryptprimitives.dll",
    "crypt32.dll",
    "gdi32.dll",
    "kernel32.dll",
    "msvcrt.dll",
    "ntdll.dll",
    "ole32.dll",
    "secur32.dll",
    "shell32.dll",
    "user32.dll",
    "userenv.dll",
    "ws2_32.dll",
];

/// The start of the names of Windows' API sets.
const API_SETS: &str = "api-ms-win-";

/// What is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For tests: quickly, under `target/windows/stage`.
    Dev,
    /// For users: with optimisations, in `dist/windows`.
    Dist,
}

impl Build {
    pub fn from_dev_flag(dev: bool) -> Self {
        if dev { Self::Dev } else { Self::Dist }
    }
}

/// A part of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suite {
    /// Public models.
    Models,
    /// The command, conversations, the server, consoles, the wheel, and sessions in Python.
    Programs,
    /// Tests in Rust.
    Rust,
}

const SUITES: [Suite; 3] = [Suite::Models, Suite::Programs, Suite::Rust];

/// One suite is due with every fourth commit.
const COMMITS: usize = 4;

/// Builds everything, and runs all suites.
///
/// # Errors
/// When the build or a test fails. A missing compiler or Wine is a skip.
pub fn run(context: &Context<'_>, build: Build) -> Result<Outcome> {
    run_suites(context, build, &SUITES)
}

/// Runs the suite that is due, if this machine has built for Windows before: the first build takes much longer.
///
/// # Errors
/// As [`run`].
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    if context.is_whole {
        return run(context, Build::Dev);
    }
    let Some(suite) = due(context.due(SUITES.len() * COMMITS, 0)) else {
        let often = format!("one of {} suites is due with every {COMMITS}th commit", SUITES.len());
        return Ok(Outcome::Skipped(format!("{often}; `cargo xtask windows --dev` runs them all")));
    };
    if !dev_stage(context).exists() {
        return Ok(Outcome::Skipped("not built for Windows yet; `cargo xtask windows --dev` does it".to_owned()));
    }
    run_suites(context, Build::Dev, &[suite])
}

fn due(shard: Shard) -> Option<Suite> {
    shard.part.is_multiple_of(COMMITS).then(|| SUITES[shard.part / COMMITS])
}

fn dev_stage(context: &Context<'_>) -> PathBuf {
    context.workspace.target().join("windows/stage")
}

fn run_suites(context: &Context<'_>, build: Build, suites: &[Suite]) -> Result<Outcome> {
    let workspace = context.workspace;
    let compiler = match Compiler::find(workspace) {
        Ok(compiler) => compiler,
        Err(reason) => return Ok(Outcome::Skipped(format!("no compiler for {TARGET}: {reason}"))),
    };
    let python = context.python()?;
    let stage = stage(context, &compiler, build)?;
    let wheel = wheel::pack(workspace, &python.interpreter, &stage, &stage.root.join("wheels"))?;
    let built = format!("built {}", workspace.relative(&wheel));
    let wine = match Wine::find(workspace) {
        Ok(wine) => wine,
        Err(reason) => return Ok(Outcome::Skipped(format!("{built}, but did not run it: no Wine: {reason}"))),
    };
    let runtime = setup::windows_runtime(workspace, python)?;
    let interpreter = python::interpreter(workspace, python, &wine)?;
    let files = Files { stage, wheel, runtime, interpreter };
    let (mut notes, mut has_run) = (vec![format!("{built}; in Windows' ONNX Runtime under Wine")], false);
    for suite in suites {
        let mut ran = |name: &str, outcome: Outcome| {
            has_run |= matches!(outcome, Outcome::Passed(_));
            notes.push(match outcome {
                Outcome::Passed(note) => format!("{name}: {note}"),
                Outcome::Skipped(reason) => format!("{name} skipped: {reason}"),
            });
        };
        match suite {
            Suite::Models => ran("models", files.sessions(context, &wine, "windows-models", &[MODELS])?),
            Suite::Programs => {
                let others = ["tests/windows", "--ignore", MODELS];
                ran("programs", files.sessions(context, &wine, "windows", &others)?);
                ran("Python", python::suite(context, &files.stage, &wine, &files.interpreter)?);
            }
            Suite::Rust => ran("tests in Rust", Outcome::Passed(suites::run(context, &compiler, &wine, &files)?)),
        }
    }
    let notes = notes.join("; ");
    Ok(if has_run { Outcome::Passed(notes) } else { Outcome::Skipped(notes) })
}

/// Builds the products and checks what they import.
fn stage(context: &Context<'_>, compiler: &Compiler, build: Build) -> Result<Stage> {
    let workspace = context.workspace;
    let mut cargo = compiler.cargo(workspace.root(), "build")?;
    let root = match build {
        Build::Dev => dev_stage(context),
        Build::Dist => {
            let paths = BuildPaths::find(workspace)?;
            cargo.args(["--profile", "dist"]).env("CARGO_ENCODED_RUSTFLAGS", paths.encoded_flags()?);
            // The standard library that we build has no bitcode to optimise across crates.
            cargo.env("CARGO_PROFILE_DIST_LTO", "off");
            workspace.path("dist/windows")
        }
    };
    let stage = stage::run_build(&mut cargo, &Backends::all_of(Platform::Windows), Platform::Windows, root)?;
    for file in stage.libraries().into_iter().chain([stage.command()]) {
        let foreign = foreign_imports(&compiler.headers(&file)?);
        if !foreign.is_empty() {
            bail!("{} needs {}, which Windows does not have", workspace.relative(&file), foreign.join(", "));
        }
    }
    Ok(stage)
}

/// The libraries in a file's headers, as MinGW's objdump prints them, that do not come with Windows.
fn foreign_imports(headers: &str) -> Vec<String> {
    let imported = headers.lines().filter_map(|line| line.trim().strip_prefix("DLL Name: "));
    let names = imported.map(|name| name.trim().to_ascii_lowercase());
    names.filter(|name| !SYSTEM_LIBRARIES.contains(&name.as_str()) && !name.starts_with(API_SETS)).collect()
}

/// The tests of models.
const MODELS: &str = "tests/windows/test_models.py";

/// What the tests run.
struct Files {
    stage: Stage,
    wheel: PathBuf,
    /// ONNX Runtime's library.
    runtime: PathBuf,
    /// A script that runs Windows' Python.
    interpreter: PathBuf,
}

impl Files {
    /// Runs tests of `tests/windows`, with the program apart from the libraries.
    fn sessions(&self, context: &Context<'_>, wine: &Wine, name: &str, tests: &[&str]) -> Result<Outcome> {
        pytest::run(context.workspace, context.python()?, name, |pytest| {
            pytest.args(tests).envs(wine.environment()).env_remove("DISPLAY");
            pytest.env("AMDGPU_EP_WINE", wine.program()).env("AMDGPU_EP_WINDOWS_STAGE", &self.stage.root);
            pytest.env("AMDGPU_EP_WINDOWS_ORT", &self.runtime).env("AMDGPU_EP_WHEEL", &self.wheel);
            pytest.env("AMDGPU_EP_WINDOWS_PYTHON", &self.interpreter);
        })
        .context("a test under Wine failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_due_once_in_twelve_commits() {
        let parts = SUITES.len() * COMMITS;
        let suites: Vec<Suite> = (0..parts).filter_map(|part| due(Shard { part, parts })).collect();
        assert_eq!(suites, SUITES);
    }

    #[test]
    fn libraries_that_windows_does_not_have_are_named() {
        let headers = "\tDLL Name: KERNEL32.dll\n\tvma: Hint\n\tDLL Name: libgcc_s_seh-1.dll\n\
                       \tDLL Name: api-ms-win-core-synch-l1-2-0.dll\n";
        assert_eq!(foreign_imports(headers), ["libgcc_s_seh-1.dll"]);
    }
}
