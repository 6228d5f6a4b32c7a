//! The run-time compiler's table: hiprtc or nvrtc.

use std::ffi::{c_char, c_int};

use super::table::function_table;
use super::{Handle, Status};

function_table! {
    /// hiprtc's functions, or nvrtc's under the same names.
    pub struct RtcTable;

    required {
        /// `hiprtcVersion`; HIP always returns 9.0
        version: fn(*mut c_int, *mut c_int) -> Status = ["hiprtcVersion"] "nvrtcVersion";
        /// `hiprtcGetErrorString`
        get_error_string: fn(Status) -> *const c_char = ["hiprtcGetErrorString"] "nvrtcGetErrorString";
        /// `hiprtcCreateProgram`
        create_program: fn(
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        ) -> Status = ["hiprtcCreateProgram"] "nvrtcCreateProgram";
        /// `hiprtcDestroyProgram`
        destroy_program: fn(*mut Handle) -> Status = ["hiprtcDestroyProgram"] "nvrtcDestroyProgram";
        /// `hiprtcCompileProgram`
        compile_program: fn(Handle, c_int, *const *const c_char) -> Status
            = ["hiprtcCompileProgram"] "nvrtcCompileProgram";
        /// `hiprtcGetProgramLogSize`
        get_program_log_size: fn(Handle, *mut usize) -> Status
            = ["hiprtcGetProgramLogSize"] "nvrtcGetProgramLogSize";
        /// `hiprtcGetProgramLog`
        get_program_log: fn(Handle, *mut c_char) -> Status = ["hiprtcGetProgramLog"] "nvrtcGetProgramLog";
        /// `hiprtcGetCodeSize`
        get_code_size: fn(Handle, *mut usize) -> Status = ["hiprtcGetCodeSize"] "nvrtcGetCUBINSize";
        /// `hiprtcGetCode`
        get_code: fn(Handle, *mut c_char) -> Status = ["hiprtcGetCode"] "nvrtcGetCUBIN";
    }

    optional {
        /// `hipRuntimeGetVersion`, if the compiler is part of (or depends on) the runtime library
        runtime_get_version: fn(*mut c_int) -> Status = ["hipRuntimeGetVersion"] "";
    }
}
