//! Forms of operations that change operands or results on the way: DPP, SDWA and VOPD.
//!
//! The operation itself knows nothing of them. Changed operands go through registers that only the emulator has.

use crate::inst::{Dst, Inst, Src, Step, reg};
use crate::wave::{LANES, Wave};

/// An operation and what is done to its operands.
#[derive(Clone)]
pub enum Form {
    /// Two operations that read before either writes.
    Dual {
        /// The first operation.
        first: Inst,
        /// The second one.
        second: Inst,
        /// Whether the second one reads what the first one writes.
        crossed: bool,
    },
    /// Lanes of the first source are shuffled.
    Dpp {
        /// The operation.
        inner: Inst,
        /// How lanes are shuffled.
        dpp: Dpp,
    },
    /// Parts of registers are read and written.
    Sdwa {
        /// The operation.
        inner: Inst,
        /// Which parts.
        sdwa: Sdwa,
    },
}

/// Which lane each lane reads. A row has 16 lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shuffle {
    /// Within groups of eight.
    Eight([u8; 8]),
    /// Within groups of four.
    Quad([u8; 4]),
    /// From `n` lanes higher in the row.
    RowShl(u8),
    /// From `n` lanes lower in the row.
    RowShr(u8),
    /// Rotated right in the row.
    RowRor(u8),
    /// Reversed in the row.
    RowMirror,
    /// Reversed in each half of a row.
    RowHalfMirror,
    /// One lane of the row for all.
    RowShare(u8),
    /// The lane's number in the row, exclusive or a mask.
    RowXor(u8),
    /// Lane 15 of each row for the next row, or lane 31 for the two last ones (gfx9).
    RowBroadcast(u8),
    /// From the next lane of the wave (gfx9).
    WaveShl,
    /// From the lane before (gfx9).
    WaveShr,
    /// From the next lane, and the last from the first (gfx9).
    WaveRol,
    /// From the lane before, and the first from the last (gfx9).
    WaveRor,
}

impl Shuffle {
    /// The lane to read, if it is in range.
    pub fn source(self, lane: u32, lanes: u32) -> Option<u32> {
        let (row, at) = (lane & !15, lane & 15);
        let in_row = |at: u32| (at < 16).then_some(row | at);
        match self {
            Shuffle::Eight(table) => Some(lane & !7 | u32::from(table[lane as usize & 7])),
            Shuffle::Quad(table) => Some(lane & !3 | u32::from(table[lane as usize & 3])),
            Shuffle::RowShl(by) => in_row(at + u32::from(by)),
            Shuffle::RowShr(by) => in_row(at.wrapping_sub(u32::from(by))),
            Shuffle::RowRor(by) => in_row(at.wrapping_sub(u32::from(by)) & 15),
            Shuffle::RowMirror => in_row(15 - at),
            Shuffle::RowHalfMirror => in_row(at & 8 | 7 - (at & 7)),
            Shuffle::RowShare(from) => in_row(u32::from(from)),
            Shuffle::RowXor(mask) => in_row(at ^ u32::from(mask)),
            Shuffle::RowBroadcast(15) => row.checked_sub(1),
            Shuffle::RowBroadcast(_) => (lane >= 32).then_some(31),
            Shuffle::WaveShl => (lane + 1 < lanes).then_some(lane + 1),
            Shuffle::WaveShr => lane.checked_sub(1),
            Shuffle::WaveRol => Some((lane + 1) % lanes),
            Shuffle::WaveRor => Some((lane + lanes - 1) % lanes),
        }
    }
}

/// The control of a DPP instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dpp {
    /// Which lane each lane reads.
    pub shuffle: Shuffle,
    /// Rows that are written.
    pub row_mask: u8,
    /// Banks, groups of four lanes in each row, that are written.
    pub bank_mask: u8,
    /// Lanes without a source read 0; else they are not written.
    pub bound_zero: bool,
    /// Inactive lanes can be read.
    pub fetch_inactive: bool,
}

/// A part of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    /// All of it.
    Dword,
    /// One of four bytes.
    Byte(u8),
    /// One of two halves.
    Word(u8),
}

impl Select {
    fn place(self) -> (u32, u32) {
        match self {
            Select::Dword => (0, 32),
            Select::Byte(at) => (u32::from(at) * 8, 8),
            Select::Word(at) => (u32::from(at) * 16, 16),
        }
    }

    fn read(self, value: u32, sext: bool) -> u32 {
        let (at, width) = self.place();
        let high = value << (32 - at - width);
        if sext { (high as i32 >> (32 - width)) as u32 } else { high >> (32 - width) }
    }
}

/// The parts that an SDWA instruction reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sdwa {
    /// Parts of the two sources.
    pub sources: [Select; 2],
    /// Whether they are sign-extended.
    pub sext: [bool; 2],
    /// The part of the result.
    pub result: Select,
    /// The rest of the result is its sign.
    pub sign_extend: bool,
    /// The rest of the result stays as it was; otherwise it becomes 0.
    pub preserve: bool,
}

impl Form {
    /// Executes the form.
    pub fn run(&self, wave: &mut Wave) {
        match self {
            Form::Dual { first, second, crossed: false } => {
                step(wave, first);
                step(wave, second);
            }
            Form::Dual { first, second, crossed: true } => {
                let Dst::V(register) = first.dst else { return };
                for_registers(wave, register, reg::TEMPORARY);
                step(wave, first);
                swap(wave, register, reg::TEMPORARY);
                step(wave, second);
                for_registers(wave, reg::TEMPORARY, register);
            }
            Form::Dpp { inner, dpp } => dpp.run(wave, inner),
            Form::Sdwa { inner, sdwa } => sdwa.run(wave, inner),
        }
    }
}

/// Copies a register.
fn for_registers(wave: &mut Wave, from: u16, to: u16) {
    for half in 0..wave.halves {
        *wave.v_mut(to, half) = *wave.v(from, half);
    }
}

fn swap(wave: &mut Wave, one: u16, other: u16) {
    for half in 0..wave.halves {
        let kept = *wave.v(one, half);
        *wave.v_mut(one, half) = *wave.v(other, half);
        *wave.v_mut(other, half) = kept;
    }
}

fn step(wave: &mut Wave, inst: &Inst) {
    if let Step::Alu(run) = inst.step {
        run(wave, inst);
    }
}

impl Dpp {
    fn run(&self, wave: &mut Wave, inner: &Inst) {
        let Src::V(source) = inner.src[0] else { return };
        let exec = wave.exec();
        let mut written = 0u64;
        for lane in 0..wave.lanes() {
            let enabled = self.row_mask >> (lane / 16 & 3) & 1 & (self.bank_mask >> (lane / 4 & 3)) == 1;
            let from = self.shuffle.source(lane, wave.lanes());
            let from = from.filter(|from| self.fetch_inactive || exec >> from & 1 == 1);
            let value = from.map(|from| wave.lane(source, from));
            wave.set_lane(reg::TEMPORARY, lane, value.unwrap_or(0));
            written |= u64::from(enabled && (value.is_some() || self.bound_zero)) << lane;
        }
        let mut changed = inner.clone();
        changed.src[0] = Src::V(reg::TEMPORARY);
        wave.set_exec(exec & written);
        step(wave, &changed);
        // v_cmpx writes EXEC itself.
        if inner.dst != Dst::S(reg::EXEC) {
            wave.set_exec(exec);
        }
    }
}

impl Sdwa {
    fn run(&self, wave: &mut Wave, inner: &Inst) {
        let mut changed = inner.clone();
        for k in 0..2u16 {
            let (select, sext) = (self.sources[k as usize], self.sext[k as usize]);
            if select == Select::Dword {
                continue;
            }
            for half in 0..wave.halves {
                let mut room = [0; LANES];
                let values = wave.lanes32(inner.src[k as usize], half, &mut room).map(|value| select.read(value, sext));
                *wave.v_mut(reg::TEMPORARY + 1 + k, half) = values;
            }
            changed.src[k as usize] = Src::V(reg::TEMPORARY + 1 + k);
        }
        let Dst::V(register) = inner.dst else { return step(wave, &changed) };
        // The operation may read its result's register (v_mac), so that is where it starts.
        for_registers(wave, register, reg::TEMPORARY + 3);
        changed.dst = Dst::V(reg::TEMPORARY + 3);
        step(wave, &changed);
        let (at, width) = self.result.place();
        let mask = u32::MAX >> (32 - width);
        for half in 0..wave.halves {
            let (new, old) = (*wave.v(reg::TEMPORARY + 3, half), *wave.v(register, half));
            let merged = std::array::from_fn(|lane| {
                let bits = new[lane] & mask;
                if self.preserve {
                    old[lane] & !(mask << at) | bits << at
                } else if self.sign_extend && width < 32 {
                    (((bits << (32 - width)) as i32 >> (32 - width)) as u32) << at
                } else {
                    bits << at
                }
            });
            wave.set_lanes32(register, half, &merged);
        }
    }
}
