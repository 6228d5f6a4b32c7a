//! The descriptor of a kernel: 64 bytes in front of, or near, its code.

use crate::{Fault, Memory};

/// What a kernel's descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Descriptor {
    /// Bytes of LDS that the kernel has in any case.
    pub lds_bytes: u32,
    /// Bytes of scratch memory of each lane.
    pub scratch_bytes: u32,
    /// Bytes of arguments.
    pub kernarg_bytes: u32,
    /// Address of the first instruction.
    pub entry: u64,
    resource1: u32,
    resource2: u32,
    properties: u16,
}

/// Values that are passed in scalar registers if the kernel asks for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserData {
    PrivateBuffer,
    DispatchPointer,
    QueuePointer,
    KernargPointer,
    DispatchId,
    FlatScratch,
    PrivateSize,
}

impl UserData {
    /// All of them with their numbers of registers, in the order of registers and of bits.
    pub const ALL: [(UserData, usize); 7] = [
        (UserData::PrivateBuffer, 4),
        (UserData::DispatchPointer, 2),
        (UserData::QueuePointer, 2),
        (UserData::KernargPointer, 2),
        (UserData::DispatchId, 2),
        (UserData::FlatScratch, 2),
        (UserData::PrivateSize, 1),
    ];
}

impl Descriptor {
    /// Reads the descriptor at an address.
    ///
    /// # Errors
    /// It is not mapped.
    pub fn read(memory: &Memory, kernel: u64) -> Result<Descriptor, Fault> {
        let bad = |reason: &str| Fault::BadDispatch { kernel, reason: reason.to_owned() };
        let bytes = memory.read(kernel, 64).ok_or_else(|| bad("its descriptor is not in mapped memory"))?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let offset = u64::from(word(16)) | u64::from(word(20)) << 32;
        Ok(Descriptor {
            lds_bytes: word(0),
            scratch_bytes: word(4),
            kernarg_bytes: word(8),
            entry: kernel.wrapping_add(offset),
            resource1: word(48),
            resource2: word(52),
            properties: word(56) as u16,
        })
    }

    /// Lanes of a wave.
    pub fn wave_size(&self) -> u32 {
        if self.properties >> 10 & 1 == 1 { 32 } else { 64 }
    }

    /// Blocks of vector registers, less one.
    pub(crate) fn register_blocks(&self) -> u32 {
        self.resource1 & 0x3f
    }

    /// Rounding and denormals: the low byte of MODE.
    pub(crate) fn float_mode(&self) -> u32 {
        self.resource1 >> 12 & 0xff
    }

    /// Whether a clamp turns NaN into 0.
    pub(crate) fn clamps_nan(&self) -> bool {
        self.resource1 >> 21 & 1 == 1
    }

    pub(crate) fn has(&self, index: usize) -> bool {
        self.properties >> index & 1 == 1
    }

    /// Scalar registers before the workgroup's id.
    pub(crate) fn user_registers(&self) -> usize {
        (self.resource2 >> 1 & 31) as usize
    }

    /// Whether the kernel asks for a dimension of the workgroup's id.
    pub(crate) fn wants_group(&self, dimension: usize) -> bool {
        self.resource2 >> (7 + dimension) & 1 == 1
    }

    /// Whether it asks for the number of waves.
    pub(crate) fn wants_group_info(&self) -> bool {
        self.resource2 >> 10 & 1 == 1
    }

    /// Whether it asks for the offset of its scratch memory.
    pub(crate) fn wants_scratch_offset(&self) -> bool {
        self.resource2 & 1 == 1
    }

    /// Dimensions of the workitem's id in vector registers, without x: 0 to 2.
    pub(crate) fn item_dimensions(&self) -> u32 {
        self.resource2 >> 11 & 3
    }
}
