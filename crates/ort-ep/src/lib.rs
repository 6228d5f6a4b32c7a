//! A safe SDK for ONNX Runtime plugin execution providers.
//!
//! A plugin is a dynamic library that an unmodified ONNX Runtime (1.24 to 1.31) loads by
//! `register_execution_provider_library`. With this crate it is written against traits, without `unsafe`:
//!
//! | write | for |
//! |---|---|
//! | [`Factory`] | the library: finds devices, makes everything below |
//! | [`Ep`] | one session: claims nodes, compiles them |
//! | [`Partition`] | a compiled group of nodes |
//! | [`Allocator`], [`DataTransfer`] | memory of the device, and copies to and from it |
//! | [`Stream`], [`Notification`] | ordered work on the device |
//! | [`Kernel`] | operators run one by one |
//! | [`Profiler`] | device events in ONNX Runtime's profile |
//!
//! [`plugin!`] exports the library's two symbols; [`passthrough!`] makes a library that stands in for another plugin.
//! `examples/device_ep.rs` is a complete plugin with a device memory of its own.
//!
//! What the SDK takes care of: the API version is negotiated without a line on stderr; no panic crosses the border; no
//! status leaks; slots ONNX Runtime calls unguarded are always there; the two copy kernels a device needs are
//! registered; addresses that are freed twice or were never ours are ignored; a library that is unregistered while its
//! sessions live stays loaded for them; `tracing` events go to ONNX Runtime's logger.
//!
//! `unsafe` lives in [`mod@ffi`] (tables that ONNX Runtime calls) and [`view`] (what we call).
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
pub use ffi::{
    Claims, CustomOpDomain, ForeignEp, ForeignFactory, Mapping, PluginHost, ProfilingEventView, SyncStream,
    runtime::Runtime,
};
pub use forward::{BackendMemory, Forwarded, NewEp};
pub use kernel::{Kernel, KernelCreator, KernelDef};
pub use memory::{DeviceKind, MemoryDevice, MemoryKind};
#[doc(hidden)]
pub use ort_ep_sys as sys;
pub use partition::{Compiled, EpContextNode, FusedPartition, Partition};
pub use profiler::{EventCategory, Profiler, Profiling, ProfilingEvent};
pub use stream::{Notification, Stream};
