//! An emulated machine with AMD GPUs, for AMD's own runtime.
//!
//! ROCr 7.2 can run without a GPU: if `HSA_MODEL_TOPOLOGY` names a folder with a copy of the kernel driver's topology, it
//! opens no device and hands all queues to the library that `HSA_MODEL_LIB` names. `libamd_model.so` is such a library.
//! It processes AQL and SDMA queues in threads of the same process, so that the unmodified HIP runtime, and everything
//! above it, works on a machine without a GPU.
//!
//! | module | contents |
//! |---|---|
//! | [`chips`] | public figures of the chips that can be emulated |
//! | [`topology`] | writes the folder for `HSA_MODEL_TOPOLOGY`, and reads the chips back from it |
//! | [`aperture`] | which GPU addresses are allocated, and where they lie in this process |
//! | [`memory`] | access to GPU addresses |
//! | [`signal`] | HSA signals: their layout, completion and conditions |
//! | [`queue`] | packets of AQL and SDMA queues, and the threads that process them |
//! | [`device`] | one GPU: its memory, its events and what runs its kernels |
//! | [`ffi`] | the hook's C interface |
//!
//! # What to expect of the hook
//!
//! The interface is ROCr's debugging aid, version 0.4; another version of ROCr may refuse this library. With Debian's
//! ROCr 7.2.4:
//!
//! - Pinning of user memory ends the process ("userptr not supported"): `hipHostRegister`, and copies of large pageable
//!   buffers unless `GPU_PINNED_MIN_XFER_SIZE` is very large.
//! - A topology with two GPUs stops at an assertion (`!model_mmio_page`).
//! - The clock is always 0, so the time between two events is 0. Devices have no marketing name.
//! - There is no page fault event, and no way to suspend a queue. A packet that accesses memory outside of every
//!   allocation, or that fails otherwise, ends the process with a message, as ROCr does by default on hardware. A kernel
//!   that does so ends it with SIGSEGV.
//! - `hsaKmtOpenKFD` fills a table for a number of nodes that it has not read, which is random. The library
//!   spares it the gigabytes that this would clear.
//! - ROCr's event threads, and threads that wait for a signal, poll without a pause, which takes three processors. Preload
//!   the library (`LD_PRELOAD`) too, and it lets them rest.
//!
//! # Environment variables
//!
//! | variable | meaning |
//! |---|---|
//! | `AMD_MODEL_TRACE=1` | prints allocations, queues and packets to standard error |
//! | `AMD_MODEL_SANITIZE=1` | looks for bugs in kernels ([`gfx_emu::sanitize`]) and prints them to standard error. Kernels run several times as long. Set `HSA_DISABLE_FRAGMENT_ALLOCATOR=1` too, so that small buffers are allocations of their own |
//! | `AMD_MODEL_SANITIZE_LOG=FILE` | also appends each finding to a file |
//! | `AMD_MODEL_COUNTERS=FILE` | appends what each dispatch did to a file ([`gfx_emu::counters`]); the example `counters` prints it as a table. Without effect under the sanitizer |
#![deny(unsafe_code)]

pub mod aperture;
pub mod chips;
mod counting;
pub mod device;
#[allow(unsafe_code, reason = "the hook's C interface, and the memory that it shares with the runtime")]
pub mod ffi;
pub mod memory;
pub mod queue;
mod sanitizer;
pub mod signal;
pub mod topology;
mod trace;
