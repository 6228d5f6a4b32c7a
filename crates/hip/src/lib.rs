//! The HIP runtime, its CUDA twin and our host driver behind one function table, loaded at run time.
//!
//! | on the CPU | on a device | here |
//! |---|---|---|
//! | the machine | a GPU (or the host device) | [`Device`], from [`Driver::devices`] |
//! | `Vec<u8>` | device memory | [`DeviceBuffer`], from [`Device::alloc`] |
//! | a page-locked `Vec<u8>` | host memory the device reaches | [`PinnedBuffer`], from [`Device::alloc_pinned`] |
//! | `memcpy` | a copy between the two | [`DeviceBuffer::copy_to_device`], [`Device::copy_raw_async`] |
//! | a thread | work in order | [`Stream`], from [`Device::stream`] |
//! | a channel's message | a point in a stream | [`Event`], from [`Device::event`] |
//! | a shared library | compiled kernels | [`Module`], from [`Device::module`] |
//! | a function call | a launch | [`Function::launch`] |
//! | a compiler | the run-time compiler | [`Rtc`] |
//! | a recorded macro | a capture | [`Graph`], [`GraphExec`], from [`Stream::end_capture`] |
//! | a BLAS call | a matrix product | [`BlasLt`], [`Matmul`] |
//!
//! Nothing is linked: on a machine without a GPU, or without any of these libraries, loading returns a [`LoadError`]
//! that lists everything that was tried. The crate has three layers: [`sys`] (function pointers with HIP's signatures),
//! [`result`] (the same calls, returning a `Result`) and the owned handles re-exported here. HIP's names and numbers
//! are the interface; [`sys::twin`] translates them for CUDA.
//!
//! ```
//! use hip::{Driver, DriverKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! match Driver::load(DriverKind::Host) {
//!     Ok(driver) => {
//!         for device in driver.devices()? {
//!             let mut buffer = device.alloc(5)?;
//!             buffer.copy_to_device(0, b"hello")?;
//!             let mut back = [0; 5];
//!             buffer.copy_to_host(0, &mut back)?;
//!             assert_eq!(&back, b"hello");
//!         }
//!     }
//!     Err(error) => eprintln!("{error}"),
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod kind;
pub mod probe;
pub mod result;
mod safe;
pub mod sys;

pub use dylib::Attempt;
pub use error::{ErrorKind, HipError, LoadError, RtcError};
pub use kind::{DriverKind, UnknownDriver};
pub use safe::{
    Algorithm, BlasLt, CaptureMode, CaptureStatus, Compute, CopyKind, DataType, Device, DeviceBuffer, DeviceInfo,
    Driver, Epilogue, Event, Function, Graph, GraphExec, Matmul, MatmulAddresses, MatmulDesc, MemoryInfo, Module,
    Operand, PinnedBuffer, PointerInfo, PointerKind, RawStream, RecordedFn, Rtc, Scope, Stream, StreamBuffer,
    UpdateRefusal, UpdateResult,
};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
