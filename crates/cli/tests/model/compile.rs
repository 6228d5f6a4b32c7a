//! Tests `compile`.

use std::fs;
use std::process::Command;

use testkit::onnx::{Dim, Graph, Node, Tensor};

use crate::{Bench, doubled, floats, with_det};

#[test]
fn a_compiled_model_computes_what_its_source_does() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", with_det());
    for (form, count) in [(&["--embed"][..], 1), (&["--external"], 3), (&[], 1)] {
        let folder = bench.path(&format!("out{}", form.concat()));
        fs::create_dir(&folder).unwrap();
        let compiled = folder.join("compiled.onnx").to_str().unwrap().to_owned();
        let report = bench.json(&[&["compile", &model, "-o", &compiled], form].concat());
        assert_eq!((&report["device_nodes"], &report["partitions"]), (&3.into(), &2.into()), "{report:#}");
        let files = report["files"].as_array().unwrap();
        assert_eq!((files.len(), &files[0]["file"]), (count, &compiled.as_str().into()), "{report:#}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), count, "nothing else is left there");
        for file in files {
            let path = file["file"].as_str().unwrap();
            assert_eq!(fs::metadata(path).unwrap().len(), file["bytes"].as_u64().unwrap(), "{path}");
        }
        // A folder still works after it was moved.
        let moved = folder.with_extension("moved");
        fs::rename(&folder, &moved).unwrap();
        let compiled = moved.join("compiled.onnx").to_str().unwrap().to_owned();
        for batch in ["batch=4", "batch=9"] {
            let arguments = ["run", &compiled, "--dim", batch, "--compare", "cpu", "--source", &model];
            let report = bench.json(&arguments);
            assert_eq!((&report["good"], &report["device_nodes"]), (&true.into(), &2.into()), "{report:#}");
        }
        let measured = ["bench", &compiled, "--seconds", "0.05", "--threads", "1", "--source", &model];
        assert!(bench.json(&measured)["ratio"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn compile_fixes_dimensions_and_replaces_what_was_there() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let compiled = bench.path("c.onnx").to_str().unwrap().to_owned();
    fs::write(&compiled, "something older").unwrap();
    let text = bench.text(&["compile", &model, "-o", &compiled, "--dim", "rows=5", "--profile", "hip"]);
    for want in ["2 of 2 nodes (100 %) in 1 partition", "c.onnx", "Compiled in", "--profile hip"] {
        assert!(text.contains(want), "{want}: {text}");
    }
    let arguments = ["run", &compiled, "--profile", "hip", "--compare", "cpu", "--source", &model];
    let report = bench.json(&[&arguments[..], &["--seed", "2"]].concat());
    assert_eq!((&report["outputs"][0]["shape"], &report["good"]), (&vec![5, 3].into(), &true.into()), "{report:#}");
    let refused = bench.error(&["run", &compiled, "--dim", "rows=6"]);
    assert!(refused.contains("no dynamic dimension \"rows\""), "{refused}");
}

#[test]
fn what_cannot_be_compiled_is_refused_and_leaves_nothing() {
    let Some(bench) = Bench::new() else { return };
    let model = bench.model("m.onnx", doubled());
    let det = Graph::new("det")
        .input(floats("x", [Dim::from(3), Dim::from(3)]))
        .node(Node::new("Det", ["x"], ["y"]))
        .output(floats("y", []));
    let alone = bench.model("det.onnx", det);
    let folder = bench.path("out");
    fs::create_dir(&folder).unwrap();
    let name = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let output = name("c.onnx");
    for (arguments, wants) in [
        (&[alone.as_str(), "-o", &output][..], ["no node of", "explain"]),
        (&[&model, "-o", &name("none/c.onnx")], ["there is no folder", "create it first"]),
        (&[&model, "-o", folder.to_str().unwrap()], ["is a folder", "name an .onnx file"]),
        (&[&model, "-o", &model], ["would replace its source", "another name"]),
        (&[&model, "-o", &output, "--dim", "cols=3"], ["no dimension named \"cols\"", "x (float32 [rows, 3])"]),
        (&[&model, "-o", &output, "--option", "nonsense=1"], ["unknown option \"nonsense\"", "options of"]),
    ] {
        let error = bench.error(&[&["compile"], arguments].concat());
        assert!(wants.iter().all(|want| error.contains(want)), "{wants:?}: {error}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{arguments:?}");
    }
    let usage = bench.output(&["compile", &model, "-o", &output, "--embed", "--external"]);
    assert_eq!(usage.status.code(), Some(2));
    bench.text(&["compile", &model, "-o", &output]);
    let error = bench.error(&["compile", &output, "-o", &name("again.onnx")]);
    assert!(error.contains("is already compiled") && !folder.join("again.onnx").exists(), "{error}");
    for command in [&["run", &output, "--compare", "cpu"][..], &["bench", &output]] {
        let error = bench.error(command);
        assert!(error.contains("the CPU provider cannot run") && error.contains("--source"), "{error}");
    }
}

#[test]
fn a_full_disk_is_named_in_the_error() {
    let Some(bench) = Bench::new() else { return };
    let wide: Vec<f32> = (0..512 * 512).map(|at| at as f32).collect();
    let graph = Graph::new("wide")
        .input(floats("x", [Dim::from(1), Dim::from(512)]))
        .initializer(Tensor::floats("w", [512, 512], &wide))
        .node(Node::new("MatMul", ["x", "w"], ["y"]))
        .output(floats("y", [Dim::from(1), Dim::from(512)]));
    let model = bench.model("m.onnx", graph);
    let disk = bench.path("disk");
    fs::create_dir(&disk).unwrap();
    // A small disk that disappears with the process.
    let inside = |script: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).args(arguments);
        command.env("DISK", &disk).env("AMDGPU_EP_DRIVER", "host").output()
    };
    let mount = "mount -t tmpfs -o size=64k tmpfs \"$DISK\"";
    match inside(mount, &[]) {
        Ok(done) if done.status.success() => {}
        Ok(done) => return println!("skipped: no small disk: {}", String::from_utf8_lossy(&done.stderr)),
        Err(error) => return println!("skipped: no unshare: {error}"),
    }
    let (compiled, ort, library) = (disk.join("c.onnx"), bench.ort.to_str().unwrap(), bench.library.to_str().unwrap());
    for form in ["--embed", "--external"] {
        let script = format!("{mount} && {{ \"$0\" \"$@\"; code=$?; ls -A \"$DISK\"; exit $code; }}");
        let command = [env!("CARGO_BIN_EXE_amdgpu-ep"), "compile", &model, "-o", compiled.to_str().unwrap(), form];
        let output = inside(&script, &[&command[..], &["--ort", ort, "--library", library]].concat()).unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        let want = format!("error: the compiled model could not be written to {}: No space left", disk.display());
        assert!(error.starts_with(&want) && error.contains("\n  help: free some space"), "{error}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "nothing is left on the disk");
    }
}
