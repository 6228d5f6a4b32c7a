//! A library's log: goes to its users' callbacks, and to the process's own log.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hipdnn::log::Deliveries;
use hipdnn::sys::{Severity, UserLogCallback};

use crate::fault::{Fault, Outcome};

/// The environment variable with the initial level; a program may change it.
const LEVEL_VARIABLE: &str = "HIPDNN_LOG_LEVEL";

/// The lowest severity that is logged; unknown until first asked for.
static LEVEL: AtomicI32 = AtomicI32::new(UNKNOWN);
const UNKNOWN: i32 = -1;

static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());

/// Callback calls in progress.
static DELIVERIES: Deliveries = Deliveries::new();

/// A callback with the user's pointer, which together identify it. The pointer is stored as a number: only its owner
/// knows what it points to.
#[derive(Clone, Copy)]
struct Callback {
    call: UserLogCallback,
    user: usize,
    least: Severity,
}

impl Callback {
    fn is(&self, call: UserLogCallback, user: usize) -> bool {
        std::ptr::fn_addr_eq(self.call, call) && self.user == user
    }
}

fn callbacks() -> MutexGuard<'static, Vec<Callback>> {
    // The list is changed in one step, so a panic leaves it intact.
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lowest severity that is logged.
pub fn level() -> Severity {
    let known = LEVEL.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return Severity(known);
    }
    let asked = std::env::var(LEVEL_VARIABLE).map_or(Severity::OFF, |word| named(&word));
    // If a program sets the level at the same time, its value wins.
    let stored = LEVEL.compare_exchange(UNKNOWN, asked.0, Ordering::Relaxed, Ordering::Relaxed);
    Severity(stored.map_or_else(|set| set, |_| asked.0))
}

/// The severity for a word in the variable; other words log nothing, as in hipDNN.
fn named(word: &str) -> Severity {
    match word.trim().to_ascii_lowercase().as_str() {
        "info" => Severity::INFO,
        "warn" => Severity::WARN,
        "error" => Severity::ERROR,
        "fatal" => Severity::FATAL,
        _ => Severity::OFF,
    }
}

/// Sets the lowest severity that is logged.
pub fn set_level(level: Severity) -> Outcome {
    known(level)?;
    LEVEL.store(level.0, Ordering::Relaxed);
    Ok(())
}

/// Registers a callback, changes the severity of a registered one, or removes it with `OFF`. When removal returns, the
/// callback is no longer running on another thread, because its owner may unload its code next.
pub fn set_callback(call: Option<UserLogCallback>, least: Severity, user: *mut c_void) -> Outcome {
    let Some(call) = call else { return Err(Fault::bad("the log callback is null")) };
    if user.is_null() {
        return Err(Fault::bad("the log callback's handle is null"));
    }
    known(least)?;
    let user = user.expose_provenance();
    let mut callbacks = callbacks();
    let at = callbacks.iter().position(|callback| callback.is(call, user));
    match (at, least) {
        (Some(at), Severity::OFF) => {
            callbacks.remove(at);
            drop(callbacks);
            DELIVERIES.wait();
        }
        (Some(at), least) => callbacks[at].least = least,
        (None, Severity::OFF) => return Err(Fault::bad("no such log callback is registered")),
        (None, least) => callbacks.push(Callback { call, user, least }),
    }
    Ok(())
}

fn known(severity: Severity) -> Outcome {
    if severity.name().is_some() { Ok(()) } else { Err(Fault::bad(format!("unknown severity {}", severity.0))) }
}

/// Logs a line; the message is only formatted if something receives it.
pub fn line(severity: Severity, text: impl FnOnce() -> String) {
    if severity < level() || severity >= Severity::OFF {
        return;
    }
    if let Ok(text) = CString::new(text()) {
        deliver(severity, &text);
    }
}

/// Passes a line to every interested receiver. Callbacks of either mode are called synchronously, on the thread that
/// logs.
pub fn deliver(severity: Severity, text: &CStr) {
    if severity < level() {
        return;
    }
    let shown = text.to_string_lossy();
    match severity {
        Severity::INFO => tracing::info!(target: "hipdnn::backend", "{shown}"),
        Severity::WARN => tracing::warn!(target: "hipdnn::backend", "{shown}"),
        _ => tracing::error!(target: "hipdnn::backend", "{shown}"),
    }
    let _delivery = DELIVERIES.begin();
    // A callback may register another one, so the lock is not held while it runs.
    let wanted: Vec<Callback> = callbacks().iter().filter(|callback| severity >= callback.least).copied().collect();
    for Callback { call, user, .. } in wanted {
        // SAFETY: the caller that registered it guaranteed that it can be called with this pointer until it is
        // removed.
        unsafe { call(std::ptr::with_exposed_provenance_mut(user), severity, text.as_ptr()) };
    }
}
