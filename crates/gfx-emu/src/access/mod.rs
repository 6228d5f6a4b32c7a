//! Instructions that read or write memory: what they do, and how they are executed.

mod address;
mod atomic;
mod run;

pub(crate) use run::{Reach, bits};

use crate::inst::{Dst, Src};

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Device memory.
    Global,
    /// Device memory, LDS or scratch, by address.
    Flat,
    /// A lane's private memory.
    Scratch,
    /// The workgroup's memory.
    Lds,
    /// Device memory through a scalar load.
    Scalar,
}

/// How the value of one lane lies in memory and in registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// One byte, zero-extended.
    U8,
    /// One byte, sign-extended.
    I8,
    /// Two bytes, zero-extended.
    U16,
    /// Two bytes, sign-extended.
    I16,
    /// One byte, zero-extended to 16 bits, in one half of the register (true: the high one).
    HalfU8(bool),
    /// One byte, sign-extended to 16 bits, in one half of the register.
    HalfI8(bool),
    /// Two bytes in one half of the register.
    Half(bool),
    /// 1 to 16 registers.
    Words(u8),
}

impl Data {
    /// Bytes in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Data::U8 | Data::I8 | Data::HalfU8(_) | Data::HalfI8(_) => 1,
            Data::U16 | Data::I16 | Data::Half(_) => 2,
            Data::Words(count) => u32::from(count) * 4,
        }
    }
}

/// How an atomic operation changes memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Stores the operand.
    Swap,
    /// Stores one operand if memory equals the other. In global memory, the new value is the first operand; decoding
    /// brings those of LDS into the same order.
    CompareSwap,
    /// Adds.
    Add,
    /// Subtracts.
    Sub,
    /// Subtracts memory from the operand.
    RevSub,
    /// Signed minimum.
    MinI,
    /// Signed maximum.
    MaxI,
    /// Unsigned minimum.
    MinU,
    /// Unsigned maximum.
    MaxU,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Increments, and wraps to 0 above the operand.
    Inc,
    /// Decrements, and wraps to the operand below 0.
    Dec,
    /// Subtracts and stops at 0.
    SubClamp,
    /// Adds floats.
    AddF,
    /// The smaller float.
    MinF,
    /// The larger float.
    MaxF,
    /// Adds two 16-bit floats.
    AddPkF16,
    /// Adds two bfloat16.
    AddPkBf16,
}

/// What happens at each address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reads into `dst`.
    Load(Data),
    /// Writes from `data`.
    Store(Data),
    /// Reads two places, the second at `offset2`.
    Load2(Data),
    /// Writes `data` and `data2` to two places.
    Store2(Data),
    /// Changes 32 bits, or 64 if the flag is set, and returns the old value to `dst` if there is one.
    Atomic(AtomicOp, bool),
}

/// How addresses are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// A 64-bit address in two vector registers.
    Vector(u16),
    /// A 64-bit base in scalar registers, plus 32 bits of each lane.
    Base(u16, Option<u16>),
    /// Offsets into scratch memory: of each lane, and one for all.
    Scratch(Option<u16>, Src),
    /// An offset into LDS.
    Lds(u16),
    /// A buffer resource in four scalar registers.
    Buffer {
        /// The first scalar register of the resource.
        resource: u16,
        /// The register with the index, if there is one.
        index: Option<u16>,
        /// The register with the offset, if there is one.
        offset: Option<u16>,
        /// The offset for all lanes.
        scalar: Src,
    },
    /// A 64-bit base in scalar registers plus a scalar offset.
    Scalar(u16, Src),
    /// A buffer resource for a scalar load, plus a scalar offset.
    ScalarBuffer(u16, Src),
}

/// A decoded memory instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Which memory.
    pub space: Space,
    /// What happens.
    pub action: Action,
    /// Where.
    pub address: Address,
    /// Added to the address.
    pub offset: i32,
    /// The offset of the second place of `Load2` and `Store2`.
    pub offset2: i32,
    /// The register that results go to, or the first of several.
    pub dst: Dst,
    /// The register that is stored or is an atomic's operand, or the first of several.
    pub data: u16,
    /// The second operand of `Store2` and of compare-and-swap in LDS.
    pub data2: u16,
    /// A load or store that bypasses the caches of its compute unit, as compilers emit for atomic and volatile accesses.
    pub coherent: bool,
}

impl Access {
    /// Bytes of one lane's access at one place.
    pub fn bytes(&self) -> u32 {
        match self.action {
            Action::Load(data) | Action::Store(data) | Action::Load2(data) | Action::Store2(data) => data.bytes(),
            Action::Atomic(_, wide) => 4 + 4 * u32::from(wide),
        }
    }
}
