//! Saves partitions in a compiled model and reads them back.
//!
//! ONNX Runtime stores a compiled partition as an `EPContext` node that holds a blob or names a file next to the model.
//! Our blob holds the whole partition with its nodes and weights, so the original model is no longer needed:
//!
//! | bytes | meaning |
//! |---|---|
//! | 8 | [`MAGIC`] |
//! | 4 | [`FORMAT`] |
//! | 8 | [`checksum`] of everything that follows |
//! | … | version of this library, device, values, nodes, inputs, outputs |
//!
//! Numbers are little-endian. Lists and strings are prefixed with their length. See `write` for the order.
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

/// The extension of saved partition files.
pub(crate) const FILE_EXTENSION: &str = "hipctx";
/// The first bytes of every blob.
const MAGIC: [u8; 8] = *b"\x89HIPCTX\n";
/// The format version. It changes whenever an older library cannot read what follows.
const FORMAT: u32 = 1;
/// The size of the header; the body follows it.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>() + size_of::<u64>();
/// The version of this library.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The device that partitions are saved for: any, because nodes and weights are saved before they are prepared for a
/// device.
const ARCH: &str = "any";

/// Marks an unknown rank or an omitted value.
const NOTHING: u32 = u32::MAX;

/// Element types by their ONNX numbers.
const DTYPES: [(u8, DType); 22] = [
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
    (17, DType::F8E4M3Fn),
    (18, DType::F8E4M3Fnuz),
    (19, DType::F8E5M2),
    (20, DType::F8E5M2Fnuz),
    (21, DType::U4),
    (22, DType::I4),
    (24, DType::F8E8M0),
    (25, DType::U2),
    (26, DType::I2),
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

/// Why a saved partition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SavedError {
    /// It is not a blob of this backend.
    #[error("it is not a partition of the hip backend: it starts with {found:?}, not with {:?}\n  help: open the model with the profile it was compiled with", MAGIC.escape_ascii().to_string())]
    Foreign { found: String },
    /// A library with a different format version saved it.
    #[error(
        "it has format {found}, but this library ({VERSION}) reads format {FORMAT}\n  help: compile the model again"
    )]
    Format { found: u32 },
    /// Bytes were changed or lost.
    #[error(
        "it is damaged: its {bytes} bytes have checksum {found:016x}, but {wanted:016x} was recorded\n  help: copy it again, or compile the model again"
    )]
    Damaged { bytes: usize, found: u64, wanted: u64 },
    /// It is for another device.
    #[error(
        "it is for the device {found:?}, but this library reads only partitions for {ARCH:?}\n  help: compile the model again"
    )]
    Arch { found: String },
    /// It violates the format.
    #[error("it is malformed at byte {at}: {reason}")]
    Malformed { at: usize, reason: String },
}

/// Detects accidental damage and careless edits. Each step is a bijection of the state, so a single changed word always
/// changes the result.
fn checksum(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    // FNV-1a over words, with a shift so that high bits affect low ones.
    let step = |state: u64, word: u64| {
        let mixed = (state ^ word).wrapping_mul(PRIME);
        mixed ^ (mixed >> 32)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let state =
        words.iter().fold(step(OFFSET, bytes.len() as u64), |state, word| step(state, u64::from_le_bytes(*word)));
    rest.iter().fold(state, |state, &byte| step(state, u64::from(byte)))
}
