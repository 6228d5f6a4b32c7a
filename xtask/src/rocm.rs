//! The real HIP runtimes from Debian's packages: the driver loader must take each of them, and ONNX Runtime must go on where
//! they find no device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::debian::{self, Apt, Mirror};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{pytest, shell};

/// One HIP runtime to test against.
struct Userland {
    /// Folder under `target/rocm`.
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static [&'static str],
    library: &'static str,
    /// A target that this version's hiprtc knows, with its features where devices name them; 5.x aborts the process when given a newer one.
    rtc_arch: &'static str,
    /// Targets that it compiles all our kernels for.
    kernel_targets: &'static str,
}

const USERLANDS: [Userland; 3] = [
    Userland {
        name: "rocm-7.2",
        suites: &["forky", "sid", "experimental"],
        packages: &["libhiprtc7", "libamdhip64-7"],
        library: "libamdhip64.so.7",
        rtc_arch: "gfx942:sramecc+:xnack-",
        kernel_targets: "gfx942:sramecc+:xnack-,gfx1100,gfx1201",
    },
    Userland {
        name: "rocm-6.4",
        suites: &["forky", "sid"],
        packages: &["libhiprtc6", "libamdhip64-6"],
        library: "libamdhip64.so.6",
        rtc_arch: "gfx90a:sramecc+:xnack-",
        kernel_targets: "gfx90a:sramecc+:xnack-,gfx1030",
    },
    Userland {
        name: "rocm-5.2",
        suites: &["bookworm"],
        packages: &["libamdhip64-5"],
        library: "libamdhip64.so.5",
        rtc_arch: "gfx1030",
        kernel_targets: "gfx906",
    },
];

/// Unpacks what is missing, runs the driver tests of the `hip` crate in each userland, compiles all kernels there, and creates
/// sessions of ONNX Runtime on the runtime that finds no device.
///
/// # Errors
/// When a test fails. A userland that cannot be had here is a skip.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    let workspace = context.workspace;
    let mirror = match debian::mirror() {
        Ok(mirror) => mirror,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut notes = Vec::new();
    let mut unpacked = Vec::new();
    for userland in &USERLANDS {
        let folder = workspace.target().join("rocm").join(userland.name);
        match userland.unpack(&folder, &mirror) {
            Ok(()) => {
                notes.push(userland.name.to_owned());
                unpacked.push((userland, folder));
            }
            Err(error) => {
                println!("{} skipped: {error:#}", userland.name);
                let reason = error.to_string();
                notes.push(format!("{} skipped ({})", userland.name, reason.lines().next().unwrap_or_default()));
            }
        }
    }
    let notes = notes.join(", ");
    if unpacked.is_empty() {
        return Ok(Outcome::Skipped(notes));
    }
    let tests = [built_test(workspace, "hip", "driver")?, built_test(workspace, "kernels", "compilers")?];
    for (userland, folder) in unpacked {
        userland.test(&folder, &tests)?;
        userland.sessions(&folder, context)?;
    }
    Ok(Outcome::Passed(notes))
}

impl Userland {
    fn unpack(&self, folder: &Path, mirror: &Mirror) -> Result<()> {
        let complete = folder.join("complete");
        if complete.exists() {
            return Ok(());
        }
        println!("unpacking {} into target/rocm/{}", self.packages.join(" and "), self.name);
        let apt = Apt::new(folder, mirror, self.suites)?;
        apt.unpack_with_dependencies(self.suites.last().copied().unwrap_or_default(), self.packages)?;
        debian::Userland::of(folder).library(self.library)?;
        fs::write(complete, "")?;
        Ok(())
    }

    fn test(&self, folder: &Path, tests: &[PathBuf]) -> Result<()> {
        let userland = debian::Userland::of(folder);
        println!("driver tests and kernels with {}", self.name);
        let loader = userland.loader(&[])?;
        for test in tests {
            let mut command = Command::new(&loader[0]);
            command
                .args(&loader[1..])
                .arg(test)
                .env("AMDGPU_EP_HIP_LIBRARY", userland.library(self.library)?)
                .env("AMDGPU_EP_TEST_REAL_HIP", "1")
                .env("AMDGPU_EP_TEST_HIPRTC_ARCH", self.rtc_arch)
                .env("AMDGPU_EP_TEST_KERNELS_AMD", self.kernel_targets);
            shell::run(&mut command)?;
        }
        Ok(())
    }
}

impl Userland {
    fn sessions(&self, folder: &Path, context: &Context<'_>) -> Result<()> {
        println!("sessions of ONNX Runtime with {}", self.name);
        let (userland, python) = (debian::Userland::of(folder), folder.join("python"));
        userland.interpreter(&context.python()?.interpreter, &python, &[])?;
        pytest::without_gpu(context, &python, &userland.library(self.library)?).map(|_| ())
    }
}

/// The program of an integration test.
pub fn built_test(workspace: &Workspace, package: &str, test: &str) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    build.args(["test", "--package", package, "--test", test, "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = shell::capture_stdout(&mut build)?;
    shell::executable(&messages, test).with_context(|| format!("cargo built no test `{test}` of package {package}"))
}
