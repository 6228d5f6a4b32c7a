//! Where `cargo xtask` puts things. If something is missing, each function says what to run, so that a test can skip
//! with a reason.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The repository root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// ONNX Runtime's C library and the staged provider with its host device; `None`, with a printed reason, if one is
/// missing.
pub fn provider_on_host() -> Option<(PathBuf, PathBuf)> {
    let find = || {
        staged_library("hip-backend")?;
        staged_library("hip-host")?;
        anyhow::Ok((onnxruntime()?, staged_library("amdgpu-ep")?))
    };
    find().inspect_err(|reason| println!("skipped: {reason}")).ok()
}

/// The interpreter of the virtual environment.
///
/// # Errors
/// When there is no environment.
pub fn python() -> Result<PathBuf> {
    let path = root().join(if cfg!(windows) { "target/venv/Scripts/python.exe" } else { "target/venv/bin/python" });
    if !path.exists() {
        bail!("there is no Python environment in target/venv\n  help: cargo xtask setup");
    }
    Ok(path)
}

/// ONNX Runtime's C library: `ORT_DYLIB_PATH`, or the virtual environment's.
///
/// # Errors
/// When neither exists.
pub fn onnxruntime() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ORT_DYLIB_PATH") {
        return Ok(path.into());
    }
    let libraries = root().join("target/venv/lib");
    let pythons = std::fs::read_dir(&libraries)
        .with_context(|| "there is no ONNX Runtime in target/venv\n  help: cargo xtask setup, or set ORT_DYLIB_PATH")?;
    let folders = pythons.flatten().map(|python| python.path().join("site-packages/onnxruntime/capi"));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let found = files
        .map(|file| file.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so.")));
    found.context("target/venv has no libonnxruntime.so\n  help: cargo xtask setup, or set ORT_DYLIB_PATH")
}

/// A staged library by its shipped name, such as `amdgpu-ep`: from the folder in `AMDGPU_EP_TEST_STAGE`, where
/// `cargo xtask coverage` stages its instrumented build, or from where `cargo xtask stage` puts it.
///
/// # Errors
/// When it is not staged.
pub fn staged_library(name: &str) -> Result<PathBuf> {
    let file = if cfg!(windows) { format!("{name}.dll") } else { format!("lib{name}{}", std::env::consts::DLL_SUFFIX) };
    let stage = std::env::var_os("AMDGPU_EP_TEST_STAGE").map_or_else(|| root().join("target/stage/dev"), PathBuf::from);
    let path = stage.join("lib").join(file);
    if !path.exists() {
        bail!("{name} is not staged\n  help: cargo xtask stage");
    }
    Ok(path)
}
