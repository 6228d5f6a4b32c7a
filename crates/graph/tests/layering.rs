//! The crate `graph` does not depend on ONNX Runtime, a driver or a kernel: neither its manifest nor its sources name
//! one.
#![allow(clippy::unwrap_used)]
use std::path::{Path, PathBuf};

/// Allowed dependencies; all are about data, memory and text.
const ALLOWED: [&str; 5] = ["bytemuck", "half", "memmap2", "smallvec", "thiserror"];

/// Prefixes of foreign names: crates of this workspace, the C types of ONNX Runtime, HIP and CUDA, and library loading.
const FOREIGN: [&str; 17] = [
    "ort_ep",
    "ort_sys",
    "Ort",
    "hip_",
    "hip",
    "Hip",
    "hiprtc",
    "cuda",
    "Cuda",
    "nvrtc",
    "rocblas",
    "kernels",
    "libloading",
    "libc",
    "exec",
    "host_ops",
    "dlopen",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Identifiers in a source text, without comments and strings.
fn identifiers(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in source.lines() {
        let code: String =
            line.split("//").next().unwrap_or_default().split('"').step_by(2).collect::<Vec<_>>().join(" ");
        let words = code.split(|one: char| !one.is_alphanumeric() && one != '_');
        found.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    found
}

/// True for a name that is foreign or starts with a foreign word: `hipStream` and `hip`, not `hippo`.
fn is_foreign(word: &str) -> bool {
    FOREIGN.iter().any(|name| match word.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.starts_with(|next: char| next.is_ascii_uppercase() || next == '_'),
        None => false,
    })
}

#[test]
fn foreign_names_are_recognised() {
    for word in ["OrtValue", "hipStream_t", "hip", "HipStream", "cudaMalloc", "libloading", "ort_ep", "kernels"] {
        assert!(is_foreign(word), "{word}");
    }
    for word in ["Ordering", "hippo", "executes", "kernel", "import", "sort"] {
        assert!(!is_foreign(word), "{word}");
    }
    assert_eq!(identifiers("let a = b(\"hip\"); // OrtApi"), ["let", "a", "b"]);
}

#[test]
fn sources_name_nothing_of_onnx_runtime_drivers_or_kernels() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 50, "{files:?}");
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        let foreign: Vec<String> = identifiers(&source).into_iter().filter(|word| is_foreign(word)).collect();
        assert!(foreign.is_empty(), "{}: {foreign:?}", file.display());
        assert!(!identifiers(&source).iter().any(|word| word == "unsafe"), "{}", file.display());
    }
}

#[test]
fn the_manifest_names_only_crates_about_data() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let (_, rest) = manifest.split_once("[dependencies]").unwrap();
    let (dependencies, _) = rest.split_once("\n[").unwrap();
    let names: Vec<&str> = dependencies
        .lines()
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names, ALLOWED);
    assert!(
        !manifest.contains("build-dependencies") && !manifest.contains("target."),
        "other tables add dependencies too"
    );
}
