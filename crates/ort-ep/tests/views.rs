//! Tests the views in real ONNX Runtime: the `inspect` example reports its view of a model, and `views.py` compares
//! that with what the `onnx` package reads from the same file, once for each installed runtime.
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_views_read_the_model() {
    let target = target_folder();
    let library = format!("{}inspect{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    // Cargo runs this from `<profile>/deps` and puts examples beside that folder.
    let test = std::env::current_exe().unwrap();
    let library = test.ancestors().nth(2).unwrap().join("examples").join(library);
    let python = target.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    for needed in [&library, &python] {
        if !needed.exists() {
            println!("skipped: {} is missing; `cargo xtask test --only rust` builds it", needed.display());
            return;
        }
    }
    let mut runtimes = vec![None];
    if let Ok(folders) = std::fs::read_dir(target.join("ort")) {
        runtimes.extend(folders.flatten().map(|folder| Some(folder.path())).filter(is_installed));
    }
    for runtime in runtimes {
        let mut command = Command::new(&python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/views.py")).arg(&library);
        match &runtime {
            Some(folder) => command.env("PYTHONPATH", folder),
            None => command.env_remove("PYTHONPATH"),
        };
        let output = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{runtime:?}: {}\n{text}", output.status);
        println!("{}", text.lines().next().unwrap_or_default());
    }
}

fn is_installed(runtime: &Option<PathBuf>) -> bool {
    runtime.as_ref().is_some_and(|folder| folder.join("onnxruntime").is_dir())
}

/// The folder of Python and the runtimes; `cargo xtask setup` uses it even if cargo's target folder is elsewhere.
fn target_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}
