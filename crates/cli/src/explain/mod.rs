//! `amdgpu-ep explain`: shows which nodes run where, and why some do not run on the device.
//!
//! ONNX Runtime reports where a node runs. The backend writes why it does not run on the device to the file named by
//! `ep.hip.explain_file`; its lines are matched to ONNX Runtime's nodes by operator and name. Plans are created for the
//! shapes of a run, so the steps are only known after one: `--steps` runs the model on random inputs.

pub mod reasons;
mod render;

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use ort_client::Assigned;
use reports::{Explain, Step, TimedStep};
use serde::Serialize;

use self::reasons::Reasons;
use crate::inputs::{self, InputArguments};
use crate::memory::{self, Memory};
use crate::ort::Reported;
use crate::profile;
use crate::progress::Progress;
use crate::record::Record;
use crate::report;
use crate::target::{self, Opened, PROVIDER, Placed, Setup, Target, TargetArguments};

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// Number of timed runs. The first one includes initialisation.
const TIMED_RUNS: usize = 4;

/// The arguments of `explain`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    inputs: InputArguments,
    /// List every node
    #[arg(long)]
    nodes: bool,
    /// Run the model on random inputs, and list what runs each step and how long it takes
    #[arg(long)]
    steps: bool,
}

/// The complete report.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    place: Setup,
    #[serde(flatten)]
    placed: Placed,
    /// How often each pass of the engine changed a partition.
    passes: BTreeMap<String, usize>,
    operators: Vec<Operator>,
    nodes: Vec<Node>,
    /// The steps of one run's plans; absent unless requested.
    steps: Option<Vec<Step>>,
    /// The steps with their times, slowest first; absent unless requested.
    profile: Option<Vec<TimedStep>>,
    /// The backend's memory statistics; absent unless it is the hip backend and a run was requested.
    memory: Option<Memory>,
}

/// The nodes of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Operator {
    domain: String,
    op: String,
    device: usize,
    elsewhere: usize,
    /// Each reason, with the number of nodes that it applies to.
    reasons: BTreeMap<String, usize>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    name: String,
    domain: String,
    op: String,
    provider: String,
    /// Why it is not on the device.
    reason: Option<String>,
}

/// Runs the command, and returns the exit code and the output.
///
/// # Errors
/// When the model cannot be loaded, or something required is missing.
pub fn run(arguments: &Arguments) -> Result<(u8, String)> {
    let target = match target::open(&arguments.target)? {
        Opened::Ready(target) => target,
        Opened::Elsewhere(code) => return Ok((code, String::new())),
    };
    let report = examine(&target, arguments)?;
    let text = report::written(&report, arguments.target.json, |report| render::text(report, arguments.nodes))?;
    Ok((0, text))
}

fn examine(target: &Target, arguments: &Arguments) -> Result<Report> {
    let (record, times, memory) = (Record::<Explain>::new()?, Record::new()?, Record::new()?);
    let progress = Progress::counted("loading the model ...")?;
    let mut entries = vec![record.entry()?];
    entries.extend(progress.entry()?);
    if arguments.steps {
        entries.extend([times.entry()?, memory.entry()?]);
    }
    let session = target.session(&entries, None)?;
    let assignment = session.assignment().reported()?;
    if arguments.steps {
        progress.say("running the model ...");
        let ports = session.inputs();
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let arrays = inputs::make(ports, &[], &arguments.inputs)?;
        for _ in 0..TIMED_RUNS {
            crate::run::outputs(target.environment(), &session, &names, &arrays)
                .map_err(|error| inputs::failed("the run", error, ports, &arrays))?;
        }
    }
    // Memory is counted until the session ends.
    drop(session);
    let memory = memory::last(memory.read()?);
    let profile = arguments.steps.then(|| times.read()).transpose()?.map(profile::medians);
    let reasons = Reasons::new(record.read()?);
    Ok(Report { profile, memory, ..report(target.place.clone(), &assignment, reasons, arguments.steps) })
}

fn report(place: Setup, assignment: &[Assigned], mut reasons: Reasons, with_steps: bool) -> Report {
    let mut operators: BTreeMap<(String, String), Operator> = BTreeMap::new();
    let mut nodes = Vec::new();
    for (part, node) in assignment.iter().flat_map(|part| part.nodes.iter().map(move |node| (part, node))) {
        let domain = reasons::domain(&node.domain);
        let key = (domain.to_owned(), node.op.clone());
        let operator = operators.entry(key).or_insert_with(|| Operator {
            domain: domain.to_owned(),
            op: node.op.clone(),
            ..Operator::default()
        });
        let reason = if part.provider == PROVIDER {
            operator.device += 1;
            None
        } else {
            operator.elsewhere += 1;
            let reason =
                reasons.take(&node.domain, &node.op, &node.name).unwrap_or_else(|| reasons.none(&place.driver));
            *operator.reasons.entry(reason.clone()).or_default() += 1;
            Some(reason)
        };
        nodes.push(Node {
            name: node.name.clone(),
            domain: domain.to_owned(),
            op: node.op.clone(),
            provider: part.provider.clone(),
            reason,
        });
    }
    let mut operators: Vec<Operator> = operators.into_values().collect();
    // Operators that need attention come first.
    operators.sort_by_key(|operator| (std::cmp::Reverse(operator.elsewhere), std::cmp::Reverse(operator.device)));
    let (placed, steps) = (Placed::count(assignment), with_steps.then_some(reasons.steps));
    Report {
        schema: SCHEMA,
        place,
        placed,
        passes: reasons.passes,
        operators,
        nodes,
        steps,
        profile: None,
        memory: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ort_client::AssignedNode;

    fn place() -> Setup {
        Setup {
            model: "m.onnx".into(),
            onnxruntime: "libonnxruntime.so".into(),
            onnxruntime_version: "1.31.1".into(),
            library: "libamdgpu-ep.so".into(),
            driver: "host".into(),
            archs: vec!["host".into()],
        }
    }

    fn part(provider: &str, nodes: &[(&str, &str)]) -> Assigned {
        let node =
            |&(name, op): &(&str, &str)| AssignedNode { name: name.into(), domain: String::new(), op: op.into() };
        Assigned { provider: provider.into(), nodes: nodes.iter().map(node).collect() }
    }

    fn sample() -> Report {
        let assignment = [
            part(PROVIDER, &[("a", "Relu"), ("b", "Add")]),
            part("CPUExecutionProvider", &[("c", "Det")]),
            part("CPUExecutionProvider", &[("d", "Relu")]),
        ];
        let line = r#"{"graph":"g","partitions":1,"nodes":[
            {"name":"c","op":"Det","domain":"","since_version":11,"placed":false,"reason":"no such operator"},
            {"name":"a","op":"Relu","domain":"","since_version":14,"placed":true,"reason":null}]}"#;
        let passes = r#"{"partition":"p","passes":{"layer-norm":2,"gelu":1}}"#;
        let step = |node: &str, by: &str, reason: &str| {
            let tuned = r#"{"choice":"own-1","micros":2.5,"usual_micros":5,"tried":3}"#;
            format!(
                r#"{{"node":"{node}","op":"Conv","step":"conv","run_by":"{by}","reason":{reason},"tuned":{tuned}}}"#
            )
        };
        let steps = [step("a", "hipDNN: SOME_ENGINE", "null"), step("b", "own: conv", "\"too small\"")].join(",");
        let steps = format!(r#"{{"partition":"p","steps":[{steps}]}}"#);
        let lines = format!("{}\n{passes}\n{steps}\n", line.replace('\n', ""));
        report(place(), &assignment, Reasons::new(reports::parse(&lines).unwrap()), true)
    }

    #[test]
    fn reasons_go_to_their_nodes() {
        let report = sample();
        assert_eq!(report.placed, Placed { device_nodes: 2, total_nodes: 4, partitions: 1 });
        let det = &report.operators[0];
        assert_eq!((det.op.as_str(), det.device, det.elsewhere), ("Relu", 1, 1));
        let det = &report.operators[1];
        assert_eq!((det.op.as_str(), det.reasons.keys().next().unwrap().as_str()), ("Det", "no such operator"));
        let reason = |name: &str| report.nodes.iter().find(|node| node.name == name).unwrap().reason.clone();
        assert_eq!(reason("a"), None);
        assert_eq!(reason("c").as_deref(), Some("no such operator"));
        assert_eq!(reason("d").as_deref(), Some("the backend did not evaluate it"));
    }

    #[test]
    fn text_has_the_summary_and_the_reasons() {
        let text = render::text(&sample(), true);
        for want in [
            "2 of 4 nodes (50 %) in 1 partition",
            "Passes: 1 × gelu, 2 × layer-norm",
            "Steps: 1 × hipDNN: SOME_ENGINE, 1 × own: conv",
            "too small",
            "own-1 (2.00×)",
            "Det",
            "no such operator",
            "CPUExecutionProvider",
        ] {
            assert!(text.contains(want), "{want}: {text}");
        }
    }

    #[test]
    fn every_field_is_in_the_manual() {
        let manual = include_str!("../../../../docs/cli.md");
        let document = serde_json::to_value(sample()).unwrap();
        let operator = document["operators"][0].as_object().unwrap();
        let node = document["nodes"][0].as_object().unwrap();
        let step = document["steps"][0].as_object().unwrap();
        let tuned = step["tuned"].as_object().unwrap();
        let document = document.as_object().unwrap().keys().chain(operator.keys());
        for key in document.chain(node.keys()).chain(step.keys()).chain(tuned.keys()) {
            assert!(manual.contains(&format!("`{key}`")), "{key}");
        }
    }
}
