//! Waves that a SIMD holds at once. The rules are those of LLVM's AMDGPU backend (`AMDGPUBaseInfo`).

use crate::chip::Dispatch;
use crate::descriptor::Descriptor;
use crate::{Family, Target};

/// What limits the number of waves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The hardware's maximum.
    Slots,
    /// Vector registers.
    Registers,
    /// LDS of the workgroups.
    Lds,
}

/// How many waves a SIMD holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupancy {
    /// Waves of a SIMD.
    pub waves: u32,
    /// The hardware's maximum.
    pub most: u32,
    /// What limits it.
    pub limit: Limit,
    /// Vector registers of each lane, with accumulators.
    pub registers: u32,
    /// LDS of a workgroup.
    pub lds_bytes: u32,
}

/// LDS of a compute unit, which a workgroup can have. A pair of units on RDNA has twice as much, and twice the SIMDs.
const LDS: u32 = 64 * 1024;

/// Whether the chip has one and a half times the vector registers.
fn has_more_registers(target: Target) -> bool {
    matches!(target.name(), "gfx1100" | "gfx1101" | "gfx1151") || target.family() == Family::Rdna4
}

impl Occupancy {
    /// The occupancy of a kernel on a chip.
    pub fn of(target: Target, descriptor: &Descriptor, dispatch: &Dispatch) -> Occupancy {
        let is_cdna = target.family() == Family::Cdna;
        let wave_size = if is_cdna { 64 } else { descriptor.wave_size() };
        let registers = (descriptor.register_blocks() + 1) * if is_cdna || wave_size == 32 { 8 } else { 4 };
        let lds_bytes = dispatch.group_size.max(descriptor.lds_bytes);
        let half = |value: u32| if wave_size == 64 { value / 2 } else { value };
        let (most, file, granule) = match (target.family(), has_more_registers(target)) {
            (Family::Cdna, _) => (8, 512, 8),
            (_, true) => (16, half(1536), half(24)),
            (_, false) => (16, half(1024), half(16)),
        };
        let by_registers = (file / registers.next_multiple_of(granule)).clamp(1, most);
        let simds = if is_cdna { 4 } else { 2 };
        let items: u32 = dispatch.group.iter().product();
        let waves_of_group = items.div_ceil(wave_size).max(1);
        let groups = if lds_bytes == 0 { u32::MAX } else { LDS / lds_bytes.next_multiple_of(1024).min(LDS) };
        let by_lds = groups.saturating_mul(waves_of_group).div_ceil(simds).clamp(1, most);
        let waves = by_registers.min(by_lds);
        let limit = if waves == most {
            Limit::Slots
        } else if by_registers <= by_lds {
            Limit::Registers
        } else {
            Limit::Lds
        };
        Occupancy { waves, most, limit, registers, lds_bytes }
    }
}
