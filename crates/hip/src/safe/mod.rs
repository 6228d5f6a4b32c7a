//! The top floor: owned handles. Everything holds its device and driver, so nothing outlives its parent.

pub(crate) mod blas_lt;
mod buffer;
mod copy;
mod device;
mod driver;
mod event;
mod graph;
mod host_fn;
mod image;
mod info;
mod matmul_desc;
mod module;
pub(crate) mod rtc;
mod scope;
mod stream;

pub use blas_lt::{Algorithm, BlasLt, Matmul, MatmulAddresses};
pub use buffer::{DeviceBuffer, PinnedBuffer, StreamBuffer};
pub use copy::CopyKind;
pub use device::{Device, MemoryInfo};
pub use driver::{Driver, PointerInfo, PointerKind};
pub use event::Event;
pub use graph::{Graph, GraphExec, UpdateRefusal, UpdateResult};
pub use info::DeviceInfo;
pub use matmul_desc::{Compute, DataType, Epilogue, MatmulDesc, Operand};
pub use module::{Function, Module};
pub use rtc::Rtc;
pub use stream::{CaptureMode, CaptureStatus, RawStream, Stream};

use crate::HipError;

/// The status a driver gives while the process is ending; nothing is left to leak then.
const DEINITIALIZED: i32 = 4;

/// Reports that a destructor failed. Destructors must not panic, and their caller cannot act anyway.
fn report_leak(what: &'static str, error: &HipError) {
    if error.code() != Some(DEINITIALIZED) {
        tracing::warn!(target: "amdgpu_ep::lifetime", %error, "{what} leaked");
    }
}
