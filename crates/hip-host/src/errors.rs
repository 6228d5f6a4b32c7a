//! HIP status codes, their names and their descriptions.

use std::ffi::c_char;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// A HIP status other than success.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum Status {
            $(#[doc = $text] $name = $code,)*
        }

        /// Name and description of a status code, both NUL-terminated.
        fn describe(code: i32) -> Option<(&'static str, &'static str)> {
            match code {
                0 => Some(("hipSuccess\0", "no error\0")),
                $($code => Some((concat!("hipError", stringify!($name), "\0"), concat!($text, "\0"))),)*
                _ => None,
            }
        }
    };
}

statuses! {
    InvalidValue = 1, "invalid argument";
    OutOfMemory = 2, "out of memory";
    NotInitialized = 3, "initialization error";
    Deinitialized = 4, "driver shutting down";
    InvalidConfiguration = 9, "invalid configuration argument";
    InvalidPitchValue = 12, "invalid pitch argument";
    InvalidDevicePointer = 17, "invalid device pointer";
    InvalidMemcpyDirection = 21, "invalid copy direction for memcpy";
    InvalidDeviceFunction = 98, "invalid device function";
    NoDevice = 100, "no ROCm-capable device is detected";
    InvalidDevice = 101, "invalid device ordinal";
    InvalidImage = 200, "device kernel image is invalid";
    InvalidContext = 201, "invalid device context";
    NoBinaryForGpu = 209, "no kernel image is available for execution on the device";
    InvalidKernelFile = 218, "invalid kernel file";
    InvalidSource = 300, "device kernel image is invalid";
    FileNotFound = 301, "file not found";
    InvalidHandle = 400, "invalid resource handle";
    IllegalState = 401, "the operation cannot be performed in the present state";
    NotFound = 500, "named symbol not found";
    NotReady = 600, "device not ready";
    IllegalAddress = 700, "an illegal memory access was encountered";
    LaunchOutOfResources = 701, "too many resources requested for launch";
    PeerAccessAlreadyEnabled = 704, "peer access is already enabled";
    PeerAccessNotEnabled = 705, "peer access has not been enabled";
    HostMemoryAlreadyRegistered = 712, "part or all of the requested memory range is already mapped";
    HostMemoryNotRegistered = 713, "pointer does not correspond to a registered memory region";
    LaunchFailure = 719, "unspecified launch failure";
    CooperativeLaunchTooLarge = 720, "too many blocks in cooperative launch";
    NotSupported = 801, "operation not supported";
    StreamCaptureUnsupported = 900, "operation not permitted when stream is capturing";
    StreamCaptureInvalidated = 901, "operation failed due to a previous error during capture";
    StreamCaptureMerge = 902, "operation would result in a merge of separate capture sequences";
    StreamCaptureUnmatched = 903, "capture was not ended in the same stream as it began";
    StreamCaptureUnjoined = 904, "capturing stream has unjoined work";
    StreamCaptureIsolation = 905, "dependency created on uncaptured work in another stream";
    StreamCaptureImplicit = 906, "operation would make the legacy stream depend on a capturing blocking stream";
    CapturedEvent = 907, "operation not permitted on an event last recorded in a capturing stream";
    StreamCaptureWrongThread = 908, "attempt to end a capture from another thread than the one that began it";
    GraphExecUpdateFailure = 910, "the graph update was not performed because it included changes which violated constraints";
    Unknown = 999, "unknown error";
}

impl Status {
    /// HIP's number for this status.
    #[must_use]
    pub fn code(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = describe(self.code()).unwrap_or_default();
        write!(f, "{} ({}: {})", text.trim_end_matches('\0'), self.code(), name.trim_end_matches('\0'))
    }
}

impl std::error::Error for Status {}

/// Set once corruption was found that no later call can repair.
static FAULT: AtomicBool = AtomicBool::new(false);

/// Reports corruption found where no call can return it, and makes every later call fail with
/// [`Status::LaunchFailure`].
pub(crate) fn raise_fault(what: impl fmt::Display) {
    eprintln!("hip-host: {what}");
    FAULT.store(true, Ordering::Release);
}

/// Fails once [`raise_fault`] was called.
pub(crate) fn check_fault() -> Result<(), Status> {
    if FAULT.load(Ordering::Acquire) { Err(Status::LaunchFailure) } else { Ok(()) }
}

/// The name of a status code, as a C string; an unknown code is called `hipErrorUnknown`, as in HIP.
pub(crate) fn name(code: i32) -> *const c_char {
    describe(code).unwrap_or(("hipErrorUnknown\0", "")).0.as_ptr().cast()
}

/// The description of a status code, as a C string.
pub(crate) fn text(code: i32) -> *const c_char {
    describe(code).unwrap_or(("", "unknown error\0")).1.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_one_c_string() {
        for code in -10..2000 {
            if let Some((name, text)) = describe(code) {
                for part in [name, text] {
                    assert_eq!(part.find('\0'), Some(part.len() - 1), "{code}: {part:?}");
                }
            }
        }
    }

    #[test]
    fn display_shows_text_number_and_name() {
        assert_eq!(Status::OutOfMemory.to_string(), "out of memory (2: hipErrorOutOfMemory)");
    }
}
