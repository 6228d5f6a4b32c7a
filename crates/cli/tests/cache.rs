//! `amdgpu-ep cache` on folders created by the tests.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const DIGEST: &str = "0123456789abcdef0123456789abcdef";

/// A cache folder with two kernels and one plan in it.
struct CacheFolder(TempDir);

impl CacheFolder {
    fn new() -> CacheFolder {
        let cache = CacheFolder(tempfile::tempdir().unwrap());
        cache.put(&format!("kernels/matmul-{DIGEST}.co"), 3000);
        cache.put(&format!("kernels/softmax-{DIGEST}.co"), 1000);
        cache.put(&format!("cudnn/{DIGEST}.plan"), 96);
        cache
    }

    fn put(&self, name: &str, bytes: usize) -> PathBuf {
        let file = self.0.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::set_permissions(file.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&file, vec![0; bytes]).unwrap();
        file
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
        command.arg("cache").args(arguments).env("AMDGPU_EP_CACHE_DIR", self.0.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let document: Value = serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap();
        assert_eq!((&document["schema"], &document["path"]), (&1.into(), &self.0.path().to_str().unwrap().into()));
        document
    }
}

#[test]
fn each_cache_is_shown_with_files_and_bytes() {
    let cache = CacheFolder::new();
    let text = cache.text(&[]);
    let head = format!("{} (from AMDGPU_EP_CACHE_DIR)\n", cache.0.path().display());
    assert!(text.starts_with(&head) && text.ends_with("\n3 files, 4.00 KiB\n"), "{text}");
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        &["compiled", "kernels", "kernels", "2", "3.91", "KiB"][..],
        &["tuning", "measurements", "tuning", "0", "0", "B"],
        &["MIGraphX", "programs", "migraphx", "0", "0", "B"],
        &["cuDNN", "plans", "cudnn", "1", "96", "B"],
    ] {
        assert!(rows.iter().any(|found| found == row), "{row:?} in\n{text}");
    }
    assert_eq!(cache.text(&["size"]), text);
    let report = cache.json(&[]);
    assert_eq!((&report["files"], &report["bytes"], &report["entries"]), (&3.into(), &4096.into(), &Value::Null));
    assert_eq!((&report["caches"][0]["files"], &report["caches"][0]["bytes"]), (&2.into(), &4000.into()));
}

#[test]
fn every_file_is_listed() {
    let cache = CacheFolder::new();
    let text = cache.text(&["list"]);
    assert!(text.contains(&format!("kernels/matmul-{DIGEST}.co")) && text.contains("2.93 KiB"), "{text}");
    let report = cache.json(&["list"]);
    let entries = report["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|entry| entry["unused_seconds"].as_u64().unwrap() < 3600), "{entries:?}");
}

#[test]
fn clearing_removes_only_our_files() {
    let cache = CacheFolder::new();
    // A user may name an existing folder with other files.
    let foreign = ["kernels/notes.co", "kernels/readme.txt", "tuning/results.tsv", "photos/a.plan", "letter.txt"];
    let foreign = foreign.map(|name| cache.put(name, 5));
    let refused = cache.output(&["clear"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "no terminal to ask on: {error}");
    assert!(error.contains("3 files, 4.00 KiB") && error.contains("help: add --yes"), "{error}");
    assert_eq!(cache.json(&[])["files"], 3);
    let report = cache.json(&["clear", "--yes"]);
    assert_eq!((&report["files"], &report["bytes"], &report["removed"]), (&3.into(), &4096.into(), &true.into()));
    assert!(foreign.iter().all(|file| file.exists()));
    assert_eq!(cache.json(&["list"])["entries"], Value::Array(vec![]));
    assert!(cache.text(&["clear"]).contains("removed 0 files"), "nothing to confirm");
}

#[test]
fn another_folder_can_be_named() {
    let (cache, other) = (CacheFolder::new(), CacheFolder::new());
    let folder = other.0.path().to_str().unwrap();
    let text = cache.text(&["clear", "--yes", "--dir", folder]);
    assert_eq!(text, format!("{folder}\nremoved 3 files, 4.00 KiB\n"));
    assert_eq!((&cache.json(&[])["files"], &other.json(&[])["files"]), (&3.into(), &0.into()));
    let missing = cache.0.path().join("missing");
    assert!(cache.text(&["--dir", missing.to_str().unwrap()]).ends_with("\n0 files, 0 B\n"));
    assert!(!missing.exists());
}

#[test]
fn a_folder_that_others_can_write_to_is_not_cleared() {
    let cache = CacheFolder::new();
    let folder = cache.0.path().join("kernels");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let output = cache.output(&["clear", "--yes"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("kernels") && error.contains("help: "), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}
