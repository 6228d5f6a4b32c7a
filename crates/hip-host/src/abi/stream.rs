//! Streams and host functions.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::{guard, guard_release, require, store};
use crate::errors::Status;
use crate::event::State;
use crate::handles::as_pointer;
use crate::runtime::Runtime;
use crate::stream::{Role, Stream, Ticket};
use crate::thread;
use crate::work::{HostFn, Step, StreamCallback, Task};

/// `hipStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
const LEAST_PRIORITY: c_int = 1;
const GREATEST_PRIORITY: c_int = -1;

/// # Safety
/// `out` is NULL or writable.
unsafe fn create(runtime: &Runtime, out: *mut *mut c_void, flags: c_uint, priority: c_int) -> Result<(), Status> {
    require(out)?;
    let role = match flags {
        0 => Role::Blocking,
        NON_BLOCKING => Role::NonBlocking,
        _ => return Err(Status::InvalidValue),
    };
    let handle = runtime.create_stream(role, priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY))?;
    // SAFETY: guaranteed by the caller.
    unsafe { store(out, as_pointer(handle)) }
}

/// Creates a blocking stream on the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreate(stream: *mut *mut c_void) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { create(runtime, stream, 0, 0) })
}

/// Creates a stream on the current device; flag 1 makes it independent of the legacy default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { create(runtime, stream, flags, 0) })
}

/// Same as [`hipStreamCreateWithFlags`]; the priority is clamped to the range and stored, but has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamCreateWithPriority(
    stream: *mut *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> c_int {
    // SAFETY: the module's contract.
    guard(|runtime| unsafe { create(runtime, stream, flags, priority) })
}

/// The range of priorities; either result may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> c_int {
    guard(|_| {
        for (out, value) in [(least, LEAST_PRIORITY), (greatest, GREATEST_PRIORITY)] {
            if !out.is_null() {
                // SAFETY: the module's contract.
                unsafe { store(out, value) }?;
            }
        }
        Ok(())
    })
}

/// Destroys a stream; work already submitted still runs.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamDestroy(stream: *mut c_void) -> c_int {
    guard_release(|runtime| {
        let stream = runtime.streams.remove(stream)?;
        runtime.captures.abandon(&stream);
        stream.close();
        Ok(())
    })
}

/// The stream's unfinished work; refused while it captures.
fn tails(runtime: &Runtime, stream: *mut c_void) -> Result<Vec<Ticket>, Status> {
    let stream = runtime.stream(stream)?;
    if let Some(capture) = runtime.captures.of(&stream) {
        return capture.refuse();
    }
    runtime.captures.refuse_implicit(&stream)?;
    Ok(stream.tails())
}

/// Waits for all work submitted to a stream.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamSynchronize(stream: *mut c_void) -> c_int {
    guard(|runtime| {
        thread::may_block()?;
        tails(runtime, stream)?.iter().for_each(Ticket::wait);
        // Report corruption that this work has revealed.
        crate::errors::check_fault()
    })
}

/// 0 if all work submitted to a stream is done, else 600.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamQuery(stream: *mut c_void) -> c_int {
    guard(|runtime| {
        let done = tails(runtime, stream)?.iter().all(Ticket::is_done);
        if done { Ok(()) } else { Err(Status::NotReady) }
    })
}

/// Makes later work of a stream wait for an event.
#[unsafe(no_mangle)]
pub extern "C" fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) -> c_int {
    guard(|runtime| {
        let stream = runtime.stream(stream)?;
        let state = runtime.events.get(event)?.state();
        if flags != 0 {
            return Err(Status::InvalidValue);
        }
        match state {
            State::Captured { capture, tips } => runtime.captures.wait_captured(&stream, capture.upgrade(), &tips),
            State::Never | State::Recorded { .. } if runtime.captures.of(&stream).is_some() => {
                runtime.captures.wait_captured(&stream, None, &Vec::new())
            }
            State::Never => Ok(()),
            State::Recorded { ticket, .. } => {
                runtime.captures.refuse_implicit(&stream)?;
                if !ticket.is_done() {
                    stream.submit(vec![ticket], Task::Marker).finish();
                }
                Ok(())
            }
        }
    })
}

/// # Safety
/// `out` is NULL or writable.
unsafe fn answer<T>(stream: *mut c_void, out: *mut T, value: impl FnOnce(&Arc<Stream>) -> T) -> c_int {
    guard(|runtime| {
        let stream = runtime.stream(stream)?;
        // SAFETY: guaranteed by the caller.
        unsafe { store(out, value(&stream)) }
    })
}

/// The flags a stream was created with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamGetFlags(stream: *mut c_void, flags: *mut c_uint) -> c_int {
    // SAFETY: the module's contract.
    unsafe { answer(stream, flags, |stream| if stream.role == Role::NonBlocking { NON_BLOCKING } else { 0 }) }
}

/// The priority a stream was created with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamGetPriority(stream: *mut c_void, priority: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    unsafe { answer(stream, priority, |stream| stream.priority) }
}

/// The device of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamGetDevice(stream: *mut c_void, device: *mut c_int) -> c_int {
    // SAFETY: the module's contract.
    unsafe { answer(stream, device, |stream| stream.device as c_int) }
}

/// Calls `function(data)` in the order of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipLaunchHostFunc(stream: *mut c_void, function: Option<HostFn>, data: *mut c_void) -> c_int {
    guard(|runtime| {
        let stream = runtime.stream(stream)?;
        let function = function.ok_or(Status::InvalidValue)?;
        runtime.enqueue(&stream, Step::Host { function, data: data.expose_provenance() })?;
        Ok(())
    })
}

/// Calls `function(stream, 0, data)` in the order of a stream; cannot be captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipStreamAddCallback(
    stream: *mut c_void,
    function: Option<StreamCallback>,
    data: *mut c_void,
    flags: c_uint,
) -> c_int {
    guard(|runtime| {
        let handle = stream.addr();
        let stream = runtime.stream(stream)?;
        let function = function.filter(|_| flags == 0).ok_or(Status::InvalidValue)?;
        if let Some(capture) = runtime.captures.of(&stream) {
            return capture.refuse();
        }
        runtime.captures.refuse_implicit(&stream)?;
        stream.run(Task::Callback { stream: handle, function, data: data.expose_provenance() });
        Ok(())
    })
}
