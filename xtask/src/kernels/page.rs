//! `docs/kernels.md`: a summary of the kernels' resource usage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::TARGETS;
use super::needs::{self, ResourceTable, Resources};
use crate::workspace::Workspace;

pub const FILE: &str = "docs/kernels.md";

/// The table of targets, which a test of the crate `cli` writes.
const TARGET_TABLE: &str = "crates/cli/src/doctor/targets.md";

/// Writes the page from the list.
///
/// # Errors
/// When the list cannot be read or the page cannot be written.
pub fn write(workspace: &Workspace) -> Result<()> {
    fs::write(workspace.path(FILE), text(workspace)?).with_context(|| format!("cannot write {FILE}"))
}

/// Renders the page from the list.
///
/// # Errors
/// When the list cannot be read.
pub fn text(workspace: &Workspace) -> Result<String> {
    let table =
        fs::read_to_string(workspace.path(TARGET_TABLE)).with_context(|| format!("cannot read {TARGET_TABLE}"))?;
    let page = render(&ResourceTable::read(workspace)?);
    Ok(format!("{page}\n## Targets\n\n{TARGETS_TEXT}\n\n{table}"))
}

const TARGETS_TEXT: &str = "\
    These are the AMD targets that ROCm 7 lists (`crates/kernels/src/target.rs`). *shipped*: a release contains compiled \
    kernels for the target,\nand a session compiles only what they lack. *compiled*: a session compiles its kernels when it \
    is created, and keeps them in the cache.\n*refused*: there are no kernels. Targets before gfx9 are refused; a newer \
    target that is not listed is compiled with the features that its\nwhole family has. `amdgpu-ep doctor` shows this for \
    each device. It says which code exists, not that a chip has run it ([status.md](status.md)).";

fn render(needs: &ResourceTable) -> String {
    let steps: BTreeSet<&str> = needs.of.keys().map(|key| key.step.as_str()).collect();
    let most_lds = needs.of.values().map(|need| need.lds_bytes).max().unwrap_or_default();
    let mut page = format!(
        "# Resource usage of kernels\n\n\
         How much of a compute unit each kernel uses decides how many waves run at a time, and so how well a GPU hides the \
         latency of its\nmemory. Every kernel of the catalogue ({} steps that launch all {} kernels, in the types that models \
         use most) is compiled\nfor {} targets with {}. Each of them is checked:\n\n\
         - No kernel spills registers, uses scratch memory or has a stack.\n\
         - No kernel needs more LDS than 48 KiB for a block; the most is {most_lds} bytes.\n\
         - Each stays within the register budget of its kind (`xtask/src/kernels/usage.rs`).\n\
         - Its arguments and block size are those that the launcher uses.\n\n\
         [kernels.csv](kernels.csv) has all {} rows. `cargo xtask kernels` writes it and this page; `cargo xtask test` compiles \
         a part of the\nkernels in each run, `--all` every one. The sources are in `crates/kernels/hip`.\n\n\
         ## By target\n\n\
         *Steps that fill a SIMD* are those whose resource usage allows as many waves as a SIMD can hold; *fewest waves* is the \
         worst case.\nKernels with few waves keep rows, windows or sums in registers, so that each wave has more bytes in \
         flight.\n\n\
         | target | most registers | by | steps that fill a SIMD | fewest waves | by |\n|---|---|---|---|---|---|\n",
        steps.len(),
        kernels(needs).len(),
        TARGETS.len(),
        needs.compiler,
        needs.of.len(),
    );
    for target in TARGETS {
        let on: Vec<_> = needs.of.iter().filter(|(key, _)| key.target == target).collect();
        let full = on.iter().map(|(_, need)| need.waves).max().unwrap_or_default();
        let filling = on.iter().filter(|(_, need)| need.waves == full).count();
        let most = on.iter().max_by_key(|(_, need)| need.registers);
        let fewest = on.iter().min_by_key(|(_, need)| need.waves);
        if let (Some((big, most)), Some((few, fewest))) = (most, fewest) {
            let _ = writeln!(
                page,
                "| {target} | {} | `{}` | {filling} of {} | {} of {full} | `{}` |",
                most.registers,
                big.kernel,
                on.len(),
                fewest.waves,
                few.kernel,
            );
        }
    }
    page += "\n## By kernel\n\nThe largest usage over all steps, types and targets.\n\n\
             | kernel | steps | registers | LDS bytes of a block | fewest waves on a SIMD |\n|---|---|---|---|---|\n";
    for (kernel, (steps, need)) in kernels(needs) {
        let Resources { registers, lds_bytes, waves } = need;
        let _ = writeln!(page, "| `{kernel}` | {} | {registers} | {lds_bytes} | {waves} |", steps.len());
    }
    page
}

/// The steps of each kernel, and its largest need.
fn kernels(needs: &ResourceTable) -> BTreeMap<&str, (BTreeSet<&str>, Resources)> {
    let mut kernels: BTreeMap<&str, (BTreeSet<&str>, Resources)> = BTreeMap::new();
    for (needs::Key { step, kernel, .. }, need) in &needs.of {
        let (steps, largest) = kernels.entry(kernel).or_insert_with(|| (BTreeSet::new(), *need));
        steps.insert(step);
        largest.registers = largest.registers.max(need.registers);
        largest.lds_bytes = largest.lds_bytes.max(need.lds_bytes);
        largest.waves = largest.waves.min(need.waves);
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::super::needs::tests::needs;
    use super::*;

    #[test]
    fn the_page_shows_the_extremes() {
        let page = render(&needs(&[
            ("a f16", "gfx942", [8, 0, 8]),
            ("b f16", "gfx942", [100, 2048, 4]),
            ("a f16", "gfx1100", [10, 0, 16]),
        ]));
        for row in [
            "| gfx942 | 100 | `map` | 1 of 2 | 4 of 8 | `map` |",
            "| gfx1100 | 10 | `map` | 1 of 1 | 16 of 16 | `map` |",
            "| `map` | 2 | 100 | 2048 | 4 |",
            "the most is 2048 bytes",
        ] {
            assert!(page.contains(row), "{row} in\n{page}");
        }
    }
}
