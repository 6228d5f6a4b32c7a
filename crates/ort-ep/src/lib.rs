//! A safe SDK for ONNX Runtime plugin execution providers.
//!
//! A plugin is a dynamic library that an unmodified ONNX Runtime (1.24 to 1.31) loads with
//! `register_execution_provider_library`. With this crate you write it against traits, without `unsafe`:
//!
//! | implement | for |
//! |---|---|
//! | [`Factory`] | the library: finds devices, creates everything below |
//! | [`Ep`] | one session: claims nodes, compiles them |
//! | [`Partition`] | a compiled group of nodes |
//! | [`Allocator`], [`DataTransfer`] | device memory, and copies to and from it |
//! | [`Stream`], [`Notification`] | ordered work on the device |
//! | [`Kernel`] | operators that run one by one |
//! | [`Profiler`] | device events in ONNX Runtime's profile |
//!
//! ```
//! use ort_ep::view::{Graph, HardwareDevice};
//! use ort_ep::{Claims, DeviceOffer, Environment, Ep, EpRequest, Factory, NewEp, Registration, Result};
//!
//! ort_ep::plugin!(create, log_variable = "MY_EP_LOG");
//!
//! fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
//!     Ok(Box::new(MyFactory))
//! }
//!
//! struct MyFactory;
//!
//! impl Factory for MyFactory {
//!     fn vendor(&self) -> &str {
//!         "Example"
//!     }
//!     fn version(&self) -> &str {
//!         "0.1.0"
//!     }
//!     fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
//!         Ok(DeviceOffer::of_cpu(listed, &[]).into_iter().collect())
//!     }
//!     fn create_ep(&self, _: &EpRequest<'_>) -> Result<NewEp> {
//!         Ok(MyEp.into())
//!     }
//! }
//!
//! struct MyEp;
//!
//! impl Ep for MyEp {
//!     fn claim(&self, _: Graph<'_>, _: &mut Claims<'_>) -> Result<()> {
//!         Ok(()) // Claims no node yet, so the CPU provider runs everything.
//!     }
//! }
//! ```
//!
//! [`plugin!`] exports the library's two symbols; [`passthrough!`] makes a library that takes the place of another
//! plugin. The examples are a course: `01-first-plugin`, `02-device-memory`, `03-kernels`, `04-stand-in`.
//!
//! The SDK takes care of the rest. It negotiates the API version without printing to stderr. No panic unwinds into ONNX
//! Runtime, and no status leaks. Slots that ONNX Runtime calls without a null check are always filled. The two copy
//! kernels a device needs are registered. Freeing an address twice, or one we did not allocate, is ignored. A library
//! that is unregistered while its sessions are alive stays loaded for them. `tracing` events go to ONNX Runtime's
//! logger.
//!
//! `unsafe` is confined to [`mod@ffi`] (tables that ONNX Runtime calls) and [`view`] (ONNX Runtime functions that we
//! call).
pub mod allocator;
pub mod beside;
pub mod convex;
mod data_transfer;
pub mod declined;
mod element_type;
mod ep;
mod error;
mod factory;
#[doc(hidden)]
pub mod ffi;
mod forward;
mod kernel;
mod memory;
mod partition;
mod profiler;
pub mod saved;
mod stream;
pub mod view;

pub use allocator::{Allocator, AllocatorHandle, AllocatorStats, HostAllocator};
pub use data_transfer::{DataTransfer, TensorCopy};
pub use element_type::ElementType;
pub use ep::{CompiledModels, DataLayout, Ep, GraphCapture, Layout, SessionResources, Weightless};
pub use error::{Error, ErrorCode, Result};
pub use factory::{
    DeviceOffer, Environment, EpRequest, Factory, Incompatibility, IncompatibilityReason, ModelCompatibility,
    NewHardware, OfferedHardware, OfferedMemory, Registration, SelectedDevice,
};
pub use ffi::runtime::Runtime;
pub use ffi::{Claims, CustomOpDomain, ForeignEp, ForeignFactory, Mapping, PluginHost, ProfilingEventView, SyncStream};
pub use forward::{BackendMemory, Forwarded, NewEp};
pub use kernel::{Kernel, KernelCreator, KernelDef};
pub use memory::{DeviceKind, MemoryDevice, MemoryKind};
#[doc(hidden)]
pub use ort_ep_sys as sys;
pub use partition::{Compiled, EpContextNode, FusedPartition, Partition};
pub use profiler::{EventCategory, Profiler, Profiling, ProfilingEvent};
pub use stream::{Notification, Stream};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
