//! The options of a session.
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::ptr;

use ort_ep_sys as sys;

use super::key_values::OwnedKeyValues;
use super::read;
use crate::ffi::runtime::c_string;
use crate::{Result, Runtime};

view! {
    /// The options of a session that is being created.
    SessionOptions(OrtSessionOptions)
}

impl SessionOptions<'_> {
    /// All configuration entries; the options of an execution provider are those under `ep.<its name in lower case>.`.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn config_entries(self) -> Result<BTreeMap<String, String>> {
        let mut raw = ptr::null_mut();
        // SAFETY: `from_raw`'s caller vouches for the options; we own the pairs.
        let entries = unsafe {
            call!(self.runtime, GetSessionOptionsConfigEntries(self.raw, &mut raw))?;
            OwnedKeyValues::from_raw(self.runtime, raw)
        };
        Ok(entries.as_view().to_map())
    }

    /// One configuration entry.
    ///
    /// # Errors
    /// If the value is not UTF-8.
    pub fn get(self, key: &str) -> Result<Option<String>> {
        let key = c_string(key);
        let mut present = 0;
        // SAFETY: `from_raw`'s caller vouches for the options; the out-pointer is ours.
        unsafe { call!(self.runtime, HasSessionConfigEntry(self.raw, key.as_ptr(), &mut present))? };
        if present == 0 {
            return Ok(None);
        }
        let value = |buffer: *mut c_char, size: *mut usize| {
            // SAFETY: as above; `probed_text` passes null or a buffer of `*size` bytes.
            unsafe { self.runtime.api.GetSessionConfigEntry(self.raw, key.as_ptr(), buffer, size) }
        };
        read::probed_text(self.runtime, "GetSessionConfigEntry", value).map(Some)
    }

    /// A copy that can be changed, for a session created on behalf of this one.
    ///
    /// # Errors
    /// If the runtime cannot copy them.
    pub fn clone_options(self) -> Result<OwnedSessionOptions> {
        let mut raw = ptr::null_mut();
        // SAFETY: `from_raw`'s caller vouches for the options; we own the copy.
        unsafe { call!(self.runtime, CloneSessionOptions(self.raw, &mut raw))? };
        Ok(OwnedSessionOptions { runtime: self.runtime, raw })
    }
}

impl<'a> SessionOptions<'a> {
    /// New options with the configuration entries that `keep` accepts, for a session created on behalf of this one.
    /// Everything else has its default: ONNX Runtime can copy options, but cannot remove an entry from a copy.
    ///
    /// # Errors
    /// If the runtime cannot create them.
    pub fn entries_where(self, keep: impl Fn(&str) -> bool) -> Result<OwnedSessionOptions> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is ours, and we own the new options.
        unsafe { call!(self.runtime, CreateSessionOptions(&mut raw))? };
        let mut made = OwnedSessionOptions { runtime: self.runtime, raw };
        for (key, value) in self.config_entries()?.iter().filter(|(key, _)| keep(key)) {
            made.insert(key, value)?;
        }
        Ok(made)
    }
}

/// Session options of our own, released on drop.
#[derive(Debug)]
pub struct OwnedSessionOptions {
    runtime: Runtime,
    raw: *mut sys::OrtSessionOptions,
}

impl OwnedSessionOptions {
    /// Sets a configuration entry, replacing its value.
    ///
    /// # Errors
    /// If the runtime rejects the key or the value (it limits their lengths).
    pub fn insert(&mut self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key), c_string(value));
        // SAFETY: the options are ours; both strings are copied by the call.
        unsafe { call!(self.runtime, AddSessionConfigEntry(self.raw, key.as_ptr(), value.as_ptr())) }
    }

    /// A view of the options.
    pub fn as_view(&self) -> SessionOptions<'_> {
        // SAFETY: the options are live while `self` is.
        unsafe { SessionOptions::from_raw(self.runtime, self.raw) }
    }
}

impl Drop for OwnedSessionOptions {
    fn drop(&mut self) {
        // SAFETY: the options came from `clone_options` and are ours alone.
        unsafe { self.runtime.api.ReleaseSessionOptions(self.raw) }
    }
}
