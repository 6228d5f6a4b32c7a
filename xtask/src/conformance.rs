//! Runs ONNX's node tests in ONNX Runtime with the hip backend as the preferred provider, and makes the support table.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::setup::{self, ONNX_VERSION, ORT_VERSIONS, Python};
use crate::stage::Stage;
use crate::support::{Report, recorded_placed};
use crate::workspace::Workspace;
use crate::{output, shell};

const TABLE: &str = "docs/support.md";

/// How to treat the support table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Write it.
    Write,
    /// Fail if it is out of date.
    Check,
    /// Fail if fewer tests run on the device than it records.
    CheckCount,
}

/// Runs the node tests of the operators in `only` (all when empty) and returns a one-line summary. With `only`, the
/// support table is neither written nor checked.
///
/// # Errors
/// When a test fails on nodes that the backend claimed, or the support table does not satisfy `table`.
pub fn run(workspace: &Workspace, python: &Python, stage: &Stage, only: &[String], table: Table) -> Result<String> {
    let results = workspace.target().join("test-results");
    fs::create_dir_all(&results).with_context(|| format!("cannot create {}", results.display()))?;
    let report = results.join("conformance.json");
    let mut script = shell::user_program(&python.interpreter);
    // Building the tests divides by zero and overflows on purpose; silence NumPy's warnings about it.
    script.args(["-W", "ignore::RuntimeWarning"]).arg(workspace.path("python/conformance.py"));
    script.arg("--library").arg(stage.backend()).arg("--report").arg(&report);
    script.env("PYTHONPATH", setup::node_tests(workspace, python)?).env("PYTHONWARNINGS", "ignore::RuntimeWarning");
    if !only.is_empty() {
        script.arg("--only").arg(only.join(","));
    }
    let summary = shell::run_to_last_line(&mut script)?;
    if only.is_empty() {
        let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
        compare(workspace, &Report::of(&report)?, table)?;
    }
    Ok(summary)
}

fn compare(workspace: &Workspace, report: &Report, table: Table) -> Result<()> {
    let path = workspace.path(TABLE);
    let written = || fs::read_to_string(&path).with_context(|| format!("cannot read {TABLE}"));
    match table {
        Table::Write => {
            let text = rendered(workspace, report)?;
            fs::write(&path, text).with_context(|| format!("cannot write {TABLE}"))?;
            output::say(format_args!("wrote {TABLE}"));
        }
        Table::Check if written()? != rendered(workspace, report)? => {
            bail!("{TABLE} does not match the node tests\n  help: cargo xtask conformance");
        }
        Table::Check => {}
        Table::CheckCount => check_count(&written()?, report)?,
    }
    Ok(())
}

fn check_count(written: &str, report: &Report) -> Result<()> {
    let recorded = recorded_placed(written).with_context(|| format!("{TABLE} records no count of placed tests"))?;
    let placed = report.placed();
    if placed < recorded {
        bail!(
            "{placed} node tests run entirely on the device, but {TABLE} records {recorded}\n  help: if operators were \
             removed on purpose, `cargo xtask conformance` rewrites the table"
        );
    }
    Ok(())
}

fn rendered(workspace: &Workspace, report: &Report) -> Result<String> {
    let root = workspace.root();
    let (supported, others) = (listed(root, "supported_ops")?, listed(root, "left_alone_ops")?);
    let supported: Vec<_> = supported.lines().filter_map(|line| line.split_once(':')).collect();
    let left_alone: Vec<_> = others.lines().filter_map(left_alone).collect();
    Ok(report.render(&supported, &left_alone, ONNX_VERSION, ORT_VERSIONS[ORT_VERSIONS.len() - 1]))
}

/// What one of the engine's examples prints: a list of operators, one in each line.
fn listed(root: &Path, example: &str) -> Result<String> {
    let mut program = shell::cargo(root);
    program.args(["run", "--quiet", "--package", "graph", "--example", example]);
    shell::capture_stdout(&mut program)
}

/// The domain, the operator and the reason in a line of `left_alone_ops`.
fn left_alone(line: &str) -> Option<(&str, &str, &str)> {
    let (domain, rest) = line.split_once(':')?;
    let (op_type, reason) = rest.split_once(':')?;
    Some((domain, op_type, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_may_contain_colons() {
        assert_eq!(left_alone(":Det:hard: too hard"), Some(("", "Det", "hard: too hard")));
        assert_eq!(left_alone("com.microsoft:Snpe"), None);
    }

    #[test]
    fn fewer_placed_tests_than_recorded_is_an_error() {
        let report = Report::of(r#"[{"test": "test_abs", "domain": "", "op": "Abs", "verdict": "placed"}]"#).unwrap();
        let table = |placed: usize| report.render(&[], &[], "1", "2").replace("**1** of", &format!("**{placed}** of"));
        assert!(check_count(&table(1), &report).is_ok());
        assert!(check_count(&table(0), &report).is_ok());
        let error = check_count(&table(2), &report).unwrap_err().to_string();
        assert!(error.starts_with("1 node tests run entirely on the device, but docs/support.md records 2"), "{error}");
        assert!(check_count("no count", &report).is_err());
    }
}
