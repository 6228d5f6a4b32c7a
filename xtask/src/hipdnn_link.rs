//! Tests both ways to use hipDNN, loading and linking, from a crate outside the workspace: `examples/hipdnn-consumer`.
//!
//! Its programs are built together. The one that loads hipDNN at run time must not be linked with it, the linked one
//! must compute the same result, and the one that does both must have two libraries. The frontend's own tests, which
//! load their library in the step `rust`, run linked here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::stage::{self, Stage};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, shell, symbols};

/// The package outside the workspace.
const CONSUMER: &str = "hipdnn-consumer";
/// Its tests, which are the frontend's.
const TESTS: [&str; 3] = ["logging", "plans", "serialized"];
/// The workspace's own sample.
const SAMPLE: &str = "02-convolution";
/// hipDNN's own file name.
const LIBRARY: &str = "libhipdnn_backend.so";

/// Builds, inspects and runs the programs, with our CPU library under hipDNN's name.
///
/// # Errors
/// When a program cannot be built or run, needs a library that it should not, or computes a different result.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("this step reads ELF files".into()));
    }
    let (workspace, stage) = (context.workspace, context.stage()?);
    let folder = workspace.target().join("hipdnn-link");
    let host = folder.join("host");
    stage::copy_atomically(&stage.library("hipdnn_host"), &host.join(LIBRARY))?;
    let messages = build(workspace, &host)?;
    let program = |name: &str| {
        shell::executable(&messages, CONSUMER, name).with_context(|| format!("cargo did not build the program {name}"))
    };

    let by_path = [("HIPDNN_BACKEND_LIBRARY_PATH", host.as_path())];
    let by_linker = [("LD_LIBRARY_PATH", host.as_path())];
    let sample = built::example(workspace, "hipdnn", SAMPLE)?;
    is_not_linked(&sample)?;
    verified(stage, &sample, &by_path)?;
    let (loaded, linked, both) = (program("loaded")?, program("linked")?, program("both")?);
    is_not_linked(&loaded)?;
    is_linked(&linked)?;
    is_linked(&both)?;
    let by_loading = verified(stage, &loaded, &by_path)?;
    let by_linking = verified(stage, &linked, &by_linker)?;
    if by_loading != by_linking {
        bail!("the programs' results differ\n  loaded: {by_loading}\n  linked: {by_linking}");
    }
    let other = stage.library("hipdnn_host");
    verified(stage, &both, &[by_linker[0], ("AMDGPU_EP_HIPDNN_LIBRARY", other.as_path())])?;

    let stand_in = stand_in(workspace, &folder.join("stand-in"))?;
    for name in TESTS {
        let test = program(name)?;
        is_linked(&test)?;
        shell::run(shell::user_program(&test).arg("--quiet").env("LD_LIBRARY_PATH", &stand_in))?;
    }
    Ok(Outcome::Passed(format!("loaded and linked: {by_loading}; linked: tests {}", TESTS.join(", "))))
}

/// Builds the consumer's programs and tests, linked with the library in `folder`, and returns cargo's messages.
fn build(workspace: &Workspace, folder: &Path) -> Result<String> {
    let root = workspace.path("examples").join(CONSUMER);
    // Pin the workspace's versions; cargo drops the entries that are not needed.
    let lock = root.join("Cargo.lock");
    fs::copy(workspace.path("Cargo.lock"), &lock).with_context(|| format!("cannot write {}", lock.display()))?;
    let mut messages = String::new();
    for arguments in [["build", "--bins"], ["test", "--no-run"]] {
        let mut build = shell::cargo(&root);
        // A shared target folder builds common dependencies once.
        build.args(arguments).arg("--target-dir").arg(workspace.target()).env("HIPDNN_LINK_FOLDER", folder);
        messages += &shell::capture_stdout(build.args(["--message-format", "json-render-diagnostics"]))?;
    }
    Ok(messages)
}

/// Builds the complete stand-in library for the frontend's tests and returns its folder.
fn stand_in(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-DWHOLE", "-o"]).arg(folder.join(LIBRARY));
    shell::run(compiler.arg(workspace.path("crates/hipdnn/tests/common/stand_in.c")))?;
    Ok(folder.to_owned())
}

fn is_not_linked(program: &Path) -> Result<()> {
    let interface = symbols::read(program)?;
    let hipdnn: Vec<&String> = interface.undefined.iter().filter(|symbol| symbol.starts_with("hipdnn")).collect();
    let needed: Vec<&String> = interface.needed.iter().filter(|library| library.contains("hipdnn")).collect();
    if !hipdnn.is_empty() || !needed.is_empty() {
        bail!("{} should load hipDNN at run time, but is linked with {hipdnn:?} of {needed:?}", program.display());
    }
    Ok(())
}

fn is_linked(program: &Path) -> Result<()> {
    let interface = symbols::read(program)?;
    let missing: Vec<&str> =
        symbols::hipdnn_exports().into_iter().filter(|&symbol| !interface.undefined.contains(symbol)).collect();
    if !interface.needed.contains(LIBRARY) || !missing.is_empty() {
        let needed = &interface.needed;
        bail!("{} should be linked with {LIBRARY}, but needs {needed:?} and lacks {missing:?}", program.display());
    }
    Ok(())
}

/// Runs a program on the host driver and returns the line where it reports a verified result.
fn verified(stage: &Stage, program: &Path, variables: &[(&str, &Path)]) -> Result<String> {
    let mut sample = shell::user_program(program);
    sample.env("AMDGPU_EP_DRIVER", "host").env("AMDGPU_EP_HIP_HOST_LIBRARY", stage.library("hip-host"));
    sample.env_remove("AMDGPU_EP_HIPDNN_LIBRARY").env_remove("HIPDNN_BACKEND_LIBRARY_PATH");
    sample.envs(variables.iter().copied());
    let last = shell::run_to_last_line(&mut sample)?;
    if !last.starts_with("verified: ") {
        bail!("{} did not verify its result\n  {last}", program.display());
    }
    Ok(last)
}
