//! What runs on an emulated machine.

use std::fs;
use std::process::Command;

use anyhow::{Result, bail};

use super::machine::{INTERRUPTS, Machine};
use crate::output::Output;
use crate::shard::Shard;
use crate::test::{Context, Outcome};
use crate::{built, kernels, output, pytest, shell, wheel, workers};

/// One kind of test.
pub struct Row {
    pub name: &'static str,
    /// Whether it takes less than a minute, so that it runs on a second GPU in every run of CI.
    pub is_short: bool,
    run: fn(&Context<'_>, &Machine, &str) -> Result<Outcome>,
}

impl Row {
    const fn new(name: &'static str, run: fn(&Context<'_>, &Machine, &str) -> Result<Outcome>) -> Self {
        Self { name, is_short: false, run }
    }

    const fn short(self) -> Self {
        Self { is_short: true, ..self }
    }

    /// Runs it on a machine whose first GPU is `target`.
    ///
    /// # Errors
    /// When a test fails.
    pub fn run(&self, context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
        (self.run)(context, machine, target)
    }
}

/// All rows, in order.
pub const ALL: [Row; 8] = [
    Row::new("machine", machine).short(),
    Row::new("driver", driver).short(),
    Row::new("operators", operators),
    Row::new("sessions", sessions),
    Row::new("faults", faults),
    Row::new("decoders", decoders).short(),
    Row::new("sets", sets),
    Row::new("wheel", wheels),
];

/// The longest that a program may run, in seconds: an emulated GPU that hangs must not stop the rest.
const SECONDS: u64 = 1200;

/// The number of parts into which the operator tests are split: each commit runs the next one. Almost all of their time
/// is compilation: half an hour of processor time for all of them, unless an earlier run has kept the kernels.
const PARTS: usize = 8;

/// The machine's own tests: copies, events, signals and queues. Only these wait by interrupts.
fn machine(context: &Context<'_>, machine: &Machine, _: &str) -> Result<Outcome> {
    let test = built::test(context.workspace, "amd-model", "machine")?;
    counted(machine.command(&test, SECONDS).arg("--nocapture").env(INTERRUPTS, "1"))
}

/// The driver rows of the `hip` crate: memory, streams, events, captures, kernels.
fn driver(context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
    let test = built::test(context.workspace, "hip", "driver")?;
    let mut command = machine.command(&test, SECONDS);
    command.arg("amd::").env("AMDGPU_EP_TEST_REAL_HIP", "1").env("AMDGPU_EP_TEST_HIPRTC_ARCH", target);
    counted(&mut command)
}

/// The engine's operator tests, in several processes: within one, hiprtc compiles one kernel at a time.
fn operators(context: &Context<'_>, machine: &Machine, _: &str) -> Result<Outcome> {
    let test = built::test(context.workspace, "exec", "ops")?;
    let list = shell::capture_stdout(Command::new(&test).args(["--list", "--format", "terse"]))?;
    let shard = context.due(PARTS, 0);
    let names: Vec<&str> = shard.of(list.lines().filter_map(|line| line.strip_suffix(": test")).collect());
    if names.is_empty() {
        bail!("{} lists no tests that are due", test.display());
    }
    let parts = pytest::workers();
    let mut groups: Vec<Vec<&str>> = (0..parts).map(|part| Shard { part, parts }.of(names.clone())).collect();
    // A test program without names would run all tests.
    groups.retain(|group| !group.is_empty());
    let to = Output::here();
    let ran = workers::on_all_processors(&groups, |group| {
        let mut command = machine.command(&test, SECONDS);
        command.current_dir(context.workspace.path("crates/exec")).env("EXEC_TEST_DEVICE", "gpu");
        let (ran, said) = output::captured(|| counted(command.arg("--exact").args(group)));
        to.say(said.trim_end());
        ran
    })?;
    ran.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(Outcome::Passed(format!("{} tests", names.len())).with(&shard.note()))
}

/// Sessions of ONNX Runtime: registration, tensors in device memory, runs, captures and replays. A commit runs two of the
/// four files.
fn sessions(context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
    let files = ["registration", "memory", "sessions", "capture"].map(|name| format!("tests/python/test_{name}.py"));
    let shard = context.due(2, 0);
    let files = shard.of(files.to_vec());
    let outcome = pytest::emulated(context, &format!("amd-sessions-{target}"), &files, machine, None)?;
    Ok(outcome.with(&shard.note()))
}

/// Out of memory, and sessions on two threads. ROCr's hook does not report page faults, so no kernel reads unmapped memory.
fn faults(context: &Context<'_>, machine: &Machine, _: &str) -> Result<Outcome> {
    let mut command = machine.command(&context.python()?.interpreter, SECONDS);
    command.arg(context.workspace.path("bench/gpu_faults.py")).arg(context.stage()?.umbrella());
    command.args(["--tiny", "--only", "memory,threads"]);
    command.env("AMDGPU_EP_DRIVER", "amd").env("AMDGPU_EP_TEST_SECONDS", SECONDS.to_string());
    let (ran, said) = output::captured(|| shell::run(&mut command));
    output::say(said.trim_end());
    ran?;
    Ok(Outcome::Passed("memory, threads".into()))
}

/// The README's program, with only the wheel and ONNX Runtime installed.
fn wheels(context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
    wheel::emulated(context, target, machine)
}

/// Small decoders against recorded tokens: ONNX Runtime GenAI, and our own text generation. On GPUs other than the first,
/// one per commit.
fn decoders(context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
    let shard = if target == super::FIRST { Shard::WHOLE } else { context.due(DECODERS.len(), 0) };
    let files = ["genai", "textgen"].map(|name| format!("tests/python/test_{name}.py"));
    let tests = files.into_iter().chain(["-k".to_owned(), shard.of(DECODERS.to_vec()).join(" or ")]);
    pytest::emulated(context, &format!("amd-decoders-{target}"), &tests.collect::<Vec<_>>(), machine, None)
}

/// Sessions of well-known models with a set of precompiled kernels: they compile none. Of four commits, one takes the
/// exact set and one the generic set.
fn sets(context: &Context<'_>, machine: &Machine, target: &str) -> Result<Outcome> {
    let Some(&(_, generic, units)) = GENERIC.iter().find(|(name, ..)| *name == target) else {
        return Ok(Outcome::Skipped(format!("the generic target of {target} is not known")));
    };
    let shard = context.due(4, 0);
    let due = shard.of(vec![target, generic]);
    if due.is_empty() {
        return Ok(Outcome::Passed("no set is due".into()).with(&shard.note()));
    }
    let folder = context.workspace.target().join("amd").join(target).join("sets");
    let texts = folder.join("texts");
    kernels::models::record(context, &[(target, units)], &texts)?;
    for set in &due {
        let out = folder.join(set);
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        // The catalogue is not needed here, and takes minutes to compile.
        match kernels::set::run_texts(context.workspace, set, &texts, &out)? {
            Outcome::Passed(note) => output::say(note),
            skipped => return Ok(skipped),
        }
        let files = ["kernel_sets", "genai"].map(|name| format!("tests/python/test_{name}.py"));
        let tests: Vec<String> = files.into_iter().chain(["-k", WITH_SETS].map(str::to_owned)).collect();
        pytest::emulated(context, &format!("amd-sets-{set}"), &tests, machine, Some(&out))?;
    }
    Ok(Outcome::Passed(format!("no kernel compiled with {}", due.join(" and "))).with(&shard.note()))
}

/// What runs with a set: sessions that must not compile, and the golden tokens of the same decoders.
const WITH_SETS: &str = "kernel_sets or nano-fp16-hip or nano-int4-hip";

/// The GPUs with their generic targets and the compute units that the emulated ones have.
const GENERIC: [(&str, &str, u32); 4] = [
    ("gfx1100", "gfx11-generic", 96),
    ("gfx1201", "gfx12-generic", 64),
    ("gfx942", "gfx9-4-generic", 304),
    ("gfx1151", "gfx11-generic", 40),
];

/// The smallest decoder of each weight type, in GenAI's tests (`-hip`) and in ours (`-amdgpu`).
const DECODERS: [&str; 5] = ["nano-fp32-hip", "nano-fp16-hip", "nano-int4-hip", "nano-fp32-amdgpu", "nano-int4-amdgpu"];

/// What ROCr's hook says before it ends the process for an event that ROCr has destroyed. With interrupts this happens now
/// and then while a program that has finished its work exits.
const LATE_EVENT: &str = "model_set_event: event_id = ";

/// Runs a Rust test program and takes the counts from its last line.
fn counted(command: &mut Command) -> Result<Outcome> {
    let (ran, said) = output::captured(|| shell::run(command));
    output::say(said.trim_end());
    let result = said.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    match (ran, result) {
        (Ok(()), Some(result)) => Ok(Outcome::Passed(counts(result))),
        (Ok(()), None) => bail!("it printed no result"),
        (Err(_), Some(result)) if result.starts_with("ok. ") && said.contains(LATE_EVENT) => {
            Ok(Outcome::Passed(counts(result) + "; ROCr's hook ended the process after the tests"))
        }
        (Err(_), Some(result)) => bail!("{}: {}", counts(result), failures(&said).join(", ")),
        // The process ended early: its last test, and what it said there.
        (Err(_), None) => bail!("{}", last_test(&said)),
    }
}

/// `12 passed, 1 failed` from the line that a Rust test program ends with.
fn counts(result: &str) -> String {
    let counts = result.split("; ").filter_map(|count| count.rsplit(". ").next());
    counts.filter(|count| !count.starts_with("0 ") && !count.contains(" in ")).collect::<Vec<_>>().join(", ")
}

fn failures(said: &str) -> Vec<&str> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    lines.map(str::trim_end).collect()
}

fn last_test(said: &str) -> String {
    let test = said.lines().rev().find_map(|line| line.strip_prefix("test ")?.split(" ...").next());
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    format!("the process ended in {}: {last}", test.map_or("its beginning", str::trim_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_leave_out_what_is_zero() {
        let line = "ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 1.11s";
        assert_eq!(counts(line), "5 passed, 2 ignored");
        assert_eq!(counts("FAILED. 4 passed; 1 failed; 0 ignored; finished in 0.5s"), "4 passed, 1 failed");
    }

    #[test]
    fn failures_are_named() {
        let said = "test a::b   ... ok\ntest a::c   ... FAILED\ntest a::d ... ignored\n";
        assert_eq!(failures(said), ["a::c"]);
        assert_eq!(last_test(said), "the process ended in a::d: test a::d ... ignored");
        assert_eq!(last_test(""), "the process ended in its beginning: it said nothing");
    }
}
