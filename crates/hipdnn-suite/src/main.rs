//! Runs the suite on a backend library and prints what passes, and why the rest does not run.

use std::path::PathBuf;
use std::process::ExitCode;

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
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    let bench = Bench::on_device(options.library, options.driver)?;
    println!("{}", bench.describe());
    let mut report = Report::default();
    for family in FAMILIES.iter().filter(|family| family.name.contains(&options.only)) {
        let cases = match options.case {
            Some(case) => case..case + 1,
            None => 0..(family.cases * options.share).div_ceil(100),
        };
        report.rows.push(Row::of(family, &bench, cases));
    }
    print!("{report}");
    let is_right = report.rows.iter().all(|row| row.wrong.is_empty());
    Ok(if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
