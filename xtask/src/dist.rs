//! The shippable files.

use std::env;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::test::Outcome;
use crate::workspace::Workspace;
use crate::{kernels, setup, shell, stage, symbols, wheel};

/// The oldest glibc that releases run on, and the platform that cargo knows it by. Debian 10, RHEL 8 and Ubuntu 20.04 have it.
const GLIBC: (u32, u32) = (2, 28);
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Writes `dist/lib`, `dist/bin` and `dist/wheels`, after checking what the libraries export and need, with kernels for some
/// targets, and checks the wheel.
///
/// zig is the linker: it has the symbols of every glibc, so that the age of the machine at hand does not matter.
///
/// # Errors
/// When the build or a check fails, or a file cannot be written.
pub fn run(workspace: &Workspace, targets: &[String]) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "shippable files are made on Linux x86-64 only\n  help: cargo xtask stage --release builds for this machine"
        );
    }
    let python = setup::run(workspace)?;
    let zig = setup::tools(workspace, "dist-tools", "requirements-dist.txt", "ziglang")?;
    let tools = zig.parent().unwrap_or(Path::new(""));
    let root = workspace.path("dist");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    let mut build = shell::cargo(workspace.root());
    build.args(["zigbuild", "--profile", "dist", "--target", &format!("{TARGET}.{}.{}", GLIBC.0, GLIBC.1)]);
    let path = env::var_os("PATH").unwrap_or_default();
    build.env("PATH", env::join_paths([tools.to_path_buf()].into_iter().chain(env::split_paths(&path)))?);
    build.env("CARGO_ZIGBUILD_PYTHON_PATH", &zig);
    let stage = stage::run_build(&mut build, root.clone())?;
    symbols::run(&stage)?;
    for file in stage.libraries().into_iter().chain([stage.command()]) {
        let newest = symbols::read(&file)?.glibc;
        if newest > Some(GLIBC) {
            bail!("{} needs a newer glibc: {newest:?}, and {GLIBC:?} is promised", workspace.relative(&file));
        }
    }
    if !targets.is_empty() {
        match kernels::set::run(workspace, targets, None, &stage.kernels())? {
            Outcome::Passed(note) => println!("{note}"),
            Outcome::Skipped(reason) => bail!("the kernels can't be compiled: {reason}"),
        }
    }
    let wheel = wheel::pack(workspace, &python.interpreter, &stage, &root.join("wheels"))?;
    wheel::check(workspace, &python, &wheel)?;
    for folder in ["lib", "bin", "wheels"] {
        for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot list dist/{folder}"))? {
            let entry = entry?;
            println!("{:>9} KiB  {}", entry.metadata()?.len() / 1024, workspace.relative(&entry.path()));
        }
    }
    Ok(())
}
