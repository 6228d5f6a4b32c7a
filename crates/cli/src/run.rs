//! `amdgpu-ep run`: runs a model once, optionally comparing it with ONNX Runtime's CPU provider.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use ort_client::{Environment, Session, Value};
use serde::Serialize;

use crate::compare::{self, Arithmetic, Difference};
use crate::inputs::{self, InputArguments, InputFile};
use crate::npy;
use crate::ort::{self, Array, Reported};
use crate::progress::Progress;
use crate::report;
use crate::table;
use crate::target::{self, Opened, Placed, Setup, SourceArguments, Target, TargetArguments};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// Number of elements of an output in the report.
const SHOWN: usize = 6;

/// The arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    source: SourceArguments,
    /// An input from a .npy file, or all inputs from a .npz file; others are random
    #[arg(long = "input", value_name = "NAME=FILE.npy|FILE.npz", value_parser = inputs::file)]
    files: Vec<InputFile>,
    /// Also run the model on this provider, and compare
    #[arg(long, value_name = "PROVIDER")]
    compare: Option<Rival>,
    /// Largest allowed difference, as a fraction of an output's largest element [default: depends on the type]
    #[arg(long, value_name = "X", requires = "compare", value_parser = share)]
    tolerance: Option<f64>,
    /// Write every output into this folder, as OUTPUT.npy
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share: &f64| share.is_finite() && *share >= 0.0);
    share.ok_or_else(|| format!("expected a number of at least 0, found {text:?}"))
}

/// What to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rival {
    /// ONNX Runtime's own CPU provider
    Cpu,
}

/// The complete report.
#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    place: Setup,
    #[serde(flatten)]
    placed: Placed,
    outputs: Vec<Output>,
    /// Whether all outputs are within the tolerance; absent if nothing was compared.
    good: Option<bool>,
}

/// An output.
#[derive(Clone, Debug, Serialize)]
struct Output {
    name: String,
    /// An element type, or a description of another type.
    kind: String,
    shape: Vec<usize>,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    first: Vec<f64>,
    file: Option<String>,
    difference: Option<Difference>,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When something required is missing, or a run fails.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    let target = match target::open(&arguments.target)? {
        Opened::Ready(target) => target,
        Opened::Elsewhere(code) => return Ok((code, String::new())),
    };
    let report = examine(&target, arguments)?;
    let code = u8::from(report.good == Some(false));
    let text = report::written(&report, arguments.target.json, text)?;
    Ok((code, text))
}

fn examine(target: &Target, arguments: &Arguments) -> Result<Report> {
    let progress = Progress::counted("loading the model ...")?;
    let session = target.session(progress.entry()?.as_slice(), None)?;
    let assignment = session.assignment().reported()?;
    let arithmetic = Arithmetic::of(assignment.iter().flat_map(|part| &part.nodes).map(|node| node.op.as_str()));
    let ports = session.inputs();
    let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    let arrays = inputs::make(ports, &arguments.files, &arguments.inputs)?;
    progress.say("running the model ...");
    let found = outputs(target.environment(), &session, &names, &arrays)
        .map_err(|error| inputs::failed("the run", error, ports, &arrays))?;
    let cpu = match arguments.compare {
        None => None,
        Some(Rival::Cpu) => {
            progress.say("running the model on the CPU provider ...");
            let session = target.cpu_session(arguments.source.for_cpu(&assignment)?, &[], None)?;
            let found = outputs(target.environment(), &session, &names, &arrays);
            Some(found.map_err(|error| inputs::failed("the run on the CPU provider", error, ports, &arrays))?)
        }
    };
    let mut outputs = Vec::with_capacity(found.len());
    for (at, (name, value)) in found.iter().enumerate() {
        let mut output = described(name, value);
        if let (Some(folder), Ok(array)) = (&arguments.output, value) {
            output.file = Some(save(folder, name, array)?);
        }
        if let Some(cpu) = &cpu {
            output.difference = match (value, &cpu[at].1) {
                (Ok(found), Ok(cpu)) => {
                    let usual = || compare::tolerance(cpu.element(), arithmetic);
                    Some(compare::compare(found, cpu, arguments.tolerance.unwrap_or_else(usual)))
                }
                _ => None,
            };
        }
        outputs.push(output);
    }
    let differences = || outputs.iter().filter_map(|output| output.difference.as_ref());
    let good = cpu.is_some().then(|| differences().all(|difference| difference.good));
    let placed = Placed::count(&assignment);
    Ok(Report { schema: SCHEMA, place: target.place.clone(), placed, outputs, good })
}

/// An output's name, with its content, or a description if it is not a tensor of numbers.
pub type Named = (String, Result<Array, String>);

/// Runs a session on these named inputs, and returns all outputs.
pub fn outputs(environment: &Environment, session: &Session, names: &[String], arrays: &[Array]) -> Result<Vec<Named>> {
    let values = arrays.iter().map(|array| ort::value(environment, array)).collect::<Result<Vec<_>>>()?;
    let inputs: Vec<(&str, &Value)> = names.iter().map(String::as_str).zip(&values).collect();
    let ports = session.outputs();
    let wanted: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let found = session.run(&inputs, &wanted).reported()?;
    ports.iter().zip(&found).map(|(port, value)| Ok((port.name.clone(), ort::array(value)?))).collect()
}

fn described(name: &str, value: &Result<Array, String>) -> Output {
    let mut output = Output {
        name: name.to_owned(),
        kind: String::new(),
        shape: Vec::new(),
        min: None,
        max: None,
        mean: None,
        first: Vec::new(),
        file: None,
        difference: None,
    };
    match value {
        Err(kind) => output.kind.clone_from(kind),
        Ok(array) => {
            output.kind = array.element().name().to_owned();
            output.shape = array.shape().to_vec();
            output.min = array.numbers().reduce(f64::min);
            output.max = array.numbers().reduce(f64::max);
            let count = array.numbers().len();
            output.mean = (count > 0).then(|| array.numbers().sum::<f64>() / count as f64);
            output.first = array.numbers().take(SHOWN).collect();
        }
    }
    output
}

/// Saves an output, replacing characters that do not belong in a file name.
fn save(folder: &Path, name: &str, array: &Array) -> Result<String> {
    std::fs::create_dir_all(folder).with_context(|| format!("the folder {} could not be created", folder.display()))?;
    let stem: String =
        name.chars().map(|c| if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' }).collect();
    let file = folder.join(format!("{stem}.npy"));
    npy::write(&file, array)?;
    Ok(file.display().to_string())
}

const DISAGREEMENT: &str = "
The outputs do NOT agree.
  help: random inputs may be unlike the data the model was trained on, and amplify rounding: give real ones with
        --input, or allow more with --tolerance
";

fn text(report: &Report) -> String {
    let mut out =
        format!("{}\n{}\non the device: {}\n\n", report.place.model, report.place.text(), report.placed.text());
    let number = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), short);
    let rows = report.outputs.iter().map(|output| {
        let shape = if output.shape.is_empty() && output.first.is_empty() {
            String::new()
        } else {
            format!("{:?}", output.shape)
        };
        let first: Vec<String> = output.first.iter().copied().map(short).collect();
        let (min, max, mean) = (number(output.min), number(output.max), number(output.mean));
        [output.name.clone(), format!("{} {shape}", output.kind), min, max, mean, first.join(" ")]
    });
    out += &table::text(["output", "type", "min", "max", "mean", "first elements"], rows.collect());
    // Writing to a `String` cannot fail.
    for file in report.outputs.iter().filter_map(|output| output.file.as_ref()) {
        let _ = writeln!(out, " written: {file}");
    }
    let Some(good) = report.good else { return out };
    out += "\nAgainst the CPU provider\n";
    let rows = report.outputs.iter().map(|output| match &output.difference {
        None => [output.name.clone(), "-".into(), "-".into(), "-".into(), "-".into(), "not compared".into()],
        Some(difference) => {
            let verdict = match (&difference.problem, difference.good) {
                (Some(problem), _) => problem.clone(),
                (None, true) => "good".to_owned(),
                (None, false) => "too far apart".to_owned(),
            };
            let cosine = difference.cosine.map_or_else(|| "-".to_owned(), |cosine| format!("{cosine:.8}"));
            let (abs, rel, allowed) = (short(difference.max_abs), short(difference.max_rel), short(difference.allowed));
            [output.name.clone(), abs, rel, cosine, allowed, verdict]
        }
    });
    out += &table::text(["output", "max abs", "max rel", "cosine", "allowed", ""], rows.collect());
    out += if good { "\nThe outputs agree.\n" } else { DISAGREEMENT };
    out
}

/// Formats a number in a few characters.
fn short(number: f64) -> String {
    let size = number.abs();
    if number == 0.0 || number.fract() == 0.0 && size < 1e9 {
        format!("{number}")
    } else if (1e-3..1e6).contains(&size) {
        format!("{number:.5}")
    } else {
        format!("{number:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ort_client::Element;

    #[test]
    fn numbers_are_short() {
        let cases = [(0.0, "0"), (-3.0, "-3"), (0.25, "0.25000"), (1.5e-7, "1.500e-7"), (f64::NAN, "NaN")];
        for (number, want) in cases {
            assert_eq!(short(number), want);
        }
    }

    #[test]
    fn outputs_are_described() {
        let array = Array::new(Element::U8, vec![2, 2], vec![1, 2, 3, 6]).unwrap();
        let output = described("y", &Ok(array));
        assert_eq!((output.min, output.max, output.mean), (Some(1.0), Some(6.0), Some(3.0)));
        assert_eq!((output.kind.as_str(), output.shape.as_slice()), ("uint8", &[2, 2][..]));
        let empty = described("y", &Ok(Array::new(Element::U8, vec![0], vec![]).unwrap()));
        assert_eq!((empty.min, empty.mean), (None, None));
        assert_eq!(described("y", &Err("a sequence".into())).kind, "a sequence");
    }

    #[test]
    fn file_names_are_sanitised() {
        let folder = tempfile::tempdir().unwrap();
        let array = Array::new(Element::U8, vec![1], vec![1]).unwrap();
        let file = save(folder.path(), "../a/b:0", &array).unwrap();
        assert_eq!(Path::new(&file), folder.path().join(".._a_b_0.npy"));
    }
}
