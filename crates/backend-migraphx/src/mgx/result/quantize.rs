//! Quantisation of programs, before they are compiled.

use super::{Created, Doing, check, created, need};
use crate::mgx::sys::{Handle, Loaded, OfHandle, Status};
use crate::mgx::{Feature, MgxError};

/// Converts a program to half precision.
///
/// # Safety
/// The program is alive, and nothing else uses it.
pub unsafe fn fp16(library: &Loaded, program: Handle, doing: Doing<'_>) -> Result<(), MgxError> {
    // SAFETY: the caller vouches for the program.
    check("quantize_fp16", unsafe { (library.table.quantize_fp16)(program) }, doing)
}

/// Converts a program to bfloat16.
///
/// # Safety
/// The program is alive, and nothing else uses it.
pub unsafe fn bf16(library: &Loaded, program: Handle, doing: Doing<'_>) -> Result<(), MgxError> {
    let convert = need(library, Feature::Bf16, library.table.quantize_bf16)?;
    // SAFETY: the caller vouches for the program.
    check("quantize_bf16", unsafe { convert(program) }, doing)
}

/// The functions of a quantisation that needs samples.
pub struct Calibrated {
    create: (&'static str, unsafe extern "C" fn(*mut Handle) -> Status),
    destroy: (&'static str, OfHandle),
    add: (&'static str, unsafe extern "C" fn(Handle, Handle) -> Status),
    quantize: (&'static str, unsafe extern "C" fn(Handle, Handle, Handle) -> Status),
}

impl Calibrated {
    /// To 8-bit integers.
    pub fn int8(library: &Loaded) -> Self {
        let table = &library.table;
        Self {
            create: ("quantize_int8_options_create", table.quantize_int8_options_create),
            destroy: ("quantize_int8_options_destroy", table.quantize_int8_options_destroy),
            add: ("quantize_int8_options_add_calibration_data", table.quantize_int8_options_add_calibration_data),
            quantize: ("quantize_int8", table.quantize_int8),
        }
    }

    /// To fp8.
    ///
    /// # Errors
    /// The library lacks it.
    pub fn fp8(library: &Loaded) -> Result<Self, MgxError> {
        let table = &library.table;
        let add = need(library, Feature::Fp8, table.quantize_fp8_options_add_calibration_data)?;
        Ok(Self {
            create: ("quantize_fp8_options_create", need(library, Feature::Fp8, table.quantize_fp8_options_create)?),
            destroy: ("quantize_fp8_options_destroy", need(library, Feature::Fp8, table.quantize_fp8_options_destroy)?),
            add: ("quantize_fp8_options_add_calibration_data", add),
            quantize: ("quantize_fp8", need(library, Feature::Fp8, table.quantize_fp8)?),
        })
    }

    /// Creates options, which collect samples.
    pub fn create_options(&self, doing: Doing<'_>) -> Result<Created, MgxError> {
        let (call, create) = self.create;
        // SAFETY: `out` is a valid out-pointer.
        created(call, self.destroy, doing, |out| unsafe { create(out) })
    }

    /// Adds a sample to options.
    ///
    /// # Safety
    /// Both are alive. The sample's memory lives until the program is quantised.
    pub unsafe fn add(&self, options: Handle, sample: Handle, doing: Doing<'_>) -> Result<(), MgxError> {
        let (call, add) = self.add;
        // SAFETY: the caller vouches for both. The parameters are copied during the call.
        check(call, unsafe { add(options, sample) }, doing)
    }

    /// Quantises a program with the samples of its options.
    ///
    /// # Safety
    /// All three and the samples' memory are alive, and nothing else uses the program.
    pub unsafe fn quantize(
        &self,
        program: Handle,
        target: Handle,
        options: Handle,
        doing: Doing<'_>,
    ) -> Result<(), MgxError> {
        let (call, quantize) = self.quantize;
        // SAFETY: the caller vouches for all of them.
        check(call, unsafe { quantize(program, target, options) }, doing)
    }
}
