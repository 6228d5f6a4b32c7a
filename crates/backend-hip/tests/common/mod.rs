//! Runs a Python script with the built backend against each ONNX Runtime that `cargo xtask setup` installed.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs `tests/<script>` once for each runtime, with the path of the library as its argument.
///
/// Scripts use assertions. Their output is shown when they fail; its last line shows where a script crashed.
pub fn on_each_runtime(script: &str) {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let python = target.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let library = library();
    for needed in [&python, &library] {
        if !needed.exists() {
            println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", needed.display());
            return;
        }
    }
    let mut runtimes = Vec::new();
    if let Ok(folders) = std::fs::read_dir(target.join("ort")) {
        let folders = folders.flatten().map(|folder| folder.path());
        runtimes.extend(folders.filter(|folder| folder.join("onnxruntime").is_dir()));
    }
    runtimes.sort();
    // The runtime of the Python environment itself comes last.
    for runtime in runtimes.into_iter().map(Some).chain([None]) {
        run(&python, &library, script, runtime.as_deref());
    }
}

fn run(python: &Path, library: &Path, script: &str, runtime: Option<&Path>) {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script)).arg(library);
    match runtime {
        Some(folder) => command.env("PYTHONPATH", folder),
        None => command.env_remove("PYTHONPATH"),
    };
    // Overwrite freed memory to expose use-after-free, and let Python write no bytecode files.
    command.env("MALLOC_PERTURB_", "165").env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script} on {runtime:?}: {}\n{text}", output.status);
    println!("{script}: {}", text.lines().next().unwrap_or_default());
}

/// Cargo runs tests from `<profile>/deps` and puts the package's own library there too.
fn library() -> PathBuf {
    let file = format!("{}hip_backend{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    std::env::current_exe().unwrap().with_file_name(file)
}
