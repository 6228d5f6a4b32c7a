//! Makes the shippable files.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::backends::Backends;
use crate::build_paths::BuildPaths;
use crate::platform::Platform;
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{bom, kernels, setup, shell, stage, symbols, wheel};

/// The oldest glibc that releases run on, and cargo's target triple. Debian 10, RHEL 8 and Ubuntu 20.04 have this
/// glibc.
const GLIBC: (u32, u32) = (2, 28);
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The most that compiled kernels may add to the wheel, compressed.
const KERNEL_BYTES: u64 = 40 << 20;

/// Prints how many bytes of the wheel that it is given are compiled kernels.
const KERNEL_BYTES_OF_WHEEL: &str = "\
import sys, zipfile
files = zipfile.ZipFile(sys.argv[1]).infolist()
print(sum(file.compress_size for file in files if '/lib/kernels/' in file.filename))";

/// The value of `--kernels` for a release without compiled kernels.
const NO_KERNELS: &str = "none";

/// Writes `dist/lib`, `dist/bin` and `dist/wheels` with the chosen backends and with kernels for `targets`, or for all
/// that releases have if none is named. Checks what the libraries export and need, and checks the wheel. `dist/sbom` lists the contents of each file, and
/// `dist/SHA256SUMS` the checksums.
///
/// zig is the linker: it knows the symbols of every glibc, so the build machine's glibc does not matter.
///
/// # Errors
/// When the build or a check fails, or a file cannot be written.
pub fn run(workspace: &Workspace, targets: &[String], backends: &Backends) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "shippable files can be built only on Linux x86-64\n  help: cargo xtask stage --release builds for this machine"
        );
    }
    let has_hip = backends.include(Some("hip"));
    if !targets.is_empty() && !has_hip {
        bail!("--kernels needs the hip backend, but --backends excludes it\n  help: set only one of them");
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
    let paths = BuildPaths::find(workspace)?;
    build.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", paths.encoded_flags()?);
    let stage = stage::run_build(&mut build, backends, Platform::Host, root.clone())?;
    symbols::run(&stage)?;
    for file in stage.libraries().into_iter().chain([stage.command()]) {
        let newest = symbols::read(&file)?.glibc;
        if newest > Some(GLIBC) {
            bail!("{} needs glibc {newest:?}, newer than the promised {GLIBC:?}", workspace.relative(&file));
        }
    }
    if has_hip && targets != [NO_KERNELS] {
        compile_kernels(workspace, targets, &stage)?;
    }
    paths.check(&files(&[root.join("lib"), root.join("bin")])?)?;
    let wheel = wheel::pack(workspace, &python.interpreter, &stage, &root.join("wheels"))?;
    check_kernel_bytes(&python.interpreter, &wheel)?;
    wheel::check(workspace, &python, &wheel, backends)?;
    bom::write(workspace, &stage, &[&wheel])?;
    let shipped = files(std::slice::from_ref(&root))?;
    checksums(&root, &shipped)?;
    for file in shipped.iter().filter(|file| !file.starts_with(stage.kernels())) {
        println!("{:>9} KiB  {}", fs::metadata(file)?.len() / 1024, workspace.relative(file));
    }
    Ok(())
}

/// Writes the sets of compiled kernels: the catalogue, and what well-known models need.
fn compile_kernels(workspace: &Workspace, targets: &[String], stage: &Stage) -> Result<()> {
    let targets = if targets.is_empty() { kernels::set::shipped(workspace)? } else { targets.to_vec() };
    let texts = workspace.target().join("kernel-texts");
    kernels::models::record(&Context::new(workspace, true), &kernels::models::CHIPS, &texts)?;
    match kernels::set::run(workspace, &targets, Some(&texts), &stage.kernels())? {
        Outcome::Passed(note) => println!("{note}"),
        Outcome::Skipped(reason) => bail!("could not compile the kernels: {reason}\n  help: --kernels {NO_KERNELS}"),
    }
    Ok(())
}

/// Checks and prints how much of a wheel is compiled kernels.
fn check_kernel_bytes(interpreter: &Path, wheel: &Path) -> Result<()> {
    let printed = shell::capture_stdout(Command::new(interpreter).args(["-c", KERNEL_BYTES_OF_WHEEL]).arg(wheel))?;
    let bytes: u64 = printed.trim().parse().context("expected a number of bytes")?;
    if bytes > KERNEL_BYTES {
        bail!("compiled kernels take {bytes} bytes of the wheel, more than the promised {KERNEL_BYTES}");
    }
    println!("compiled kernels take {} KiB of the wheel", bytes / 1024);
    Ok(())
}

/// The files below the folders, sorted.
fn files(folders: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let (mut open, mut files) = (folders.to_vec(), Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() { open.push(entry.path()) } else { files.push(entry.path()) }
        }
    }
    files.sort();
    Ok(files)
}

/// Writes `SHA256SUMS` in the format of `sha256sum --check`, with paths relative to `root`.
fn checksums(root: &Path, files: &[PathBuf]) -> Result<()> {
    let mut sums = Command::new("sha256sum");
    sums.current_dir(root).arg("--");
    for file in files {
        sums.arg(file.strip_prefix(root).unwrap_or(file));
    }
    let text = shell::capture(&mut sums)?;
    fs::write(root.join("SHA256SUMS"), text).context("cannot write SHA256SUMS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_checked_where_the_files_are() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("lib/b", "two"), ("lib/kernels/c", "three"), ("bin/a", "one")] {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let found = files(&["bin", "lib"].map(|name| folder.path().join(name))).unwrap();
        checksums(folder.path(), &found).unwrap();
        let check =
            || Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(folder.path()).status();
        assert!(check().unwrap().success());
        let text = fs::read_to_string(folder.path().join("SHA256SUMS")).unwrap();
        assert_eq!(text.lines().map(|line| &line[66..]).collect::<Vec<_>>(), ["bin/a", "lib/b", "lib/kernels/c"]);
        fs::write(folder.path().join("lib/b"), "changed").unwrap();
        assert!(!check().unwrap().success());
    }
}
