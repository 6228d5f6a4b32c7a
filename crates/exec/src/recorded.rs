//! The streams that are being recorded in this process.
//!
//! AMD's runtime rejects queries about events of such a stream, even events recorded before, and invalidates the
//! recording. So before querying an event, make sure that its stream is not being recorded, and hold the lock so that
//! it stays that way.
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hip::{Event, HipError};

/// The maximum number of concurrent recordings that are tracked. A fixed array, because the static outlives the
/// library's users and must not own heap memory.
const MAX_STREAMS: usize = 64;

/// A recording lasts as long as one run takes to queue its work. One that lasts longer was not ended, or waits for its
/// own thread.
const LONGEST: Duration = Duration::from_secs(10);
/// The time between two checks whether a recording has ended.
const PAUSE: Duration = Duration::from_micros(50);

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

/// Waits for an event that was recorded on a stream. If the stream is being recorded now, this waits for the end of the
/// recording first, because the driver would refuse to wait and end the recording.
pub(crate) fn synchronize(event: &Event, stream: usize) -> Result<(), HipError> {
    let start = Instant::now();
    loop {
        let is_late = start.elapsed() > LONGEST;
        if is_late || unless_recorded(stream, || ()).is_some() {
            match event.synchronize() {
                // The recording began after the check.
                Err(error) if error.is_capture() && !is_late => {}
                done => return done,
            }
        }
        thread::sleep(PAUSE);
    }
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
