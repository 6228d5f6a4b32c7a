//! Kernels without a GPU: every text of the catalogue compiled for every AMD target, within a budget of resources.
//!
//! clang alone does it, without ROCm: its assembly ends with the metadata that the runtime reads. What the compiler of a
//! real installation makes of the texts is checked by `cargo xtask rocm`, with hiprtc.

mod clang;
pub mod nvrtc;
pub mod set;
mod usage;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::test::Outcome;
use crate::workspace::Workspace;
use crate::{built, shell, workers};
use clang::Clang;
use usage::Usage;

/// Targets of the families that clang 19 knows: one each of Vega, CDNA 2 and 3, RDNA 2, 3, 3.5 and 4.
const TARGETS: [&str; 7] = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1151", "gfx1201"];
const PAGE: &str = "docs/kernels.md";

/// What is done with the page of resources.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// It is written.
    Write,
    /// It must say what would be written, if the same compiler wrote it.
    Hold,
}

/// A line of the catalogue: one launch on one target.
struct Launch {
    target: String,
    label: String,
    file: PathBuf,
    kernel: String,
    args_bytes: u32,
    threads: u32,
    dynamic_lds: u32,
}

/// Compiles the catalogue and checks what each kernel needs.
///
/// # Errors
/// A text does not compile, a kernel is beyond its budget, or the page is out of date. No compiler is a skip.
pub fn run(workspace: &Workspace, page: Page) -> Result<Outcome> {
    let clang = match Clang::find(workspace) {
        Ok(clang) => clang,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let launches = catalogue(workspace, "kernels", &TARGETS)?;
    let usages = compile(&clang, &launches)?;
    let mut faults = Vec::new();
    for (launch, usage) in launches.iter().zip(&usages) {
        let found = usage.faults(&launch.kernel, launch.args_bytes, launch.threads, launch.dynamic_lds);
        faults.extend(found.into_iter().map(|fault| format!("{} on {}: {fault}", launch.label, launch.target)));
    }
    if !faults.is_empty() {
        bail!("kernels are beyond their budget\n  {}", faults.join("\n  "));
    }
    let text = render(&launches, &usages, clang.version());
    let path = workspace.path(PAGE);
    match page {
        Page::Write => fs::write(&path, text)?,
        Page::Hold => {
            let kept = fs::read_to_string(&path).unwrap_or_default();
            // Another compiler allocates registers in another way: the budget holds, the page need not.
            if kept.contains(clang.version()) && kept != text {
                bail!("{PAGE} is out of date\n  help: cargo xtask kernels");
            }
        }
    }
    let kernels = launches.iter().map(|launch| &launch.label).collect::<std::collections::BTreeSet<_>>().len();
    Ok(Outcome::Passed(format!("{kernels} kernels for {} targets with {}", TARGETS.len(), clang.version())))
}

/// The launches of the catalogue on targets, with their texts in a folder under `target/`.
fn catalogue(workspace: &Workspace, folder: &str, targets: &[impl AsRef<OsStr>]) -> Result<Vec<Launch>> {
    let folder = workspace.target().join(folder);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    shell::run(Command::new(built::example(workspace, "kernels", "catalogue")?).arg(&folder).args(targets))?;
    let list = fs::read_to_string(folder.join("list.tsv")).context("the catalogue wrote no list")?;
    list.lines()
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [target, label, file, kernel, args_bytes, threads, dynamic_lds] = fields[..] else {
                bail!("the catalogue wrote {line:?}");
            };
            let (target, label, kernel) = (target.to_owned(), label.to_owned(), kernel.to_owned());
            let (args_bytes, threads, dynamic_lds) = (args_bytes.parse()?, threads.parse()?, dynamic_lds.parse()?);
            Ok(Launch { target, label, file: folder.join(file), kernel, args_bytes, threads, dynamic_lds })
        })
        .collect()
}

/// Compiles each text once for each target, on all processors.
fn compile(clang: &Clang, launches: &[Launch]) -> Result<Vec<Usage>> {
    let mut jobs: Vec<(&PathBuf, &str)> = launches.iter().map(|launch| (&launch.file, &*launch.target)).collect();
    jobs.sort();
    jobs.dedup();
    let made = workers::on_all_processors(&jobs, |&(file, target)| {
        clang.assembly(file, target).and_then(|assembly| Usage::all(&assembly))
    })?;
    let done: BTreeMap<_, _> = jobs.into_iter().zip(made).collect();
    launches
        .iter()
        .map(|launch| {
            let (label, target) = (&launch.label, &launch.target);
            let made = done.get(&(&launch.file, &*launch.target)).context("a text was not compiled")?;
            let usages =
                made.as_ref().map_err(|error| anyhow::anyhow!("{label} does not compile for {target}: {error:#}"))?;
            let usage = usages.get(&launch.kernel);
            usage.cloned().with_context(|| format!("{label}: no kernel {} for {target}", launch.kernel))
        })
        .collect()
}

fn render(launches: &[Launch], usages: &[Usage], compiler: &str) -> String {
    let mut rows: BTreeMap<(String, &str), BTreeMap<&str, String>> = BTreeMap::new();
    for (launch, usage) in launches.iter().zip(usages) {
        let lds = usage.lds_bytes + launch.dynamic_lds;
        let cell = format!("{} · {lds} · {}", usage.vgprs, usage.occupancy);
        rows.entry((launch.label.clone(), &launch.kernel)).or_default().insert(&launch.target, cell);
    }
    let mut page = format!(
        "# Kernels and what they need\n\n\
         Written by `cargo xtask kernels` with {compiler}. Each cell: vector registers · LDS bytes of a block · waves that \
         fit on a SIMD at a time.\nNo kernel spills registers or uses scratch memory; none needs more than 48 KiB of LDS. \
         The texts are in `crates/kernels/hip`.\n\n| step | kernel | {} |\n|---|---|{}\n",
        TARGETS.join(" | "),
        "---|".repeat(TARGETS.len())
    );
    for ((label, kernel), cells) in rows {
        let _ = write!(page, "| {label} | `{kernel}` |");
        for target in TARGETS {
            let _ = write!(page, " {} |", cells.get(target).map_or("", String::as_str));
        }
        page.push('\n');
    }
    page
}
