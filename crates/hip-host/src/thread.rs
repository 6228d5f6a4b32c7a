//! Per-thread state.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use crate::capture::Mode;
use crate::errors::Status;
use crate::stream::Stream;

thread_local! {
    static DEVICE: Cell<usize> = const { Cell::new(0) };
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static DEFAULT_STREAMS: RefCell<HashMap<usize, Arc<Stream>>> = RefCell::new(HashMap::new());
}

/// The current device.
pub(crate) fn device() -> usize {
    DEVICE.get()
}

pub(crate) fn set_device(device: usize) {
    DEVICE.set(device);
}

/// Keeps an error for `hipGetLastError`. As in HIP 7, success and "not ready" do not replace an earlier error.
pub(crate) fn note_status(code: i32) {
    if code != 0 && code != Status::NotReady.code() {
        LAST_ERROR.set(code);
    }
}

pub(crate) fn peek_last_error() -> i32 {
    LAST_ERROR.get()
}

pub(crate) fn take_last_error() -> i32 {
    LAST_ERROR.replace(0)
}

/// The capture mode of this thread.
pub(crate) fn capture_mode() -> Mode {
    CAPTURE_MODE.get()
}

pub(crate) fn exchange_capture_mode(mode: Mode) -> Mode {
    CAPTURE_MODE.replace(mode)
}

/// Runs a caller's function and records that it must not wait for streams.
pub(crate) fn as_host_function(body: impl FnOnce()) {
    let outer = IN_HOST_FUNCTION.replace(true);
    body();
    IN_HOST_FUNCTION.set(outer);
}

/// Fails inside a host function, where waiting would deadlock.
pub(crate) fn may_block() -> Result<(), Status> {
    if IN_HOST_FUNCTION.get() { Err(Status::NotSupported) } else { Ok(()) }
}

/// The per-thread default stream of `device`, created by `create` at first use.
pub(crate) fn default_stream(device: usize, create: impl FnOnce() -> Arc<Stream>) -> Result<Arc<Stream>, Status> {
    // The table is gone while the thread ends; such a stream can no longer be used.
    DEFAULT_STREAMS
        .try_with(|streams| Arc::clone(streams.borrow_mut().entry(device).or_insert_with(create)))
        .map_err(|_| Status::InvalidHandle)
}
