//! The real HIP runtimes from Debian's packages: the driver loader must take each of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::{self, Apt, Mirror};
use crate::shell;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// One HIP runtime to test against.
struct Userland {
    /// Folder under `target/rocm`.
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static [&'static str],
    library: &'static str,
    /// A target that this version's hiprtc knows; 5.x aborts the process when given a newer one.
    rtc_arch: &'static str,
}

const USERLANDS: [Userland; 2] = [
    Userland {
        name: "rocm-7.2",
        suites: &["forky", "sid", "experimental"],
        packages: &["libhiprtc7", "libamdhip64-7"],
        library: "libamdhip64.so.7",
        rtc_arch: "gfx1100",
    },
    Userland {
        name: "rocm-5.2",
        suites: &["bookworm"],
        packages: &["libamdhip64-5"],
        library: "libamdhip64.so.5",
        rtc_arch: "gfx1030",
    },
];

/// Unpacks what is missing and runs the driver tests of the `hip` crate in each userland.
///
/// # Errors
/// When a test fails. A userland that cannot be had here is a skip.
pub fn run(workspace: &Workspace) -> Result<Outcome> {
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
    let test = driver_test(workspace)?;
    for (userland, folder) in unpacked {
        userland.test(&folder, &test)?;
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

    fn test(&self, folder: &Path, test: &Path) -> Result<()> {
        let userland = debian::Userland::of(folder);
        println!("driver tests with {}", self.name);
        let loader = userland.loader(&[])?;
        let mut command = Command::new(&loader[0]);
        command
            .args(&loader[1..])
            .arg(test)
            .env("AMDGPU_EP_HIP_LIBRARY", userland.library(self.library)?)
            .env("AMDGPU_EP_TEST_REAL_HIP", "1")
            .env("AMDGPU_EP_TEST_HIPRTC_ARCH", self.rtc_arch);
        shell::run(&mut command)
    }
}

fn driver_test(workspace: &Workspace) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    build.args(["test", "--package", "hip", "--test", "driver", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = shell::capture_stdout(&mut build)?;
    shell::executable(&messages, "driver").context("cargo built no test `driver` of package hip")
}
