//! Paths as the runtime spells them: bytes on Unix, UTF-16 on Windows.
use std::path::PathBuf;

use ort_ep_sys as sys;

/// # Safety
/// `pointer` is null (read as empty) or a NUL-terminated path.
#[cfg(unix)]
pub(super) unsafe fn path(pointer: *const sys::os_char) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    if pointer.is_null() {
        return PathBuf::new();
    }
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { std::ffi::CStr::from_ptr(pointer) };
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes.to_bytes()))
}

/// # Safety
/// `pointer` is null (read as empty) or a NUL-terminated path.
#[cfg(windows)]
pub(super) unsafe fn path(pointer: *const sys::os_char) -> PathBuf {
    use std::os::windows::ffi::OsStringExt as _;
    if pointer.is_null() {
        return PathBuf::new();
    }
    // SAFETY: guaranteed by the caller: every unit up to the first zero is there.
    let units = unsafe {
        let len = (0..).take_while(|&at| *pointer.add(at) != 0).count();
        std::slice::from_raw_parts(pointer, len)
    };
    PathBuf::from(std::ffi::OsString::from_wide(units))
}

/// `text` as a NUL-terminated path of the runtime; inner NULs become spaces.
pub(super) fn terminated(text: &str) -> Vec<sys::os_char> {
    let text = text.replace('\0', " ");
    #[cfg(unix)]
    let units = text.bytes().map(|byte| byte as sys::os_char);
    #[cfg(windows)]
    let units = text.encode_utf16();
    units.chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_reads_as_the_empty_path() {
        // SAFETY: null is allowed.
        assert_eq!(unsafe { path(std::ptr::null()) }, PathBuf::new());
    }

    #[test]
    fn a_path_survives_a_round_trip() {
        for text in ["", "model.onnx", "/tmp/ünïcode dir/モデル.onnx"] {
            let raw = terminated(text);
            // SAFETY: `raw` ends with a NUL and lives to the end of the loop body.
            assert_eq!(unsafe { path(raw.as_ptr()) }, PathBuf::from(text));
        }
    }

    #[test]
    fn inner_nuls_become_spaces() {
        let raw = terminated("a\0b");
        // SAFETY: as above.
        assert_eq!(unsafe { path(raw.as_ptr()) }, PathBuf::from("a b"));
    }
}
