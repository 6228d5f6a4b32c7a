//! Runs the suite on a backend library and prints which cases pass, and why others are not supported.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use hip::DriverKind;
use hipdnn_suite::{Bench, FAMILIES, Report, Row};

/// Runs hipDNN's operations on a backend library and compares with loops in double precision.
///
/// Exits with 0 if no result was wrong, with 1 otherwise.
#[derive(Parser)]
struct Options {
    /// The backend library.
    library: PathBuf,
    /// The memory that the library computes in.
    #[arg(long, default_value = "host")]
    driver: DriverKind,
    /// Only families whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only this case.
    #[arg(long)]
    case: Option<u64>,
    /// How many cases of each family, in percent of the usual number.
    #[arg(long, default_value_t = 100)]
    share: u64,
    /// How many cases run at a time.
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

const CASES_AT_A_TIME: usize = 4;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let bench = Bench::on_device(options.library.clone(), options.driver)?;
    println!("{}", bench.describe());
    let families: Vec<_> = FAMILIES.iter().filter(|family| family.name.contains(&options.only)).collect();
    // Families differ in the cost of a case, so threads take a few cases at a time.
    let pieces = families.iter().enumerate().flat_map(|(at, family)| {
        let cases = match options.case {
            Some(case) => case..case + 1,
            None => 0..(family.cases * options.share).div_ceil(100),
        };
        let end = cases.end;
        cases.step_by(CASES_AT_A_TIME).map(move |first| (at, first..end.min(first + CASES_AT_A_TIME as u64)))
    });
    let pieces: Vec<_> = pieces.collect();
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<usize, Row>::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while let Some((at, cases)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let row = Row::of(families[*at], &bench, cases.clone());
                    // Printed immediately, so that an interrupted run still shows its progress.
                    print!("{row}");
                    rows.lock().unwrap_or_else(PoisonError::into_inner).entry(*at).or_default().absorb(row);
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
