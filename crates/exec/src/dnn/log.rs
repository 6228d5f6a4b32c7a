//! Forwards the log of a hipDNN library to `tracing`, and so to the log of the session that caused the message.
//!
//! `HIPDNN_LOG_LEVEL` or the program sets the level. The level belongs to the library, so it also affects the library's
//! other users.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn::log::{self, Registration};
use hipdnn::sys::{Backend, Severity};

/// A registered log callback. It is removed when the last reference is dropped.
pub(super) struct Log {
    _registration: Registration,
}

/// The libraries with a registered callback, by their description. A second registration would log everything twice.
static LOGS: Mutex<Vec<(String, Weak<Log>)>> = Mutex::new(Vec::new());

fn logs() -> MutexGuard<'static, Vec<(String, Weak<Log>)>> {
    // Each change to the list is a single step, so a panic cannot leave it inconsistent.
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forwards the log of a library; `None` if it cannot register a callback.
pub(super) fn listen(backend: &Arc<dyn Backend>) -> Option<Arc<Log>> {
    let library = backend.describe();
    let mut logs = logs();
    let known = logs.iter().filter(|(known, _)| *known == library).find_map(|(_, log)| log.upgrade());
    if known.is_some() {
        return known;
    }
    match log::to_tracing(backend, Severity::INFO) {
        Ok(registration) => {
            let log = Arc::new(Log { _registration: registration });
            logs.push((library, Arc::downgrade(&log)));
            Some(log)
        }
        Err(error) => {
            tracing::debug!(target: "amdgpu_ep::load", "could not register a log callback with {library}: {error}");
            None
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut logs = logs();
        logs.retain(|(_, log)| log.strong_count() > 0);
        // The code may be unloaded next, so the static must not hold memory.
        logs.shrink_to_fit();
    }
}
