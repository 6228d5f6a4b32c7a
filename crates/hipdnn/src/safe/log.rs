//! The backend's log messages: passed to a callback, or to `tracing` under the target `hipdnn::backend`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = hipdnn::backend()?;
//! hipdnn::log::set_level(&*backend, hipdnn::sys::Severity::INFO)?;
//! let _registration = hipdnn::log::to_tracing(&backend, hipdnn::sys::Severity::INFO)?;
//! # Ok(()) }
//! ```

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use super::deliveries::{Deliveries, Delivery};
use crate::Result;
use crate::result::log as result;
use crate::sys::{Backend, LogCallbackMode, Severity};

type Callback = dyn Fn(Severity, &str) + Send + Sync;

/// All registered callbacks, by the number that was passed to the backend. A backend may still deliver a message after
/// a callback was removed, so it never holds a pointer of ours.
static CALLBACKS: Mutex<Callbacks> = Mutex::new(Callbacks { by_number: Vec::new(), last: 0 });

/// Messages that backends are delivering.
static DELIVERIES: Deliveries = Deliveries::new();

struct Callbacks {
    /// Keeps no memory allocated when empty: the code may be unloaded next.
    by_number: Vec<(usize, Arc<Callback>)>,
    last: usize,
}

impl Callbacks {
    fn find(&self, number: usize) -> Option<Arc<Callback>> {
        self.by_number.iter().find(|(known, _)| *known == number).map(|(_, callback)| callback.clone())
    }
}

fn callbacks() -> MutexGuard<'static, Callbacks> {
    // A number is added or removed in one step: a panic cannot leave the list inconsistent.
    CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A callback that receives a backend's messages until this is dropped.
#[must_use = "the callback is unregistered when this is dropped"]
pub struct Registration {
    backend: Arc<dyn Backend>,
    number: usize,
    mode: LogCallbackMode,
}

/// Passes messages of at least this severity to a callback, on the thread that logs or, with `LogCallbackMode::ASYNC`,
/// on one of the backend's threads.
///
/// # Errors
/// The backend rejects the call, or does not support callbacks.
pub fn to_callback(
    backend: &Arc<dyn Backend>,
    least: Severity,
    mode: LogCallbackMode,
    callback: impl Fn(Severity, &str) + Send + Sync + 'static,
) -> Result<Registration> {
    let number = {
        let mut callbacks = callbacks();
        callbacks.last += 1;
        let number = callbacks.last;
        callbacks.by_number.push((number, Arc::new(callback)));
        number
    };
    // Dropping it on failure removes the callback.
    let registration = Registration { backend: backend.clone(), number, mode };
    // SAFETY: `deliver` may be called at any time with any number.
    unsafe { result::set_callback(&**backend, deliver, least, mode, ptr::without_provenance_mut(number))? };
    Ok(registration)
}

/// Passes messages of at least this severity to `tracing`: `FATAL` and `ERROR` as errors, then warnings and
/// information.
///
/// # Errors
/// The backend rejects the call, or does not support callbacks.
pub fn to_tracing(backend: &Arc<dyn Backend>, least: Severity) -> Result<Registration> {
    to_callback(backend, least, LogCallbackMode::SYNC, |severity, message| match severity {
        Severity::INFO => tracing::info!(target: "hipdnn::backend", "{message}"),
        Severity::WARN => tracing::warn!(target: "hipdnn::backend", "{message}"),
        _ => tracing::error!(target: "hipdnn::backend", "{message}"),
    })
}

/// The lowest severity that the backend logs.
///
/// # Errors
/// The backend cannot report it.
pub fn level(backend: &dyn Backend) -> Result<Severity> {
    result::level(backend)
}

/// Sets the lowest severity that the backend logs.
///
/// # Errors
/// The backend does not know the severity.
pub fn set_level(backend: &dyn Backend, level: Severity) -> Result<()> {
    result::set_level(backend, level)
}

/// Writes a line to the backend's log; a backend without this function drops it. Text after a NUL is cut off.
pub fn write(backend: &dyn Backend, severity: Severity, message: &str) {
    let text = message.split('\0').next().unwrap_or_default();
    if let Ok(text) = CString::new(text) {
        result::write(backend, severity, &text);
    }
}

/// The function that backends call.
unsafe extern "C" fn deliver(user: *mut c_void, severity: Severity, message: *const c_char) {
    if message.is_null() {
        return;
    }
    let _delivery = DELIVERIES.begin();
    // Release the lock first: a callback may register another one.
    let callback = callbacks().find(user.addr());
    let Some(callback) = callback else { return };
    // SAFETY: the backend passes a NUL-terminated string that lives for the call.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    // Nothing may unwind into the backend, and there is no one to report a panic to.
    let _ = catch_unwind(AssertUnwindSafe(|| callback(severity, &text)));
}

/// Waits for callbacks that run on other threads: the state that they use may be freed next, and their code unloaded.
/// Do not hold a lock that a callback takes.
impl Drop for Registration {
    fn drop(&mut self) {
        let gone = {
            let mut callbacks = callbacks();
            let at = callbacks.by_number.iter().position(|(known, _)| *known == self.number);
            let gone = at.map(|at| callbacks.by_number.swap_remove(at));
            callbacks.by_number.shrink_to_fit();
            gone
        };
        let user = ptr::without_provenance_mut(self.number);
        // SAFETY: identifies the registration. If the backend rejects it, that is harmless: the number is no longer
        // registered.
        let _ = unsafe { result::set_callback(&*self.backend, deliver, Severity::OFF, self.mode, user) };
        DELIVERIES.wait();
        // Drop it without the lock: the callback may itself own another registration.
        drop(gone);
    }
}
