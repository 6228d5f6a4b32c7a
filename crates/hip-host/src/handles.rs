//! Opaque handles that are numbers, never addresses: a stale or foreign handle is detected instead of dereferenced.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::errors::Status;

/// Smaller values are special streams of HIP, or NULL.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

/// A number that no other object of this process has or had.
pub(crate) fn fresh() -> usize {
    NEXT.fetch_add(0x10, Ordering::Relaxed)
}

/// The pointer a caller sees for a handle.
pub(crate) fn as_pointer(handle: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(handle)
}

/// Locks even after a panic elsewhere: every critical section of this crate leaves its state consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The live objects of one kind.
pub(crate) struct Handles<T>(RwLock<HashMap<usize, Arc<T>>>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles(RwLock::new(HashMap::new()))
    }
}

impl<T> Handles<T> {
    pub(crate) fn insert(&self, handle: usize, object: Arc<T>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
    }

    pub(crate) fn get(&self, handle: *mut c_void) -> Result<Arc<T>, Status> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&handle.addr()).cloned().ok_or(Status::InvalidHandle)
    }

    pub(crate) fn remove(&self, handle: *mut c_void) -> Result<Arc<T>, Status> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&handle.addr()).ok_or(Status::InvalidHandle)
    }

    /// The first object that `find` accepts.
    pub(crate) fn find_map<R>(&self, find: impl FnMut(&Arc<T>) -> Option<R>) -> Option<R> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().find_map(find)
    }
}
