//! Registers and modes of one wave.

use crate::inst::{Dst, INLINE_FLOATS, Inst, Src, reg};
use crate::{Family, Target};

/// Lanes that are computed together. A wave of 64 lanes has two halves, as on RDNA.
pub const LANES: usize = 32;
/// One register of 32 lanes.
pub type Half = [u32; LANES];
/// The high half of the address of LDS in flat addressing.
pub const SHARED_APERTURE: u32 = 0x0001_0000;
/// The high half of the address of scratch memory in flat addressing.
pub const PRIVATE_APERTURE: u32 = 0x0002_0000;

/// The parts of the MODE register that are modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    bits: u32,
}

impl Mode {
    /// From the register's bits.
    pub fn new(bits: u32) -> Mode {
        Mode { bits }
    }

    /// The register.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Whether 32-bit floats read denormals as 0.
    #[inline(always)]
    pub fn flushes_inputs_f32(self) -> bool {
        self.bits & 0x10 == 0
    }

    /// Whether denormal results of 32 bits become 0.
    #[inline(always)]
    pub fn flushes_outputs_f32(self) -> bool {
        self.bits & 0x20 == 0
    }

    /// Whether 16- and 64-bit floats read denormals as 0.
    #[inline(always)]
    pub fn flushes_inputs_f16_f64(self) -> bool {
        self.bits & 0x40 == 0
    }

    /// Whether denormal results of 16 and 64 bits become 0.
    #[inline(always)]
    pub fn flushes_outputs_f16_f64(self) -> bool {
        self.bits & 0x80 == 0
    }

    /// Whether a clamp turns NaN into 0.
    pub fn clamps_nan(self) -> bool {
        self.bits & 0x100 != 0
    }

    /// Whether results are rounded to nearest even, the only rounding that the emulator models.
    pub fn rounds_to_nearest(self) -> bool {
        self.bits & 0xf == 0
    }
}

/// The state of one wave.
pub struct Wave {
    /// The scalar registers; special ones at the indices of `reg`.
    pub scalar: Box<[u32; reg::COUNT]>,
    /// The vector registers: `halves` entries each.
    pub(crate) vector: Box<[Half]>,
    /// 1 for waves of 32 lanes, 2 for waves of 64.
    pub halves: usize,
    /// The scalar condition code.
    pub scc: bool,
    /// Floating-point modes.
    pub mode: Mode,
    /// The chip.
    pub target: Target,
    /// The wave's place in its workgroup.
    pub id: u32,
    /// Scratch memory: `scratch_bytes` for each lane.
    pub(crate) scratch: Vec<u8>,
    /// Bytes of scratch memory of one lane.
    pub scratch_bytes: u32,
    /// A reason to stop that an operation found.
    pub(crate) trouble: Option<&'static str>,
    /// 16-bit results clear the other half of the register.
    clears_high_half: bool,
}

impl Wave {
    /// A wave with all registers 0 and all lanes active.
    pub fn new(target: Target, lanes: u32) -> Wave {
        let halves = if lanes == 64 { 2 } else { 1 };
        let mut wave = Wave {
            scalar: Box::new([0; reg::COUNT]),
            vector: vec![[0; LANES]; reg::VECTOR_COUNT * halves].into_boxed_slice(),
            halves,
            scc: false,
            mode: Mode::new(0xf0),
            target,
            id: 0,
            scratch: Vec::new(),
            scratch_bytes: 0,
            trouble: None,
            clears_high_half: target.clears_high_half(),
        };
        wave.set_exec(!0);
        wave
    }

    /// Number of lanes.
    pub fn lanes(&self) -> u32 {
        self.halves as u32 * LANES as u32
    }

    /// Stops the kernel after this instruction, with a reason.
    #[cold]
    pub fn stop(&mut self, reason: &'static str) {
        self.trouble.get_or_insert(reason);
    }

    /// EXEC of 32 lanes.
    #[inline(always)]
    pub fn exec_half(&self, half: usize) -> u32 {
        self.scalar[reg::EXEC as usize + (half & 1)]
    }

    /// EXEC; the high half is 0 in waves of 32 lanes.
    #[inline(always)]
    pub fn exec(&self) -> u64 {
        self.mask(reg::EXEC)
    }

    /// Sets EXEC.
    pub fn set_exec(&mut self, mask: u64) {
        self.set_mask(Dst::S(reg::EXEC), mask);
    }

    /// VCC; the high half is 0 in waves of 32 lanes.
    #[inline(always)]
    pub fn vcc(&self) -> u64 {
        self.mask(reg::VCC)
    }

    /// A lane mask in scalar registers: one, or two in waves of 64 lanes.
    #[inline(always)]
    pub fn mask(&self, first: u16) -> u64 {
        let low = u64::from(self.scalar[first as usize]);
        if self.halves == 1 { low } else { low | u64::from(self.scalar[first as usize + 1]) << 32 }
    }

    /// A lane mask operand.
    pub fn mask_of(&self, src: Src) -> u64 {
        let all = if self.halves == 1 { u64::from(u32::MAX) } else { u64::MAX };
        match src {
            Src::S(first) => self.mask(first),
            other => self.s64(other) & all,
        }
    }

    /// Writes a lane mask.
    #[inline(always)]
    pub fn set_mask(&mut self, dst: Dst, mask: u64) {
        if let Dst::S(first) = dst {
            self.scalar[first as usize] = mask as u32;
            if self.halves == 2 {
                self.scalar[first as usize + 1] = (mask >> 32) as u32;
            }
        }
    }

    /// A scalar operand of 32 bits. 16-bit operands are its low half.
    #[inline(always)]
    pub fn s32(&self, src: Src) -> u32 {
        match src {
            Src::S(index) => self.scalar[index as usize],
            Src::Int(value) => value as u32,
            Src::Lit(value) => value,
            other => self.s32_rare(other),
        }
    }

    fn s32_rare(&self, src: Src) -> u32 {
        match src {
            Src::Float(index) => INLINE_FLOATS[index as usize].2,
            Src::Aperture(high) => high,
            Src::Scc => u32::from(self.scc),
            Src::VccZ => u32::from(self.vcc() == 0),
            Src::ExecZ => u32::from(self.exec() == 0),
            // A scalar instruction does not read vector registers; v_readfirstlane has its own code.
            Src::None | Src::V(_) | Src::S(_) | Src::Int(_) | Src::Lit(_) => 0,
        }
    }

    /// A scalar operand of 64 bits, as an integer.
    #[inline(always)]
    pub fn s64(&self, src: Src) -> u64 {
        match src {
            Src::S(index) => u64::from(self.scalar[index as usize]) | u64::from(self.scalar[index as usize + 1]) << 32,
            Src::Int(value) => i64::from(value) as u64,
            Src::Lit(value) => u64::from(value),
            Src::Float(index) => INLINE_FLOATS[index as usize].3,
            Src::Aperture(high) => u64::from(high) << 32,
            other => u64::from(self.s32_rare(other)),
        }
    }

    /// Writes a scalar register.
    #[inline(always)]
    pub fn set_s32(&mut self, dst: Dst, value: u32) {
        if let Dst::S(index) = dst {
            self.scalar[index as usize] = value;
        }
    }

    /// Writes two scalar registers.
    #[inline(always)]
    pub fn set_s64(&mut self, dst: Dst, value: u64) {
        if let Dst::S(index) = dst {
            self.scalar[index as usize] = value as u32;
            self.scalar[index as usize + 1] = (value >> 32) as u32;
        }
    }

    /// 32 lanes of a vector register.
    #[inline(always)]
    pub fn v(&self, register: u16, half: usize) -> &Half {
        &self.vector[register as usize * self.halves + half]
    }

    /// 32 lanes of a vector register, to write.
    #[inline(always)]
    pub fn v_mut(&mut self, register: u16, half: usize) -> &mut Half {
        &mut self.vector[register as usize * self.halves + half]
    }

    /// One lane of a vector register.
    #[inline(always)]
    pub fn lane(&self, register: u16, lane: u32) -> u32 {
        self.v(register, lane as usize / LANES)[lane as usize % LANES]
    }

    /// Writes one lane of a vector register.
    #[inline(always)]
    pub fn set_lane(&mut self, register: u16, lane: u32, value: u32) {
        self.v_mut(register, lane as usize / LANES)[lane as usize % LANES] = value;
    }

    /// An operand of 32 bits for each lane, without modifiers. `room` holds scalars spread over the lanes.
    #[inline(always)]
    pub fn lanes32<'a>(&'a self, src: Src, half: usize, room: &'a mut Half) -> &'a Half {
        match src {
            Src::V(register) => self.v(register, half),
            scalar => {
                *room = [self.s32(scalar); LANES];
                room
            }
        }
    }

    /// An operand of 64 bits for each lane, without modifiers.
    #[inline(always)]
    pub fn lanes64(&self, src: Src, half: usize) -> [u64; LANES] {
        match src {
            Src::V(register) => {
                let (low, high) = (self.v(register, half), self.v(register + 1, half));
                std::array::from_fn(|lane| u64::from(low[lane]) | u64::from(high[lane]) << 32)
            }
            scalar => [self.s64(scalar); LANES],
        }
    }

    /// An operand of 16 bits for each lane, in the low halves, without modifiers.
    #[inline(always)]
    pub fn lanes16(&self, inst: &Inst, k: usize, half: usize) -> Half {
        let shift = if inst.mods.sel >> k & 1 == 1 { 16 } else { 0 };
        match inst.src[k] {
            Src::V(register) => self.v(register, half).map(|bits| bits >> shift & 0xffff),
            Src::Float(index) => [u32::from(INLINE_FLOATS[index as usize].1); LANES],
            scalar => [self.s32(scalar) >> shift & 0xffff; LANES],
        }
    }

    /// Writes active lanes of a vector register.
    #[inline(always)]
    pub fn set_lanes32(&mut self, register: u16, half: usize, values: &Half) {
        let mask = self.exec_half(half);
        let target = self.v_mut(register, half);
        if mask == u32::MAX {
            *target = *values;
        } else {
            blend(target, values, mask);
        }
    }

    /// Writes active lanes of two vector registers.
    #[inline(always)]
    pub fn set_lanes64(&mut self, register: u16, half: usize, values: &[u64; LANES]) {
        self.set_lanes32(register, half, &values.map(|bits| bits as u32));
        self.set_lanes32(register + 1, half, &values.map(|bits| (bits >> 32) as u32));
    }

    /// Writes 16 bits of active lanes: one half of the register, or the low half with the other one cleared.
    #[inline(always)]
    pub fn set_lanes16(&mut self, inst: &Inst, half: usize, values: &Half) {
        let Dst::V(register) = inst.dst else { return };
        let old = *self.v(register, half);
        let mut new = [0; LANES];
        if inst.mods.sel & 8 != 0 {
            (0..LANES).for_each(|lane| new[lane] = old[lane] & 0xffff | values[lane] << 16);
        } else if self.clears_high_half {
            (0..LANES).for_each(|lane| new[lane] = values[lane] & 0xffff);
        } else {
            (0..LANES).for_each(|lane| new[lane] = old[lane] & 0xffff_0000 | values[lane] & 0xffff);
        }
        self.set_lanes32(register, half, &new);
    }

    /// Whether the chip is of a family.
    pub fn is(&self, family: Family) -> bool {
        self.target.family() == family
    }
}

#[inline(always)]
fn blend(target: &mut Half, values: &Half, mask: u32) {
    crate::simd::wide(
        #[inline(always)]
        || {
            for lane in 0..LANES {
                let keep = (mask >> lane & 1).wrapping_sub(1);
                target[lane] = target[lane] & keep | values[lane] & !keep;
            }
        },
    );
}
