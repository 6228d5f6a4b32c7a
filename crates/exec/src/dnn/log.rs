//! What a hipDNN library says goes to `tracing`, and so to the log of the session that made it speak.
//!
//! How much it says is up to `HIPDNN_LOG_LEVEL`, or the program: the level belongs to the library, whose other users hear it too.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hipdnn::{
    log::{self, Registration},
    sys::{Backend, Severity},
};

/// A library that is being listened to, until the last one who keeps this lets it go.
pub(super) struct Log {
    _registration: Registration,
}

/// The libraries that are being listened to, by what they call themselves. A second registration would log everything twice.
static LOGS: Mutex<Vec<(String, Weak<Log>)>> = Mutex::new(Vec::new());

fn logs() -> MutexGuard<'static, Vec<(String, Weak<Log>)>> {
    // Entries come and go in one step: nothing is torn by a panic.
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listens to a library; `None` if it can't be heard.
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
            tracing::debug!(target: "amdgpu_ep::load", "{library} can't be heard: {error}");
            None
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let mut logs = logs();
        logs.retain(|(_, log)| log.strong_count() > 0);
        // The code may be unloaded next: the static must not hold memory then.
        logs.shrink_to_fit();
    }
}
