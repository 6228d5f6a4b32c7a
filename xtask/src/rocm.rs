//! Tests with the real HIP runtimes from Debian's packages: the driver loader must load each of them, and ONNX Runtime
//! must keep working when they find no device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::debian::{self, Apt, Mirror};
use crate::output::{self, Output};
use crate::shard::{self, Shard};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, kernels, pytest, shell, workers};

/// One HIP runtime to test against.
struct Userland {
    /// Folder under `target/rocm`.
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static [&'static str],
    library: &'static str,
    /// A target that this version's hiprtc supports, with its features if devices report them; 5.x aborts the process
    /// for newer targets.
    rtc_arch: &'static str,
    /// Targets for which it compiles all our kernels.
    kernel_targets: &'static [&'static str],
    /// Whether it compiles some kernels for every target of the table in `crates/kernels/src/target.rs`.
    knows_all_targets: bool,
}

const USERLANDS: [Userland; 3] = [
    Userland {
        name: "rocm-7.2",
        suites: &["forky", "sid", "experimental"],
        packages: &["libhiprtc7", "libamdhip64-7"],
        library: "libamdhip64.so.7",
        rtc_arch: "gfx942:sramecc+:xnack-",
        kernel_targets: &["gfx942:sramecc+:xnack-", "gfx1100", "gfx1201"],
        knows_all_targets: true,
    },
    Userland {
        name: "rocm-6.4",
        suites: &["forky", "sid"],
        packages: &["libhiprtc6", "libamdhip64-6"],
        library: "libamdhip64.so.6",
        rtc_arch: "gfx90a:sramecc+:xnack-",
        kernel_targets: &["gfx90a:sramecc+:xnack-", "gfx1030"],
        knows_all_targets: false,
    },
    Userland {
        name: "rocm-5.2",
        suites: &["bookworm"],
        packages: &["libamdhip64-5"],
        library: "libamdhip64.so.5",
        rtc_arch: "gfx1030",
        kernel_targets: &["gfx906"],
        knows_all_targets: false,
    },
];

/// The runtimes that are available here.
pub struct Userlands {
    unpacked: Vec<(&'static Userland, PathBuf)>,
    /// Their names, and why others are missing.
    notes: String,
}

impl Userlands {
    /// Unpacks missing runtimes. A runtime that is not available is left out, with the reason in the notes.
    pub fn unpack(workspace: &Workspace) -> Self {
        let mirror = match debian::mirror() {
            Ok(mirror) => mirror,
            Err(notes) => return Self { unpacked: Vec::new(), notes },
        };
        let (mut unpacked, mut notes) = (Vec::new(), Vec::new());
        for userland in &USERLANDS {
            let folder = workspace.target().join("rocm").join(userland.name);
            match userland.unpack(&folder, &mirror) {
                Ok(()) => {
                    notes.push(userland.name.to_owned());
                    unpacked.push((userland, folder));
                }
                Err(error) => {
                    output::say(format_args!("{} skipped: {error:#}", userland.name));
                    let reason = error.to_string();
                    notes.push(format!("{} skipped ({})", userland.name, reason.lines().next().unwrap_or_default()));
                }
            }
        }
        Self { unpacked, notes: notes.join(", ") }
    }

    fn outcome(&self) -> Outcome {
        let note = self.notes.clone();
        if self.unpacked.is_empty() { Outcome::Skipped(note) } else { Outcome::Passed(note) }
    }
}

/// The folder of the newest runtime, unpacked on first use.
///
/// # Errors
/// Why it is not available here, in one line.
pub fn newest(workspace: &Workspace) -> Result<PathBuf, String> {
    let newest = &USERLANDS[0];
    let folder = workspace.target().join("rocm").join(newest.name);
    let unpacked = debian::mirror().map_err(anyhow::Error::msg).and_then(|mirror| newest.unpack(&folder, &mirror));
    unpacked.map(|()| folder).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// A program with the newest runtime's libraries.
///
/// # Errors
/// Why the runtime is not available here, in one line.
pub fn with_newest(workspace: &Workspace, program: &Path) -> Result<Command, String> {
    let userland = debian::Userland::of(&newest(workspace)?);
    let in_one_line = |error: anyhow::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    let loader = userland.loader(&[]).map_err(in_one_line)?;
    let mut command = Command::new(&loader[0]);
    command.args(&loader[1..]).arg(program);
    command.env("AMDGPU_EP_HIP_LIBRARY", userland.library(USERLANDS[0].library).map_err(in_one_line)?);
    Ok(command)
}

/// Runs the driver tests of the `hip` crate in each userland, and compiles the part of the kernels that is due.
///
/// # Errors
/// When a test fails. A userland that is not available here is a skip.
pub fn drivers(context: &Context<'_>) -> Result<Outcome> {
    let (workspace, userlands) = (context.workspace, context.userlands()?);
    let shard = context.due(kernels::PARTS, 1);
    if !userlands.unpacked.is_empty() {
        let driver = built::test(workspace, "hip", "driver")?;
        let compilers = built::test(workspace, "kernel-catalogue", "compilers")?;
        let unpacked = userlands.unpacked.iter();
        let jobs: Vec<Job<'_>> =
            unpacked.flat_map(|(userland, folder)| userland.jobs(folder, &driver, &compilers, shard)).collect();
        let to = Output::here();
        let ran = workers::on_all_processors(&jobs, |job| {
            let (ran, said) = output::captured(|| job.run());
            to.say(said.trim_end());
            ran
        })?;
        ran.into_iter().collect::<Result<()>>()?;
    }
    Ok(userlands.outcome().with(&shard.note()))
}

/// Creates ONNX Runtime sessions on each userland's runtime, which finds no device.
///
/// # Errors
/// When a test fails. A userland that is not available here is a skip.
pub fn sessions(context: &Context<'_>) -> Result<Outcome> {
    let userlands = context.userlands()?;
    for (userland, folder) in &userlands.unpacked {
        userland.sessions(folder, context)?;
    }
    Ok(userlands.outcome())
}

impl Userland {
    fn unpack(&self, folder: &Path, mirror: &Mirror) -> Result<()> {
        let complete = folder.join("complete");
        if complete.exists() {
            return Ok(());
        }
        output::say(format_args!("unpacking {} into target/rocm/{}", self.packages.join(" and "), self.name));
        let apt = Apt::new(folder, mirror, self.suites)?;
        apt.unpack_with_dependencies(self.suites.last().copied().unwrap_or_default(), self.packages)?;
        debian::Userland::of(folder).library(self.library)?;
        fs::write(complete, "")?;
        Ok(())
    }

    /// The driver tests, and each target's kernels. The latter are separate jobs: within a process, hiprtc compiles one
    /// source at a time, regardless of the number of threads.
    fn jobs<'a>(&'a self, folder: &'a Path, driver: &'a Path, compilers: &'a Path, shard: Shard) -> Vec<Job<'a>> {
        let job = |test, compiled| Job { userland: self, folder, test, compiled, shard };
        let kernels = self.kernel_targets.iter().map(|&target| Compiled::All(target));
        let some = self.knows_all_targets.then_some(Compiled::SomeForEveryTarget);
        std::iter::once(job(driver, None)).chain(kernels.chain(some).map(|what| job(compilers, Some(what)))).collect()
    }
}

/// The kernels that a job compiles.
#[derive(Clone, Copy)]
enum Compiled {
    /// All of them for a target.
    All(&'static str),
    /// A few for every target of the table.
    SomeForEveryTarget,
}

/// A test program in a userland.
struct Job<'a> {
    userland: &'a Userland,
    folder: &'a Path,
    test: &'a Path,
    /// What to compile; without it, the job runs the driver tests.
    compiled: Option<Compiled>,
    /// The part of the kernels to compile.
    shard: Shard,
}

impl Job<'_> {
    fn run(&self) -> Result<()> {
        let name = self.userland.name;
        let variable = match self.compiled {
            Some(Compiled::All(target)) => {
                output::say(format_args!("kernels for {target} with {name}"));
                Some(("AMDGPU_EP_TEST_KERNELS_AMD", target))
            }
            Some(Compiled::SomeForEveryTarget) => {
                output::say(format_args!("some kernels for every listed target with {name}"));
                Some(("AMDGPU_EP_TEST_LISTED_TARGETS", "1"))
            }
            None => {
                output::say(format_args!("driver tests with {name}"));
                None
            }
        };
        let unpacked = debian::Userland::of(self.folder);
        let loader = unpacked.loader(&[])?;
        let mut command = Command::new(&loader[0]);
        command
            .args(&loader[1..])
            .arg(self.test)
            .arg("--nocapture")
            .env("AMDGPU_EP_HIP_LIBRARY", unpacked.library(self.userland.library)?)
            .env("AMDGPU_EP_TEST_REAL_HIP", "1")
            .env("AMDGPU_EP_TEST_HIPRTC_ARCH", self.userland.rtc_arch)
            .env(shard::VARIABLE, self.shard.variable())
            .envs(variable);
        shell::run(&mut command)
    }
}

impl Userland {
    fn sessions(&self, folder: &Path, context: &Context<'_>) -> Result<()> {
        output::say(format_args!("sessions of ONNX Runtime with {}", self.name));
        let (userland, python) = (debian::Userland::of(folder), folder.join("python"));
        userland.interpreter(&context.python()?.interpreter, &python, &[])?;
        pytest::without_gpu(context, &python, &userland.library(self.library)?).map(|_| ())
    }
}
