//! Tracks which of our streams are still open, for events that were recorded on them.
//!
//! AMD's runtime stores in an event the stream it was last recorded on, and reads that stream's capture state when the
//! event is queried or waited for, without checking whether the stream still exists (seen in the runtime of HIP 6 and
//! 7). CUDA's events need no stream once they are recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::HipError;
use crate::sys::Handle;

/// Whether one stream is open; a read lock keeps it open.
#[derive(Clone)]
pub(super) struct OpenStream(Arc<RwLock<bool>>);

impl OpenStream {
    /// Calls `ask` while the stream cannot be closed, or returns `closed` if it already is.
    pub(super) fn while_open<T>(&self, closed: T, ask: impl FnOnce() -> Result<T, HipError>) -> Result<T, HipError> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if *open { ask() } else { Ok(closed) }
    }

    /// Calls `close` once no reader keeps the stream open; it counts as closed from then on.
    fn close<T>(&self, close: impl FnOnce() -> T) -> T {
        let mut open = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *open = false;
        close()
    }
}

/// The open streams of a driver that we own, by handle.
#[derive(Default)]
pub(super) struct OpenStreams(Mutex<BTreeMap<usize, OpenStream>>);

impl OpenStreams {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, OpenStream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, handle: Handle) {
        self.lock().insert(handle.addr(), OpenStream(Arc::new(RwLock::new(true))));
    }

    /// `None` for the default stream and for streams that we do not own.
    pub(super) fn find(&self, handle: Handle) -> Option<OpenStream> {
        self.lock().get(&handle.addr()).cloned()
    }

    /// Removes the stream from the list, then calls `close`.
    pub(super) fn close<T>(&self, handle: Handle, close: impl FnOnce() -> T) -> T {
        // Remove it before the driver can reuse the handle for another stream.
        let removed = self.lock().remove(&handle.addr());
        match removed {
            Some(stream) => stream.close(close),
            None => close(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::Barrier;

    #[test]
    fn a_closed_stream_is_not_queried() {
        let streams = OpenStreams::default();
        let handle = ptr::without_provenance_mut(0x10);
        assert!(streams.find(handle).is_none());
        streams.add(handle);
        let stream = streams.find(handle).unwrap();
        assert_eq!(stream.while_open(true, || Ok(false)), Ok(false));
        assert_eq!(streams.close(handle, || 7), 7);
        assert_eq!(stream.while_open(true, || panic!("asked")), Ok(true));
        streams.add(handle);
        assert_eq!(stream.while_open(true, || panic!("asked")), Ok(true), "another stream with the same handle");
    }

    #[test]
    fn a_stream_stays_open_while_it_is_queried() {
        let streams = OpenStreams::default();
        let address = 0x10;
        streams.add(ptr::without_provenance_mut(address));
        let stream = streams.find(ptr::without_provenance_mut(address)).unwrap();
        let (asked, order) = (Barrier::new(2), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                asked.wait();
                streams.close(ptr::without_provenance_mut(address), || order.lock().unwrap().push("closed"));
            });
            let answer = stream.while_open((), || {
                asked.wait();
                std::thread::yield_now();
                order.lock().unwrap().push("answered");
                Ok(())
            });
            assert_eq!(answer, Ok(()));
        });
        assert_eq!(*order.lock().unwrap(), ["answered", "closed"]);
    }
}
