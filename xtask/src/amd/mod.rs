//! `cargo xtask amd`: everything above the kernel driver, on emulated AMD GPUs.
//!
//! AMD's unmodified HIP runtime runs on `crates/amd-model`. What passes here shows that our code and AMD's runtime work
//! together and that kernels compute the right numbers; it says nothing about speed, caches, or races of real hardware.

mod counters;
mod findings;
mod machine;
mod rows;

use std::time::Instant;

use anyhow::{Result, bail};
use comfy_table::{Table, presets};

use crate::output;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use counters::Counters;
use findings::Findings;
use machine::Base;
pub use machine::Machine;
use rows::Row;

/// The GPU that runs every row.
const FIRST: &str = "gfx1100";

/// One target of each further family.
const OTHERS: [&str; 3] = ["gfx1201", "gfx942", "gfx1151"];

/// How the kernels that run are observed.
#[derive(Clone, Copy)]
pub struct Watch {
    /// Look for bugs.
    pub sanitize: bool,
    /// Count instructions and accesses.
    pub counters: bool,
}

/// Runs the rows named, or all, on the GPUs named, or on the first one, or on all.
///
/// # Errors
/// When a row is unknown or fails.
pub fn run(workspace: &Workspace, targets: &[String], rows: &[String], all: bool, watch: Watch) -> Result<()> {
    let others = if all { &OTHERS[..] } else { &[] };
    let targets: Vec<&str> = match targets {
        [] => std::iter::once(FIRST).chain(others.iter().copied()).collect(),
        named => named.iter().map(String::as_str).collect(),
    };
    let known: Vec<&str> = rows::ALL.iter().map(|row| row.name).collect();
    if let Some(unknown) = rows.iter().find(|row| !known.contains(&row.as_str())) {
        bail!("unknown row {unknown:?}\n  help: expected {}", known.join(", "));
    }
    let is_wanted = |row: &&Row| rows.is_empty() || rows.iter().any(|name| name == row.name);
    let wanted: Vec<&Row> = rows::ALL.iter().filter(is_wanted).collect();
    let plan: Vec<(&str, Vec<&Row>)> = targets.into_iter().map(|target| (target, wanted.clone())).collect();
    if let Outcome::Skipped(reason) = run_plan(&Context::new(workspace, all), &plan, watch)? {
        println!("skipped: {reason}");
    }
    Ok(())
}

/// The step of CI: all rows on the first GPU, and the short ones on another GPU, which the next commits change.
///
/// # Errors
/// When a row fails.
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let due = context.due(OTHERS.len(), 0).of(OTHERS.to_vec());
    let short: Vec<&Row> = rows::ALL.iter().filter(|row| row.is_short || context.is_whole).collect();
    let mut plan = vec![(FIRST, rows::ALL.iter().collect())];
    plan.extend(due.into_iter().map(|target| (target, short.clone())));
    run_plan(context, &plan, Watch { sanitize: false, counters: false })
}

/// Runs these rows on these GPUs, all of them even if one fails, and prints a table.
fn run_plan(context: &Context<'_>, plan: &[(&str, Vec<&Row>)], watch: Watch) -> Result<Outcome> {
    let base = match Base::prepare(context.workspace)? {
        Ok(base) => base,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["row", "GPU", "result", "seconds", "note"]);
    let (mut failed, mut passed) = (Vec::new(), Vec::new());
    for (target, rows) in plan {
        let mut machine = base.machine(target)?;
        let findings = watch.sanitize.then(|| Findings::of(&mut machine));
        let counters = watch.counters.then(|| Counters::of(&mut machine));
        let mut count = 0;
        for row in rows {
            output::say(format_args!("\n==> {} on {target}", row.name));
            let start = Instant::now();
            let ran = row.run(context, &machine, target);
            let ran = findings.as_ref().map_or(Ok(()), Findings::check).and(ran);
            let (result, note) = match ran {
                Ok(Outcome::Passed(note)) => {
                    count += 1;
                    ("passed", note)
                }
                Ok(Outcome::Skipped(reason)) => ("SKIPPED", reason),
                Err(error) => {
                    output::say(format_args!("{error:#}"));
                    let first = error.to_string().lines().next().unwrap_or_default().to_owned();
                    failed.push(format!("{} on {target}: {first}", row.name));
                    ("FAILED", first)
                }
            };
            let seconds = format!("{:.1}", start.elapsed().as_secs_f64());
            table.add_row([row.name, target, result, &seconds, &note]);
        }
        passed.push(format!("{count} of {} rows on {target}", rows.len()));
        counters.map_or(Ok(()), |counters| counters.print(context.workspace))?;
    }
    output::say(format_args!("\n{}", table.trim_fmt()));
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(Outcome::Passed(passed.join(", ")))
}
