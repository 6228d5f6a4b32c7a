//! Everything CI runs, as named steps with a table at the end. A step that cannot run here is listed as skipped.

use std::fs;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use comfy_table::{Cell, ContentArrangement, Table, presets};

use crate::rocm::Userlands;
use crate::setup::{self, ORT_VERSIONS, Python};
use crate::shard::Shard;
use crate::stage::{self, Profile, Stage};
use crate::workspace::Workspace;
use crate::{
    amd, api, backends, built, conformance, coverage, cpp, docs, engine, families, fuzz, hipdnn_link, junit, kernels,
    lanes, layers, migraphx, msrv, output, package, pytest, rocm, shard, shell, simulator, symbols, third_party,
    valgrind, wheel, windows,
};

/// The width of a log viewer; longer notes are wrapped.
const TABLE_WIDTH: u16 = 120;

/// The number of parts of `rust`: the simulator's four kinds of wave, in each of its three thread orders.
const RUST_PARTS: usize = 12;

/// How a step ended if nothing failed.
pub enum Outcome {
    /// With a note for the table, which may be empty.
    Passed(String),
    /// It could not run here, for this reason.
    Skipped(String),
}

impl Outcome {
    /// Appends to the note of a step that passed.
    pub fn with(self, more: &str) -> Self {
        match self {
            Self::Passed(note) => Self::Passed(note + more),
            skipped @ Self::Skipped(_) => skipped,
        }
    }
}

/// State that the steps share, created by the first step that needs it.
pub struct Context<'a> {
    pub workspace: &'a Workspace,
    /// Whether suites that are otherwise split into parts run in full.
    pub is_whole: bool,
    stage: Shared<Stage>,
    python: Shared<Python>,
    userlands: Shared<Userlands>,
}

impl<'a> Context<'a> {
    pub fn new(workspace: &'a Workspace, is_whole: bool) -> Self {
        Self { workspace, is_whole, stage: Shared::default(), python: Shared::default(), userlands: Shared::default() }
    }

    /// The part of a suite that is due, of `parts`; different `offset`s make suites run different parts.
    pub fn due(&self, parts: usize, offset: usize) -> Shard {
        if self.is_whole { Shard::WHOLE } else { Shard::due(self.workspace, parts, offset) }
    }

    pub fn stage(&self) -> Result<&Stage> {
        self.stage.get_or_make(|| stage::run(self.workspace, Profile::Dev))
    }

    pub fn python(&self) -> Result<&Python> {
        self.python.get_or_make(|| setup::run(self.workspace))
    }

    pub fn userlands(&self) -> Result<&Userlands> {
        self.userlands.get_or_make(|| Ok(Userlands::unpack(self.workspace)))
    }
}

/// A value that one step makes while others that need it wait; a failure is not remembered.
struct Shared<T> {
    made: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { made: OnceLock::new(), making: Mutex::new(()) }
    }
}

impl<T> Shared<T> {
    fn get_or_make(&self, make: impl FnOnce() -> Result<T>) -> Result<&T> {
        let _turn = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = make()?;
        Ok(self.made.get_or_init(|| made))
    }
}

type Run = Box<dyn Fn(&Context<'_>) -> Result<Outcome> + Sync>;

struct Step {
    name: String,
    about: &'static str,
    /// Its duration on two otherwise idle processors, including builds.
    budget: Duration,
    /// It does not disturb cargo's build output for others, so it may run in parallel with any other step.
    is_free: bool,
    /// It runs only if it is named, or if everything is requested.
    is_long: bool,
    run: Run,
}

impl Step {
    fn new(
        name: &str,
        about: &'static str,
        seconds: u64,
        run: impl Fn(&Context<'_>) -> Result<Outcome> + Sync + 'static,
    ) -> Self {
        let budget = Duration::from_secs(seconds);
        Self { name: name.to_owned(), about, budget, is_free: false, is_long: false, run: Box::new(run) }
    }

    fn free(self) -> Self {
        Self { is_free: true, ..self }
    }

    fn long(self) -> Self {
        Self { is_long: true, ..self }
    }

    fn is_selected(&self, only: &[String], is_whole: bool) -> bool {
        if only.is_empty() {
            return is_whole || !self.is_long;
        }
        only.iter().any(|name| self.name == *name || self.name.starts_with(&format!("{name}-")))
    }
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step::new("fmt", "rustfmt", 5, |context| cargo(context, &["fmt", "--all", "--check"], &[])),
        Step::new("clippy", "clippy with warnings denied", 180, |context| {
            cargo(context, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
        }),
        Step::new("layers", "crates use only lower layers", 5, |context| {
            layers::run(context.workspace).map(|()| Outcome::Passed(String::new()))
        }),
        // Downloads, while the ordered steps compile.
        Step::new("setup", "Python environment and ONNX Runtime versions", 60, |context| {
            context.python().map(|_| Outcome::Passed(String::new()))
        })
        .free(),
        Step::new("stage", "libraries and command under their shipped names", 180, |context| {
            context.stage().map(|_| Outcome::Passed(String::new()))
        }),
        Step::new("typos", "spelling in every file", 5, typos),
        Step::new("rust", "unit and integration tests in Rust", 600, rust_tests),
        Step::new("xtask", "unit tests of these checks", 30, |context| {
            cargo(context, &["test", "--package", "xtask", "--quiet"], &[])
        }),
        Step::new("doctest", "examples in the documentation", 20, |context| {
            context.stage()?;
            cargo(context, &[&["test", "--doc", "--quiet"], &built::CRATES[..]].concat(), &[])
        }),
        Step::new("doc", "rustdoc with warnings denied", 60, |context| {
            let documented = ["doc", "--workspace", "--no-deps", "--quiet", "--document-private-items"];
            cargo(context, &documented, &[("RUSTDOCFLAGS", "-D warnings")])
        }),
        Step::new("symbols", "exports and dependencies of the libraries", 5, |context| {
            symbols::run(context.stage()?).map(|()| Outcome::Passed(String::new()))
        }),
    ];
    steps.extend(ORT_VERSIONS.map(|version| {
        Step::new(&format!("ort-{version}"), "integration suite in this ONNX Runtime", 120, move |context| {
            pytest::integration(context, version)
        })
    }));
    steps.push(Step::new("conformance", "ONNX's node tests with the hip backend preferred", 30, |context| {
        let table = conformance::Table::CheckCount;
        conformance::run(context.workspace, context.python()?, context.stage()?, &[], table).map(Outcome::Passed)
    }));
    steps.push(Step::new("random-graphs", "random graphs against the CPU provider", 10, engine::random_graphs_step));
    steps.push(Step::new("corrupt", "corrupted models and inputs end in a readable error", 60, engine::corrupt_step));
    steps.push(Step::new("shapes", "one session runs with many shapes", 5, engine::shapes_step));
    steps.push(Step::new("models", "real models against recorded results", 40, |context| {
        engine::models(context.workspace, context.python()?, context.stage()?, &[], false)
    }));
    steps.push(
        Step::new("hipdnn-ops", "the engine's operator tests, offered to hipDNN", 60, |context| {
            simulator::operators_by_hipdnn(context)
        })
        .free(),
    );
    steps.push(Step::new("hipdnn-models", "real models with convolutions on hipDNN", 5, engine::hipdnn_step));
    steps.push(Step::new("third-party", "OpenVINO's plugin from PyPI as a backend of the umbrella", 20, |context| {
        third_party::run(context.workspace, context.python()?, context.stage()?)
    }));
    steps.push(Step::new(
        "genai",
        "text generation with ONNX Runtime GenAI, conversations on a terminal",
        90,
        pytest::genai,
    ));
    steps.push(Step::new(
        "hostile",
        "hostile model folders: nothing is loaded or written, every error is readable",
        120,
        pytest::hostile,
    ));
    steps.push(Step::new("serve", "the server with real clients and a browser", 140, pytest::serve).free());
    steps.push(Step::new("ray", "the server's application for Ray Serve, on a Ray cluster", 240, pytest::ray).long());
    steps.push(
        Step::new("families", "every family of the model builder, through GenAI and textgen", 2400, families::step)
            .long(),
    );
    steps.push(Step::new("docs", "generated pages, links and the summary of the book", 5, docs::step));
    steps.push(Step::new("wheel", "the Python package in empty environments", 60, wheel::step));
    steps.push(Step::new(
        "backends",
        "staging and packaging without hip, and with only the umbrella",
        30,
        backends::step,
    ));
    steps.push(Step::new("legacy", "text generation in an ONNX Runtime with AMD's built-in provider", 10, |context| {
        third_party::legacy(context.workspace, context.python()?, context.stage()?)
    }));
    steps.push(
        Step::new("kernels", "every kernel compiled for AMD's targets, within its budget", 100, |context| {
            kernels::run(context.workspace, &kernels::List::Check(context.due(kernels::PARTS, 0)))
        })
        .free(),
    );
    steps.push(
        Step::new("kernel-set", "precompiled kernels are found without a compiler", 150, kernels::set::check).free(),
    );
    steps.extend(simulator::TARGETS.map(|target| {
        Step::new(
            &format!("simulator-{target}"),
            "operators on the GPU device, under the wave simulator",
            80,
            move |context| simulator::operators(context, target),
        )
        .free()
    }));
    steps.push(Step::new("simulator-sessions", "ONNX Runtime sessions, under the wave simulator", 50, |context| {
        pytest::simulated(context, simulator::TARGETS[0])
    }));
    steps.push(Step::new("nvrtc", "every kernel compiled for the CUDA twin", 40, kernels::nvrtc::run).free());
    steps.push(Step::new("rocm", "driver loader and kernels on Debian's HIP runtimes", 180, rocm::drivers).free());
    steps.push(Step::new("rocm-sessions", "sessions on Debian's HIP runtimes, without a GPU", 10, rocm::sessions));
    steps.push(Step::new("amd", "AMD's HIP runtime and our code on emulated GPUs", 480, amd::step));
    steps.push(Step::new(
        "hipdnn-link",
        "a crate outside the workspace that loads hipDNN, links it, or does both",
        60,
        hipdnn_link::run,
    ));
    steps.push(Step::new("windows", "the libraries and the command for Windows, under Wine", 480, windows::step));
    steps.push(Step::new("cpp", "the C++ examples, built with CMake and run on the host device", 20, cpp::run));
    steps.push(Step::new("migraphx", "the migraphx backend against Debian's MIGraphX", 180, migraphx::run));
    steps.push(Step::new("valgrind", "memory errors and leaks over register, run, unregister", 30, valgrind::run));
    steps.push(
        Step::new("fuzz", "a short run of every fuzz target", 240, |context| {
            fuzz::run(context.workspace, context.due(fuzz::PARTS, 0))
        })
        .free(),
    );
    steps.push(Step::new("coverage", "line coverage of the shipped crates", 1800, coverage::step).long());
    steps.push(
        Step::new("msrv", "SDK crates with the oldest Rust that they support", 60, |context| {
            msrv::run(context.workspace, context.due(msrv::PARTS, 0), false)
        })
        .free(),
    );
    steps.push(Step::new("package", "SDK crates as packages for crates.io", 30, package::step));
    steps.push(Step::new("api", "public API of the SDK crates against docs/api", 40, |context| {
        api::run(context.workspace, api::Lists::Check)
    }));
    steps.push(Step::new("deny", "licences, advisories, duplicates", 30, deny));
    steps
}

/// Prints the steps in table order.
pub fn list() {
    for step in steps() {
        println!("{:<12} {}", step.name, step.about);
    }
}

/// Whether there is a step with this name.
pub fn has_step(name: &str) -> bool {
    steps().iter().any(|step| step.name == name)
}

/// A row of the table.
struct Row {
    name: String,
    outcome: Result<Outcome>,
    elapsed: Duration,
    budget: Duration,
}

/// Runs the steps named by `only` (all when empty), even if another step fails: one after the other, with the free ones
/// in parallel. Suites that are split into parts run the one that is due, or everything if `is_whole`.
///
/// # Errors
/// When `only` names no step, or when a step failed.
pub fn run(workspace: &Workspace, only: &[String], is_whole: bool) -> Result<()> {
    let steps: Vec<Step> = steps().into_iter().filter(|step| step.is_selected(only, is_whole)).collect();
    if steps.is_empty() {
        bail!("unknown step {}\n  help: cargo xtask test --list", only.join(" or "));
    }
    let context = Context::new(workspace, is_whole);
    let (free, ordered): (Vec<_>, Vec<_>) = steps.iter().enumerate().partition(|(_, step)| step.is_free);
    let mut done = lanes::run(&ordered, &free, |&(number, step)| {
        output::say(format_args!("\n==> {}: {}", step.name, step.about));
        let start = Instant::now();
        let outcome = (step.run)(&context);
        if let Err(error) = &outcome {
            output::say(format_args!("{} failed: {error:#}", step.name));
        }
        (number, Row { name: step.name.clone(), outcome, elapsed: start.elapsed(), budget: step.budget })
    });
    done.sort_by_key(|&(number, _)| number);
    let rows: Vec<Row> = done.into_iter().map(|(_, row)| row).collect();
    println!("\n{}", table(&rows).trim_fmt());
    if let Some(note) = slow(&rows) {
        println!("\n{note}");
    }
    // Repeat failures at the end of the log, where people look first.
    let failed: Vec<(&str, &anyhow::Error)> =
        rows.iter().filter_map(|row| Some((row.name.as_str(), row.outcome.as_ref().err()?))).collect();
    for (name, error) in &failed {
        println!("\n{name} failed: {error:#}");
    }
    if let Some((first, _)) = failed.first() {
        let names: Vec<&str> = failed.iter().map(|&(name, _)| name).collect();
        bail!("failed: {}\n  help: cargo xtask test --only {first}", names.join(", "));
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(TABLE_WIDTH);
    table.set_header(["step", "result", "seconds", "budget", "note"]);
    for Row { name, outcome, elapsed, budget } in rows {
        let (result, note) = match outcome {
            Ok(Outcome::Passed(note)) => ("passed", note.clone()),
            Ok(Outcome::Skipped(reason)) => ("SKIPPED", reason.clone()),
            Err(error) => ("FAILED", error.to_string().lines().next().unwrap_or_default().to_owned()),
        };
        let seconds = format!("{:.1}", elapsed.as_secs_f64());
        let budget = budget.as_secs().to_string();
        table.add_row([name, result, &seconds, &budget, &note].map(Cell::new));
    }
    table
}

/// Names the steps that took more than twice their budget. They have not failed: the machine may be busy.
fn slow(rows: &[Row]) -> Option<String> {
    let slow = rows.iter().filter(|row| row.elapsed > 2 * row.budget);
    let slow: Vec<String> = slow
        .map(|row| format!("{} ({:.0} s, budget {} s)", row.name, row.elapsed.as_secs_f64(), row.budget.as_secs()))
        .collect();
    (!slow.is_empty()).then(|| format!("more than twice the budget: {}", slow.join(", ")))
}

fn cargo(context: &Context<'_>, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Outcome> {
    let mut command = shell::cargo(context.workspace.root());
    command.args(arguments).envs(environment.iter().copied());
    shell::run(&mut command).map(|()| Outcome::Passed(String::new()))
}

/// Tests expect the staged libraries, the Python environment and clang under `target/`, so make them first. Kernels are
/// simulated for a part of their targets and thread orders, and the SDK is tested in a part of the runtimes.
fn rust_tests(context: &Context<'_>) -> Result<Outcome> {
    context.stage()?;
    context.python()?;
    let shard = context.due(RUST_PARTS, 0);
    let (part, mut note) = (shard.variable(), format!("simulated targets, runtimes of the SDK{}", shard.note()));
    if let Err(reason) = kernels::Clang::find(context.workspace) {
        note += &format!("; kernels of gfx-emu's tests not compiled: {reason}");
    }
    let due = [(shard::VARIABLE, part.as_str())];
    if shell::succeeds("cargo-nextest", &["nextest", "--version"]) {
        // Its path is set in .config/nextest.toml.
        let report = context.workspace.target().join("nextest/default/junit.xml");
        let _ = fs::remove_file(&report);
        let ran = cargo(context, &[&["nextest", "run"], &built::CRATES[..]].concat(), &due).map(drop);
        junit::explained(ran, &report).map(|()| Outcome::Passed(note))
    } else {
        // `cargo test --examples` would build the example plugins as test programs, not as the libraries that tests
        // load.
        cargo(context, &[&["build", "--examples"], &built::CRATES[..]].concat(), &[])?;
        cargo(context, &[&["test", "--lib", "--bins", "--tests"], &built::CRATES[..]].concat(), &due)?;
        Ok(Outcome::Passed(format!("cargo-nextest is not installed: ran with cargo test, without time limits, {note}")))
    }
}

fn typos(context: &Context<'_>) -> Result<Outcome> {
    let program = setup::interpreter(context.workspace)?.with_file_name("typos");
    shell::run(std::process::Command::new(program).current_dir(context.workspace.root()))?;
    Ok(Outcome::Passed(String::new()))
}

fn deny(context: &Context<'_>) -> Result<Outcome> {
    if !shell::succeeds("cargo-deny", &["--version"]) {
        return Ok(Outcome::Skipped("cargo-deny is not installed (cargo install --locked cargo-deny)".into()));
    }
    cargo(context, &["deny", "check", "bans", "licenses", "sources"], &[])?;
    // The advisories come from a database on the network; the other checks work offline.
    let mut advisories = shell::cargo(context.workspace.root());
    match shell::capture(advisories.args(["deny", "check", "advisories"])) {
        Ok(_) => Ok(Outcome::Passed(String::new())),
        Err(error) if error.to_string().contains("failed to fetch advisory database") => {
            Ok(Outcome::Passed("advisories not checked: could not download their database".into()))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_selects_by_name_and_by_family() {
        let named = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            steps().into_iter().filter(|step| step.is_selected(&only, false)).map(|step| step.name).collect()
        };
        assert_eq!(named(&["layers"]), ["layers"]);
        assert_eq!(named(&["doc"]), ["doc"], "doctest is not part of doc");
        assert_eq!(named(&["ort"]).len(), ORT_VERSIONS.len());
        assert_eq!(named(&["rocm"]), ["rocm", "rocm-sessions"]);
        assert_eq!(named(&["ort-1.28.0", "fmt"]), ["fmt", "ort-1.28.0"]);
        assert_eq!(named(&["coverage"]), ["coverage"]);
        let long = steps().iter().filter(|step| step.is_long).count();
        assert_eq!((named(&[]).len(), named(&[]).contains(&"coverage".to_owned())), (steps().len() - long, false));
        assert!(steps().iter().all(|step| step.is_selected(&[], true)));
        assert!(named(&["nonsense"]).is_empty());
    }

    #[test]
    fn table_shows_the_reason_of_a_skip_and_the_first_line_of_a_failure() {
        let rows = [
            ("one", Ok(Outcome::Passed("12 tests".into()))),
            ("two", Ok(Outcome::Skipped("no valgrind".into()))),
            ("three", Err(anyhow::anyhow!("it broke\n  help: repair it"))),
        ];
        let (elapsed, budget) = (Duration::from_millis(1240), Duration::from_secs(77));
        let rows = rows.map(|(name, outcome)| Row { name: name.into(), outcome, elapsed, budget });
        let text = table(&rows).to_string();
        for wanted in ["12 tests", "1.2", "77", "SKIPPED", "no valgrind", "FAILED", "it broke"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
        assert!(!text.contains("repair it"));
    }
    #[test]
    fn steps_past_twice_their_budget_are_named() {
        let row = |name: &str, seconds, budget| Row {
            name: name.into(),
            outcome: Ok(Outcome::Passed(String::new())),
            elapsed: Duration::from_secs(seconds),
            budget: Duration::from_secs(budget),
        };
        assert_eq!(slow(&[row("within", 9, 10), row("twice", 20, 10)]), None);
        let named = slow(&[row("within", 9, 10), row("fuzz", 31, 15), row("docs", 3, 1)]).unwrap();
        assert_eq!(named, "more than twice the budget: fuzz (31 s, budget 15 s), docs (3 s, budget 1 s)");
    }
}
