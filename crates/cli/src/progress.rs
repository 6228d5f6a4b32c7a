//! Progress messages on stderr, shown only on a terminal.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use reports::{Activity, Progress as Count};

use crate::record::Record;

/// The refresh interval, so that a long load does not look like a hang.
const TICK: Duration = Duration::from_millis(100);

/// Resolution of the progress bar.
const STEPS_PER_SECOND: f64 = 100.0;

/// A line that shows the current activity; it disappears when this value is dropped.
pub struct Progress {
    bar: ProgressBar,
    follower: Option<Follower>,
}

impl Progress {
    /// An activity of unknown length.
    pub fn new(text: &'static str) -> Progress {
        let progress = Progress { bar: ProgressBar::new_spinner(), follower: None };
        progress.bar.enable_steady_tick(TICK);
        progress.say(text);
        progress
    }

    /// An activity of unknown length for which the backend reports counts: compiled kernels, measured steps. Create the
    /// session with [`entry`](Self::entry).
    ///
    /// # Errors
    /// When a temporary file cannot be created.
    pub fn counted(text: &'static str) -> Result<Progress> {
        let mut progress = Progress::new(text);
        if !progress.bar.is_hidden() {
            progress.follower = Some(Follower::new(&progress.bar)?);
        }
        Ok(progress)
    }

    /// The session-config entry that makes the backend report counts; `None` if nothing is shown.
    ///
    /// # Errors
    /// When the path of the temporary folder is not valid UTF-8.
    pub fn entry(&self) -> Result<Option<(&'static str, &str)>> {
        self.follower.as_ref().map(|follower| follower.record.entry()).transpose()
    }

    /// Switches to another activity of unknown length.
    pub fn say(&self, text: impl Into<Cow<'static, str>>) {
        set_style(&self.bar, SPINNER);
        self.bar.set_message(text);
    }

    /// Switches to an activity that takes `seconds`. The backend's counts are no longer shown.
    pub fn measure(&mut self, seconds: f64) {
        // A late line of the backend would replace the bar.
        if let Some(follower) = &mut self.follower {
            follower.stop();
        }
        self.bar.set_length((seconds * STEPS_PER_SECOND) as u64);
        set_style(&self.bar, MEASURE);
    }

    /// Updates the bar with the elapsed seconds and the number of runs.
    pub fn measured(&self, seconds: f64, runs: usize) {
        self.bar.set_position((seconds * STEPS_PER_SECOND) as u64);
        self.bar.set_message(format!("{runs} runs each"));
    }
}

const SPINNER: &str = "{spinner} {msg}";
const COUNT: &str = "{spinner} {msg} {bar:30} {pos} of {len} {prefix}";
const MEASURE: &str = "{bar:30} {percent:>3} %  {msg}";

fn set_style(bar: &ProgressBar, template: &str) {
    // Templates are only checked when they are parsed; a test parses all of them.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.follower = None;
        self.bar.finish_and_clear();
    }
}

/// The last complete line of the backend's report; `None` if it does not have the format of the report.
fn last(lines: &str) -> Option<Count> {
    let (whole, _) = lines.rsplit_once('\n')?;
    reports::parse(whole.lines().last()?).ok()?.pop()
}

fn show(count: &Count, bar: &ProgressBar) {
    bar.set_prefix(match count.work {
        Activity::Kernels => "kernels compiled",
        Activity::Steps => "steps measured",
    });
    bar.set_length(count.of);
    bar.set_position(count.done);
    set_style(bar, if count.done < count.of { COUNT } else { SPINNER });
}

/// Shows what the backend writes to a file, until it is stopped.
struct Follower {
    record: Record<Count>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    fn new(bar: &ProgressBar) -> Result<Follower> {
        let (record, stop) = (Record::<Count>::new()?, Arc::new(AtomicBool::new(false)));
        let (file, bar, stopped) = (PathBuf::from(record.entry()?.1), bar.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut read = 0;
            while !stopped.load(Ordering::Relaxed) {
                // A line that cannot be read is not shown.
                if let Ok(lines) = lines_from(&file, read)
                    && let Some(count) = last(&lines)
                {
                    read += lines.rfind('\n').map_or(0, |end| end as u64 + 1);
                    show(&count, &bar);
                }
                std::thread::sleep(TICK);
            }
        });
        Ok(Follower { record, stop, thread: Some(thread) })
    }

    /// Stops showing progress. The file stays, because the session may still write to it.
    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread only shows progress, so its result does not matter.
            let _ = thread.join();
        }
    }
}

fn lines_from(file: &Path, start: u64) -> std::io::Result<String> {
    let (mut file, mut lines) = (File::open(file)?, String::new());
    file.seek(SeekFrom::Start(start))?;
    file.read_to_string(&mut lines)?;
    Ok(lines)
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [SPINNER, COUNT, MEASURE] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn the_last_complete_line_counts() {
        let line = |done| format!("{{\"work\":\"kernels\",\"done\":{done},\"of\":9}}\n");
        let count = last(&(line(1) + &line(4) + "{\"work\":\"ker")).unwrap();
        assert_eq!(count, Count { work: Activity::Kernels, done: 4, of: 9 });
        assert_eq!((last(""), last("nonsense\n")), (None, None));
    }

    #[test]
    fn progress_follows_the_backends_counts() {
        let bar = ProgressBar::hidden();
        let follower = Follower::new(&bar).unwrap();
        let mut file = File::options().append(true).open(follower.record.entry().unwrap().1).unwrap();
        for done in [3, 5] {
            writeln!(file, "{{\"work\":\"steps\",\"done\":{done},\"of\":7}}").unwrap();
            let start = Instant::now();
            while bar.position() != done {
                assert!(start.elapsed() < Duration::from_secs(60), "the bar stays at {}", bar.position());
                std::thread::sleep(TICK / 10);
            }
            assert_eq!((bar.length(), bar.prefix().as_str()), (Some(7), "steps measured"));
        }
        drop(follower);
        assert!(bar.message().is_empty());
    }

    #[test]
    fn a_late_count_leaves_the_measuring_bar_alone() {
        let bar = ProgressBar::hidden();
        let mut progress = Progress { follower: Some(Follower::new(&bar).unwrap()), bar: bar.clone() };
        progress.measure(2.0);
        let (_, path) = progress.entry().unwrap().unwrap();
        let mut file = File::options().append(true).open(path).unwrap();
        writeln!(file, "{{\"work\":\"steps\",\"done\":3,\"of\":7}}").unwrap();
        // Long enough for a follower to see it.
        std::thread::sleep(TICK * 3);
        assert_eq!((bar.length(), bar.prefix().as_str()), (Some(200), ""));
    }

    #[test]
    fn no_progress_is_read_without_a_terminal() {
        let progress = Progress { bar: ProgressBar::hidden(), follower: None };
        assert_eq!(progress.entry().unwrap(), None);
    }
}
