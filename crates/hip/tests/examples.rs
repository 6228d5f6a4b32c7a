//! Runs the examples of the course on the host driver.
#![allow(clippy::unwrap_used)]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo puts programs of tests in `<profile>/deps`, libraries in `<profile>` and examples in `<profile>/examples`.
fn profile() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// The host driver: the one that the variable names, or the one that cargo built.
fn host_driver() -> PathBuf {
    let named = std::env::var_os("AMDGPU_EP_HIP_HOST_LIBRARY").map(PathBuf::from);
    named.unwrap_or_else(|| profile().join(format!("{DLL_PREFIX}hip_host{DLL_SUFFIX}")))
}

/// Runs an example with the host driver and returns what it printed.
fn run(example: &Path, driver: &Path) -> (bool, String) {
    let mut command = Command::new(example);
    let output = command.arg("host").env("AMDGPU_EP_HIP_HOST_LIBRARY", driver).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[test]
fn the_course_runs_on_the_host_driver() {
    let (folder, driver) = (profile().join("examples"), host_driver());
    let endings = [
        ("01-devices", "MiB free"),
        ("02-memory", "verified: 1048576 bytes"),
        ("03-streams", "verified: 4194304 bytes"),
        ("05-capture", "verified: 3 replays"),
    ];
    for (name, ending) in endings {
        let example = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        if let Some(missing) = [&example, &driver].into_iter().find(|file| !file.exists()) {
            println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", missing.display());
            return;
        }
        let (is_success, text) = run(&example, &driver);
        assert!(is_success && text.contains(ending), "{name}\n{text}");
    }
    // The host driver has no compiler: the example must say so instead of failing in another way.
    let (is_success, text) = run(&folder.join(format!("04-kernel{}", std::env::consts::EXE_SUFFIX)), &driver);
    assert!(!is_success && text.starts_with("error: "), "{text}");
}
