//! The middle layer: cuDNN's functions returning hipDNN's kind of error with cuDNN's message, and nothing else.

use std::ffi::CStr;

use hipdnn::sys as hipdnn_sys;
use hipdnn_abi::{Fault, Outcome};

use crate::sys::{Cudnn, Status};

pub mod descriptor;
pub mod handle;
pub mod older;

/// Turns cuDNN's status into a result with cuDNN's own message.
fn check(cudnn: &Cudnn, attempted: impl FnOnce() -> String, status: Status) -> Outcome {
    if status == Status::SUCCESS {
        return Ok(());
    }
    Err(Fault::new(status_of(status), format!("{}: {}", attempted(), text(cudnn, status))))
}

/// cuDNN's own message for the failure of this thread's last call.
fn text(cudnn: &Cudnn, status: Status) -> String {
    let mut text = [0u8; 1024];
    // SAFETY: the buffer has the passed length.
    unsafe { (cudnn.last_error_string)(text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let said = String::from_utf8_lossy(&text[..end]);
    // If there is no message, the text may describe the last engine, as JSON.
    let said = said.trim().lines().next().filter(|line| !line.starts_with('{')).unwrap_or_default();
    // SAFETY: returns a static string for any number.
    let name = unsafe { (cudnn.error_string)(status) };
    if name.is_null() {
        return format!("status {} ({said})", status.0);
    }
    // SAFETY: cuDNN's strings are NUL-terminated and static.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if said.is_empty() { name.into_owned() } else { format!("{name} ({said})") }
}

/// hipDNN's status for one of cuDNN's.
fn status_of(status: Status) -> hipdnn_sys::Status {
    match status.0 {
        0 => hipdnn_sys::Status::SUCCESS,
        1001 => hipdnn_sys::Status::NOT_INITIALIZED,
        2002 => hipdnn_sys::Status::BAD_PARAM_NULL_POINTER,
        2004 => hipdnn_sys::Status::BAD_PARAM_NOT_FINALIZED,
        2005 => hipdnn_sys::Status::BAD_PARAM_OUT_OF_BOUND,
        2006 => hipdnn_sys::Status::BAD_PARAM_SIZE_INSUFFICIENT,
        2007 => hipdnn_sys::Status::BAD_PARAM_STREAM_MISMATCH,
        2000..3000 => hipdnn_sys::Status::BAD_PARAM,
        3000..4000 => hipdnn_sys::Status::NOT_SUPPORTED,
        4003 => hipdnn_sys::Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
        4004 => hipdnn_sys::Status::INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
        5000..6000 => hipdnn_sys::Status::EXECUTION_FAILED,
        _ => hipdnn_sys::Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_cudnn_is_one_of_hipdnn() {
        for (cudnn, wanted) in [
            (1001, hipdnn_sys::Status::NOT_INITIALIZED),
            (2000, hipdnn_sys::Status::BAD_PARAM),
            (2010, hipdnn_sys::Status::BAD_PARAM),
            (2002, hipdnn_sys::Status::BAD_PARAM_NULL_POINTER),
            (2004, hipdnn_sys::Status::BAD_PARAM_NOT_FINALIZED),
            (2005, hipdnn_sys::Status::BAD_PARAM_OUT_OF_BOUND),
            (2006, hipdnn_sys::Status::BAD_PARAM_SIZE_INSUFFICIENT),
            (2007, hipdnn_sys::Status::BAD_PARAM_STREAM_MISMATCH),
            (3000, hipdnn_sys::Status::NOT_SUPPORTED),
            (3014, hipdnn_sys::Status::NOT_SUPPORTED),
            (4001, hipdnn_sys::Status::INTERNAL_ERROR),
            (4003, hipdnn_sys::Status::INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
            (4004, hipdnn_sys::Status::INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
            (5001, hipdnn_sys::Status::EXECUTION_FAILED),
            (7777, hipdnn_sys::Status::INTERNAL_ERROR),
        ] {
            assert_eq!(status_of(Status(cudnn)), wanted, "{cudnn}");
        }
    }
}
