//! The HIP runtime's C ABI, implemented with RAM and worker threads.
//!
//! `libhip-host.so` exports the functions of `libamdhip64` that this project uses, with the same names, signatures,
//! flag values and status codes, so a loader written for the AMD library opens this one unchanged. "Device memory" is
//! RAM with its own bookkeeping, streams are ordered queues, events and graph capture work on both, and host functions
//! replace kernels. On Linux, a shared library of this machine also works as a code object (tests build them from
//! kernel sources); code for GPUs is "not supported" (801). Nothing here talks to a GPU.
//!
//! It is a separate library, and not a module of its callers, because several libraries in one process have to share
//! its handles exactly as they share those of `libamdhip64`.
//!
//! # Environment variables
//!
//! All are read once, at the first call.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `AMDGPU_EP_HOST_MEMORY` | bytes of memory of each device; suffix `K`, `M` or `G` (powers of 1024) | half the RAM |
//! | `AMDGPU_EP_HOST_DEVICES` | number of devices, 1 to 8 | 1 |
//! | `AMDGPU_EP_HOST_STREAMS` | `immediate` or `threads` | `immediate` |
//! | `AMDGPU_EP_HOST_SEED` | seed of the random delays of `threads` | 0 |
//! | `AMDGPU_EP_HOST_POISON` | `1`: fresh device memory is filled with `0xCB`, overruns are detected when memory is
//! freed | 0 |
//! | `AMDGPU_EP_HOST_LACKS` | features to report as "not supported" or empty, separated by commas: `attributes`,
//! `capture`, `event-times`, `graph-launch`, `memory-info`, `peers`, `pinned`, `pools` | none |
//! | `AMDGPU_EP_HOST_CALLS` | a file that gets one line per call: the function's name | none |
//! | `AMDGPU_EP_HOST_LOST` | a file: while it exists, all calls but those that release something return 719, as if the
//! devices were lost | none |
//!
//! # Streams
//!
//! *immediate*: an operation on an idle stream runs at once on the calling thread; an operation on a stream with
//! pending work is queued, and a worker thread of that stream runs it. A host function must therefore never wait for
//! something that its submitting thread does later. *threads*: every asynchronous operation is queued, the worker
//! sleeps for a random time before each, and replayed graphs run in a random order that respects their edges, so a
//! missing wait shows up.
//!
//! Workers start when the first operation is queued and end when their stream has been idle for a moment.
//!
//! # Differences from AMD's library
//!
//! - Every copy and memset checks the device side against its allocation; an access outside of it returns 1, at the
//!   call.
//! - Handles are never reused and never dereferenced: a stale one returns 400 instead of crashing.
//! - Asynchronous copies from pageable memory are truly asynchronous: the source must live until the copy has run.
//! - `hipMemset` waits for its own completion. Stream priorities are stored but have no effect.
//! - A call that would block inside a host function returns 801 instead of deadlocking.
//! - Memory pools cache nothing: the release threshold is stored but has no effect.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the exported C functions read and write the caller's pointers")]
pub mod abi;
mod calls;
mod capture;
#[allow(unsafe_code, reason = "loads libraries and calls their functions")]
mod code;
mod config;
mod device;
mod errors;
mod event;
mod graph;
mod handles;
#[allow(unsafe_code, reason = "owns the allocations of the devices")]
mod memory;
mod properties;
mod random;
mod runtime;
mod stream;
mod thread;
#[allow(unsafe_code, reason = "moves bytes between the caller's pointers and calls the caller's functions")]
mod work;

pub use config::{Config, Feature, StreamMode};
pub use errors::Status;
pub use runtime::configure;
