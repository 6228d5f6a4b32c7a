//! Handles and descriptors by number. Values from a caller are looked up, never trusted.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hipdnn::sys::Status;

use crate::descriptor::Descriptor;
use crate::fault::{Fault, Outcome};

/// A handle: the stream for its work, and the library's own data.
pub struct Handle {
    stream: AtomicUsize,
    own: Box<dyn Any + Send + Sync>,
}

impl Handle {
    pub(crate) fn new(own: Box<dyn Any + Send + Sync>) -> Self {
        Self { stream: AtomicUsize::new(0), own }
    }

    /// The data that the library's [`open`](crate::Implementation::open) returned.
    pub fn own<T: 'static>(&self) -> Option<&T> {
        self.own.downcast_ref()
    }

    /// The stream's address; 0 is the default stream.
    pub fn stream(&self) -> usize {
        self.stream.load(Ordering::Acquire)
    }

    /// Sets the stream for subsequent work.
    pub(crate) fn set_stream(&self, stream: usize) {
        self.stream.store(stream, Ordering::Release);
    }
}

/// Objects by number.
pub struct Registry<T> {
    next: AtomicUsize,
    things: Mutex<Option<HashMap<usize, Arc<T>>>>,
}

/// All handles.
pub static HANDLES: Registry<Handle> = Registry::new();
/// All descriptors.
pub static DESCRIPTORS: Registry<Descriptor> = Registry::new();

impl<T> Registry<T> {
    const fn new() -> Self {
        // Multiples of 16 look like addresses in a debugger, and are never null.
        Self { next: AtomicUsize::new(0x10), things: Mutex::new(None) }
    }

    /// Adds an object and returns its number.
    pub fn add(&self, thing: Arc<T>) -> *mut c_void {
        let number = self.next.fetch_add(0x10, Ordering::Relaxed);
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        things.get_or_insert_default().insert(number, thing);
        std::ptr::without_provenance_mut(number)
    }

    /// The object with a number.
    pub fn get(&self, what: &str, number: *mut c_void) -> Outcome<Arc<T>> {
        if number.is_null() {
            return Err(Fault::null(what));
        }
        let things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let found = things.as_ref().and_then(|things| things.get(&number.addr()).cloned());
        found.ok_or_else(|| unknown(what))
    }

    /// True if the registry is empty.
    pub fn is_empty(&self) -> bool {
        self.things.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Removes an object.
    pub fn remove(&self, what: &str, number: *mut c_void) -> Outcome {
        if number.is_null() {
            return Err(Fault::null(what));
        }
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = things.as_mut().and_then(|things| things.remove(&number.addr()));
        if things.as_ref().is_some_and(HashMap::is_empty) {
            // A static is not dropped when this library is unloaded, so free the memory now.
            *things = None;
        }
        drop(things);
        removed.map(drop).ok_or_else(|| unknown(what))
    }
}

fn unknown(what: &str) -> Fault {
    Fault::new(Status::BAD_PARAM_NULL_POINTER, format!("{what} is not from this library, or was destroyed"))
}
