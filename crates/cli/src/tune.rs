//! `amdgpu-ep tune`: measures the alternatives for a model's steps, and saves the fastest for later sessions.
//!
//! The backend does this while it creates the plans of one run, and writes its results to the report
//! `explain`.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use reports::{Explain, Step};
use serde::Serialize;

use crate::explain::reasons::Reasons;
use crate::inputs::{self, InputArguments};
use crate::ort::Reported;
use crate::progress::Progress;
use crate::record::Record;
use crate::report;
use crate::table;
use crate::target::{self, Opened, Placed, Setup, Target, TargetArguments};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// The arguments of `tune`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    inputs: InputArguments,
    /// Measure all steps again, including those measured before
    #[arg(long)]
    again: bool,
}

/// The complete report.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    place: Setup,
    #[serde(flatten)]
    placed: Placed,
    /// The steps with several alternatives, each once.
    steps: Vec<Step>,
    /// The number of all steps in the plans, including those that were not measured.
    step_count: usize,
    /// The total time of all measured steps, with the default and the best alternatives.
    usual_micros: f64,
    micros: f64,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When something required is missing, or the run fails.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    let target = match target::open(&arguments.target)? {
        Opened::Ready(target) => target,
        Opened::Elsewhere(code) => return Ok((code, String::new())),
    };
    let report = examine(&target, arguments)?;
    let text = report::written(&report, arguments.target.json, text)?;
    Ok((0, text))
}

fn examine(target: &Target, arguments: &Arguments) -> Result<Report> {
    let record = Record::<Explain>::new()?;
    let progress = Progress::counted("loading the model ...")?;
    let tune = if arguments.again { "again" } else { "on" };
    let mut entries = vec![record.entry()?, (options::hip::TUNE, tune)];
    entries.extend(progress.entry()?);
    let session = target.session(&entries, None)?;
    let ports = session.inputs();
    let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
    let arrays = inputs::make(ports, &[], &arguments.inputs)?;
    progress.say("measuring the steps ...");
    crate::run::outputs(target.environment(), &session, &names, &arrays)
        .map_err(|error| inputs::failed("the run", error, ports, &arrays))?;
    let reasons = Reasons::new(record.read()?);
    Ok(report(target.place.clone(), Placed::count(&session.assignment().reported()?), reasons.steps))
}

fn report(place: Setup, placed: Placed, all: Vec<Step>) -> Report {
    let step_count = all.len();
    let sum = |of: fn(&Step) -> Option<f64>| all.iter().filter_map(of).sum::<f64>();
    let usual_micros = sum(|step| Some(step.tuned.as_ref()?.usual_micros));
    let micros = sum(|step| Some(step.tuned.as_ref()?.micros));
    let mut seen = BTreeSet::new();
    let mut steps = all;
    steps.retain(|step| step.tuned.is_some() && seen.insert((step.node.clone(), step.step.clone())));
    let gain = |step: &Step| step.tuned.as_ref().map_or(0.0, |tuned| tuned.usual_micros - tuned.micros);
    steps.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
    Report { schema: SCHEMA, place, placed, steps, step_count, usual_micros, micros }
}

fn text(report: &Report) -> String {
    let mut out = format!("{}\n{}\n\n", report.place.model, report.place.text());
    if report.steps.is_empty() {
        let count = report.step_count;
        return out
            + &format!("Nothing to tune: each of the {count} steps has only one implementation on this device.\n");
    }
    let rows = report.steps.iter().filter_map(|step| {
        let tuned = step.tuned.as_ref()?;
        Some([
            step.op.clone(),
            step.node.clone(),
            step.step.clone(),
            tuned.choice.clone(),
            format!("{:.1} µs", tuned.usual_micros),
            format!("{:.1} µs", tuned.micros),
            tuned.tried.to_string(),
        ])
    });
    out += &table::text(["operator", "node", "step", "best", "default", "tuned", "tried"], rows.collect());
    let Report { usual_micros, micros, step_count, .. } = report;
    let (measured, ratio) = (report.steps.len(), usual_micros / micros.max(f64::MIN_POSITIVE));
    out + &format!(
        "\n{measured} of {step_count} steps measured: {usual_micros:.1} µs by default, {micros:.1} µs tuned ({ratio:.2}×)\n"
    )
}

#[cfg(test)]
mod tests {
    use reports::Tuned;

    use super::*;

    fn step(node: &str, usual_micros: f64, micros: f64) -> Step {
        let tuned = Some(Tuned { choice: "own-1".into(), micros, usual_micros, tried: 3 });
        let (op, step, run_by) = ("Conv".to_owned(), "conv".to_owned(), "own: conv".to_owned());
        Step { node: node.into(), op, step, run_by, reason: None, tuned }
    }

    fn sample(steps: Vec<Step>) -> Report {
        let place = Setup {
            model: "m.onnx".into(),
            onnxruntime: "libonnxruntime.so".into(),
            onnxruntime_version: "1.31.1".into(),
            library: "libamdgpu-ep.so".into(),
            driver: "host".into(),
            archs: vec!["host".into()],
        };
        report(place, Placed { device_nodes: 2, total_nodes: 2, partitions: 1 }, steps)
    }

    #[test]
    fn the_largest_gain_comes_first_and_sums_cover_every_step() {
        let plain = Step { tuned: None, ..step("c", 0.0, 0.0) };
        let report = sample(vec![step("a", 5.0, 4.0), step("b", 9.0, 3.0), step("a", 5.0, 4.0), plain]);
        let nodes: Vec<&str> = report.steps.iter().map(|step| step.node.as_str()).collect();
        assert_eq!((nodes, report.step_count), (vec!["b", "a"], 4));
        assert_eq!((report.usual_micros, report.micros), (19.0, 11.0));
        let text = text(&report);
        for want in ["own-1", "9.0 µs", "2 of 4 steps measured: 19.0 µs by default, 11.0 µs tuned (1.73×)"] {
            assert!(text.contains(want), "{want}: {text}");
        }
    }

    #[test]
    fn a_device_without_alternatives_says_so() {
        let plain = Step { tuned: None, ..step("c", 0.0, 0.0) };
        assert!(text(&sample(vec![plain])).contains("each of the 1 steps has only one implementation"));
    }

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = include_str!("../../../docs/cli.md");
        let document = serde_json::to_value(sample(vec![step("a", 2.0, 1.0)])).unwrap();
        for key in document.as_object().unwrap().keys() {
            assert!(manual.contains(&format!("`{key}`")), "{key}");
        }
    }
}
