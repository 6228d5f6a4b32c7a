//! Counters of kernels, if they are wanted.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::OnceLock;

use gfx_emu::counters::Record;

/// Names a file that gets a line for each kernel that runs.
const VARIABLE: &str = "AMD_MODEL_COUNTERS";

fn file() -> Option<&'static OsString> {
    static FILE: OnceLock<Option<OsString>> = OnceLock::new();
    FILE.get_or_init(|| std::env::var_os(VARIABLE).filter(|file| !file.is_empty())).as_ref()
}

/// Whether kernels are counted.
pub(crate) fn is_on() -> bool {
    file().is_some()
}

/// Adds the counts of a dispatch to the file.
pub(crate) fn add(record: &Record) {
    if let Some(mut log) = file().and_then(|file| OpenOptions::new().create(true).append(true).open(file).ok()) {
        // One call, so that lines of several processes do not mix.
        let _ = log.write_all(format!("{}\n", record.to_line()).as_bytes());
    }
}
