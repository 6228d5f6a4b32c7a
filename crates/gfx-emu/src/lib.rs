//! An emulator of AMD GPU machine code: runs the code objects that AMD's compilers emit, on the CPU.
//!
//! ```no_run
//! use gfx_emu::{Chip, Dispatch, Memory, Target};
//!
//! # fn main() -> Result<(), gfx_emu::Fault> {
//! let chip = Chip::new("gfx1100".parse::<Target>()?)?;
//! let memory = Memory::owned();
//! // ... place the code object, the kernel's arguments and its buffers in `memory` ...
//! # let (kernel_object, kernarg) = (0, 0);
//! let dispatch = Dispatch { kernel_object, kernarg, grid: [1024, 1, 1], group: [256, 1, 1], ..Dispatch::default() };
//! let stats = chip.run(&dispatch, &memory)?;
//! println!("{} instructions", stats.instructions);
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`Chip`], [`Dispatch`] | one grid: workgroups over threads, each from a kernel descriptor and a dispatch packet |
//! | `workgroup` | the waves of one workgroup, their LDS and barriers |
//! | `wave` | registers and modes of one wave |
//! | `program`, `decode`, `llvm` | machine code to typed operations, once per address, through LLVM's disassembler |
//! | `ops` | what each instruction does, one file for each family |
//! | [`Memory`] | device addresses to host memory |
//! | [`Observer`] | what a sanitizer or a profiler sees |
//! | [`counters`] | counts instructions, cache lines and bank conflicts, and estimates limits |
//! | [`sanitize`] | finds bugs that a run does not show |
//!
//! README.md in the crate's folder says how to add an instruction and what is not modelled.

#![allow(
    clippy::precedence,
    reason = "fields of bits are read by a shift and a mask throughout; the shift binds first, as the mask is on the right"
)]
#![allow(clippy::needless_range_loop, reason = "loops over lanes index several registers and must stay vectorisable")]
#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    clippy::nonminimal_bool,
    clippy::redundant_closure_call,
    clippy::manual_clamp,
    reason = "comparisons say what they do with NaN"
)]

mod access;
mod chip;
pub mod counters;
pub mod decode;
mod descriptor;
mod effects;
mod fault;
mod inst;
mod llvm;
mod memory;
mod observer;
pub mod ops;
mod program;
pub mod sanitize;
mod simd;
mod target;
mod wave;
mod workgroup;

pub use access::{Access, Action, Address, AtomicOp, Data, Space};
pub use chip::{Chip, Dispatch, Stats};
pub use descriptor::Descriptor;
pub use effects::{Class, Effects, Issued, Registers};
pub use fault::Fault;
pub use inst::{Control, Dst, Inst, Mods, Src, Step, Waits, When};
pub use llvm::Disassembler;
pub use memory::Memory;
pub use observer::{Event, NoObserver, Observer, Site};
pub use program::{Line, Program};
pub use target::{Family, Target};
pub use wave::Wave;
