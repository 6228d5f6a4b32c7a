//! Prints the file that `AMD_MODEL_COUNTERS` names as a table. Times are estimates, not measurements.

use std::process::ExitCode;

use gfx_emu::counters::{CHIPS, Record, table};

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: counters FILE");
        return ExitCode::from(2);
    };
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("cannot read {}: {error}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let records: Vec<Record> = text.lines().filter_map(Record::parse).collect();
    println!("{}", table(&records));
    println!("\nTimes are estimates: the least that the chip needs at its peak figures.");
    for peaks in CHIPS {
        println!("{}: {}", peaks.name, peaks.source);
    }
    ExitCode::SUCCESS
}
