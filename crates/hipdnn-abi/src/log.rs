//! What a library says of its work: to its users' callbacks, and to the process's own log.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hipdnn::log::Deliveries;
use hipdnn::sys::{Severity, UserLogCallback};

use crate::fault::{Fault, Outcome};

/// The variable with the first level, which a program may change.
const LEVEL_VARIABLE: &str = "HIPDNN_LOG_LEVEL";

/// The least severity that anybody hears of; below all of them until somebody asks.
static LEVEL: AtomicI32 = AtomicI32::new(UNKNOWN);
const UNKNOWN: i32 = -1;

static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());

/// Callbacks that are being called.
static DELIVERIES: Deliveries = Deliveries::new();

/// A callback with the user's pointer, which together are its key. The pointer is kept as a number: only its owner knows
/// what it leads to.
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
    // The list is changed in one step: nothing is torn by a panic.
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The least severity that is logged.
pub fn level() -> Severity {
    let known = LEVEL.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return Severity(known);
    }
    let asked = std::env::var(LEVEL_VARIABLE).map_or(Severity::OFF, |word| named(&word));
    // A program that sets the level at the same time is right.
    let stored = LEVEL.compare_exchange(UNKNOWN, asked.0, Ordering::Relaxed, Ordering::Relaxed);
    Severity(stored.map_or_else(|set| set, |_| asked.0))
}

/// The severity that a word of the variable means; hipDNN logs nothing for others.
fn named(word: &str) -> Severity {
    match word.trim().to_ascii_lowercase().as_str() {
        "info" => Severity::INFO,
        "warn" => Severity::WARN,
        "error" => Severity::ERROR,
        "fatal" => Severity::FATAL,
        _ => Severity::OFF,
    }
}

/// Sets the least severity that is logged.
pub fn set_level(level: Severity) -> Outcome {
    known(level)?;
    LEVEL.store(level.0, Ordering::Relaxed);
    Ok(())
}

/// Adds a callback, changes the severity of one that is there, or takes it back with `OFF`: then it is not running any more on
/// another thread when this returns, since its owner may unload its code next.
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
    if severity.name().is_some() { Ok(()) } else { Err(Fault::bad(format!("there is no severity {}", severity.0))) }
}

/// Logs a line; what it says is worked out only if somebody hears it.
pub fn line(severity: Severity, text: impl FnOnce() -> String) {
    if severity < level() || severity >= Severity::OFF {
        return;
    }
    if let Ok(text) = CString::new(text()) {
        deliver(severity, &text);
    }
}

/// Passes a line to the registered callbacks. Callbacks of either mode are called at once, on the thread that logs.
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
    // A callback may register another one: the lock is not held while it runs.
    let wanted: Vec<Callback> = callbacks().iter().filter(|callback| severity >= callback.least).copied().collect();
    for Callback { call, user, .. } in wanted {
        // SAFETY: whoever registered it promised that it can be called with this pointer until it is taken back.
        unsafe { call(std::ptr::with_exposed_provenance_mut(user), severity, text.as_ptr()) };
    }
}
