//! Why a kernel, or a whole dispatch, stopped.

use crate::Space;

/// Why a dispatch did not complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No usable libLLVM.
    #[error(
        "no LLVM library with a disassembler for AMD GPUs could be loaded ({tried})\n  help: set {} to a libLLVM.so",
        crate::llvm::VARIABLE
    )]
    NoDisassembler {
        /// Each file and why it failed.
        tried: String,
    },
    /// The target's name is not one that the emulator models.
    #[error("the emulator does not model {0:?}\n  help: it models {names}", names = crate::target::NAMES.join(", "))]
    UnknownTarget(String),
    /// The kernel's descriptor or the packet asks for something that does not exist.
    #[error("kernel at {kernel:#x}: {reason}")]
    BadDispatch {
        /// Address of the descriptor.
        kernel: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An instruction that the emulator does not know, or whose operands it does not know.
    #[error("instruction `{text}` at {address:#x} is not supported: {reason}")]
    Unsupported {
        /// The disassembler's text.
        text: String,
        /// Where it is.
        address: u64,
        /// Which part of it is unknown.
        reason: String,
    },
    /// The bytes are not an instruction of the target.
    #[error("no instruction at {address:#x}: found bytes {bytes:02x?}")]
    NotCode {
        /// Where the wave was.
        address: u64,
        /// What is there.
        bytes: Vec<u8>,
    },
    /// An access outside everything that is mapped.
    #[error(
        "{space:?} access of {bytes} bytes at {address:#x} is outside its memory (`{text}` at {pc:#x}, lane {lane})"
    )]
    BadAddress {
        /// Where it went.
        address: u64,
        /// How many bytes.
        bytes: u32,
        /// Which memory.
        space: Space,
        /// Which lane of the wave.
        lane: u32,
        /// The instruction.
        text: String,
        /// Its address.
        pc: u64,
    },
    /// The kernel executed `s_trap`.
    #[error("trap {id} at {address:#x}")]
    Trap {
        /// The trap's number.
        id: u32,
        /// Where it is.
        address: u64,
    },
    /// No wave of a workgroup can run: all wait for a barrier that will not complete.
    #[error("workgroup {group:?} hangs: {waiting} waves wait for a barrier that the others never reach")]
    Deadlock {
        /// The workgroup's id.
        group: [u32; 3],
        /// How many waves wait.
        waiting: usize,
    },
}
