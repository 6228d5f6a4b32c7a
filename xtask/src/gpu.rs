//! Checks and benchmarks on a real GPU, as a bundle that also runs on machines without Rust.

use std::process::Command;

use anyhow::{Context, Result};

use crate::backends::Backends;
use crate::shell;
use crate::stage::{self, Profile, copy_atomically};
use crate::workspace::Workspace;

/// The programs of a bundle: name, folder of the crate, and cargo arguments.
const PROGRAMS: [(&str, &str, &[&str]); 7] = [
    ("driver", "hip", &["test", "--no-run", "--test"]),
    ("bandwidth", "hip", &["build", "--example"]),
    ("hipdnn-suite", "hipdnn-suite", &["build", "--bin"]),
    ("02-convolution", "hipdnn", &["build", "--example"]),
    ("graph_overhead", "hipdnn", &["build", "--example"]),
    ("ops", "exec", &["test", "--no-run", "--test"]),
    ("gpu_kernels", "exec", &["build", "--example"]),
];

/// Builds the bundle under `target/gpu`, then runs `bench/gpu.sh` on it unless `bundle_only` is set.
///
/// # Errors
/// When the build or a check fails.
pub fn run(workspace: &Workspace, driver: &str, bundle_only: bool, tiny: bool) -> Result<()> {
    let bundle = workspace.target().join("gpu");
    stage::run_into(workspace, Profile::Release, &Backends::all(), bundle.clone())?;
    for (name, folder, arguments) in PROGRAMS {
        let mut build = shell::cargo(workspace.root());
        build.args(arguments).arg(name);
        build.arg("--manifest-path").arg(workspace.path("crates").join(folder).join("Cargo.toml"));
        build.args(["--release", "--message-format", "json-render-diagnostics"]);
        let messages = shell::capture_stdout(&mut build)?;
        let built =
            shell::executable(&messages, folder, name).with_context(|| format!("cargo did not build {name}"))?;
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_program_has_a_source_and_a_place_in_the_script() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let script = std::fs::read_to_string(root.join("bench/gpu.sh")).unwrap();
        for (name, package, arguments) in PROGRAMS {
            let package = root.join("crates").join(package);
            let kind = arguments.last().unwrap();
            let sources = match *kind {
                "--example" => {
                    [package.join(format!("examples/{name}.rs")), package.join(format!("examples/{name}/main.rs"))]
                }
                "--test" => [package.join(format!("tests/{name}.rs")), package.join(format!("tests/{name}/main.rs"))],
                _ => [package.join("src/main.rs"), package.join(format!("src/bin/{name}.rs"))],
            };
            assert!(sources.iter().any(|source| source.is_file()), "{kind} {name}: none of {sources:?}");
            assert!(script.contains(&format!("$bundle/{name}")), "bench/gpu.sh does not run {name}");
        }
    }
}
