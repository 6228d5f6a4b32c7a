//! Runs the suite on a backend library and prints what passes, and why the rest does not run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use hip::DriverKind;
use hipdnn_suite::{Bench, FAMILIES, Report, Row};

/// Runs hipDNN's operations on a backend library, against loops in double precision.
///
/// Exits with 0 if no result was wrong, with 1 otherwise.
#[derive(Parser)]
struct Options {
    /// The backend library.
    library: PathBuf,
    /// Whose memory the library computes in.
    #[arg(long, default_value = "host")]
    driver: DriverKind,
    /// Only families whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only this case.
    #[arg(long)]
    case: Option<u64>,
    /// How many cases of each family, in per cent of the usual number.
    #[arg(long, default_value_t = 100)]
    share: u64,
    /// How many families are run at a time.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let bench = Bench::on_device(options.library.clone(), options.driver)?;
    println!("{}", bench.describe());
    let families: Vec<_> = FAMILIES.iter().filter(|family| family.name.contains(&options.only)).collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(family) = families.get(at) else { break };
                    let cases = match options.case {
                        Some(case) => case..case + 1,
                        None => 0..(family.cases * options.share).div_ceil(100),
                    };
                    let row = Row::of(family, &bench, cases);
                    // At once: whoever stops this early still sees how far it got.
                    print!("{row}");
                    rows.lock().unwrap_or_else(PoisonError::into_inner).insert(at, row);
                }
            });
        }
    });
    let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    let report = Report { rows: rows.into_values().collect() };
    print!("{report}");
    let is_right = report.rows.iter().all(|row| row.wrong.is_empty());
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
