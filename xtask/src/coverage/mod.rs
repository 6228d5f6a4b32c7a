//! Measures which lines of the shipped crates the tests run. It makes an instrumented build in a separate folder, then
//! runs the Rust tests, and the Python suite in the newest ONNX Runtime with the staged libraries of that build.

mod lines;
mod tools;

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::json;

use self::lines::Lines;
use self::tools::Instrumented;
use crate::backends::Backends;
use crate::platform::Platform;
use crate::setup::{self, Python};
use crate::stage::{self, Stage};
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{junit, layers, output, pytest, shell};

/// The minimum line coverage of each shipped crate, in percent.
const FLOOR: f64 = 80.0;

/// The command: prints the table, or only JSON.
///
/// # Errors
/// When the build fails, or a crate is below the minimum.
pub fn command(workspace: &Workspace, is_json: bool) -> Result<()> {
    if !is_json {
        let python = setup::run(workspace)?;
        return match measure(workspace, &python)? {
            Measured::Skipped(reason) => bail!("coverage cannot be measured here: {reason}"),
            Measured::Crates(crates, notes) => judge(&crates, &notes).map(|_| ()),
        };
    }
    let (measured, text) = output::captured(|| measure(workspace, &setup::run(workspace)?));
    match measured.inspect_err(|_| eprint!("{text}"))? {
        Measured::Skipped(reason) => bail!("coverage cannot be measured here: {reason}"),
        Measured::Crates(crates, _) => {
            println!("{:#}", document(&crates));
            check_limits(&crates)
        }
    }
}

/// The step of `cargo xtask test --all`.
///
/// # Errors
/// As [`command`].
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    match measure(context.workspace, context.python()?)? {
        Measured::Skipped(reason) => Ok(Outcome::Skipped(reason)),
        Measured::Crates(crates, notes) => judge(&crates, &notes).map(Outcome::Passed),
    }
}

enum Measured {
    /// Coverage could not be measured here, for this reason.
    Skipped(String),
    /// Every shipped crate, and problems to mention beside the results.
    Crates(Vec<Lines>, Vec<String>),
}

fn measure(workspace: &Workspace, python: &Python) -> Result<Measured> {
    let build = match Instrumented::new(workspace) {
        Ok(build) => build,
        Err(reason) => return Ok(Measured::Skipped(reason.to_string())),
    };
    build.forget_runs()?;
    let stage =
        stage::run_build(build.cargo().arg("build"), &Backends::all(), Platform::Host, build.folder().join("stage"))?;
    // The regular steps judge the tests. Here a test may also fail because instrumented code allocates, is slower or
    // writes files.
    let mut notes = Vec::new();
    for (name, ran) in
        [("Rust", rust_tests(&build, &stage)), ("Python", python_tests(workspace, python, &build, &stage))]
    {
        if let Err(error) = ran {
            output::say(format_args!("tests in {name} failed in the instrumented build: {error:#}"));
            notes.push(format!("some tests in {name} failed in the instrumented build"));
        }
    }
    let report = build.report()?;
    let crates = layers::shipped().into_iter().filter_map(|name| lines::of(workspace, &report, name).transpose());
    Ok(Measured::Crates(crates.collect::<Result<_>>()?, notes))
}

fn rust_tests(build: &Instrumented<'_>, stage: &Stage) -> Result<()> {
    if !shell::succeeds("cargo-nextest", &["nextest", "--version"]) {
        bail!("cargo-nextest is not installed\n  help: cargo install --locked cargo-nextest");
    }
    let mut tests = build.cargo();
    tests.args(["nextest", "run", "--workspace", "--exclude", "xtask"]).env("AMDGPU_EP_TEST_STAGE", &stage.root);
    // A few cases of each property cover the same lines as all of them.
    tests.env("PROPTEST_CASES", "32");
    junit::explained(shell::run(&mut tests), &build.folder().join("nextest/default/junit.xml"))
}

fn python_tests(workspace: &Workspace, python: &Python, build: &Instrumented<'_>, stage: &Stage) -> Result<()> {
    let stand_in = stage::stand_in(workspace)?;
    shell::run(build.cargo().args(["build", "--package", "ort-ep", "--examples"]))?;
    let arrange = |pytest: &mut Command| {
        pytest
            .args(["tests/python", "--dist", "worksteal", "--numprocesses"])
            .arg(pytest::workers().to_string())
            .envs(build.at_run_time())
            .env("AMDGPU_EP_LIBRARY", stage.umbrella())
            .env("AMDGPU_EP_TEST_EXAMPLES", build.folder().join("debug/examples"))
            .env("AMDGPU_EP_TEST_MIGRAPHX", stand_in);
    };
    pytest::run(workspace, python, "coverage", arrange).map(|_| ())
}

/// Prints the table, and returns the step's note if every crate reaches the minimum.
fn judge(crates: &[Lines], notes: &[String]) -> Result<String> {
    output::say(format_args!("\n{}", table(crates).trim_fmt()));
    check_limits(crates)?;
    let lowest = crates.iter().min_by(|one, other| one.percent().total_cmp(&other.percent()));
    let lowest = lowest.context("there are no shipped crates")?;
    let total = Lines::total(crates);
    let mut note = format!(
        "{:.1} % of {} lines; lowest {} with {:.1} %",
        total.percent(),
        total.lines,
        lowest.name,
        lowest.percent()
    );
    for more in notes {
        note += &format!("; {more}");
    }
    Ok(note)
}

/// Checks that every crate reaches the minimum.
fn check_limits(crates: &[Lines]) -> Result<()> {
    let below: Vec<String> = crates
        .iter()
        .filter(|one| one.percent() < FLOOR)
        .map(|one| format!("{} ({:.1} %)", one.name, one.percent()))
        .collect();
    if !below.is_empty() {
        bail!(
            "coverage is below {FLOOR} % of lines: {}\n  help: write tests for the uncovered lines; `cargo llvm-cov \
             report --html` shows them after `source <(cargo llvm-cov show-env --sh)` with CARGO_TARGET_DIR=target/coverage",
            below.join(", ")
        );
    }
    Ok(())
}

fn table(crates: &[Lines]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["crate", "lines", "covered", "percent"]);
    for row in crates.iter().chain([&Lines::total(crates)]) {
        let numbers = [row.lines.to_string(), row.covered.to_string(), format!("{:.1}", row.percent())];
        let numbers = numbers.map(|number| Cell::new(number).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(&row.name)].into_iter().chain(numbers));
    }
    table
}

fn document(crates: &[Lines]) -> serde_json::Value {
    let row =
        |one: &Lines| json!({"name": one.name, "lines": one.lines, "covered": one.covered, "percent": one.percent()});
    let rows: Vec<_> = crates.iter().map(row).collect();
    json!({"crates": rows, "total": row(&Lines::total(crates)), "floor": FLOOR})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Vec<Lines> {
        vec![
            Lines { name: "good".into(), lines: 200, covered: 190 },
            Lines { name: "bad".into(), lines: 100, covered: 79 },
        ]
    }

    #[test]
    fn a_crate_below_the_floor_is_named() {
        let error = check_limits(&crates()).unwrap_err().to_string();
        assert!(error.starts_with("coverage is below 80 % of lines: bad (79.0 %)\n  help: "), "{error}");
        check_limits(&[Lines { name: "edge".into(), lines: 10, covered: 8 }]).unwrap();
    }

    #[test]
    fn the_document_has_every_crate_and_their_sum() {
        let document = document(&crates());
        assert_eq!(document["crates"][1]["name"], "bad");
        assert_eq!(document["crates"][1]["percent"], 79.0);
        assert_eq!(document["floor"], 80.0);
        assert_eq!((&document["total"]["lines"], &document["total"]["covered"]), (&json!(300), &json!(269)));
        let table = table(&crates()).to_string();
        assert!(table.contains("79.0") && table.contains("269"), "{table}");
    }
}
