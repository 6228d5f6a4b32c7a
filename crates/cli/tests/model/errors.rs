//! Tests what users see of mistakes and interruptions, and that these leave nothing behind.

use std::fs;
use std::process::Command;

use testkit::onnx::{Dim, Graph, Node};

use crate::{Bench, doubled, floats};

#[test]
fn model_that_cannot_be_loaded_is_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let missing = bench.path("missing.onnx");
    let corrupt = bench.path("corrupt.onnx");
    fs::write(&corrupt, "this is not a model").unwrap();
    for command in ["explain", "run", "bench"] {
        let error = bench.error(&[command, missing.to_str().unwrap()]);
        assert!(error.contains("missing.onnx could not be opened: No such file"), "{error}");
        let error = bench.error(&[command, corrupt.to_str().unwrap()]);
        assert!(error.contains("corrupt.onnx could not be loaded: ONNX Runtime: "), "{error}");
        assert_eq!(error.matches("corrupt.onnx").count(), 1, "{error}");
    }
    let folder = bench.folder.path().to_str().unwrap();
    assert!(bench.error(&["explain", folder]).contains("is a folder"));
}

#[test]
fn pipes_and_devices_are_rejected_without_blocking() {
    let Some(bench) = Bench::new() else { return };
    let pipe = |name: &str| {
        let path = bench.path(name);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path.to_str().unwrap().to_owned()
    };
    let refused = "it is a pipe, a socket or a device, not a regular file";
    let (model, compiled) = (pipe("pipe.onnx"), bench.path("out.onnx").to_str().unwrap().to_owned());
    for arguments in [&["explain"][..], &["run"], &["bench"], &["tune"], &["compile", "-o", &compiled]] {
        for model in [&*model, "/dev/zero"] {
            let error = bench.error(&[&arguments[..1], &[model], &arguments[1..]].concat());
            assert!(error.contains(&format!("the model {model} could not be opened: {refused}")), "{error}");
        }
    }
    let model = bench.model("m.onnx", doubled());
    for input in [format!("x={}", pipe("x.npy")), pipe("x.npz"), "x=/dev/zero".to_owned()] {
        let error = bench.error(&["run", &model, "--input", &input]);
        assert!(error.contains(refused), "{error}");
    }
    // A weights file, which ONNX Runtime opens.
    let weights = pipe("m.onnx.data");
    let error = bench.error(&["run", &model]);
    assert!(error.contains(&format!("{weights} is a pipe, a socket or a device")), "{error}");
}

#[test]
fn inputs_that_do_not_fit_are_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let wide = format!("x={}", bench.npy("wide.npy", "(2, 4)", &[0.0; 8]));
    let error = bench.error(&["run", &model, "--input", &wide]);
    assert!(error.contains("the file has shape [2, 4], the model expects [rows, 3]"), "{error}");
    let error = bench.error(&["run", &model, "--input", &wide.replacen('x', "z", 1)]);
    assert!(error.contains("no input \"z\"") && error.contains("x (float32 [rows, 3])"), "{error}");
    for command in ["run", "bench"] {
        let error = bench.error(&[command, &model, "--dim", "row=2"]);
        assert!(error.contains("no dynamic dimension \"row\"") && error.contains("are: rows"), "{error}");
    }
    let error = bench.error(&["run", &model, "--input", "x=/nonexistent.npy"]);
    assert!(error.contains("/nonexistent.npy could not be read"), "{error}");
}

#[test]
fn wrong_libraries_and_options_are_one_clear_error() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let error = bench.error(&["explain", &model, "--profile", "nonsense"]);
    assert!(error.starts_with("error: 1 problem with the options of "), "{error}");
    assert!(error.contains("option profile is \"nonsense\"") && !error.contains(".cc:"), "{error}");
    let plain = |ort: &str, library: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amdgpu-ep"));
        command.args(["explain", &model, "--ort", ort, "--library", library]).env("AMDGPU_EP_DRIVER", "host");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let (ort, library) = (bench.ort.to_str().unwrap(), bench.library.to_str().unwrap());
    let error = plain("/nonexistent.so", library);
    assert!(error.contains("ONNX Runtime could not be loaded from /nonexistent.so"), "{error}");
    assert_eq!(error.matches("/nonexistent.so").count(), 1, "{error}");
    let error = plain(library, library);
    assert!(error.contains("is not ONNX Runtime"), "{error}");
    let error = plain(ort, "/nonexistent.so");
    assert!(error.contains("/nonexistent.so does not exist"), "{error}");
    let error = plain(ort, ort);
    assert!(error.contains("could not be registered"), "{error}");
}

#[test]
fn a_negative_number_is_an_invalid_value_and_not_an_option() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    for arguments in [&["run", &model, "--seed", "-1"][..], &["bench", &model, "--threads", "-2"]] {
        let error = bench.error(arguments);
        assert!(error.contains(&format!("invalid value '{}' for '--", arguments[3])), "{error}");
        assert!(!error.contains("'-- -"), "{error}");
    }
}

#[test]
fn an_output_that_cannot_be_written_leaves_the_old_one() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let folder = bench.path("outputs");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("y.npy"), "what was here").unwrap();
    // No file may grow beyond 64 KiB, so that a write fails as on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_amdgpu-ep")]);
    limited.args(["run", &model, "--dim", "rows=100000", "--output", folder.to_str().unwrap()]);
    limited.arg("--ort").arg(&bench.ort).arg("--library").arg(&bench.library).env("AMDGPU_EP_DRIVER", "host");
    let output = limited.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("y.npy could not be written: File too large"), "{error}");
    assert_eq!(fs::read_to_string(folder.join("y.npy")).unwrap(), "what was here");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn ctrl_c_leaves_no_unfinished_files() {
    let Some(bench) = Bench::new() else { return };
    // Long enough to be interrupted.
    let mut graph = Graph::new("long").input(floats("v0", [Dim::from("n")]));
    for at in 0..6000 {
        graph = graph.node(Node::new("Exp", [format!("v{at}").as_str()], [format!("v{}", at + 1).as_str()]));
    }
    let model = bench.model("m.onnx", graph.output(floats("v6000", [Dim::from("n")])));
    let folder = bench.path("out");
    fs::create_dir(&folder).unwrap();
    let compiled = folder.join("c.onnx");
    let mut command = bench.command(&["compile", &model, "-o", compiled.to_str().unwrap()]);
    let mut child = command.env("AMDGPU_EP_DRIVER", "host").spawn().unwrap();
    let files = || fs::read_dir(&folder).unwrap().count();
    while files() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it began to write");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let sent = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(sent.success());
    let status = child.wait().unwrap();
    assert_eq!((status.code(), files()), (Some(130), 0), "{status}");
}
