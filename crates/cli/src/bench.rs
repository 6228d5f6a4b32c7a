//! `amdgpu-ep bench`: measures a model against ONNX Runtime's CPU provider, in one process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use ort_client::{Port, Session, Value};
use reports::TimedStep;
use serde::Serialize;

use crate::inputs::{self, InputArguments};
use crate::memory::{self, Memory};
use crate::ort::{self, Array, Reported};
use crate::profile;
use crate::progress::Progress;
use crate::record::Record;
use crate::report;
use crate::table;
use crate::target::{self, Opened, Placed, Setup, SourceArguments, Target, TargetArguments};
use crate::times::Times;

/// The version of the JSON document.
const SCHEMA: u32 = 1;

/// Warm-up runs per session.
const WARM_UP_RUNS: usize = 3;

/// The minimum number of measured pairs of runs, however long they take.
const LEAST_PAIRS: usize = 3;

/// Number of runs whose steps are timed, and their time limit.
const PROFILED_RUNS: usize = 21;
const PROFILE_TIME: Duration = Duration::from_secs(20);

/// Number of profiled steps in the report.
const SHOWN_STEPS: usize = 30;

/// Disables spinning: a thread that spins while it waits takes time from the other session.
const QUIET: [(&str, &str); 2] = [("session.intra_op.allow_spinning", "0"), ("session.inter_op.allow_spinning", "0")];

/// The arguments of `bench`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    target: TargetArguments,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    source: SourceArguments,
    /// How long to measure
    #[arg(long, value_name = "S", default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Threads inside an operator, in both sessions [default: chosen by ONNX Runtime]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Also time every step on the device, in separate runs
    #[arg(long)]
    steps: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a time in seconds between 0 and 86400");
    let seconds = text.parse().map_err(|_| wrong())?;
    if (0.0..=86400.0).contains(&seconds) { Ok(seconds) } else { Err(wrong()) }
}

/// The complete report.
#[derive(Clone, Debug, Serialize)]
struct Report {
    schema: u32,
    #[serde(flatten)]
    place: Setup,
    #[serde(flatten)]
    placed: Placed,
    /// Threads within an operator, if the user set them.
    threads: Option<u16>,
    /// The shape of each input.
    inputs: Vec<Input>,
    device: Times,
    cpu: Times,
    /// The CPU provider's median divided by the device's: above 1, the device is faster.
    ratio: f64,
    /// The steps with their times, slowest first; absent without `--steps`.
    profile: Option<Vec<TimedStep>>,
    /// The backend's memory statistics; absent unless it is the hip backend.
    memory: Option<Memory>,
}

#[derive(Clone, Debug, Serialize)]
struct Input {
    name: String,
    kind: &'static str,
    shape: Vec<usize>,
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
    let report = measure(&target, arguments)?;
    let text = report::written(&report, arguments.target.json, text)?;
    Ok((0, text))
}

fn measure(target: &Target, arguments: &Arguments) -> Result<Report> {
    let mut progress = Progress::counted("loading the model ...")?;
    let record = Record::new()?;
    let held = record.entry()?;
    let entries: Vec<_> = QUIET.into_iter().chain(progress.entry()?).chain([held]).collect();
    let device = target.session(&entries, arguments.threads)?;
    let assignment = device.assignment().reported()?;
    let cpu = target.cpu_session(arguments.source.for_cpu(&assignment)?, &QUIET, arguments.threads)?;
    let ports = device.inputs().to_vec();
    let arrays = inputs::make(&ports, &[], &arguments.inputs)?;
    let environment = target.environment();
    let values = arrays.iter().map(|array| ort::value(environment, array)).collect::<Result<Vec<_>>>()?;
    let named: Vec<(&str, &Value)> = ports.iter().map(|port| port.name.as_str()).zip(&values).collect();
    let outputs = device.outputs().to_vec();
    let outputs: Vec<&str> = outputs.iter().map(|port| port.name.as_str()).collect();
    let timed = |session: &Session, name: &str| -> Result<Duration> {
        let start = Instant::now();
        let results = session
            .run(&named, &outputs)
            .reported()
            .map_err(|error| inputs::failed(&format!("the run on {name}"), error, &ports, &arrays))?;
        let time = start.elapsed();
        drop(results);
        Ok(time)
    };
    progress.say("warming up ...");
    for _ in 0..WARM_UP_RUNS {
        timed(&device, "the device")?;
        timed(&cpu, "the CPU provider")?;
    }
    let limit = Duration::from_secs_f64(arguments.seconds);
    let (mut device_times, mut cpu_times) = (Vec::new(), Vec::new());
    progress.measure(arguments.seconds);
    let start = Instant::now();
    // Alternate between both, so that other load on the machine affects both equally. The order within a pair
    // alternates too.
    while device_times.len() < LEAST_PAIRS || start.elapsed() < limit {
        if device_times.len() % 2 == 0 {
            device_times.push(timed(&device, "the device")?);
            cpu_times.push(timed(&cpu, "the CPU provider")?);
        } else {
            cpu_times.push(timed(&cpu, "the CPU provider")?);
            device_times.push(timed(&device, "the device")?);
        }
        progress.measured(start.elapsed().as_secs_f64(), device_times.len());
    }
    let (device_times, cpu_times) = (Times::of(device_times), Times::of(cpu_times));
    let input = |(port, array): (&Port, &Array)| Input {
        name: port.name.clone(),
        kind: array.element().name(),
        shape: array.shape().to_vec(),
    };
    // Memory is counted until the session ends.
    drop(device);
    Ok(Report {
        schema: SCHEMA,
        place: target.place.clone(),
        placed: Placed::count(&assignment),
        memory: memory::last(record.read()?),
        threads: arguments.threads,
        inputs: ports.iter().zip(&arrays).map(input).collect(),
        ratio: cpu_times.median_ms / device_times.median_ms,
        device: device_times,
        cpu: cpu_times,
        profile: arguments.steps.then(|| profile(target, arguments, &named, &outputs)).transpose()?,
    })
}

/// Times the steps in a separate session, which is slower because it waits for each step.
fn profile(
    target: &Target,
    arguments: &Arguments,
    named: &[(&str, &Value)],
    outputs: &[&str],
) -> Result<Vec<TimedStep>> {
    let record = Record::new()?;
    let session = target.session(&[QUIET[0], QUIET[1], record.entry()?], arguments.threads)?;
    let start = Instant::now();
    for _ in 0..PROFILED_RUNS {
        session.run(named, outputs).reported().context("a profiled run")?;
        if start.elapsed() > PROFILE_TIME {
            break;
        }
    }
    drop(session);
    Ok(profile::medians(record.read()?))
}

fn text(report: &Report) -> String {
    let inputs: Vec<String> =
        report.inputs.iter().map(|input| format!("{} {} {:?}", input.name, input.kind, input.shape)).collect();
    let mut out = format!("{}\n{}\n", report.place.model, report.place.text());
    out += &format!("inputs: {}\non the device: {}\n\n", inputs.join(", "), report.placed.text());
    let row = |name: &str, times: &Times| {
        let Times { runs, median_ms, p95_ms, min_ms } = times;
        [
            name.to_owned(),
            runs.to_string(),
            format!("{median_ms:.3} ms"),
            format!("{p95_ms:.3} ms"),
            format!("{min_ms:.3} ms"),
        ]
    };
    let rows = vec![row(PROVIDER_ROW, &report.device), row("CPU provider alone", &report.cpu)];
    out += &table::text(["session", "runs", "median", "p95", "min"], rows);
    if let Some(steps) = &report.profile {
        out += &format!("\n{}", profile::text(steps, SHOWN_STEPS));
    }
    if let Some(memory) = &report.memory {
        out += &format!("\n{}", memory::text(memory, &[]));
    }
    out + &format!("\nSpeed against the CPU provider: {:.2}×\n", report.ratio)
}

const PROVIDER_ROW: &str = "with the device";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_sane() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for wrong in ["-1", "NaN", "inf", "1e9", "x"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
