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
//! [`plugin!`] exports the library's two symbols; [`passthrough!`] makes a library that takes the place of another
//! plugin. `examples/device_ep.rs` is a complete plugin with its own device memory.
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
