//! The run-time compiler: one program at a time.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use super::words;
use crate::sys::{Handle, RtcTable, Status};

/// A compiler call that failed.
#[derive(Clone, Debug)]
pub struct RtcStatus {
    /// The HIP name of the call.
    pub call: &'static str,
    /// The status.
    pub code: Status,
    /// The compiler's message for it.
    pub text: String,
}

fn check(table: &RtcTable, call: &'static str, code: Status) -> Result<(), RtcStatus> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the function accepts any number and returns a static string or null.
    Err(RtcStatus { call, code, text: words(unsafe { (table.get_error_string)(code) }) })
}

/// The compiler's version; HIP always returns 9.0.
///
/// # Errors
/// The compiler's status.
pub fn version(table: &RtcTable) -> Result<(i32, i32), RtcStatus> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are valid out-pointers for the length of the call.
    check(table, "hiprtcVersion", unsafe { (table.version)(&mut major, &mut minor) })?;
    Ok((major, minor))
}

/// Creates a program from one source string without headers.
///
/// # Errors
/// The compiler's status.
pub fn create(table: &RtcTable, source: &CStr, name: &CStr) -> Result<Handle, RtcStatus> {
    let mut program = ptr::null_mut();
    // SAFETY: the out-pointer and both strings live for the call; no headers are given.
    let status =
        unsafe { (table.create_program)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
    check(table, "hiprtcCreateProgram", status)?;
    Ok(program)
}

/// Destroys a program.
///
/// # Errors
/// The compiler's status.
///
/// # Safety
/// `program` came from [`create`] and is not used afterwards.
pub unsafe fn destroy(table: &RtcTable, mut program: Handle) -> Result<(), RtcStatus> {
    // SAFETY: the caller vouches for the handle.
    check(table, "hiprtcDestroyProgram", unsafe { (table.destroy_program)(&mut program) })
}

/// Compiles a program.
///
/// # Errors
/// The compiler's status; 6 if the source was rejected.
///
/// # Safety
/// `program` is live.
pub unsafe fn compile(table: &RtcTable, program: Handle, options: &[&CStr]) -> Result<(), RtcStatus> {
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let count = c_int::try_from(pointers.len()).unwrap_or(c_int::MAX);
    // SAFETY: `pointers` holds `count` strings that live for the call; the caller vouches for the program.
    let status = unsafe { (table.compile_program)(program, count, pointers.as_ptr()) };
    check(table, "hiprtcCompileProgram", status)
}

/// The compiler's log; empty if there is none.
///
/// # Safety
/// `program` is live.
pub unsafe fn log(table: &RtcTable, program: Handle) -> String {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid out-pointer; the caller vouches for the program.
    if unsafe { (table.get_program_log_size)(program, &mut bytes) } != 0 || bytes == 0 {
        return String::new();
    }
    let mut text = vec![0u8; bytes];
    // SAFETY: the buffer has the size that the compiler reported.
    if unsafe { (table.get_program_log)(program, text.as_mut_ptr().cast::<c_char>()) } != 0 {
        return String::new();
    }
    String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n']).to_owned()
}

/// The compiled code.
///
/// # Errors
/// The compiler's status.
///
/// # Safety
/// `program` is live and was compiled.
pub unsafe fn code(table: &RtcTable, program: Handle) -> Result<Vec<u8>, RtcStatus> {
    let mut bytes = 0;
    // SAFETY: `bytes` is a valid out-pointer; the caller vouches for the program.
    check(table, "hiprtcGetCodeSize", unsafe { (table.get_code_size)(program, &mut bytes) })?;
    let mut code = vec![0u8; bytes];
    // SAFETY: the buffer has the size that the compiler reported.
    check(table, "hiprtcGetCode", unsafe { (table.get_code)(program, code.as_mut_ptr().cast::<c_char>()) })?;
    Ok(code)
}
