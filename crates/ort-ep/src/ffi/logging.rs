//! `tracing` events end in ONNX Runtime's logger.
//!
//! A plugin is its own island: its `tracing` statics are private to the library, so the host's subscriber never sees
//! our events and ours never sees the host's. [`install`] sets the one subscriber of this library. Each call that ONNX
//! Runtime makes names the logger to use on its thread; events from other threads go to the newest factory's logger.
use std::{
    cell::Cell,
    fmt::{self, Write as _},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

use ort_ep_sys as sys;
use tracing::{Event, Level, Metadata, Subscriber, field::Visit, span, subscriber::Interest};

use crate::{Runtime, ffi::runtime::c_string};

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
    // Const-initialised and without a destructor: nothing of ours is pending in a thread when the library is unmapped.
    static CURRENT: Cell<Option<LoggerHandle>> = const { Cell::new(None) };
}

static FACTORIES: Mutex<Vec<LoggerHandle>> = Mutex::new(Vec::new());
static STDERR_SEVERITY: AtomicI32 = AtomicI32::new(i32::MAX);

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

    /// Makes this the logger of threads that ONNX Runtime did not call on.
    pub fn adopt(self) {
        FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    /// Undoes one [`adopt`](Self::adopt).
    pub fn disown(self) {
        let mut factories = FACTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(position) = factories.iter().rposition(|other| other.raw == self.raw) {
            factories.remove(position);
        }
    }

    fn log(&self, severity: i32, message: &str, metadata: &Metadata<'_>) {
        if self.raw.is_null() {
            return;
        }
        let message = c_string(message);
        let target = c_string(metadata.target());
        let line = metadata.line().and_then(|line| i32::try_from(line).ok()).unwrap_or(0);
        let file = os_string(metadata.file().unwrap_or(""));
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
        // A logger that fails leaves nobody to tell.
        let _ = self.runtime.check("Logger_LogMessage", status);
    }
}

/// Gives the thread its previous logger back when dropped.
pub(crate) struct Scope {
    previous: Option<LoggerHandle>,
}

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}

/// Sets this library's subscriber, once.
///
/// `level` is the text of the plugin's log variable (`error`, `warn`, `info`, `debug`, `trace`): events at that level
/// that ONNX Runtime's logger would drop go to stderr.
pub(crate) fn install(level: Option<&str>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Fails only where a host of Rust code set one first (tests): then that one is right.
        let _ = tracing::subscriber::set_global_default(ToOrt);
    });
    if let Some(level) = level.and_then(|text| text.trim().parse::<Level>().ok()) {
        STDERR_SEVERITY.store(severity_of(&level), Ordering::Relaxed);
    }
}

struct ToOrt;

impl Subscriber for ToOrt {
    /// Asked each time: by default an event would stay on or off for good, as the first session to reach it has it.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let severity = severity_of(metadata.level());
        severity >= STDERR_SEVERITY.load(Ordering::Relaxed)
            || current().is_some_and(|logger| severity >= logger.severity && !logger.raw.is_null())
    }

    fn event(&self, event: &Event<'_>) {
        let severity = severity_of(event.metadata().level());
        let mut text = Text(String::new());
        event.record(&mut text);
        match current() {
            Some(logger) if severity >= logger.severity && !logger.raw.is_null() => {
                logger.log(severity, &text.0, event.metadata());
            }
            _ => eprintln!("[{} {}] {}", event.metadata().level(), event.metadata().target(), text.0),
        }
    }

    // Spans are not shown: what they would say is in the events' own fields.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn current() -> Option<LoggerHandle> {
    CURRENT.get().or_else(|| FACTORIES.lock().unwrap_or_else(PoisonError::into_inner).last().copied())
}

fn severity_of(level: &Level) -> i32 {
    match *level {
        Level::ERROR => sys::ORT_LOGGING_LEVEL_ERROR,
        Level::WARN => sys::ORT_LOGGING_LEVEL_WARNING,
        Level::INFO => sys::ORT_LOGGING_LEVEL_INFO,
        Level::DEBUG => sys::ORT_LOGGING_LEVEL_VERBOSE,
        // Below anything ONNX Runtime knows: only the log variable shows it.
        Level::TRACE => sys::ORT_LOGGING_LEVEL_VERBOSE - 1,
    }
}

/// An event as one line: the message, then `name=value` for each field.
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &tracing::field::Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        // Writing to a String can't fail.
        if field.name() == "message" {
            let rest = std::mem::take(&mut self.0);
            let _ = write!(self.0, "{value:?}{rest}");
        } else {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
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
