//! Runs the examples of the course with the library that computes on the CPU. `02-convolution` runs in the step
//! `hipdnn-link`.
#![allow(clippy::unwrap_used)]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::process::Command;

#[test]
fn the_course_runs_with_the_library_for_the_cpu() {
    // Cargo puts programs of tests in `<profile>/deps`, libraries in `<profile>` and examples in `<profile>/examples`.
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let library = profile.join(format!("{DLL_PREFIX}hipdnn_host{DLL_SUFFIX}"));
    for (name, ending) in [("01-backend", "verified: "), ("03-engines", "bytes hold the graph")] {
        let example = profile.join("examples").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        if let Some(missing) = [&example, &library].into_iter().find(|file| !file.exists()) {
            println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", missing.display());
            return;
        }
        let output = Command::new(example).env("AMDGPU_EP_HIPDNN_LIBRARY", &library).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains(ending), "{name}\n{text}");
    }
}
