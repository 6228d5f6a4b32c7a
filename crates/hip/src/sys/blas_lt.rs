//! The BLASLt table: hipBLASLt or cublasLt. Their constants differ: see `twin::BlasNumbers`.

use std::ffi::{c_int, c_void};

use super::table::function_table;
use super::{Handle, Status};

function_table! {
    /// hipBLASLt's functions, or cublasLt's under the same names.
    pub struct BlasLtTable;

    required {
        /// `hipblasLtCreate`; without a device the real library terminates the process
        create: fn(*mut Handle) -> Status = ["hipblasLtCreate"] "cublasLtCreate";
        /// `hipblasLtDestroy`
        destroy: fn(Handle) -> Status = ["hipblasLtDestroy"] "cublasLtDestroy";
        /// `hipblasLtMatmulDescCreate`
        desc_create: fn(*mut Handle, c_int, c_int) -> Status
            = ["hipblasLtMatmulDescCreate"] "cublasLtMatmulDescCreate";
        /// `hipblasLtMatmulDescDestroy`
        desc_destroy: fn(Handle) -> Status = ["hipblasLtMatmulDescDestroy"] "cublasLtMatmulDescDestroy";
        /// `hipblasLtMatmulDescSetAttribute`
        desc_set_attribute: fn(Handle, c_int, *const c_void, usize) -> Status
            = ["hipblasLtMatmulDescSetAttribute"] "cublasLtMatmulDescSetAttribute";
        /// `hipblasLtMatrixLayoutCreate`
        layout_create: fn(*mut Handle, c_int, u64, u64, i64) -> Status
            = ["hipblasLtMatrixLayoutCreate"] "cublasLtMatrixLayoutCreate";
        /// `hipblasLtMatrixLayoutDestroy`
        layout_destroy: fn(Handle) -> Status = ["hipblasLtMatrixLayoutDestroy"] "cublasLtMatrixLayoutDestroy";
        /// `hipblasLtMatrixLayoutSetAttribute`
        layout_set_attribute: fn(Handle, c_int, *const c_void, usize) -> Status
            = ["hipblasLtMatrixLayoutSetAttribute"] "cublasLtMatrixLayoutSetAttribute";
        /// `hipblasLtMatmulPreferenceCreate`
        preference_create: fn(*mut Handle) -> Status
            = ["hipblasLtMatmulPreferenceCreate"] "cublasLtMatmulPreferenceCreate";
        /// `hipblasLtMatmulPreferenceDestroy`
        preference_destroy: fn(Handle) -> Status
            = ["hipblasLtMatmulPreferenceDestroy"] "cublasLtMatmulPreferenceDestroy";
        /// `hipblasLtMatmulPreferenceSetAttribute`
        preference_set_attribute: fn(Handle, c_int, *const c_void, usize) -> Status
            = ["hipblasLtMatmulPreferenceSetAttribute"] "cublasLtMatmulPreferenceSetAttribute";
        /// `hipblasLtMatmulAlgoGetHeuristic`; the results are an array with a provider-specific stride
        get_heuristic: fn(
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, c_int, *mut c_void, *mut c_int
        ) -> Status = ["hipblasLtMatmulAlgoGetHeuristic"] "cublasLtMatmulAlgoGetHeuristic";
        /// `hipblasLtMatmul`
        matmul: fn(
            Handle, Handle, *const c_void, *const c_void, Handle, *const c_void, Handle, *const c_void, *const c_void,
            Handle, *mut c_void, Handle, *const c_void, *mut c_void, usize, Handle
        ) -> Status = ["hipblasLtMatmul"] "cublasLtMatmul";
    }

    optional {
        /// `hipblasLtGetVersion`
        get_version: fn(Handle, *mut c_int) -> Status = ["hipblasLtGetVersion"] "";
        /// `cublasLtGetVersion`, which needs no handle
        twin_get_version: fn() -> usize = [""] "cublasLtGetVersion";
    }
}
