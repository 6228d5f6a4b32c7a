//! What is being done, on a terminal's stderr; nowhere else is anything shown.

use std::borrow::Cow;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line moves, so that a long load does not look like a hang.
const TICK: Duration = Duration::from_millis(100);

/// Parts of a second that a bar counts.
const STEPS_PER_SECOND: f64 = 100.0;

/// One line that says what is being done; it goes when this does.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of unknown length.
    pub fn new(text: &'static str) -> Progress {
        let progress = Progress { bar: ProgressBar::new_spinner() };
        progress.bar.enable_steady_tick(TICK);
        progress.say(text);
        progress
    }

    /// Goes on to other work of unknown length.
    pub fn say(&self, text: impl Into<Cow<'static, str>>) {
        self.bar.set_message(text);
    }

    /// Goes on to work that takes `seconds`.
    pub fn measure(&self, seconds: f64) {
        self.bar.set_length((seconds * STEPS_PER_SECOND) as u64);
        // A template is checked when it is read, and this one is read by a test.
        if let Ok(style) = ProgressStyle::with_template(MEASURE) {
            self.bar.set_style(style);
        }
    }

    /// Says how far the measured work is, in seconds and runs.
    pub fn measured(&self, seconds: f64, runs: usize) {
        self.bar.set_position((seconds * STEPS_PER_SECOND) as u64);
        self.bar.set_message(format!("{runs} runs each"));
    }
}

const MEASURE: &str = "{bar:30} {percent:>3} %  {msg}";

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(MEASURE).is_ok());
    }
}
