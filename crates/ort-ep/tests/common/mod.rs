//! Runs a Python script against each ONNX Runtime that `cargo xtask setup` installed, or against the oldest, the newest
//! and the part of the others that is due.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::part;

/// Runs `tests/<script>` once for each runtime, with the paths of the example libraries as its arguments.
///
/// The script asserts. Its output is shown on failure, so the last line says where it crashed.
pub fn on_each_runtime(script: &str, examples: &[&str]) {
    let Some(bench) = Bench::find(examples) else { return };
    for runtime in &bench.runtimes {
        bench.run(script, runtime.as_deref());
    }
}

struct Bench {
    python: PathBuf,
    libraries: Vec<PathBuf>,
    /// `None` stands for the runtime of the Python environment itself.
    runtimes: Vec<Option<PathBuf>>,
}

impl Bench {
    /// `None`, after printing why, if something was not set up.
    fn find(examples: &[&str]) -> Option<Self> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
        let python = target.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
        let libraries: Vec<_> = examples.iter().map(|name| library(name)).collect();
        for needed in libraries.iter().chain([&python]) {
            if !needed.exists() {
                println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", needed.display());
                return None;
            }
        }
        let mut runtimes: Vec<PathBuf> = Vec::new();
        if let Ok(folders) = std::fs::read_dir(target.join("ort")) {
            let folders = folders.flatten().map(|folder| folder.path());
            runtimes.extend(folders.filter(|folder| folder.join("onnxruntime").is_dir()));
        }
        runtimes.sort();
        let mut folders = runtimes.into_iter();
        let oldest = folders.next();
        let runtimes = oldest.into_iter().chain(part::due(folders)).map(Some).chain([None]).collect();
        Some(Self { python, libraries, runtimes })
    }

    fn run(&self, script: &str, runtime: Option<&Path>) {
        let mut command = Command::new(&self.python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script)).args(&self.libraries);
        match runtime {
            Some(folder) => command.env("PYTHONPATH", folder),
            None => command.env_remove("PYTHONPATH"),
        };
        // Freed memory is overwritten to expose use after free; Python must not write bytecode files.
        command.env("MALLOC_PERTURB_", "165").env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script} on {runtime:?}: {}\n{text}", output.status);
        println!("{script}: {}", text.lines().next().unwrap_or_default());
    }
}

/// Cargo runs tests from `<profile>/deps` and puts examples beside that folder.
fn library(example: &str) -> PathBuf {
    let file = format!("{}{example}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(file)
}
