//! The top layer: owned handles. Every handle holds its device and driver, so none outlives its parent.

mod blas_kernels;
pub(crate) mod blas_lt;
mod buffer;
mod copy;
mod device;
mod driver;
mod event;
mod graph;
mod host_fn;
mod image;
mod info;
mod matmul_desc;
mod module;
mod open_streams;
pub(crate) mod rtc;
mod scope;
mod stream;

pub use blas_lt::{Algorithm, BlasLt, Matmul, MatmulAddresses};
pub use buffer::{DeviceBuffer, PinnedBuffer, StreamBuffer};
pub use copy::CopyKind;
pub use device::{Device, MemoryInfo};
pub use driver::{Driver, PointerInfo, PointerKind};
pub use event::Event;
pub use graph::{Graph, GraphExec, UpdateRefusal, UpdateResult};
pub use host_fn::RecordedFn;
pub use info::DeviceInfo;
pub use matmul_desc::{Compute, DataType, Epilogue, MatmulDesc, Operand};
pub use module::{Function, Module};
pub use rtc::Rtc;
pub use scope::Scope;
pub use stream::{CaptureMode, CaptureStatus, RawStream, Stream};

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{DriverKind, HipError, LoadError};

/// The status that a driver returns while the process is exiting; nothing can leak at that point.
const DEINITIALIZED: i32 = 4;

/// A value that is loaded once per process and driver, for as long as it is in use.
///
/// The cache itself keeps nothing alive: a static is not dropped when the library that contains this code is unloaded.
struct Shared<T>([Mutex<Weak<T>>; 3]);

impl<T> Shared<T> {
    const fn new() -> Shared<T> {
        Shared([Mutex::new(Weak::new()), Mutex::new(Weak::new()), Mutex::new(Weak::new())])
    }

    /// The loaded value, or a newly loaded one. A failure is not cached.
    fn load(&self, kind: DriverKind, load: impl FnOnce() -> Result<Arc<T>, LoadError>) -> Result<Arc<T>, LoadError> {
        let mut slot = self.0[kind.index()].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = slot.upgrade() {
            return Ok(loaded);
        }
        let loaded = load()?;
        *slot = Arc::downgrade(&loaded);
        Ok(loaded)
    }

    /// Releases a value that is no longer in use; called when it is dropped. A weak pointer alone would keep its
    /// allocation.
    fn forget(&self, kind: DriverKind) {
        let mut slot = self.0[kind.index()].lock().unwrap_or_else(PoisonError::into_inner);
        if slot.strong_count() == 0 {
            *slot = Weak::new();
        }
    }
}

/// Reports that a destructor failed. Destructors must not panic, and their caller cannot act anyway.
fn report_leak(what: &'static str, error: &HipError) {
    if error.code() != Some(DEINITIALIZED) {
        tracing::warn!(target: "amdgpu_ep::lifetime", %error, "{what} leaked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static CACHE: Shared<Value> = Shared::new();
    static LOADS: AtomicUsize = AtomicUsize::new(0);

    struct Value;

    impl Drop for Value {
        fn drop(&mut self) {
            CACHE.forget(DriverKind::Host);
        }
    }

    fn load() -> Result<Arc<Value>, LoadError> {
        CACHE.load(DriverKind::Host, || {
            LOADS.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(Value))
        })
    }

    #[test]
    fn a_value_is_loaded_once_while_it_is_held_and_again_after() {
        let failed =
            CACHE.load(DriverKind::Host, || Err(LoadError::NotOffered { driver: DriverKind::Host, what: "runtime" }));
        assert!(failed.is_err());
        let (first, second) = (load().unwrap(), load().unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(LOADS.load(Ordering::SeqCst), 1);
        let weak = Arc::downgrade(&first);
        drop((first, second));
        assert_eq!(weak.strong_count(), 0);
        let slot = CACHE.0[DriverKind::Host.index()].lock().unwrap();
        assert!(slot.ptr_eq(&Weak::new()), "the cache still holds the memory");
        drop(slot);
        load().unwrap();
        assert_eq!(LOADS.load(Ordering::SeqCst), 2);
    }
}
