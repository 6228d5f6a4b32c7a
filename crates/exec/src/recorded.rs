//! The streams that are being recorded in this process.
//!
//! AMD's runtime rejects queries about events of such a stream, even events recorded before, and invalidates the
//! recording. So before querying an event, make sure that its stream is not being recorded, and hold the lock so that
//! it stays that way.
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of concurrent recordings that are tracked. A fixed array, because the static outlives the
/// library's users and must not own heap memory.
const MAX_STREAMS: usize = 64;

/// The streams that are being recorded; 0 marks a free slot.
static STREAMS: Mutex<[usize; MAX_STREAMS]> = Mutex::new([0; MAX_STREAMS]);

fn streams() -> MutexGuard<'static, [usize; MAX_STREAMS]> {
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a query about work on a stream, unless the stream is being recorded.
pub(crate) fn unless_recorded<T>(stream: usize, ask: impl FnOnce() -> T) -> Option<T> {
    let streams = streams();
    (!streams.contains(&stream) || stream == 0).then(ask)
}

/// Starts recording a stream.
pub(crate) fn begin<E>(stream: usize, begin: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    let mut streams = streams();
    begin()?;
    if let Some(slot) = streams.iter_mut().find(|slot| **slot == 0) {
        *slot = stream;
    }
    Ok(())
}

/// Marks the recording of a stream as ended.
pub(crate) fn end(stream: usize) {
    if let Some(slot) = streams().iter_mut().find(|slot| **slot == stream) {
        *slot = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_stream_is_not_queried() {
        const STREAM: usize = 0x5EA0;
        assert_eq!(unless_recorded(STREAM, || 1), Some(1));
        assert_eq!(begin(STREAM, || Err("no")), Err("no"));
        assert_eq!(unless_recorded(STREAM, || 2), Some(2));
        assert_eq!(begin(STREAM, || Ok::<_, ()>(())), Ok(()));
        assert_eq!(unless_recorded(STREAM, || 3), None);
        assert_eq!(unless_recorded(STREAM + 1, || 4), Some(4));
        end(STREAM);
        assert_eq!(unless_recorded(STREAM, || 5), Some(5));
    }
}
