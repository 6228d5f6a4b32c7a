//! Events.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::{guard, guard_release, require, store};
use crate::config::Feature;
use crate::errors::Status;
use crate::event::{Event, State, elapsed_ms};
use crate::handles::{as_pointer, fresh};
use crate::runtime::Runtime;
use crate::stream::Ticket;
use crate::thread;

/// Creates an event with timing on the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreate(event: *mut *mut c_void) -> c_int {
    // SAFETY: the module's contract, which also applies to the called function.
    unsafe { hipEventCreateWithFlags(event, 0) }
}

/// Creates an event on the current device; flag 2 disables timing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventCreateWithFlags(event: *mut *mut c_void, flags: c_uint) -> c_int {
    guard(|runtime| {
        require(event)?;
        let made = Event::new(runtime.current_device()?.index, flags)?;
        let handle = fresh();
        runtime.events.insert(handle, made);
        // SAFETY: the module's contract.
        unsafe { store(event, as_pointer(handle)) }
    })
}

/// Records an event in a stream of its own device.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    guard(|runtime| {
        let event = runtime.events.get(event)?;
        let stream = runtime.stream(stream)?;
        if event.device != stream.device {
            return Err(Status::InvalidHandle);
        }
        if let Some(capture) = runtime.captures.of(&stream) {
            let tips = capture.tips(&stream)?;
            event.set(State::Captured { capture: Arc::downgrade(&capture), tips });
            return Ok(());
        }
        runtime.captures.refuse_implicit(&stream)?;
        event.record(&stream);
        Ok(())
    })
}

/// The place that the host may query or wait for; `None` if the event was never recorded.
///
/// AMD's runtime checks the capture state of the stream that the event was last recorded on, even if that was before
/// the capture began: the call is refused, and the capture becomes invalid.
fn reachable(runtime: &Runtime, event: *mut c_void) -> Result<Option<Ticket>, Status> {
    let ticket = runtime.events.get(event)?.ticket()?;
    if let Some(capture) = ticket.as_ref().and_then(|ticket| runtime.captures.of(ticket.stream())) {
        capture.invalidate();
        return Err(Status::CapturedEvent);
    }
    Ok(ticket)
}

/// Waits until the last record of an event is reached.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventSynchronize(event: *mut c_void) -> c_int {
    guard(|runtime| {
        let ticket = reachable(runtime, event)?;
        thread::may_block()?;
        if let Some(ticket) = ticket {
            ticket.wait();
        }
        Ok(())
    })
}

/// 0 if the last record of an event is reached, else 600.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventQuery(event: *mut c_void) -> c_int {
    guard(|runtime| {
        let ticket = reachable(runtime, event)?;
        runtime.captures.refuse_unsafe_call()?;
        if ticket.is_none_or(|ticket| ticket.is_done()) { Ok(()) } else { Err(Status::NotReady) }
    })
}

/// Destroys an event; submitted waits for it stay in effect.
#[unsafe(no_mangle)]
pub extern "C" fn hipEventDestroy(event: *mut c_void) -> c_int {
    guard_release(|runtime| runtime.events.remove(event).map(drop))
}

/// Milliseconds between two reached events with timing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int {
    guard(|runtime| {
        require(ms)?;
        runtime.need(Feature::EventTimes)?;
        let (start, end) = (runtime.events.get(start)?, runtime.events.get(end)?);
        if start.device != end.device {
            return Err(Status::InvalidHandle);
        }
        let elapsed = elapsed_ms(&start, &end)?;
        // SAFETY: the module's contract.
        unsafe { store(ms, elapsed) }
    })
}
