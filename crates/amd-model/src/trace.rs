//! Tracing to standard error, for debugging the emulated machine itself.

use std::fmt;
use std::sync::OnceLock;

/// Set to `1` to print what the machine does.
const VARIABLE: &str = "AMD_MODEL_TRACE";

/// Prints a line if tracing is on.
pub(crate) fn trace(line: fmt::Arguments<'_>) {
    static IS_ON: OnceLock<bool> = OnceLock::new();
    if *IS_ON.get_or_init(|| std::env::var(VARIABLE).is_ok_and(|value| value == "1")) {
        eprintln!("amd-model: {line}");
    }
}

/// Prints a line about something that ends a queue.
pub(crate) fn complain(line: fmt::Arguments<'_>) {
    eprintln!("amd-model: {line}");
}
