//! Strings, paths and arrays in ONNX Runtime's format.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;

use ort_ep_sys::{Api, OrtKeyValuePairs, os_char};

use crate::{Error, Result};

/// A copy of one of ONNX Runtime's strings; empty for null.
///
/// # Safety
/// `raw` is null or a NUL-terminated string that lives for the call.
pub(crate) unsafe fn text(raw: *const c_char) -> String {
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
pub(crate) unsafe fn pointers<'a, T>(raw: *const *const T, count: usize) -> &'a [*const T] {
    if count == 0 || raw.is_null() {
        return &[];
    }
    // SAFETY: the caller guarantees the array.
    unsafe { std::slice::from_raw_parts(raw, count) }
}

/// Copies of all keys and values.
///
/// # Safety
/// `raw` is null or lives for the call.
pub(crate) unsafe fn pairs(api: &Api, raw: *const OrtKeyValuePairs) -> Vec<(String, String)> {
    let (mut keys, mut values, mut count) = (ptr::null(), ptr::null(), 0);
    if raw.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees `raw`; the arrays belong to it and hold `count` strings each.
    unsafe {
        api.GetKeyValuePairs(raw, &mut keys, &mut values, &mut count);
        let (keys, values) = (pointers(keys, count), pointers(values, count));
        keys.iter().zip(values).map(|(&key, &value)| (text(key), text(value))).collect()
    }
}

/// A string for C.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Nul(text.to_owned()))
}

/// A path for C, NUL-terminated.
#[cfg(unix)]
pub(crate) fn os_path(path: &Path) -> Result<Vec<os_char>> {
    use std::os::unix::ffi::OsStrExt;

    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Nul(path.display().to_string()))?;
    Ok(path.as_bytes_with_nul().iter().map(|&byte| byte as os_char).collect())
}

/// A path for C, NUL-terminated.
#[cfg(windows)]
pub(crate) fn os_path(path: &Path) -> Result<Vec<os_char>> {
    use std::os::windows::ffi::OsStrExt;

    let mut text: Vec<os_char> = path.as_os_str().encode_wide().collect();
    if text.contains(&0) {
        return Err(Error::Nul(path.display().to_string()));
    }
    text.push(0);
    Ok(text)
}

/// Strings for C, and pointers to them.
#[derive(Debug)]
pub(crate) struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

// SAFETY: the pointers refer to the strings beside them, which are never changed.
unsafe impl Send for Texts {}
// SAFETY: as above.
unsafe impl Sync for Texts {}

impl Texts {
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Texts> {
        let texts = texts.into_iter().map(c_string).collect::<Result<Vec<_>>>()?;
        // The strings are on the heap, so the pointers stay valid when the vector moves.
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Texts { _texts: texts, pointers })
    }

    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    pub fn len(&self) -> usize {
        self.pointers.len()
    }
}
