//! Tests against the real MIGraphX from Debian's packages, with its `ref` target, which needs no GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::debian::{self, Apt, Userland};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, output, pytest, shell};

/// The only suite that has MIGraphX.
const SUITE: &str = "sid";

/// The packages that the C library and the `ref` target need. Their declared dependencies would pull in all of ROCm,
/// which only the `gpu` target uses.
const PACKAGES: [&str; 8] = [
    "libmigraphx-c3",
    "migraphx-tools",
    "libprotobuf32t64",
    "libsqlite3-0",
    "libstdc++6",
    "libgcc-s1",
    "libc6",
    "zlib1g",
];

/// The `gpu` target, nine tenths of the size.
const LEFT_OUT: [&str; 3] = ["*libmigraphx_device*", "*libmigraphx_gpu*", "*/share/*"];

/// Unpacks MIGraphX on first use and runs tests with it: those of `backend-migraphx` and `textgen`, then those in ONNX
/// Runtime from Python.
///
/// # Errors
/// When a test fails. Packages that are not available here are a skip.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    let migraphx = match Migraphx::unpacked(context.workspace) {
        Ok(migraphx) => migraphx,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let library = migraphx.library()?;
    let test = built::test(context.workspace, "backend-migraphx", "library")?;
    shell::run(migraphx.command(&test)?.env("AMDGPU_EP_TEST_MIGRAPHX", &library))?;
    context.stage()?;
    // The step `rust` has already run the other rows of the goldens.
    for (name, rows) in [("static_shapes", None), ("goldens", Some("migraphx"))] {
        let test = built::test(context.workspace, "textgen", name)?;
        let mut command = migraphx.command(&test)?;
        command
            .args(rows)
            .env("AMDGPU_EP_TEST_MIGRAPHX", &library)
            .env("AMDGPU_EP_MIGRAPHX_LIBRARY", &library)
            .env("AMDGPU_EP_MIGRAPHX_TARGET", "ref")
            .env("AMDGPU_EP_DRIVER", "host");
        shell::run(&mut command)?;
    }
    let interpreter = migraphx.interpreter(&context.python()?.interpreter)?;
    let name = migraphx.name()?;
    output::say(format_args!("in ONNX Runtime, on {name}"));
    Ok(match pytest::migraphx(context, &interpreter, &library)? {
        Outcome::Passed(note) => Outcome::Passed(format!("{name}: {note} in ONNX Runtime")),
        Outcome::Skipped(reason) => Outcome::Passed(format!("{name}; ONNX Runtime tests skipped ({reason})")),
    })
}

/// The unpacked MIGraphX.
struct Migraphx {
    folder: PathBuf,
    userland: Userland,
}

impl Migraphx {
    /// Unpacks it on first use.
    ///
    /// # Errors
    /// Why it is not available here, in one line.
    fn unpacked(workspace: &Workspace) -> Result<Self, String> {
        let folder = workspace.target().join("migraphx");
        Self::unpack(&folder).map_err(|error| {
            output::say(format_args!("could not unpack MIGraphX: {error:#}"));
            error.to_string().lines().next().unwrap_or_default().to_owned()
        })
    }

    fn unpack(folder: &Path) -> Result<Self> {
        let migraphx = Self { folder: folder.to_owned(), userland: Userland::of(folder) };
        let complete = folder.join("complete");
        if !complete.exists() {
            let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
            output::say(format_args!("unpacking {} into target/migraphx", PACKAGES[..2].join(" and ")));
            Apt::new(folder, &mirror, &[SUITE])?.unpack_only(&PACKAGES, &LEFT_OUT)?;
            migraphx.library()?;
            fs::write(complete, "")?;
        }
        Ok(migraphx)
    }

    /// The C library.
    ///
    /// # Errors
    /// When the packages do not contain it.
    fn library(&self) -> Result<PathBuf> {
        self.userland.library("libmigraphx_c.so.3")
    }

    /// A program that is started with these libraries. Its child processes do not use them.
    fn command(&self, program: &Path) -> Result<Command> {
        let loader = self.userland.loader(&self.own_folders())?;
        let mut command = shell::user_program(&loader[0]);
        command.args(&loader[1..]).arg(program);
        Ok(command)
    }

    /// A script that starts a Python interpreter with these libraries.
    fn interpreter(&self, python: &Path) -> Result<PathBuf> {
        let script = self.folder.join("python");
        self.userland.interpreter(python, &script, &self.own_folders())?;
        Ok(script)
    }

    fn own_folders(&self) -> [PathBuf; 2] {
        self.userland.library_folders().map(|folder| folder.join("migraphx/lib"))
    }

    /// The release, for the report.
    fn name(&self) -> Result<String> {
        let core = self.own_folders();
        let files = core.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let number = files.filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            name.strip_prefix("libmigraphx.so.")?.parse::<u32>().ok()
        });
        let number = number.max().context("the packages do not contain libmigraphx.so.<number>")?;
        let (major, minor, patch) = (number / 1_000_000, number / 1000 % 1000, number % 1000);
        Ok(format!("MIGraphX {major}.{minor}.{patch}, target ref"))
    }
}
