//! Checks and measures on a real GPU, as one bundle that also runs where there is no Rust.

use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;
use crate::stage::{self, Profile, copy_atomically};
use crate::workspace::Workspace;

/// Builds the bundle under `target/gpu` and, unless only the bundle is wanted, runs `bench/gpu.sh` on it.
///
/// # Errors
/// When the build or a check fails.
pub fn run(workspace: &Workspace, driver: &str, bundle_only: bool, tiny: bool) -> Result<()> {
    let bundle = workspace.target().join("gpu");
    stage::run_into(workspace, Profile::Release, bundle.clone())?;
    for (name, package, arguments) in [
        ("driver", "hip", &["test", "--no-run", "--test", "driver"][..]),
        ("bandwidth", "hip", &["build", "--example", "bandwidth"]),
        ("hipdnn-suite", "hipdnn-suite", &["build", "--bin", "hipdnn-suite"]),
        ("conv_fprop_dynamic", "hipdnn", &["build", "--example", "conv_fprop_dynamic"]),
        ("overhead", "hipdnn", &["build", "--example", "overhead"]),
        ("ops", "exec", &["test", "--no-run", "--test", "ops"]),
        ("gpu_kernels", "exec", &["build", "--example", "gpu_kernels"]),
    ] {
        let mut build = shell::cargo(workspace.root());
        build.args(arguments);
        build.args(["--release", "--package", package, "--message-format", "json-render-diagnostics"]);
        let messages = shell::capture_stdout(&mut build)?;
        let built = shell::executable(&messages, name).with_context(|| format!("cargo built no {name}"))?;
        copy_atomically(&built, &bundle.join(name))?;
    }
    if bundle_only {
        println!("bundled in {}: bash bench/gpu.sh {0} {driver}", workspace.relative(&bundle));
        return Ok(());
    }
    let mut script = Command::new("bash");
    script.current_dir(workspace.root()).args(["bench/gpu.sh", "target/gpu", driver]);
    if tiny {
        script.arg("--tiny");
    }
    shell::run(&mut script)
}
