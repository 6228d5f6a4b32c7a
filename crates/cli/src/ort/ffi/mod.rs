//! The unsafe part of the client. Every handle is released when dropped, after everything that uses it.

mod assignment;
mod environment;
mod port;
mod runtime;
mod session;
mod value;

pub use environment::{Device, Environment, Provider};
pub use runtime::Runtime;
pub use session::Session;
pub use value::Value;

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use anyhow::{Context, Result};
use ort_ep_sys::os_char;

/// A copy of one of ONNX Runtime's strings.
///
/// # Safety
/// `raw` is null or a NUL-terminated string that lives for the call.
unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees a live, NUL-terminated string.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

/// An array of pointers that ONNX Runtime owns.
///
/// # Safety
/// `raw` points to `count` pointers that live for `'a`, unless `count` is 0.
unsafe fn pointers<'a, T>(raw: *const *const T, count: usize) -> &'a [*const T] {
    if count == 0 || raw.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees the array.
    unsafe { std::slice::from_raw_parts(raw, count) }
}

/// A path in ONNX Runtime's format, NUL-terminated.
#[cfg(unix)]
fn os_path(path: &Path) -> Result<Vec<os_char>> {
    use std::os::unix::ffi::OsStrExt;

    let path = CString::new(path.as_os_str().as_bytes()).context("a path holds a NUL character")?;
    Ok(path.as_bytes_with_nul().iter().map(|&byte| byte as os_char).collect())
}

/// A path in ONNX Runtime's format, NUL-terminated.
#[cfg(windows)]
fn os_path(path: &Path) -> Result<Vec<os_char>> {
    use std::os::windows::ffi::OsStrExt;

    let mut path: Vec<os_char> = path.as_os_str().encode_wide().collect();
    anyhow::ensure!(!path.contains(&0), "a path holds a NUL character");
    path.push(0);
    Ok(path)
}

/// C strings, and pointers to them.
struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self> {
        let texts = texts.map(CString::new).collect::<Result<Vec<_>, _>>().context("a text holds a NUL character")?;
        // The strings are on the heap, so the pointers stay valid when the vector moves.
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Self { _texts: texts, pointers })
    }
}
