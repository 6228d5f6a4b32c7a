//! Arbitrary bytes as the contents of a compiled model: partitions of the hip backend, file names.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

/// A model's folder with a file, a subfolder, and a symlink that leads out.
static FOLDER: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let scratch = tempfile::tempdir().unwrap();
    let model = scratch.path().join("model");
    fs::create_dir_all(model.join("a")).unwrap();
    for file in ["model/x", "model/a/y", "secret"] {
        fs::write(scratch.path().join(file), file).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink("..", model.join("up")).unwrap();
    let model = model.canonicalize().unwrap();
    (scratch, model)
});

/// Writes partitions as seeds, to the folder that `cargo xtask test --only fuzz` passes.
fn write_seeds() {
    let Some(folder) = std::env::var_os("AMDGPU_EP_FUZZ_SEEDS").map(PathBuf::from) else { return };
    for (number, seed) in hip_backend::fuzz::saved_partitions().into_iter().enumerate() {
        fs::write(folder.join(format!("partition-{number}")), seed).unwrap();
    }
    fs::write(folder.join("name"), b"a/../up/x").unwrap();
}

fuzz_target!(
    init: write_seeds(),
    |bytes: &[u8]| {
        hip_backend::fuzz::saved_partition(bytes);
        let model = &FOLDER.1;
        if let Ok(name) = std::str::from_utf8(bytes)
            && let Ok(file) = ort_ep::beside::resolve(model, name)
        {
            assert!(file.starts_with(model) && file.is_file(), "{name:?} leads to {}", file.display());
        }
    }
);
