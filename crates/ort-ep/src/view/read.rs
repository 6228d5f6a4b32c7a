//! The runtime's conventions for returning texts and lists.
use std::ffi::{CStr, c_char};

use ort_ep_sys as sys;

use crate::{Error, Result, Runtime};

/// Names must be exact: with a lossy conversion, two names that differ only in invalid bytes would become one.
///
/// # Safety
/// `pointer` is null (read as empty) or a NUL-terminated string that outlives `'a`.
pub(super) unsafe fn utf8<'a>(call: &'static str, pointer: *const c_char) -> Result<&'a str> {
    if pointer.is_null() {
        return Ok("");
    }
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|_| {
        let shown = bytes.to_string_lossy();
        Error::invalid_argument(format!("{call}: `{shown}` is not UTF-8\n  help: rename it in the model"))
    })
}

/// `None` for null.
pub(super) fn non_null<T>(raw: *const T) -> Option<*const T> {
    (!raw.is_null()).then_some(raw)
}

/// Reads a list in the runtime's two steps: the count, then the entries into our memory.
pub(super) fn list<T: Copy>(
    runtime: Runtime,
    [count_call, fill_call]: [&'static str; 2],
    blank: T,
    count: impl FnOnce(*mut usize) -> sys::Status,
    fill: impl FnOnce(*mut T, usize) -> sys::Status,
) -> Result<Vec<T>> {
    let mut len = 0;
    runtime.check(count_call, count(&mut len))?;
    let mut entries = vec![blank; len];
    if len > 0 {
        runtime.check(fill_call, fill(entries.as_mut_ptr(), len))?;
    }
    Ok(entries)
}

/// Reads a list whose length the same function returns if it gets no buffer.
pub(super) fn probed<T: Copy>(
    runtime: Runtime,
    call: &'static str,
    blank: T,
    mut read: impl FnMut(*mut T, *mut usize) -> sys::Status,
) -> Result<Vec<T>> {
    let mut len = 0;
    runtime.check(call, read(std::ptr::null_mut(), &mut len))?;
    let mut entries = vec![blank; len];
    if len > 0 {
        runtime.check(call, read(entries.as_mut_ptr(), &mut len))?;
        entries.truncate(len);
    }
    Ok(entries)
}

/// Reads a text whose length, including its NUL, the same function returns if it gets no buffer.
pub(super) fn probed_text(
    runtime: Runtime,
    call: &'static str,
    read: impl FnMut(*mut c_char, *mut usize) -> sys::Status,
) -> Result<String> {
    let chars = probed(runtime, call, 0, read)?;
    let mut bytes: Vec<u8> = chars.into_iter().map(|c| c as u8).collect();
    if bytes.last() == Some(&0) {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Error::invalid_argument(format!("{call}: `{shown}` is not UTF-8"))
    })
}
