//! Opens the runtime's tables at a version that both sides support.
use core::ffi::{CStr, c_char, c_void};

use crate::{Api, EpApi, ModelEditorApi};

/// The oldest API version supported: ONNX Runtime 1.24.
pub const MIN_API_VERSION: u32 = 24;
/// The newest API version known here: ONNX Runtime 1.31.
pub const MAX_API_VERSION: u32 = 31;

/// The entry point the runtime passes to a plugin.
#[repr(C)]
pub struct OrtApiBase {
    pub GetApi: Option<unsafe extern "system" fn(version: u32) -> *const c_void>,
    pub GetVersionString: Option<unsafe extern "system" fn() -> *const c_char>,
}

/// Why no usable API version was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiationError {
    /// The entry point or one of its two functions is null.
    NoEntry,
    /// The runtime is older than [`MIN_API_VERSION`]; holds its version string.
    TooOld(String),
    /// The runtime reports a supported version but has no table for it.
    NoTable(String),
}

impl core::fmt::Display for NegotiationError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoEntry => write!(f, "the runtime passed no API entry point"),
            Self::TooOld(found) => write!(
                f,
                "ONNX Runtime {found} is too old, this plugin needs 1.{MIN_API_VERSION} or newer\n  help: pip install -U onnxruntime"
            ),
            Self::NoTable(found) => write!(
                f,
                "ONNX Runtime {found} has no table for any API version from {MIN_API_VERSION} to {MAX_API_VERSION}"
            ),
        }
    }
}

impl core::error::Error for NegotiationError {}

impl Api {
    /// Finds the newest API version that both sides support.
    ///
    /// The runtime prints an error for every version it lacks, so its version string is read first and no newer version
    /// is requested; only an unreadable version string makes us probe downwards.
    ///
    /// # Safety
    /// `base` is null or the runtime's own entry point, which stays valid as long as the runtime is loaded.
    pub unsafe fn negotiate(base: *const OrtApiBase) -> Result<Self, NegotiationError> {
        // SAFETY: the caller vouches for `base`.
        let base = unsafe { base.as_ref() }.ok_or(NegotiationError::NoEntry)?;
        let (Some(get_api), Some(get_version)) = (base.GetApi, base.GetVersionString) else {
            return Err(NegotiationError::NoEntry);
        };
        // SAFETY: takes no argument and returns static text or null.
        let text = unsafe { get_version() };
        let text = if text.is_null() {
            String::new()
        } else {
            // SAFETY: a non-null result is a NUL-terminated static string of the runtime.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        let newest = match minor_version(&text) {
            Some(minor) if minor < MIN_API_VERSION => return Err(NegotiationError::TooOld(text)),
            Some(minor) => minor.min(MAX_API_VERSION),
            None => MAX_API_VERSION,
        };
        for version in (MIN_API_VERSION..=newest).rev() {
            // SAFETY: any version may be requested; the result is a static table with the slots of `version`, or null.
            if let Some(api) = unsafe { Self::from_raw(get_api(version), version) } {
                return Ok(api);
            }
        }
        Err(NegotiationError::NoTable(text))
    }

    /// Any table of the runtime, only to create a status after [`negotiate`](Self::negotiate) failed.
    ///
    /// # Safety
    /// Same as for [`negotiate`](Self::negotiate). Only `CreateStatus` may be called on the result.
    pub unsafe fn for_error_status(base: *const OrtApiBase) -> Option<Self> {
        // SAFETY: the caller vouches for `base`; version 1 has existed since the first release, and `CreateStatus` is
        // its first slot.
        unsafe { Self::from_raw(base.as_ref()?.GetApi?(1), MIN_API_VERSION) }
    }

    /// The functions only execution providers call.
    pub fn ep_api(&self) -> Option<EpApi> {
        // SAFETY: takes no argument; the returned static table has the slots of the version this table was opened with.
        unsafe { EpApi::from_raw(self.GetEpApi(), self.version()) }
    }

    /// The functions that build nodes and graphs.
    pub fn model_editor_api(&self) -> Option<ModelEditorApi> {
        // SAFETY: as for `ep_api`; null in minimal builds.
        unsafe { ModelEditorApi::from_raw(self.GetModelEditorApi(), self.version()) }
    }
}

/// The API version of a release string: `1.24.6` and `1.30.0-dev` give 24 and 30.
fn minor_version(text: &str) -> Option<u32> {
    let mut parts = text.trim().split('.');
    let major: u32 = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.len() - minor.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let minor: u32 = minor[..digits].parse().ok()?;
    match major {
        0 => Some(0),
        1 => Some(minor),
        _ => Some(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_release_texts() {
        for (text, want) in [
            ("1.24.4", Some(24)),
            ("1.31.1", Some(31)),
            ("1.30.0-dev+abc", Some(30)),
            ("1.27rc1", Some(27)),
            ("2.0.0", Some(u32::MAX)),
            ("0.9", Some(0)),
            ("", None),
            ("nightly", None),
            ("1", None),
            ("1.x", None),
        ] {
            assert_eq!(minor_version(text), want, "{text:?}");
        }
    }

    static TABLE: [usize; 500] = [1; 500];

    fn negotiate_with(
        get_api: unsafe extern "system" fn(u32) -> *const c_void,
        text: &'static CStr,
    ) -> Result<u32, NegotiationError> {
        thread_local!(static TEXT: core::cell::Cell<&'static CStr> = const { core::cell::Cell::new(c"") });
        unsafe extern "system" fn version() -> *const c_char {
            TEXT.get().as_ptr()
        }
        TEXT.set(text);
        let base = OrtApiBase { GetApi: Some(get_api), GetVersionString: Some(version) };
        // SAFETY: the entry lives on this stack frame and its functions answer as the contract says.
        unsafe { Api::negotiate(&base) }.map(|api| api.version())
    }

    unsafe extern "system" fn up_to_28(version: u32) -> *const c_void {
        assert!(version <= 28, "asked for {version}: the runtime would print an error");
        TABLE.as_ptr().cast()
    }

    unsafe extern "system" fn only_25(version: u32) -> *const c_void {
        if version == 25 { TABLE.as_ptr().cast() } else { core::ptr::null() }
    }

    unsafe extern "system" fn nothing(_: u32) -> *const c_void {
        core::ptr::null()
    }

    #[test]
    fn never_asks_above_what_the_runtime_names() {
        assert_eq!(negotiate_with(up_to_28, c"1.28.0"), Ok(28));
    }

    #[test]
    fn newer_runtimes_are_used_at_our_newest_version() {
        unsafe extern "system" fn all(version: u32) -> *const c_void {
            assert!(version <= MAX_API_VERSION);
            TABLE.as_ptr().cast()
        }
        assert_eq!(negotiate_with(all, c"1.40.2"), Ok(MAX_API_VERSION));
    }

    #[test]
    fn probes_downwards_when_the_text_is_unreadable() {
        assert_eq!(negotiate_with(only_25, c"custom build"), Ok(25));
    }

    #[test]
    fn refuses_what_it_cannot_use() {
        assert_eq!(negotiate_with(up_to_28, c"1.23.2"), Err(NegotiationError::TooOld("1.23.2".into())));
        assert_eq!(negotiate_with(nothing, c"1.30.0"), Err(NegotiationError::NoTable("1.30.0".into())));
        // SAFETY: null is allowed.
        assert_eq!(unsafe { Api::negotiate(core::ptr::null()) }.err(), Some(NegotiationError::NoEntry));
    }

    #[test]
    fn newer_slots_are_out_of_reach_on_older_runtimes() {
        for version in MIN_API_VERSION..=MAX_API_VERSION {
            // SAFETY: the table is longer than any version's and its slots are never called here.
            let api = unsafe { Api::from_raw(TABLE.as_ptr().cast(), version) }.unwrap();
            assert_eq!(api.KernelContext_GetSyncStream().is_some(), version >= 28);
            assert_eq!(api.KernelContext_GetPreallocatedOutput().is_some(), version >= 30);
        }
    }
}
