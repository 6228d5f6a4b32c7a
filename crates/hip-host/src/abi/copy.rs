//! Copies and fills.

use std::ffi::{c_int, c_uchar, c_uint, c_ushort, c_void};

use super::guard;
use crate::errors::Status;
use crate::runtime::Runtime;
use crate::work::{CopyRows, Direction, Fill, Step};

/// A copy of plain bytes; `None` if there is nothing to move.
fn bytes_step(dst: *mut c_void, src: *const c_void, bytes: usize, direction: Direction) -> Option<Step> {
    (bytes != 0).then(|| {
        Step::Copy(CopyRows {
            dst: dst.expose_provenance(),
            dst_pitch: bytes,
            src: src.expose_provenance(),
            src_pitch: bytes,
            width: bytes,
            rows: 1,
            direction,
        })
    })
}

/// The arguments of the 2D copies, in HIP's order.
type Rows = (*mut c_void, usize, *const c_void, usize, usize, usize, c_int);

fn rows_step((dst, dst_pitch, src, src_pitch, width, rows, kind): Rows) -> Result<Option<Step>, Status> {
    let direction = Direction::try_from(kind)?;
    if width == 0 || rows == 0 {
        return Ok(None);
    }
    if dst_pitch < width || src_pitch < width {
        return Err(Status::InvalidPitchValue);
    }
    let (dst, src) = (dst.expose_provenance(), src.expose_provenance());
    Ok(Some(Step::Copy(CopyRows { dst, dst_pitch, src, src_pitch, width, rows, direction })))
}

/// A copy between devices; each end must be on the device that the caller names.
fn peer_step(
    runtime: &Runtime,
    (dst, dst_device): (*mut c_void, c_int),
    (src, src_device): (*const c_void, c_int),
    bytes: usize,
) -> Result<Option<Step>, Status> {
    for (address, device) in [(dst.addr(), dst_device), (src.addr(), src_device)] {
        let device = runtime.device(device)?.index;
        if bytes != 0 && runtime.memory.find(address).is_none_or(|block| block.device != device) {
            return Err(Status::InvalidValue);
        }
    }
    Ok(bytes_step(dst, src, bytes, Direction::DeviceToDevice))
}

/// A fill; `None` if there is nothing to fill.
fn fill_step(dst: *mut c_void, value: u32, element: usize, count: usize) -> Option<Step> {
    (count != 0).then(|| Step::Fill(Fill { dst: dst.expose_provenance(), value, element, count }))
}

/// Runs in the order of the legacy default stream; returns when done.
fn wait(step: impl FnOnce(&Runtime) -> Result<Option<Step>, Status>) -> c_int {
    guard(|runtime| match step(runtime)? {
        Some(step) => runtime.run_and_wait(step),
        None => runtime.captures.refuse_unsafe_call(),
    })
}

/// Runs in the order of `stream`; may return earlier.
fn enqueue(stream: *mut c_void, step: impl FnOnce(&Runtime) -> Result<Option<Step>, Status>) -> c_int {
    guard(|runtime| {
        let stream = runtime.stream(stream)?;
        if let Some(step) = step(runtime)? {
            runtime.enqueue(&stream, step)?;
        }
        Ok(())
    })
}

/// Copies bytes and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpy(dst: *mut c_void, src: *const c_void, bytes: usize, kind: c_int) -> c_int {
    wait(|_| Ok(bytes_step(dst, src, bytes, kind.try_into()?)))
}

/// Copies bytes in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyAsync(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    enqueue(stream, |_| Ok(bytes_step(dst, src, bytes, kind.try_into()?)))
}

/// Copies bytes in the order of `stream` and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyWithStream(
    dst: *mut c_void,
    src: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    guard(|runtime| {
        let stream = runtime.stream(stream)?;
        match bytes_step(dst, src, bytes, kind.try_into()?) {
            Some(step) => runtime.run_and_wait_on(&stream, step),
            None => Ok(()),
        }
    })
}

/// Copies between devices and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyPeer(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    bytes: usize,
) -> c_int {
    wait(|runtime| peer_step(runtime, (dst, dst_device), (src, src_device), bytes))
}

/// Copies between devices in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpyPeerAsync(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    enqueue(stream, |runtime| peer_step(runtime, (dst, dst_device), (src, src_device), bytes))
}

/// Copies rows and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpy2D(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    rows: usize,
    kind: c_int,
) -> c_int {
    wait(|_| rows_step((dst, dst_pitch, src, src_pitch, width, rows, kind)))
}

/// Copies rows in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemcpy2DAsync(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    rows: usize,
    kind: c_int,
    stream: *mut c_void,
) -> c_int {
    enqueue(stream, |_| rows_step((dst, dst_pitch, src, src_pitch, width, rows, kind)))
}

/// Fills bytes and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemset(dst: *mut c_void, value: c_int, bytes: usize) -> c_int {
    wait(|_| Ok(fill_step(dst, value as u32, 1, bytes)))
}

/// Fills bytes in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetAsync(dst: *mut c_void, value: c_int, bytes: usize, stream: *mut c_void) -> c_int {
    enqueue(stream, |_| Ok(fill_step(dst, value as u32, 1, bytes)))
}

/// Fills bytes and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD8(dst: *mut c_void, value: c_uchar, count: usize) -> c_int {
    wait(|_| Ok(fill_step(dst, value.into(), 1, count)))
}

/// Fills bytes in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD8Async(
    dst: *mut c_void,
    value: c_uchar,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    enqueue(stream, |_| Ok(fill_step(dst, value.into(), 1, count)))
}

/// Fills 16-bit elements and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD16(dst: *mut c_void, value: c_ushort, count: usize) -> c_int {
    wait(|_| Ok(fill_step(dst, value.into(), 2, count)))
}

/// Fills 16-bit elements in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD16Async(
    dst: *mut c_void,
    value: c_ushort,
    count: usize,
    stream: *mut c_void,
) -> c_int {
    enqueue(stream, |_| Ok(fill_step(dst, value.into(), 2, count)))
}

/// Fills 32-bit elements and waits for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD32(dst: *mut c_void, value: c_int, count: usize) -> c_int {
    wait(|_| Ok(fill_step(dst, value as c_uint, 4, count)))
}

/// Fills 32-bit elements in the order of `stream`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipMemsetD32Async(dst: *mut c_void, value: c_int, count: usize, stream: *mut c_void) -> c_int {
    enqueue(stream, |_| Ok(fill_step(dst, value as c_uint, 4, count)))
}
