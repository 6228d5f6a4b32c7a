//! Checks and measures on a real GPU, as one bundle that also runs where there is no Rust.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;
use crate::stage::{self, Profile, copy_atomically};
use crate::workspace::Workspace;

/// Builds the bundle under `target/gpu` and, unless only the bundle is wanted, runs `bench/gpu.sh` on it.
///
/// # Errors
/// When the build or a check fails.
pub fn run(workspace: &Workspace, driver: &str, bundle_only: bool) -> Result<()> {
    let bundle = workspace.target().join("gpu");
    stage::run_into(workspace, Profile::Release, bundle.clone())?;
    for (name, target) in [("driver", ["--test", "driver"]), ("bandwidth", ["--example", "bandwidth"])] {
        let mut build = shell::cargo(workspace.root());
        build.args([
            "test",
            "--release",
            "--package",
            "hip",
            "--no-run",
            "--message-format",
            "json-render-diagnostics",
        ]);
        build.args(target);
        let messages = shell::capture_stdout(&mut build)?;
        let built = executable(&messages, name).with_context(|| format!("cargo built no {name}"))?;
        copy_atomically(&built, &bundle.join(name))?;
    }
    if bundle_only {
        println!("bundled in {}: bash bench/gpu.sh {0} {driver}", workspace.relative(&bundle));
        return Ok(());
    }
    let mut script = Command::new("bash");
    script.current_dir(workspace.root()).args(["bench/gpu.sh", "target/gpu", driver]);
    shell::run(&mut script)
}

/// The executable of the target `name` in cargo's JSON messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}
