//! Rust closures as stream work.
//!
//! The driver receives an id, not a pointer. A capture may be replayed any number of times, even after its owner is
//! dropped, so a pointer could dangle; an id that is no longer registered is skipped.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::HipError;
use crate::result::{Runtime, stream};
use crate::sys::{Handle, Status};

type Once = Box<dyn FnOnce() + Send>;
type Repeated = Box<dyn Fn() + Send + Sync>;

enum Function {
    Once(Once),
    Repeated(Arc<Repeated>),
}

static FUNCTIONS: Mutex<BTreeMap<usize, Function>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(1);

fn functions() -> MutexGuard<'static, BTreeMap<usize, Function>> {
    FUNCTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn register(function: Function) -> usize {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    functions().insert(id, function);
    id
}

/// Registers a function that the first call with its id runs and removes.
pub(super) fn register_once(function: Once) -> usize {
    register(Function::Once(function))
}

/// Keeps a function registered: replays of a capture run the function until this is dropped, and skip it afterwards.
#[must_use = "an unregistered function is not run"]
#[derive(Debug)]
pub struct RecordedFn(usize);

impl RecordedFn {
    pub(super) fn id(&self) -> usize {
        self.0
    }
}

impl Drop for RecordedFn {
    fn drop(&mut self) {
        forget(self.0);
    }
}

/// Registers a function that every call with its id runs until the registration is dropped.
pub(super) fn register_repeated(function: Repeated) -> RecordedFn {
    RecordedFn(register(Function::Repeated(Arc::new(function))))
}

/// Removes an id.
pub(super) fn forget(id: usize) {
    // Bound to a name so that the lock is released before the function's destructor runs.
    let removed = take(&mut functions(), id);
    drop(removed);
}

fn take(registered: &mut BTreeMap<usize, Function>, id: usize) -> Option<Function> {
    let removed = registered.remove(&id);
    if registered.is_empty() {
        // An empty map may keep a node allocated, and a static is not dropped when this code is unloaded.
        *registered = BTreeMap::new();
    }
    removed
}

/// Enqueues a registered id, with the older call if the runtime has no other.
pub(super) fn enqueue(runtime: &Runtime, stream: Handle, id: usize) -> Result<(), HipError> {
    if runtime.table.launch_host_func.is_some() {
        return enqueue_captured(runtime, stream, id);
    }
    // SAFETY: `callback` may be called with any id on any thread; the caller's stream is live.
    unsafe { stream::add_callback(runtime, stream, callback, ptr::without_provenance_mut(id)) }
}

/// Enqueues a registered id with the only call that can be captured.
pub(super) fn enqueue_captured(runtime: &Runtime, stream: Handle, id: usize) -> Result<(), HipError> {
    // SAFETY: `trampoline` may be called with any id on any thread; the caller's stream is live.
    unsafe { stream::launch_host_fn(runtime, stream, trampoline, ptr::without_provenance_mut(id)) }
}

unsafe extern "C" fn trampoline(data: *mut c_void) {
    run(data.addr());
}

unsafe extern "C" fn callback(_stream: Handle, _status: Status, data: *mut c_void) {
    run(data.addr());
}

fn run(id: usize) {
    let mut registered = functions();
    let repeated = match registered.get(&id) {
        Some(Function::Repeated(function)) => Some(function.clone()),
        _ => None,
    };
    let once = match repeated {
        None => take(&mut registered, id),
        Some(_) => None,
    };
    drop(registered);
    // A panic must not unwind into the driver; state that the function left inconsistent is not used again.
    let outcome = catch_unwind(AssertUnwindSafe(|| match (repeated, once) {
        (Some(function), _) => function(),
        (None, Some(Function::Once(function))) => function(),
        _ => tracing::warn!(target: "amdgpu_ep::run", id, "host function ran after its owner was dropped"),
    }));
    if outcome.is_err() {
        tracing::error!(target: "amdgpu_ep::run", id, "host function panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_runs_once_runs_once() {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let id = register_once(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        run(id);
        run(id);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_dropped_registration_is_not_run_and_a_panic_is_contained() {
        let count = Arc::new(AtomicUsize::new(0));
        let seen = count.clone();
        let registration = register_repeated(Box::new(move || {
            seen.fetch_add(1, Ordering::SeqCst);
            panic!("from a host function");
        }));
        let id = registration.id();
        run(id);
        run(id);
        drop(registration);
        run(id);
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
