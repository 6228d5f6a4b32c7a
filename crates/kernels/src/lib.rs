//! GPU kernels and how they are launched. Nothing here touches a device.
//!
//! | | |
//! |---|---|
//! | [`Arch`] | the capabilities of a target: wave width, matrix instructions, dot products of bytes |
//! | [`Peak`] | the peak performance of a chip, if it is known |
//! | [`Kernel`] | source code: a family's source with its settings, after the prelude |
//! | [`Launch`], [`Args`] | one launch: grid, block, and the one structure the kernel takes |
//! | [`work`] | the launches of a [`Step`](graph::Step) of a plan on a GPU, or why there are none |
//! | [`variants`] | alternative launches with the same result, to be measured |
//! | [`Compiler`] | compiles kernels to code objects: hiprtc, nvrtc, or (tests) the wave simulator |
//! | [`CachedCompiler`] | caches code objects on disk, and finds shipped ones |
//! | [`write_set`], [`ShippedSet`] | the sets of code objects that a release contains |
//!
//! The sources are in `hip/`, one op family per file, in the dialect that `hip/prelude.h` describes.
mod append;
mod append_attention;
mod arch;
mod arg_reduce;
mod attention;
mod cache;
mod cached_attention;
mod causal_conv;
mod chip;
mod compile;
mod conv;
mod cumulative;
mod experts;
mod expr;
mod gather;
mod gemm;
mod gemv;
mod kernel;
mod launch;
mod layout;
mod linear_attention;
mod lrn;
mod map;
mod norm;
mod paged;
mod place;
mod pool;
mod product;
mod quant;
mod ragged;
mod recurrent;
mod reduce;
mod resize;
mod retain;
mod rotary;
mod scatter;
mod set;
#[cfg(feature = "sim")]
pub mod sim;
mod softmax;
mod step;
mod target;
mod team;
mod tiles;
mod top_k;
mod walk;

pub use arch::{Arch, ArchError, Dot4, Matrix};
pub use cache::{CachedCompiler, Counts};
pub use chip::Peak;
pub use compile::{CompileError, Compiler, NoCompiler, RtcCompiler};
pub use gemm::has_few_rows;
pub use kernel::Kernel;
pub use launch::{Args, Field, HostLaunch, Launch, Launches, Pointer};
pub use quant::{UNPACKED, Unpacked, unpacked};
pub use set::{Compiled, write_set};
pub use step::{variants, work};
pub use target::{Level, ShippedSet, Target};
