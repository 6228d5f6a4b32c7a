//! `amdgpu-ep compile`: compiles a model ahead of time.
//!
//! ONNX Runtime does it while it creates a session: it writes a model in which `EPContext` nodes replace the compiled
//! parts. All files are written to a temporary folder and moved once they are complete, the model last. So there is
//! never a model without its other files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use tempfile::TempDir;

use crate::inputs;
use crate::interrupt::Cleanup;
use crate::ort::Reported;
use crate::progress::Progress;
use crate::report;
use crate::table;
use crate::target::{self, Opened, Placed, Setup, Target, TargetArguments};

/// Size of a test file: more than ONNX Runtime writes at once.
const PROBE_BYTES: usize = 1 << 20;

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The arguments of `compile`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    /// Path of the compiled model; an existing file is replaced
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Store everything in one file of at most 2 GB (the default)
    #[arg(long, conflicts_with = "external")]
    embed: bool,
    /// Store compiled parts in files beside the model; existing ones are replaced
    #[arg(long)]
    external: bool,
    /// Fix a dynamic dimension, by name or as INPUT.AXIS; the compiled model accepts only this size
    #[arg(long = "dim", value_name = "NAME=N", value_parser = inputs::dim)]
    dims: Vec<(String, usize)>,
}

/// The complete report.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    place: Setup,
    #[serde(flatten)]
    placed: Placed,
    /// The requested profile, which is also needed to run the model.
    profile: Option<String>,
    /// The compiled model, followed by the files that it refers to.
    files: Vec<MadeFile>,
    compile_seconds: f64,
    /// Time to load the compiled model in a session.
    load_seconds: f64,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct MadeFile {
    file: String,
    bytes: u64,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When something required is missing, or there is nothing to compile.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    let place = Output::check(arguments)?;
    let target = match target::open(&arguments.target)? {
        Opened::Ready(target) => target,
        Opened::Elsewhere(code) => return Ok((code, String::new())),
    };
    let report = compile(&target, &place, arguments)?;
    let text = report::written(&report, arguments.target.json, text)?;
    Ok((0, text))
}

/// Where the compiled model goes.
struct Output<'a> {
    file: &'a Path,
    folder: &'a Path,
    /// The model's name in the folder.
    name: &'a str,
}

impl<'a> Output<'a> {
    fn check(arguments: &'a Arguments) -> Result<Self> {
        let output = &arguments.output;
        let shown = output.display();
        ensure!(!output.is_dir(), "the output {shown} is a folder\n  help: name an .onnx file");
        let name = output.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("the output {shown} has a file name that is not valid UTF-8"))?;
        let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(
            folder.is_dir(),
            "there is no folder {} for the compiled model\n  help: create it first",
            folder.display()
        );
        let real = |path: &Path| fs::canonicalize(path).ok();
        if let (Some(output), Some(model)) = (real(output), real(&arguments.target.model)) {
            ensure!(output != model, "the compiled model would replace its source\n  help: give it another name");
        }
        Ok(Self { file: output, folder, name })
    }

    /// Moves the files to their final place, the model last, so that it never lacks its files.
    fn take(&self, made: &TempDir) -> Result<Vec<MadeFile>> {
        let mut files = fs::read_dir(made)
            .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>())
            .context("could not list the files that were written")?;
        files.sort_by_key(|file| (file.ends_with(self.name), file.clone()));
        let mut taken = Vec::with_capacity(files.len());
        for file in files {
            let place = self.file.with_file_name(file.file_name().unwrap_or_default());
            let moved = fs::metadata(&file).and_then(|found| fs::rename(&file, &place).map(|()| found.len()));
            let bytes = moved.with_context(|| format!("{} could not be written", place.display()))?;
            taken.push(MadeFile { file: place.display().to_string(), bytes });
        }
        taken.rotate_right(1);
        Ok(taken)
    }
}

fn compile(target: &Target, output: &Output<'_>, arguments: &Arguments) -> Result<Report> {
    let progress = Progress::new("compiling the model ...");
    let mut dims = arguments.dims.clone();
    if !dims.is_empty() {
        // If the CPU provider cannot load the model, its dimension names are unknown. Compiled models are rejected
        // below.
        if let Ok(session) = target.cpu_session(None, &[], None) {
            dims = inputs::named(session.inputs(), &dims)?;
        }
    }
    let model = &arguments.target.model;
    let made = Cleanup::making(|| tempfile::Builder::new().prefix(".compiling-").tempdir_in(output.folder));
    let (made, _cleanup) = made.with_context(|| format!("could not write into {}", output.folder.display()))?;
    let file = made.path().join(output.name);
    // Weights of nodes on the CPU provider stay in the model. ONNX Runtime would otherwise move all of them out,
    // including operands that its shape inference has to read.
    let entries = [
        ("ep.context_enable", "1"),
        ("ep.context_embed_mode", if arguments.external { "0" } else { "1" }),
        ("ep.context_file_path", file.to_str().context("the output's path is not valid UTF-8")?),
    ];
    let start = Instant::now();
    let session = target.session_of(model, &entries, None, &dims).map_err(|error| unwritten(error, &made, output))?;
    let assignment = session.assignment().reported()?;
    drop(session);
    let compile_seconds = start.elapsed().as_secs_f64();
    let (shown, placed) = (model.display(), Placed::count(&assignment));
    if target::is_compiled(&assignment) {
        bail!("the model {shown} is already compiled\n  help: compile the model that it was compiled from");
    }
    if placed.partitions == 0 {
        bail!(
            "no node of {shown} runs on the device: there is nothing to compile\n  help: `amdgpu-ep explain` says why"
        );
    }
    if !file.is_file() {
        bail!(
            "the backend runs {}, but cannot save compiled models\n  help: --profile hip and --profile migraphx compile models; `amdgpu-ep tune` makes later sessions faster with any model",
            placed.text()
        );
    }
    progress.say("loading the compiled model ...");
    let start = Instant::now();
    // If the model needed compiling again, this would fail.
    drop(target.session_of(&file, &[("session.disable_model_compile", "1")], None, &[])?);
    let load_seconds = start.elapsed().as_secs_f64();
    let files = output.take(&made)?;
    let (place, profile) = (target.place.clone(), arguments.target.profile.clone());
    Ok(Report { schema: SCHEMA, place, placed, profile, files, compile_seconds, load_seconds })
}

/// The error of a session that could not write the compiled model. ONNX Runtime names the file but not the reason, so
/// this writes a test file: a full disk is still full, with the incomplete files on it.
fn unwritten(error: anyhow::Error, made: &TempDir, output: &Output<'_>) -> anyhow::Error {
    let is_about_file = made.path().to_str().is_some_and(|folder| format!("{error:#}").contains(folder));
    let probed = || fs::write(made.path().join("probe"), vec![0; PROBE_BYTES]).err().filter(|_| is_about_file);
    match probed() {
        None => error,
        Some(reason) => anyhow::anyhow!(
            "the compiled model could not be written to {}: {reason}\n  help: free some space there, or choose another path with --output",
            output.folder.display()
        ),
    }
}

fn text(report: &Report) -> String {
    let Report { place, placed, files, compile_seconds, load_seconds, .. } = report;
    let mut out = format!("{}\n{}\ncompiled: {}\n\n", place.model, place.text(), placed.text());
    let rows = files.iter().map(|file| [file.file.clone(), HumanBytes(file.bytes).to_string()]);
    out += &table::text(["file", "size"], rows.collect());
    out += &format!("\nCompiled in {compile_seconds:.2} s; a session loads it in {load_seconds:.2} s.\n");
    if let Some(profile) = report.profile.as_ref().filter(|profile| *profile != "auto") {
        out += &format!("It runs with the profile it was compiled with: --profile {profile}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(profile: Option<&str>) -> Report {
        let place = Setup {
            model: "m.onnx".into(),
            onnxruntime: "libonnxruntime.so".into(),
            onnxruntime_version: "1.31.1".into(),
            library: "libamdgpu-ep.so".into(),
            driver: "host".into(),
            archs: vec!["host".into()],
        };
        Report {
            schema: SCHEMA,
            place,
            placed: Placed { device_nodes: 3, total_nodes: 4, partitions: 2 },
            profile: profile.map(str::to_owned),
            files: vec![MadeFile { file: "c.onnx".into(), bytes: 2048 }],
            compile_seconds: 0.5,
            load_seconds: 0.25,
        }
    }

    #[test]
    fn text_lists_the_files_and_how_to_run_them() {
        let text = text(&sample(Some("migraphx")));
        for want in ["3 of 4 nodes", "c.onnx", "2.00 KiB", "in 0.50 s", "in 0.25 s", "--profile migraphx"] {
            assert!(text.contains(want), "{want}: {text}");
        }
        assert!(!super::text(&sample(None)).contains("--profile"));
    }

    #[test]
    fn files_are_moved_and_the_model_comes_first() {
        let (folder, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["z_0.mxr", "m.onnx", "a_0.mxr"] {
            fs::write(made.path().join(name), name).unwrap();
        }
        let file = folder.path().join("m.onnx");
        let output = Output { file: &file, folder: folder.path(), name: "m.onnx" };
        let taken = output.take(&made).unwrap();
        let file =
            |name: &str| MadeFile { file: folder.path().join(name).display().to_string(), bytes: name.len() as u64 };
        assert_eq!(taken, ["m.onnx", "a_0.mxr", "z_0.mxr"].map(file));
        assert_eq!(fs::read_to_string(folder.path().join("m.onnx")).unwrap(), "m.onnx");
        assert_eq!(fs::read_dir(made).unwrap().count(), 0);
    }

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = include_str!("../../../docs/cli.md");
        let document = serde_json::to_value(sample(None)).unwrap();
        for key in document.as_object().unwrap().keys() {
            assert!(manual.contains(&format!("`{key}`")), "{key}");
        }
    }
}
