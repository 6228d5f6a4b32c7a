//! The current folder may be a download, so nothing in it is loaded or run, whatever the search paths in the
//! environment say.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::onnx::{Dim, ElementType, Graph, Model, Node, ValueInfo};
use testkit::place;

/// A library that pretends to be ONNX Runtime, and writes a mark when it is loaded.
const MARKER: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    __attribute__((constructor)) static void start(void) {
        FILE *mark = fopen(getenv(\"MARK\"), \"a\");
        if (mark) { fputs(\"library\\n\", mark); fclose(mark); }
    }
    static const void *table[600];
    static const void *get_api(unsigned version) { return version <= 31 ? table : 0; }
    static const char *get_version(void) { return \"1.31.1\"; }
    static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {get_api, get_version};
    const void *OrtGetApiBase(void) { return &base; }";

/// An untrusted folder, and a file that everything in it writes to when it is loaded or run.
struct Download {
    folder: TempDir,
    mark: PathBuf,
}

impl Download {
    /// `None`, with a printed reason, if there is no C compiler or Python.
    fn new() -> Option<Download> {
        for program in ["cc", "python3"] {
            if let Err(error) = Command::new(program).arg("--version").output() {
                println!("skipped: no {program}: {error}");
                return None;
            }
        }
        // On the same disk as cargo's files, so that the executable can be hard-linked.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = |name: &str| folder.path().join("here").join(name);
        fs::create_dir_all(path("onnxruntime/capi")).unwrap();
        let (source, library) = (folder.path().join("marker.c"), path("libonnxruntime.so"));
        fs::write(&source, MARKER).unwrap();
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
        assert!(compiled.success());
        for copy in ["libonnxruntime.so.1", "onnxruntime/capi/libonnxruntime.so.1.31.1", "libamdhip64.so.7"] {
            fs::copy(&library, path(copy)).unwrap();
        }
        let leave = "import os\nwith open(os.environ['MARK'], 'a') as mark: mark.write(__name__ + '\\n')\n";
        for module in ["onnxruntime/__init__.py", "onnxruntime/capi/__init__.py", "importlib.py", "contextlib.py"] {
            fs::write(path(module), leave).unwrap();
        }
        fs::write(path("python3"), "#!/bin/sh\necho python3 >> \"$MARK\"\n").unwrap();
        fs::set_permissions(path("python3"), fs::Permissions::from_mode(0o755)).unwrap();
        let graph = Graph::new("relu")
            .input(ValueInfo::tensor("x", ElementType::Float, [Dim::from(3)]))
            .node(Node::new("Relu", ["x"], ["y"]))
            .output(ValueInfo::tensor("y", ElementType::Float, [Dim::from(3)]));
        fs::write(path("m.onnx"), Model::new(graph).opset("", 17).to_bytes()).unwrap();
        let mark = folder.path().join("mark");
        Some(Download { folder, mark })
    }

    /// Runs the command in the folder, with the folder in every search path, in the ways that happen by accident.
    fn output(&self, mut command: Command, arguments: &[&str], path: &str, python_path: &str) -> Output {
        command.args(arguments).current_dir(self.folder.path().join("here")).env("MARK", &self.mark);
        command.env_remove("ORT_DYLIB_PATH").env_remove("VIRTUAL_ENV").env("AMDGPU_EP_DRIVER", "host");
        command.env("LD_LIBRARY_PATH", ":/nowhere::").env("AMDGPU_EP_BACKEND_PATH", ":").env("PATH", path);
        command.env("AMDGPU_EP_CUDA_LIBRARY_PATH", ":").env("PYTHONPATH", python_path);
        command.output().unwrap()
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!(fs::read_to_string(&self.mark).unwrap_or_default(), "", "something here was loaded or run");
    }
}

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"))
}

fn path() -> String {
    std::env::var("PATH").unwrap()
}

#[test]
fn a_named_library_leaves_the_mark() {
    let Some(download) = Download::new() else { return };
    let mut named = command();
    named.env("MARK", &download.mark).env("ORT_DYLIB_PATH", download.folder.path().join("here/libonnxruntime.so"));
    named.args(["doctor", "--json"]).output().unwrap();
    assert!(fs::read_to_string(&download.mark).unwrap().contains("library"), "or the other tests prove nothing");
}

#[test]
fn the_command_loads_nothing_from_the_current_folder() {
    let Some(download) = Download::new() else { return };
    for path in [format!(":{}", path()), format!(".:{}", path()), path() + ":"] {
        for (arguments, code) in [(&["doctor", "--json"][..], 1), (&["explain", "m.onnx"], 2)] {
            let output = download.output(command(), arguments, &path, ":");
            assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
            let shown = [output.stdout, output.stderr].concat();
            let here = download.folder.path().join("here");
            assert!(!String::from_utf8_lossy(&shown).contains(&format!("{}/lib", here.display())));
            download.assert_untouched();
        }
    }
}

#[test]
fn python_m_loads_no_onnxruntime_from_the_current_folder() {
    let Some(download) = Download::new() else { return };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/amdgpu_ep");
    let package = download.folder.path().join("site/amdgpu_ep");
    fs::create_dir_all(package.join("bin")).unwrap();
    for file in ["__init__.py", "__main__.py"] {
        fs::copy(sources.join(file), package.join(file)).unwrap();
    }
    fs::hard_link(env!("CARGO_BIN_EXE_amdgpu-ep"), package.join("bin/amdgpu-ep")).unwrap();
    // Python itself imports some standard modules from the current folder; this test is not about those.
    for module in ["importlib.py", "contextlib.py"] {
        fs::remove_file(download.folder.path().join("here").join(module)).unwrap();
    }
    let site = package.parent().unwrap().to_str().unwrap();
    for python_path in [site.to_owned(), format!(":{site}")] {
        let mut python = Command::new("python3");
        python.args(["-m", "amdgpu_ep"]);
        let output = download.output(python, &["doctor", "--json"], &path(), &python_path);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        download.assert_untouched();
    }
}

#[test]
fn the_command_names_the_onnxruntime_it_uses() {
    let Some(download) = Download::new() else { return };
    let found = place::onnxruntime().and_then(|_| Ok((place::python()?, place::staged_library("amdgpu-ep")?)));
    let (python, library) = match found {
        Ok(found) => found,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let path = format!(":{}:{}", python.parent().unwrap().display(), path());
    let arguments = ["explain", "m.onnx", "--library", library.to_str().unwrap()];
    let output = download.output(command(), &arguments, &path, ":");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let taken = said.strip_prefix("note: using ONNX Runtime from ").and_then(|rest| rest.split_once(" (")).unwrap();
    assert!(taken.0.contains("onnxruntime/capi/libonnxruntime.so"), "{said}");
    assert!(!taken.0.contains("/here/") && Path::new(taken.0).is_file(), "{said}");
    assert_eq!(taken.1, "python3 on PATH)\n");
    download.assert_untouched();
}
