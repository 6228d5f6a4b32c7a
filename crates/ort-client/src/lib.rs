//! A safe client of ONNX Runtime's C API, versions 1.24 to 1.31. The library is loaded at run time; nothing links
//! against it.
//!
//! | concept | type |
//! |---|---|
//! | a library that may be ONNX Runtime, and a usable one | [`Library`], [`Runtime`] |
//! | the process's environment | [`Environment`] |
//! | a plugin library, its devices and their memory | [`Registration`], [`Device`], [`Allocator`] |
//! | a model with its settings, and the types of its inputs and outputs | [`SessionOptions`], [`Session`], [`Port`] |
//! | inputs and outputs of a run | [`Value`] |
//! | repeated runs that allocate nothing: memory where the session wants it, tensors over it | [`MemoryLocation`], [`Memory`], [`Tensor`], [`HostTensor`], [`Call`], [`RunOptions`] |
//!
//! Every object holds what it needs, so objects may be dropped in any order. Errors of ONNX Runtime keep its code and
//! its message ([`Error`]).
//!
//! The functions are those of `ort-ep-sys`, which reads no slot that the loaded library does not have. All unsafe code
//! of a client of ONNX Runtime is in this crate.
//!
//! ```no_run
//! use ort_client::{Environment, LogLevel, Registration, Runtime, Session, SessionOptions, Value};
//!
//! # fn main() -> anyhow::Result<()> {
//! let runtime = Runtime::load("/opt/onnxruntime/lib/libonnxruntime.so".as_ref())?;
//! let environment = Environment::new(&runtime, "example", LogLevel::Error)?;
//! let library = "/opt/amdgpu-ep/lib/libamdgpu-ep.so".as_ref();
//! let devices = Registration::new(&environment, "AMDGPUExecutionProvider", library)?.devices()?;
//! let mut options = SessionOptions::new(&environment)?;
//! options.devices(&devices[..1], &[("profile", "hip")])?;
//! let session = Session::from_file(&options, "model.onnx".as_ref())?;
//! let x = Value::from_slice(&runtime, &[2, 2], &[1.0_f32, 2.0, 3.0, 4.0])?;
//! let outputs = session.run(&[("x", &x)], &["y"])?;
//! println!("{:?}", outputs[0].to_vec::<f32>()?);
//! # Ok(())
//! # }
//! ```

mod allocator;
mod assignment;
mod element;
mod environment;
mod error;
mod memory;
mod options;
mod plugin;
mod port;
mod run;
mod runtime;
mod session;
mod tensor;
mod text;
mod value;

pub use allocator::{Allocator, DeviceMemory};
pub use assignment::{Assigned, AssignedNode};
pub use element::{Element, Number};
pub use environment::{Environment, LogLevel};
pub use error::{Code, Error, LoadError, Result};
pub use memory::{Memory, MemoryLocation};
pub use options::{Optimization, SessionOptions};
pub use ort_ep_sys::{MAX_API_VERSION, MIN_API_VERSION, NegotiationError};
pub use plugin::{Device, Hardware, HardwareKind, Registration};
pub use port::{Dim, Kind, Port};
pub use run::{Call, MadeTensor, Output, RunOptions};
pub use runtime::{Library, Runtime};
pub use session::Session;
pub use tensor::{HostTensor, Tensor};
pub use value::Value;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
