//! The engine's operator tests with other implementations than the host code: kernels under the wave simulator, and
//! hipDNN.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};

use crate::shard::Shard;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{built, output, shell};

/// One target with waves of 32 lanes and one with 64, both with matrix instructions.
pub const TARGETS: [&str; 2] = ["gfx1100", "gfx942"];

/// The number of parts into which the operator tests are split: each commit runs the next one.
const PARTS: usize = 6;

/// Runs the engine's operator tests on the simulated device, and reports which primitives ran as kernels.
///
/// # Errors
/// When a test or cargo fails.
pub fn operators(context: &Context<'_>, target: &str) -> Result<Outcome> {
    let offset = TARGETS.iter().position(|&known| known == target).unwrap_or_default();
    let shard = context.due(PARTS, offset);
    let counts = fresh_counts(context.workspace, &format!("simulator-{target}"))?;
    let mut tests = operator_tests(context.workspace, &counts, shard)?;
    shell::run(tests.env("EXEC_TEST_DEVICE", format!("sim:{target}")))?;
    let text = fs::read_to_string(&counts).with_context(|| counts.display().to_string())?;
    Ok(Outcome::Passed(report(&text) + &shard.note()))
}

/// Runs the engine's operator tests on the host device, offers every step to hipDNN, and reports how many it ran.
///
/// # Errors
/// When a test or cargo fails.
pub fn operators_by_hipdnn(context: &Context<'_>) -> Result<Outcome> {
    let shard = context.due(PARTS, 0);
    let counts = fresh_counts(context.workspace, "hipdnn")?;
    let mut tests = operator_tests(context.workspace, &counts, shard)?;
    shell::run(tests.env("EXEC_TEST_HIPDNN", "1"))?;
    let text = fs::read_to_string(&counts).with_context(|| counts.display().to_string())?;
    let steps = text.lines().count();
    // The third field is the hipDNN engine.
    let taken = text.lines().filter(|line| line.split('\t').count() == 3).count();
    Ok(Outcome::Passed(format!("{taken} of {steps} steps by hipDNN{}", shard.note())))
}

/// Creates an empty file, which tests append to.
fn fresh_counts(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let counts = workspace.target().join("test-results").join(format!("{name}.tsv"));
    if let Some(folder) = counts.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&counts, "")?;
    Ok(counts)
}

/// The program of the operator tests, with the names of the tests that are due.
fn operator_tests(workspace: &Workspace, counts: &Path, shard: Shard) -> Result<Command> {
    let program = built::test(workspace, "exec", "ops")?;
    let mut tests = Command::new(&program);
    tests.current_dir(workspace.path("crates/exec")).arg("--quiet").env("EXEC_TEST_COUNTS", counts);
    if shard.is_part() {
        let list = shell::capture_stdout(Command::new(&program).args(["--list", "--format", "terse"]))?;
        let names: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        tests.arg("--exact").args(shard.of(names));
    }
    Ok(tests)
}

/// Prints a row for each primitive, and returns the totals.
fn report(lines: &str) -> String {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for line in lines.lines() {
        let mut fields = line.split('\t');
        let row = rows.entry(fields.next().unwrap_or_default()).or_default();
        match fields.next() {
            Some("device") => row.device += 1,
            _ => {
                row.host += 1;
                *row.reasons.entry(fields.next().unwrap_or_default()).or_default() += 1;
            }
        }
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["primitive", "steps as kernels", "steps on the host", "most frequent reason"]);
    for (primitive, row) in &rows {
        let reason = row.reasons.iter().max_by_key(|(_, count)| **count).map_or("", |(reason, _)| reason);
        table.add_row([primitive, row.device.to_string().as_str(), &row.host.to_string(), reason]);
    }
    output::say(&table);
    let (device, host) = rows.values().fold((0, 0), |sums, row| (sums.0 + row.device, sums.1 + row.host));
    format!("{device} steps as kernels, {host} on the host")
}

#[derive(Default)]
struct Row<'a> {
    device: usize,
    host: usize,
    reasons: BTreeMap<&'a str, usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_backend() {
        assert_eq!(report("map\tdevice\nmap\tdevice\nlrn\thost\tno kernel\n"), "2 steps as kernels, 1 on the host");
        assert_eq!(report(""), "0 steps as kernels, 0 on the host");
    }
}
