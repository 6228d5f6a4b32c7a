//! The runtime that loaded us, at the newest API version both sides support.
use std::ffi::{CStr, CString, c_char};

use ort_ep_sys as sys;

use crate::{Error, ErrorCode, Result};

/// ONNX Runtime's function tables at the negotiated version.
///
/// Every object of the SDK carries its own copy, so a process with two runtimes works.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    pub(crate) api: sys::Api,
    pub(crate) ep_api: sys::EpApi,
    release: Option<u32>,
}

impl Runtime {
    /// Opens the tables behind the runtime's entry point.
    ///
    /// # Safety
    /// Same as for [`sys::Api::negotiate`].
    pub(crate) unsafe fn negotiate(base: *const sys::OrtApiBase) -> Result<Self> {
        // SAFETY: the caller vouches for `base`.
        let api = unsafe { sys::Api::negotiate(base) }.map_err(|error| Error::ep_fail(error.to_string()))?;
        let ep_api = api.ep_api().ok_or_else(|| {
            Error::ep_fail(
                "this build of ONNX Runtime does not support plugin execution providers\n  help: pip install onnxruntime",
            )
        })?;
        // SAFETY: the caller vouches for `base`; the function takes no argument and returns static text or null.
        let version = unsafe { base.as_ref().and_then(|base| base.GetVersionString).map(|version| text(version())) };
        let release = version.and_then(|version| version.split('.').nth(1)?.parse().ok());
        Ok(Self { api, ep_api, release })
    }

    /// The minor version of ONNX Runtime itself, which may be newer than the negotiated API: 24 for 1.24; `None` if it
    /// does not say.
    pub fn release(&self) -> Option<u32> {
        self.release
    }

    /// The negotiated API version: 24 for ONNX Runtime 1.24, and so on.
    pub fn api_version(&self) -> u32 {
        self.api.version()
    }

    /// Takes ownership of a status: null is success, anything else becomes an error that names the call, and is
    /// released.
    pub(crate) fn check(&self, call: &'static str, status: sys::Status) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a non-null status is ours now; its text is valid until the release below.
        unsafe {
            let code = ErrorCode::from_raw(self.api.GetErrorCode(status));
            let message = format!("{call}: {}", text(self.api.GetErrorMessage(status)));
            self.api.ReleaseStatus(status);
            Err(Error::new(code, message))
        }
    }

    /// Creates the status that reports `result`; the runtime releases it.
    pub(crate) fn status(&self, result: Result<()>) -> sys::Status {
        match result {
            Ok(()) => std::ptr::null_mut(),
            Err(error) => new_status(self.api, &error),
        }
    }
}

/// Creates a status with any table of the runtime.
pub(crate) fn new_status(api: sys::Api, error: &Error) -> sys::Status {
    let message = c_string(error.message());
    // SAFETY: the text is NUL-terminated and copied by the call.
    unsafe { api.CreateStatus(error.code().to_raw(), message.as_ptr()) }
}

/// `text` as a C string. C would not see anything after an inner NUL, so NULs become spaces.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// The text of a C string of the runtime; null reads as empty.
///
/// # Safety
/// `pointer` is null or a NUL-terminated string that outlives `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> std::borrow::Cow<'a, str> {
    if pointer.is_null() {
        return "".into();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy()
}
