//! What every hook does first: record the call, and fail if the test asked for it.
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

use ort_ep::{Error, Result};

/// Records a call of a hook that can return an error.
pub fn note(hook: &str, detail: impl Display) -> Result<()> {
    write_line(hook, detail);
    match std::env::var("HOOKS_FAULT").unwrap_or_default().split_once(':') {
        Some(("fail", named)) if named == hook => Err(Error::invalid_argument(format!("{hook} was told to fail"))),
        Some(("panic", named)) if named == hook => panic_in(hook),
        _ => Ok(()),
    }
}

/// Records a call of a hook that cannot return an error: the only fault it can show is a panic.
pub fn note_infallible(hook: &str, detail: impl Display) {
    if note(hook, detail).is_err() {
        panic_in(hook);
    }
}

#[allow(clippy::panic)] // Panicking on demand is what this plugin is for.
fn panic_in(hook: &str) -> ! {
    panic!("{hook} was told to panic")
}

fn write_line(hook: &str, detail: impl Display) {
    let Ok(path) = std::env::var("HOOKS_REPORT") else { return };
    if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
        // One write, so that lines of several threads do not mix. If writing fails, the test fails anyway.
        let _ = file.write_all(format!("{hook} {detail}\n").as_bytes());
    }
}

/// Records when the object that holds it is dropped.
#[derive(Debug)]
pub struct Gone(pub &'static str);

impl Drop for Gone {
    fn drop(&mut self) {
        // A second panic while unwinding would abort the process.
        if !std::thread::panicking() {
            note_infallible(self.0, "");
        }
    }
}
