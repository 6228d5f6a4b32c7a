//! A compiler for Windows: the machine's own, or Debian's packages unpacked under `target/windows/compiler`.
//!
//! Debian has no Rust standard library for Windows, but has its sources: it is built once, with the compiler of the same
//! version, and put where the compiler expects it.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::{self, Apt, Userland};
use crate::workspace::Workspace;
use crate::{output, shell};

/// Cargo's name for Windows with MinGW's C library.
pub const TARGET: &str = "x86_64-pc-windows-gnu";

/// MinGW's prefix for the names of programs.
const MINGW: &str = "x86_64-w64-mingw32";

/// The suite whose packages `rustc-web`, `cargo-web` and `rust-web-src` are as new as our code needs, and have the same
/// version.
const SUITE: &str = "trixie";
const PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "gcc-mingw-w64-x86-64-win32", debian::PATCHELF];

/// Compiles for Windows.
pub struct Compiler {
    /// Cargo, the compiler and the folder of MinGW's programs; without them, the machine has its own.
    unpacked: Option<(PathBuf, PathBuf, PathBuf)>,
    target: PathBuf,
}

impl Compiler {
    /// The machine's own compiler, or else Debian's, unpacked on first use.
    ///
    /// # Errors
    /// Why there is none here, in one line.
    pub fn find(workspace: &Workspace) -> Result<Self, String> {
        let target = workspace.target().join("windows/build");
        if is_installed() {
            return Ok(Self { unpacked: None, target });
        }
        let folder = workspace.target().join("windows/compiler");
        let made = unpack(&folder).and_then(|()| build_std(&folder, &target));
        made.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
        Ok(Self { unpacked: Some(programs(&folder)), target })
    }

    /// A cargo command in `root` that builds for Windows, in its own folder.
    ///
    /// # Errors
    /// When `PATH` cannot be extended.
    pub fn cargo(&self, root: &Path, command: &str) -> Result<Command> {
        let mut cargo = match &self.unpacked {
            Some(programs) => unpacked_cargo(programs, root)?,
            None => shell::cargo(root),
        };
        cargo.args([command, "--target", TARGET]).env("CARGO_TARGET_DIR", &self.target);
        // Test programs link several times faster without line tables.
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "0");
        Ok(cargo)
    }

    /// What the headers of a library or program say, as text.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn headers(&self, file: &Path) -> Result<String> {
        let program = format!("{MINGW}-objdump");
        let program = self.unpacked.as_ref().map_or_else(|| PathBuf::from(&program), |(_, _, bin)| bin.join(&program));
        shell::capture(Command::new(program).arg("-p").arg(file))
    }
}

/// Whether the machine has a standard library for the target, and a linker.
fn is_installed() -> bool {
    let printed = shell::capture(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]));
    let has_library = printed.is_ok_and(|folder| Path::new(folder.trim()).is_dir());
    has_library && shell::succeeds(format!("{MINGW}-gcc"), &["--version"])
}

/// Cargo, the compiler, and the folder of MinGW's programs.
fn programs(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let bin = folder.join("root/usr/bin");
    (bin.join("cargo"), bin.join("rustc"), folder.join("bin"))
}

fn unpacked_cargo((cargo, rustc, bin): &(PathBuf, PathBuf, PathBuf), root: &Path) -> Result<Command> {
    let mut command = shell::cargo_at(cargo, root);
    let path = env::var_os("PATH").unwrap_or_default();
    command.env("PATH", env::join_paths([bin.clone()].into_iter().chain(env::split_paths(&path)))?);
    command.env("RUSTC", rustc).env_remove("RUSTFLAGS").env_remove("RUSTC_WRAPPER");
    for (variable, program) in
        [("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", "gcc"), ("CC_x86_64_pc_windows_gnu", "gcc")]
    {
        command.env(variable, format!("{MINGW}-{program}"));
    }
    command.env("AR_x86_64_pc_windows_gnu", format!("{MINGW}-ar"));
    Ok(command)
}

fn unpack(folder: &Path) -> Result<()> {
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(());
    }
    let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
    output::say(format_args!("unpacking Debian's Rust and MinGW into target/windows/compiler"));
    let apt = Apt::new(folder, &mirror, &[SUITE])?;
    apt.unpack_with_dependencies(SUITE, &PACKAGES)?;
    let userland = Userland::of(folder);
    let usr = folder.join("root/usr");
    for program in ["rustc", "cargo"] {
        userland.relocate(&usr.join("bin").join(program))?;
    }
    // LLVM's library has a search path with the folder of an installation, which the loader would then search instead
    // of ours.
    let llvm = fs::read_dir(usr.join("lib/x86_64-linux-gnu"))?.flatten().map(|entry| entry.path());
    let is_llvm =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libLLVM.so."));
    userland.drop_own_path(&llvm.into_iter().find(is_llvm).context("LLVM is missing")?)?;
    // Put only MinGW's programs into the folder that is added to `PATH`: the unpacked folder also has a C compiler for
    // Linux, which does not run here.
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    for tool in ["ar", "as", "dlltool", "gcc-win32", "ld", "nm", "objdump", "ranlib"] {
        let program = fs::canonicalize(usr.join("bin").join(format!("{MINGW}-{tool}")))?;
        userland.relocate(&program)?;
        symlink(&program, bin.join(format!("{MINGW}-{}", tool.trim_end_matches("-win32"))))?;
    }
    let parts = fs::read_dir(usr.join("lib/gcc").join(MINGW))?.next().context("MinGW's compiler is missing")??.path();
    userland.relocate(&parts.join("collect2"))?;
    start_with_loader(&userland, &parts.join("cc1"))?;
    fs::write(complete, "")?;
    Ok(())
}

/// Replaces a program with a script that starts it with the folder's loader: patching this one breaks it.
fn start_with_loader(userland: &Userland, program: &Path) -> Result<()> {
    let moved = program.with_extension("elf");
    fs::rename(program, &moved)?;
    let loader = userland.loader(&[])?;
    fs::write(program, format!("#!/bin/sh\nexec {} {} \"$@\"\n", loader.join(" "), moved.display()))?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Builds the standard library, and puts it where the compiler looks for it.
fn build_std(folder: &Path, target: &Path) -> Result<()> {
    let library = folder.join("root/usr/lib/rustlib").join(TARGET).join("lib");
    if library.exists() {
        return Ok(());
    }
    output::say(format_args!("building Rust's standard library for {TARGET}"));
    let package = folder.join("std");
    fs::create_dir_all(package.join("src"))?;
    fs::write(
        package.join("Cargo.toml"),
        "[package]\nname = \"empty\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n",
    )?;
    fs::write(package.join("src/lib.rs"), "")?;
    let mut cargo = unpacked_cargo(&programs(folder), &package)?;
    // Building the library is an unstable feature of cargo, and the library uses unstable features of the language.
    cargo.env("RUSTC_BOOTSTRAP", "1").args(["build", "--release", "--target", TARGET]);
    cargo.arg("-Zbuild-std=std,panic_unwind,test,proc_macro");
    let own = target.with_file_name("std");
    shell::run(cargo.env("CARGO_TARGET_DIR", &own)).context("could not build the standard library")?;
    let draft = library.with_extension("draft");
    let _ = fs::remove_dir_all(&draft);
    fs::create_dir_all(&draft)?;
    for built in fs::read_dir(own.join(TARGET).join("release/deps"))? {
        let built = built?.path();
        let name = built.file_name().unwrap_or_default();
        if built.extension().is_some_and(|e| e == "rlib") && !name.to_string_lossy().starts_with("libempty-") {
            fs::copy(&built, draft.join(name))?;
        }
    }
    fs::rename(&draft, &library)?;
    fs::remove_dir_all(&own)?;
    Ok(())
}
