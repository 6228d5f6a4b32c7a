//! The destination of events that the log variable enables: stderr or a file. Each line starts with a timestamp.
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fmt};

use log::{Level, LevelFilter, Record};

/// The level of a log file if none is set.
const FILE_LEVEL: LevelFilter = LevelFilter::Info;

/// An environment variable with a level (`error` … `trace`). The variable with the suffix `_FILE` names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogVariable {
    /// The name.
    pub name: &'static str,
    /// Whether this library reports invalid values. A library loaded by another one of the same product does not: the
    /// other one already has.
    pub reports: bool,
}

/// The settings of the two variables.
#[derive(Debug, Default)]
pub(super) struct LogSettings {
    /// The level; `None` if logging is off.
    pub level: Option<Level>,
    /// The file to open.
    pub file: Option<OsString>,
    /// What is wrong with the level.
    pub problem: Option<String>,
}

impl LogSettings {
    /// Reads the process's environment variables.
    pub fn of(variable: LogVariable) -> Self {
        Self::read(variable.name, |name| env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn read(name: &str, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let file = variable(&file_variable(name));
        let given = variable(name).map(|value| value.to_string_lossy().trim().to_owned());
        let usual = if file.is_some() { FILE_LEVEL } else { LevelFilter::Off };
        let (level, problem) = match given.as_deref().filter(|text| !text.is_empty()) {
            None => (usual, None),
            Some(text) => match text.parse::<LevelFilter>() {
                Ok(level) => (level, None),
                Err(_) => {
                    let problem =
                        format!("{name} is ignored: it is {text:?}, expected error, warn, info, debug, trace or off");
                    (usual, Some(problem))
                }
            },
        };
        Self { level: level.to_level(), file, problem }
    }
}

pub(super) fn file_variable(name: &str) -> String {
    format!("{name}_FILE")
}

enum Sink {
    Stderr,
    File(File),
    /// The file was closed: the library is about to be unloaded.
    Closed,
}

static SINK: Mutex<Sink> = Mutex::new(Sink::Stderr);

fn with_sink<T>(body: impl FnOnce(&mut Sink) -> T) -> T {
    body(&mut SINK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Appends lines to a file from now on; without a file, or if it cannot be opened, they go to stderr.
pub(super) fn open(file: Option<&OsString>) -> io::Result<()> {
    let opened = file.map(|file| OpenOptions::new().append(true).create(true).open(file)).transpose();
    let (next, result) = match opened {
        Ok(opened) => (opened.map_or(Sink::Stderr, Sink::File), Ok(())),
        Err(error) => (Sink::Stderr, Err(error)),
    };
    with_sink(|sink| *sink = next);
    result
}

/// Closes the file: the library may be unmapped next, and nothing else would close it.
pub(super) fn close() {
    with_sink(|sink| {
        if matches!(sink, Sink::File(_)) {
            *sink = Sink::Closed;
        }
    });
}

/// Whether there is a file, which gets every enabled event.
pub(super) fn is_file() -> bool {
    with_sink(|sink| !matches!(sink, Sink::Stderr))
}

/// Writes an event.
pub(super) fn write(record: &Record<'_>) {
    let (time, level, target) = (Timestamp::now(), record.level(), record.target());
    // In one write: other libraries and processes may write to the same file.
    let line = format!("[{time} {level} {target}] {}\n", record.args());
    let written = with_sink(|sink| match sink {
        Sink::Stderr => Err(()),
        Sink::File(file) => file.write_all(line.as_bytes()).map_err(drop),
        Sink::Closed => Ok(()),
    });
    if written.is_err() {
        eprint!("{line}");
    }
}

/// A UTC time in RFC 3339 format: `2026-11-16T09:05:02.007Z`.
struct Timestamp(Duration);

impl Timestamp {
    fn now() -> Self {
        Self(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: u64 = 24 * 60 * 60;
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let (year, month, day) = date(seconds / DAY);
        let (hour, minute, second) = (seconds % DAY / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Year, month and day for a number of days since 1970. Years start in March here, so that a leap day is the last day.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // From 1 March of the year 0.
    let days = days + 719_468;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (millis, want) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_007, "2000-03-01T00:00:00.007Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (1_794_820_022_123, "2026-11-16T09:07:02.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(Duration::from_millis(millis)).to_string(), want);
        }
    }

    #[test]
    fn days_follow_each_other() {
        let mut before = date(0);
        for day in 1..60_000 {
            let (year, month, day) = date(day);
            let next_day = (before.0, before.1, before.2 + 1);
            let next_month = (before.0 + before.1 / 12, before.1 % 12 + 1, 1);
            assert!([next_day, next_month].contains(&(year, month, day)), "{before:?} {year}-{month}-{day}");
            before = (year, month, day);
        }
        assert_eq!(before, (2134, 4, 10));
    }

    #[test]
    fn the_two_variables_select_the_log() {
        let read = |level: &str, file: &str| {
            let asked = LogSettings::read("LOG", |name| {
                let value = if name == "LOG" { level } else { file };
                Some(value.into()).filter(|value: &OsString| !value.is_empty())
            });
            (asked.level, asked.file.is_some(), asked.problem.is_some())
        };
        assert_eq!(read("", ""), (None, false, false));
        assert_eq!(read(" Debug ", ""), (Some(Level::Debug), false, false));
        assert_eq!(read("off", "log"), (None, true, false));
        assert_eq!(read("", "log"), (Some(Level::Info), true, false));
        assert_eq!(read("warn", "log"), (Some(Level::Warn), true, false));
        assert_eq!(read("verbose", ""), (None, false, true));
        assert_eq!(read("verbose", "log"), (Some(Level::Info), true, true));
    }
}
