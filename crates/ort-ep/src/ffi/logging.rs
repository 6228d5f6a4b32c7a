//! Forwards `tracing` events to ONNX Runtime's logger.
//!
//! A plugin's `tracing` and `log` statics are private to its library, so the host's subscriber never sees our events
//! and ours never sees the host's. [`install`] sets this library's `log` logger, to which `tracing` forwards its events
//! while no subscriber is set. The logger is a static on purpose: a subscriber would leak heap memory each time the
//! library is unloaded. Each call from ONNX Runtime sets the logger of its thread; events from other threads go to the
//! newest factory's logger.
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use ort_ep_sys as sys;

use super::log_sink::{self, LogSettings, LogVariable};
use crate::Runtime;
use crate::ffi::runtime::c_string;

/// A logger of the runtime and the lowest severity it shows.
#[derive(Clone, Copy)]
pub(crate) struct LoggerHandle {
    runtime: Runtime,
    raw: *const sys::OrtLogger,
    severity: i32,
}

// SAFETY: ONNX Runtime's loggers may be used from any thread.
unsafe impl Send for LoggerHandle {}
// SAFETY: as above.
unsafe impl Sync for LoggerHandle {}

thread_local! {
    // Const-initialised and without a destructor: no code of ours is pending in a thread when the library is unmapped.
    static CURRENT: Cell<Option<LoggerHandle>> = const { Cell::new(None) };
}

static FACTORIES: Mutex<Vec<LoggerHandle>> = Mutex::new(Vec::new());
/// The lowest severity that the log variable enables.
static ASKED_SEVERITY: AtomicI32 = AtomicI32::new(i32::MAX);

impl LoggerHandle {
    /// Wraps a logger of the runtime; null is allowed and silent.
    ///
    /// # Safety
    /// `raw` is null or outlives every use of the handle.
    pub unsafe fn new(runtime: Runtime, raw: *const sys::OrtLogger) -> Self {
        let mut severity = sys::ORT_LOGGING_LEVEL_WARNING;
        if !raw.is_null() {
            // SAFETY: the caller vouches for `raw`, and `severity` is a valid out-pointer.
            let status = unsafe { runtime.api.Logger_GetLoggingSeverityLevel(raw, &mut severity) };
            if runtime.check("Logger_GetLoggingSeverityLevel", status).is_err() {
                severity = sys::ORT_LOGGING_LEVEL_WARNING;
            }
        }
        Self { runtime, raw, severity }
    }

    /// Makes this the logger of the current thread until the scope ends.
    pub fn enter(self) -> Scope {
        Scope { previous: CURRENT.replace(Some(self)) }
    }

    /// Makes this the logger of threads that ONNX Runtime did not call us on.
    pub fn adopt(self) {
        FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    /// Undoes one [`adopt`](Self::adopt).
    pub fn disown(self) {
        let mut factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = factories.iter().rposition(|other| other.raw == self.raw) {
            factories.remove(position);
        }
        // The library may be unmapped next, together with this static: it must not hold memory then.
        if factories.is_empty() {
            *factories = Vec::new();
            log_sink::close();
        }
    }

    fn shows(&self, severity: i32) -> bool {
        severity >= self.severity && !self.raw.is_null()
    }

    fn log(&self, severity: i32, record: &Record<'_>) {
        let message = c_string(&record.args().to_string());
        let target = c_string(record.target());
        let line = record.line().and_then(|line| i32::try_from(line).ok()).unwrap_or(0);
        let file = os_string(record.file().unwrap_or(""));
        // SAFETY: the logger is alive for the call in progress, or its factory is; all texts are NUL-terminated and
        // copied.
        let status = unsafe {
            self.runtime.api.Logger_LogMessage(
                self.raw,
                severity,
                message.as_ptr(),
                file.as_ptr(),
                line,
                target.as_ptr(),
            )
        };
        // If logging fails, there is nowhere to report it.
        let _ = self.runtime.check("Logger_LogMessage", status);
    }
}

/// Restores the thread's previous logger when dropped.
pub(crate) struct Scope {
    previous: Option<LoggerHandle>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

/// Sets this library's logger.
///
/// The variable holds a level (`error`, `warn`, `info`, `debug`, `trace`). Events at that level go to stderr if ONNX
/// Runtime's logger would drop them, or all of them go to the file that the other variable names. Invalid values are
/// logged to the current thread's logger.
pub(crate) fn install(variable: Option<LogVariable>) {
    // Fails if a logger is already set, by us or by a Rust host (tests): then that one stays.
    let _ = log::set_logger(&ToOrt);
    log::set_max_level(LevelFilter::Trace);
    let Some(variable) = variable else { return };
    let asked = LogSettings::of(variable);
    ASKED_SEVERITY.store(asked.level.map_or(i32::MAX, severity_of), Ordering::Relaxed);
    let opened = log_sink::open(asked.file.as_ref());
    if !variable.reports {
        return;
    }
    if let Some(problem) = &asked.problem {
        report(problem);
    }
    if let (Err(error), Some(file)) = (opened, &asked.file) {
        let name = log_sink::file_variable(variable.name);
        report(&format!("{name} is ignored: could not open {}: {error}; the log goes to stderr", file.display()));
    }
}

/// Undoes [`install`] if no factory was created: the library may be unmapped next.
pub(crate) fn uninstall() {
    if FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        log_sink::close();
    }
}

/// A warning about logging itself. If ONNX Runtime's logger would drop it, it goes to stderr at any level, because the
/// user asked for a log and does not get it as configured.
fn report(text: &str) {
    match current() {
        Some(logger) if logger.shows(sys::ORT_LOGGING_LEVEL_WARNING) => logger.log(
            sys::ORT_LOGGING_LEVEL_WARNING,
            &Record::builder().level(Level::Warn).target("ort_ep::log").args(format_args!("{text}")).build(),
        ),
        _ => eprintln!("warning: {text}"),
    }
}

struct ToOrt;

impl Log for ToOrt {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let severity = severity_of(metadata.level());
        severity >= ASKED_SEVERITY.load(Ordering::Relaxed) || current().is_some_and(|logger| logger.shows(severity))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let severity = severity_of(record.level());
        let logger = current().filter(|logger| logger.shows(severity));
        if let Some(logger) = logger {
            logger.log(severity, record);
        }
        // ONNX Runtime's logger writes to stderr too, so only a file gets events that it shows.
        let is_asked = severity >= ASKED_SEVERITY.load(Ordering::Relaxed);
        if is_asked && (logger.is_none() || log_sink::is_file()) {
            log_sink::write(record);
        }
    }

    fn flush(&self) {}
}

fn current() -> Option<LoggerHandle> {
    CURRENT.get().or_else(|| FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).last().copied())
}

fn severity_of(level: Level) -> i32 {
    match level {
        Level::Error => sys::ORT_LOGGING_LEVEL_ERROR,
        Level::Warn => sys::ORT_LOGGING_LEVEL_WARNING,
        Level::Info => sys::ORT_LOGGING_LEVEL_INFO,
        Level::Debug => sys::ORT_LOGGING_LEVEL_VERBOSE,
        // Below any level of ONNX Runtime: only the log variable shows it.
        Level::Trace => sys::ORT_LOGGING_LEVEL_VERBOSE - 1,
    }
}

#[cfg(not(windows))]
fn os_string(text: &str) -> std::ffi::CString {
    c_string(text)
}

#[cfg(windows)]
fn os_string(text: &str) -> Vec<u16> {
    text.encode_utf16().chain(std::iter::once(0)).collect()
}
