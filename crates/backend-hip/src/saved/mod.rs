//! Partitions saved in a compiled model, and read back.
//!
//! ONNX Runtime keeps a compiled partition as an `EPContext` node that holds a blob or names a file beside the model. Our
//! blob holds the whole partition, nodes and weights, so the model it came from is not needed any more:
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`FORMAT`] |
//! | 8 | [`checksum`] of all that follows |
//! | … | version of this library, device, values, nodes, inputs, outputs |
//!
//! Numbers are little-endian. Lists and texts begin with their length. See `write` for the order.
mod compatibility;
mod context;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use compatibility::{compatibility, info};
pub(crate) use context::{is_ours, load, node};

use graph::DType;

/// What files of saved partitions are called.
pub(crate) const FILE_EXTENSION: &str = "hipctx";
/// What every blob starts with.
const MAGIC: [u8; 8] = *b"\x89HIPCTX\n";
/// Changes whenever what follows can't be read by an older library.
const FORMAT: u32 = 1;
/// Where the body begins.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>() + size_of::<u64>();
/// The library's own version.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The device that partitions are saved for: what is saved are nodes and weights, before anything is made of them for one.
const ARCH: &str = "any";

/// Stands for an unknown rank and for a value that is left out.
const NOTHING: u32 = u32::MAX;

/// Element types by their numbers in ONNX.
const DTYPES: [(u8, DType); 13] = [
    (1, DType::F32),
    (2, DType::U8),
    (3, DType::I8),
    (4, DType::U16),
    (5, DType::I16),
    (6, DType::I32),
    (7, DType::I64),
    (9, DType::Bool),
    (10, DType::F16),
    (11, DType::F64),
    (12, DType::U32),
    (13, DType::U64),
    (16, DType::Bf16),
];

/// Kinds of attributes.
mod kind {
    pub const INT: u8 = 0;
    pub const INTS: u8 = 1;
    pub const FLOAT: u8 = 2;
    pub const FLOATS: u8 = 3;
    pub const TEXT: u8 = 4;
    pub const TEXTS: u8 = 5;
    pub const TENSOR: u8 = 6;
    pub const OTHER: u8 = 7;
}

/// Why a saved partition can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SavedError {
    /// Something else was saved there.
    #[error("it is no partition of the hip backend: it starts with {found:?}, not with {:?}\n  help: open the model with the profile it was compiled with", MAGIC.escape_ascii().to_string())]
    Foreign { found: String },
    /// Another library saved it.
    #[error(
        "it is in format {found}, and this library ({VERSION}) reads format {FORMAT}\n  help: compile the model again"
    )]
    Format { found: u32 },
    /// Bytes were changed or lost on the way.
    #[error(
        "it is damaged: its {bytes} bytes have checksum {found:016x}, and {wanted:016x} was written\n  help: copy it again, or compile the model again"
    )]
    Damaged { bytes: usize, found: u64, wanted: u64 },
    /// It is for another device.
    #[error(
        "it is for the device {found:?}, and this library reads partitions for {ARCH:?} only\n  help: compile the model again"
    )]
    Arch { found: String },
    /// It breaks the rules of the format.
    #[error("it is malformed at byte {at}: {reason}")]
    Malformed { at: usize, reason: String },
}

/// Detects damage, by chance or by careless editing. Each step is a bijection of the state, so one changed word always
/// changes the result.
fn checksum(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // FNV-1a by words, with a shift so that high bits reach low ones.
    let step = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(PRIME);
        mixed ^ (mixed >> 32)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let state =
        words.iter().fold(step(OFFSET, bytes.len() as u64), |state, word| step(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state, |state, &byte| step(state, u64::from(byte)))
}
