//! Scalar operations: SOP1, SOP2 and SOPK.

use super::{Entry, Shape, op, op_sources};
use crate::Family;
use crate::inst::{Dst, Inst, Src, reg};
use crate::wave::{Mode, Wave};

/// A result from one operand; SCC stays.
#[inline(always)]
fn s1(w: &mut Wave, i: &Inst, f: impl Fn(u32) -> u32) {
    let result = f(w.s32(i.src[0]));
    w.set_s32(i.dst, result);
}

/// A result from one operand, and SCC tells whether it is not 0.
#[inline(always)]
fn s1_scc(w: &mut Wave, i: &Inst, f: impl Fn(u32) -> u32) {
    let result = f(w.s32(i.src[0]));
    w.set_s32(i.dst, result);
    w.scc = result != 0;
}

#[inline(always)]
fn d1(w: &mut Wave, i: &Inst, f: impl Fn(u64) -> u64) {
    let result = f(w.s64(i.src[0]));
    w.set_s64(i.dst, result);
}

#[inline(always)]
fn d1_scc(w: &mut Wave, i: &Inst, f: impl Fn(u64) -> u64) {
    let result = f(w.s64(i.src[0]));
    w.set_s64(i.dst, result);
    w.scc = result != 0;
}

/// A 32-bit result from one 64-bit operand.
#[inline(always)]
fn narrow(w: &mut Wave, i: &Inst, f: impl Fn(u64) -> u32) {
    let result = f(w.s64(i.src[0]));
    w.set_s32(i.dst, result);
}

#[inline(always)]
fn s2(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) {
    let result = f(w.s32(i.src[0]), w.s32(i.src[1]));
    w.set_s32(i.dst, result);
}

/// A result from two operands, and SCC tells whether it is not 0.
#[inline(always)]
fn s2_scc(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) {
    let result = f(w.s32(i.src[0]), w.s32(i.src[1]));
    w.set_s32(i.dst, result);
    w.scc = result != 0;
}

/// A result and SCC from two operands and SCC.
#[inline(always)]
fn s2_carry(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32, bool) -> (u32, bool)) {
    let (result, scc) = f(w.s32(i.src[0]), w.s32(i.src[1]), w.scc);
    w.set_s32(i.dst, result);
    w.scc = scc;
}

#[inline(always)]
fn d2_scc(w: &mut Wave, i: &Inst, f: impl Fn(u64, u64) -> u64) {
    let result = f(w.s64(i.src[0]), w.s64(i.src[1]));
    w.set_s64(i.dst, result);
    w.scc = result != 0;
}

#[inline(always)]
fn d2(w: &mut Wave, i: &Inst, f: impl Fn(u64, u64) -> u64) {
    let result = f(w.s64(i.src[0]), w.s64(i.src[1]));
    w.set_s64(i.dst, result);
}

/// A 64-bit operand and a 32-bit one.
#[inline(always)]
fn d_s_scc(w: &mut Wave, i: &Inst, f: impl Fn(u64, u32) -> u64) {
    let result = f(w.s64(i.src[0]), w.s32(i.src[1]));
    w.set_s64(i.dst, result);
    w.scc = result != 0;
}

/// Saves EXEC and replaces it by a function of the operand and EXEC; SCC tells whether it is not 0.
#[inline(always)]
fn saveexec32(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) {
    let (exec, operand) = (w.exec_half(0), w.s32(i.src[0]));
    let new = f(operand, exec);
    w.set_s32(i.dst, exec);
    w.scalar[reg::EXEC as usize] = new;
    w.scc = new != 0;
}

#[inline(always)]
fn saveexec64(w: &mut Wave, i: &Inst, f: impl Fn(u64, u64) -> u64) {
    let (exec, operand) = (w.s64(Src::S(reg::EXEC)), w.s64(i.src[0]));
    let new = f(operand, exec);
    w.set_s64(i.dst, exec);
    w.set_s64(Dst::S(reg::EXEC), new);
    w.scc = new != 0;
}

/// Replaces EXEC as above, and the result is the new one.
#[inline(always)]
fn wrexec32(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> u32) {
    let new = f(w.s32(i.src[0]), w.exec_half(0));
    w.scalar[reg::EXEC as usize] = new;
    w.set_s32(i.dst, new);
    w.scc = new != 0;
}

#[inline(always)]
fn wrexec64(w: &mut Wave, i: &Inst, f: impl Fn(u64, u64) -> u64) {
    let new = f(w.s64(i.src[0]), w.s64(Src::S(reg::EXEC)));
    w.set_s64(Dst::S(reg::EXEC), new);
    w.set_s64(i.dst, new);
    w.scc = new != 0;
}

fn add(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

fn sub(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(u32::from(borrow));
    (difference, first || second)
}

/// Bits `offset..offset + width` from an operand that holds both.
fn bfe(value: u64, control: u32, bits: u32, signed: bool) -> u64 {
    let (offset, width) = (control & (bits - 1), control >> 16 & 0x7f);
    if width == 0 {
        return 0;
    }
    let value = if signed && bits == 32 { value as u32 as i32 as i64 as u64 } else { value };
    let shifted = if signed { ((value as i64) >> offset) as u64 } else { value >> offset };
    if width >= 64 {
        return shifted;
    }
    let up = 64 - width;
    if signed { ((shifted << up) as i64 >> up) as u64 } else { shifted << up >> up }
}

fn bfm(width: u32, offset: u32, bits: u32) -> u64 {
    let mask = bits - 1;
    ((1u64 << (width & mask)) - 1) << (offset & mask)
}

/// The distance of the highest bit that differs from the sign, or -1.
fn cls(value: u32) -> u32 {
    let ones = (value as i32 >> 31) as u32;
    if value == ones { u32::MAX } else { (value ^ ones).leading_zeros() }
}

fn cls64(value: u64) -> u32 {
    let ones = (value as i64 >> 63) as u64;
    if value == ones { u32::MAX } else { (value ^ ones).leading_zeros() }
}

fn or_minus_one(found: u32, width: u32) -> u32 {
    if found == width { u32::MAX } else { found }
}

/// Each bit becomes a group of four or two: the group's bit is set if one of the group was.
fn wqm(value: u64) -> u64 {
    let any = value | value >> 1 | value >> 2 | value >> 3;
    (any & 0x1111_1111_1111_1111) * 15
}

fn quad_mask(value: u64) -> u64 {
    (0..16).filter(|quad| value >> (quad * 4) & 15 != 0).fold(0, |mask, quad| mask | 1 << quad)
}

/// Doubles each bit.
fn bit_replicate(value: u32) -> u64 {
    (0..32).filter(|bit| value >> bit & 1 == 1).fold(0, |mask, bit| mask | 3 << (bit * 2))
}

fn getreg(w: &mut Wave, i: &Inst) {
    let (index, offset, width) = (i.imm & 63, i.imm >> 6 & 31, (i.imm >> 11 & 31) + 1);
    let whole = match index {
        20 | 21 if w.is(Family::Rdna2) => w.scalar[flat_scratch(index)],
        1 => w.mode.bits(),
        2 => u32::from(w.scc),
        // Where the wave runs: all on the first unit.
        4 | 20 | 23 | 24 => w.id,
        // The apertures of LDS (high half) and scratch.
        15 => crate::wave::SHARED_APERTURE & 0xffff_0000 | crate::wave::PRIVATE_APERTURE >> 16,
        29 => ticks() as u32,
        30 => (ticks() >> 32) as u32,
        _ => return w.stop("the hardware register is not modelled"),
    };
    let value = (u64::from(whole) >> offset & ((1u64 << width) - 1)) as u32;
    w.set_s32(i.dst, value);
}

/// gfx10 keeps the address of scratch memory in two hardware registers.
fn flat_scratch(index: u32) -> usize {
    reg::FLAT_SCRATCH as usize + (index as usize - 20 & 1)
}

fn setreg(w: &mut Wave, i: &Inst) {
    let (index, offset, width) = (i.imm & 63, i.imm >> 6 & 31, (i.imm >> 11 & 31) + 1);
    if w.is(Family::Rdna2) && (index == 20 || index == 21) && width == 32 {
        w.scalar[flat_scratch(index)] = w.s32(i.src[0]);
        return;
    }
    if index != 1 {
        return w.stop("only the MODE register can be written");
    }
    let mask = (((1u64 << width) - 1) << offset) as u32;
    let bits = w.mode.bits() & !mask | w.s32(i.src[0]) << offset & mask;
    set_mode(w, bits);
}

fn set_mode(w: &mut Wave, bits: u32) {
    w.mode = Mode::new(bits);
    if !w.mode.rounds_to_nearest() {
        w.stop("only rounding to nearest even is modelled");
    }
}

fn denorm_mode(w: &mut Wave, i: &Inst) {
    let bits = w.mode.bits() & !0xf0 | (w.s32(i.src[0]) & 15) << 4;
    set_mode(w, bits);
}

fn round_mode(w: &mut Wave, i: &Inst) {
    let bits = w.mode.bits() & !0xf | w.s32(i.src[0]) & 15;
    set_mode(w, bits);
}

fn ticks() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    // 100 MHz, as the constant clock of the chips.
    (START.get_or_init(Instant::now).elapsed().as_nanos() / 10) as u64
}

fn relative(i: &Inst, w: &Wave) -> (Src, Dst) {
    let by = w.scalar[reg::M0 as usize] as u16;
    let source = if let Src::S(index) = i.src[0] { Src::S((index + by).min(reg::NULL)) } else { i.src[0] };
    let result = if let Dst::S(index) = i.dst { Dst::S((index + by).min(reg::NULL)) } else { i.dst };
    (source, result)
}

fn signed_overflow(result: i32, overflow: bool) -> (u32, bool) {
    (result as u32, overflow)
}

pub const TABLE: &[Entry] = &[
    // SOP1
    op("s_mov_b32", |w, i| s1(w, i, |a| a)),
    op("s_mov_b64", |w, i| d1(w, i, |a| a)),
    op("s_cmov_b32", |w, i| {
        if w.scc {
            s1(w, i, |a| a);
        }
    }),
    op("s_cmov_b64", |w, i| {
        if w.scc {
            d1(w, i, |a| a);
        }
    }),
    op("s_not_b32", |w, i| s1_scc(w, i, |a| !a)),
    op("s_not_b64", |w, i| d1_scc(w, i, |a| !a)),
    op("s_wqm_b32", |w, i| s1_scc(w, i, |a| wqm(u64::from(a)) as u32)),
    op("s_wqm_b64", |w, i| d1_scc(w, i, wqm)),
    op("s_quadmask_b32", |w, i| s1_scc(w, i, |a| quad_mask(u64::from(a)) as u32)),
    op("s_quadmask_b64", |w, i| d1_scc(w, i, quad_mask)),
    op("s_brev_b32", |w, i| s1(w, i, u32::reverse_bits)),
    op("s_brev_b64", |w, i| d1(w, i, u64::reverse_bits)),
    op("s_bcnt0_i32_b32", |w, i| s1_scc(w, i, u32::count_zeros)),
    op("s_bcnt1_i32_b32", |w, i| s1_scc(w, i, u32::count_ones)),
    op("s_bcnt0_i32_b64", |w, i| {
        narrow(w, i, u64::count_zeros);
        w.scc = w.s64(i.src[0]) != u64::MAX;
    }),
    op("s_bcnt1_i32_b64", |w, i| {
        let count = w.s64(i.src[0]).count_ones();
        w.set_s32(i.dst, count);
        w.scc = count != 0;
    }),
    op("s_ff0_i32_b32", |w, i| s1(w, i, |a| or_minus_one(a.trailing_ones(), 32))),
    op("s_ff1_i32_b32", |w, i| s1(w, i, |a| or_minus_one(a.trailing_zeros(), 32))),
    op("s_ctz_i32_b32", |w, i| s1(w, i, |a| or_minus_one(a.trailing_zeros(), 32))),
    op("s_ff1_i32_b64", |w, i| narrow(w, i, |a| or_minus_one(a.trailing_zeros(), 64))),
    op("s_ctz_i32_b64", |w, i| narrow(w, i, |a| or_minus_one(a.trailing_zeros(), 64))),
    op("s_flbit_i32_b32", |w, i| s1(w, i, |a| or_minus_one(a.leading_zeros(), 32))),
    op("s_clz_i32_u32", |w, i| s1(w, i, |a| or_minus_one(a.leading_zeros(), 32))),
    op("s_flbit_i32_b64", |w, i| narrow(w, i, |a| or_minus_one(a.leading_zeros(), 64))),
    op("s_clz_i32_u64", |w, i| narrow(w, i, |a| or_minus_one(a.leading_zeros(), 64))),
    op("s_flbit_i32", |w, i| s1(w, i, cls)),
    op("s_cls_i32", |w, i| s1(w, i, cls)),
    op("s_flbit_i32_i64", |w, i| narrow(w, i, cls64)),
    op("s_cls_i32_i64", |w, i| narrow(w, i, cls64)),
    op("s_sext_i32_i8", |w, i| s1(w, i, |a| a as u8 as i8 as u32)),
    op("s_sext_i32_i16", |w, i| s1(w, i, |a| a as u16 as i16 as u32)),
    op("s_bitset0_b32", |w, i| {
        let (Dst::S(index), bit) = (i.dst, w.s32(i.src[0]) & 31) else { return };
        w.scalar[index as usize] &= !(1 << bit);
    }),
    op("s_bitset1_b32", |w, i| {
        let (Dst::S(index), bit) = (i.dst, w.s32(i.src[0]) & 31) else { return };
        w.scalar[index as usize] |= 1 << bit;
    }),
    op("s_bitset0_b64", |w, i| {
        let (Dst::S(index), bit) = (i.dst, w.s32(i.src[0]) & 63) else { return };
        w.scalar[index as usize + bit as usize / 32] &= !(1 << (bit & 31));
    }),
    op("s_bitset1_b64", |w, i| {
        let (Dst::S(index), bit) = (i.dst, w.s32(i.src[0]) & 63) else { return };
        w.scalar[index as usize + bit as usize / 32] |= 1 << (bit & 31);
    }),
    op("s_bitreplicate_b64_b32", |w, i| {
        let result = bit_replicate(w.s32(i.src[0]));
        w.set_s64(i.dst, result);
    }),
    op("s_abs_i32", |w, i| s1_scc(w, i, |a| (a as i32).wrapping_abs() as u32)),
    op("s_movrels_b32", |w, i| {
        let value = w.s32(relative(i, w).0);
        w.set_s32(i.dst, value);
    }),
    op("s_movreld_b32", |w, i| {
        let (value, to) = (w.s32(i.src[0]), relative(i, w).1);
        w.set_s32(to, value);
    }),
    op("s_and_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a & e)),
    op("s_or_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a | e)),
    op("s_xor_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a ^ e)),
    op("s_nand_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !(a & e))),
    op("s_nor_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !(a | e))),
    op("s_xnor_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !(a ^ e))),
    op("s_andn1_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !a & e)),
    op("s_and_not0_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !a & e)),
    op("s_orn1_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !a | e)),
    op("s_or_not0_saveexec_b32", |w, i| saveexec32(w, i, |a, e| !a | e)),
    op("s_andn2_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a & !e)),
    op("s_and_not1_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a & !e)),
    op("s_orn2_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a | !e)),
    op("s_or_not1_saveexec_b32", |w, i| saveexec32(w, i, |a, e| a | !e)),
    op("s_and_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a & e)),
    op("s_or_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a | e)),
    op("s_xor_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a ^ e)),
    op("s_nand_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !(a & e))),
    op("s_nor_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !(a | e))),
    op("s_xnor_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !(a ^ e))),
    op("s_andn1_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !a & e)),
    op("s_and_not0_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !a & e)),
    op("s_orn1_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !a | e)),
    op("s_or_not0_saveexec_b64", |w, i| saveexec64(w, i, |a, e| !a | e)),
    op("s_andn2_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a & !e)),
    op("s_and_not1_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a & !e)),
    op("s_orn2_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a | !e)),
    op("s_or_not1_saveexec_b64", |w, i| saveexec64(w, i, |a, e| a | !e)),
    op("s_andn1_wrexec_b32", |w, i| wrexec32(w, i, |a, e| !a & e)),
    op("s_and_not0_wrexec_b32", |w, i| wrexec32(w, i, |a, e| !a & e)),
    op("s_andn2_wrexec_b32", |w, i| wrexec32(w, i, |a, e| a & !e)),
    op("s_and_not1_wrexec_b32", |w, i| wrexec32(w, i, |a, e| a & !e)),
    op("s_andn1_wrexec_b64", |w, i| wrexec64(w, i, |a, e| !a & e)),
    op("s_and_not0_wrexec_b64", |w, i| wrexec64(w, i, |a, e| !a & e)),
    op("s_andn2_wrexec_b64", |w, i| wrexec64(w, i, |a, e| a & !e)),
    op("s_and_not1_wrexec_b64", |w, i| wrexec64(w, i, |a, e| a & !e)),
    op("s_memtime", |w, i| w.set_s64(i.dst, ticks())),
    op("s_memrealtime", |w, i| w.set_s64(i.dst, ticks())),
    op("s_sendmsg_rtn_b32", |w, _| w.stop("messages with an answer are not modelled")),
    op("s_sendmsg_rtn_b64", |w, _| w.stop("messages with an answer are not modelled")),
    // SOP2
    op("s_add_u32", |w, i| s2_carry(w, i, |a, b, _| add(a, b, false))),
    op("s_add_co_u32", |w, i| s2_carry(w, i, |a, b, _| add(a, b, false))),
    op("s_addc_u32", |w, i| s2_carry(w, i, add)),
    op("s_add_co_ci_u32", |w, i| s2_carry(w, i, add)),
    op("s_sub_u32", |w, i| s2_carry(w, i, |a, b, _| sub(a, b, false))),
    op("s_sub_co_u32", |w, i| s2_carry(w, i, |a, b, _| sub(a, b, false))),
    op("s_subb_u32", |w, i| s2_carry(w, i, sub)),
    op("s_sub_co_ci_u32", |w, i| s2_carry(w, i, sub)),
    op("s_add_i32", |w, i| s2_carry(w, i, |a, b, _| add_i32(a, b))),
    op("s_add_co_i32", |w, i| s2_carry(w, i, |a, b, _| add_i32(a, b))),
    op("s_sub_i32", |w, i| s2_carry(w, i, |a, b, _| sub_i32(a, b))),
    op("s_sub_co_i32", |w, i| s2_carry(w, i, |a, b, _| sub_i32(a, b))),
    op("s_absdiff_i32", |w, i| s2_scc(w, i, |a, b| (a as i32).wrapping_sub(b as i32).wrapping_abs() as u32)),
    op("s_min_i32", |w, i| s2_carry(w, i, |a, b, _| if (a as i32) < (b as i32) { (a, true) } else { (b, false) })),
    op("s_min_u32", |w, i| s2_carry(w, i, |a, b, _| if a < b { (a, true) } else { (b, false) })),
    op("s_max_i32", |w, i| s2_carry(w, i, |a, b, _| if (a as i32) >= (b as i32) { (a, true) } else { (b, false) })),
    op("s_max_u32", |w, i| s2_carry(w, i, |a, b, _| if a >= b { (a, true) } else { (b, false) })),
    op("s_cselect_b32", |w, i| {
        let value = w.s32(i.src[usize::from(!w.scc)]);
        w.set_s32(i.dst, value);
    }),
    op("s_cselect_b64", |w, i| {
        let value = w.s64(i.src[usize::from(!w.scc)]);
        w.set_s64(i.dst, value);
    }),
    op("s_and_b32", |w, i| s2_scc(w, i, |a, b| a & b)),
    op("s_and_b64", |w, i| d2_scc(w, i, |a, b| a & b)),
    op("s_or_b32", |w, i| s2_scc(w, i, |a, b| a | b)),
    op("s_or_b64", |w, i| d2_scc(w, i, |a, b| a | b)),
    op("s_xor_b32", |w, i| s2_scc(w, i, |a, b| a ^ b)),
    op("s_xor_b64", |w, i| d2_scc(w, i, |a, b| a ^ b)),
    op("s_andn2_b32", |w, i| s2_scc(w, i, |a, b| a & !b)),
    op("s_and_not1_b32", |w, i| s2_scc(w, i, |a, b| a & !b)),
    op("s_andn2_b64", |w, i| d2_scc(w, i, |a, b| a & !b)),
    op("s_and_not1_b64", |w, i| d2_scc(w, i, |a, b| a & !b)),
    op("s_orn2_b32", |w, i| s2_scc(w, i, |a, b| a | !b)),
    op("s_or_not1_b32", |w, i| s2_scc(w, i, |a, b| a | !b)),
    op("s_orn2_b64", |w, i| d2_scc(w, i, |a, b| a | !b)),
    op("s_or_not1_b64", |w, i| d2_scc(w, i, |a, b| a | !b)),
    op("s_nand_b32", |w, i| s2_scc(w, i, |a, b| !(a & b))),
    op("s_nand_b64", |w, i| d2_scc(w, i, |a, b| !(a & b))),
    op("s_nor_b32", |w, i| s2_scc(w, i, |a, b| !(a | b))),
    op("s_nor_b64", |w, i| d2_scc(w, i, |a, b| !(a | b))),
    op("s_xnor_b32", |w, i| s2_scc(w, i, |a, b| !(a ^ b))),
    op("s_xnor_b64", |w, i| d2_scc(w, i, |a, b| !(a ^ b))),
    op("s_lshl_b32", |w, i| s2_scc(w, i, |a, b| a << (b & 31))),
    op("s_lshl_b64", |w, i| d_s_scc(w, i, |a, b| a << (b & 63))),
    op("s_lshr_b32", |w, i| s2_scc(w, i, |a, b| a >> (b & 31))),
    op("s_lshr_b64", |w, i| d_s_scc(w, i, |a, b| a >> (b & 63))),
    op("s_ashr_i32", |w, i| s2_scc(w, i, |a, b| (a as i32 >> (b & 31)) as u32)),
    op("s_ashr_i64", |w, i| d_s_scc(w, i, |a, b| (a as i64 >> (b & 63)) as u64)),
    op("s_bfm_b32", |w, i| s2(w, i, |a, b| bfm(a, b, 32) as u32)),
    op("s_bfm_b64", |w, i| {
        let result = bfm(w.s32(i.src[0]), w.s32(i.src[1]), 64);
        w.set_s64(i.dst, result);
    }),
    op("s_mul_i32", |w, i| s2(w, i, u32::wrapping_mul)),
    op("s_mul_hi_u32", |w, i| s2(w, i, |a, b| (u64::from(a) * u64::from(b) >> 32) as u32)),
    op("s_mul_hi_i32", |w, i| s2(w, i, |a, b| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32)),
    op("s_bfe_u32", |w, i| s2_scc(w, i, |a, b| bfe(u64::from(a), b, 32, false) as u32)),
    op("s_bfe_i32", |w, i| s2_scc(w, i, |a, b| bfe(u64::from(a), b, 32, true) as u32)),
    op("s_bfe_u64", |w, i| d_s_scc(w, i, |a, b| bfe(a, b, 64, false))),
    op("s_bfe_i64", |w, i| d_s_scc(w, i, |a, b| bfe(a, b, 64, true))),
    op("s_lshl1_add_u32", |w, i| s2_carry(w, i, |a, b, _| shift_add(a, b, 1))),
    op("s_lshl2_add_u32", |w, i| s2_carry(w, i, |a, b, _| shift_add(a, b, 2))),
    op("s_lshl3_add_u32", |w, i| s2_carry(w, i, |a, b, _| shift_add(a, b, 3))),
    op("s_lshl4_add_u32", |w, i| s2_carry(w, i, |a, b, _| shift_add(a, b, 4))),
    op("s_pack_ll_b32_b16", |w, i| s2(w, i, |a, b| a & 0xffff | b << 16)),
    op("s_pack_lh_b32_b16", |w, i| s2(w, i, |a, b| a & 0xffff | b & 0xffff_0000)),
    op("s_pack_hh_b32_b16", |w, i| s2(w, i, |a, b| a >> 16 | b & 0xffff_0000)),
    op("s_pack_hl_b32_b16", |w, i| s2(w, i, |a, b| a >> 16 | b << 16)),
    op("s_add_nc_u64", |w, i| d2(w, i, u64::wrapping_add)),
    op("s_add_u64", |w, i| d2(w, i, u64::wrapping_add)),
    op("s_sub_nc_u64", |w, i| d2(w, i, u64::wrapping_sub)),
    op("s_sub_u64", |w, i| d2(w, i, u64::wrapping_sub)),
    op("s_mul_u64", |w, i| d2(w, i, u64::wrapping_mul)),
    // SOPK
    op("s_movk_i32", |w, i| s1(w, i, |a| a as u16 as i16 as u32)),
    op("s_cmovk_i32", |w, i| {
        if w.scc {
            s1(w, i, |a| a as u16 as i16 as u32);
        }
    }),
    op("s_addk_i32", add_k),
    op("s_addk_co_i32", add_k),
    op("s_mulk_i32", |w, i| {
        let Dst::S(index) = i.dst else { return };
        w.scalar[index as usize] = w.scalar[index as usize].wrapping_mul(w.s32(i.src[0]) as u16 as i16 as u32);
    }),
    Entry { name: "s_getreg_b32", shape: Shape::HardwareRegister, run: getreg },
    Entry { name: "s_setreg_b32", shape: Shape::HardwareRegister, run: setreg },
    Entry { name: "s_setreg_imm32_b32", shape: Shape::HardwareRegister, run: setreg },
    op_sources("s_denorm_mode", denorm_mode),
    op_sources("s_round_mode", round_mode),
];

fn add_i32(a: u32, b: u32) -> (u32, bool) {
    let (result, overflow) = (a as i32).overflowing_add(b as i32);
    signed_overflow(result, overflow)
}

fn sub_i32(a: u32, b: u32) -> (u32, bool) {
    let (result, overflow) = (a as i32).overflowing_sub(b as i32);
    signed_overflow(result, overflow)
}

fn shift_add(a: u32, b: u32, by: u32) -> (u32, bool) {
    let sum = (u64::from(a) << by) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}

fn add_k(w: &mut Wave, i: &Inst) {
    let Dst::S(index) = i.dst else { return };
    let (result, overflow) = add_i32(w.scalar[index as usize], w.s32(i.src[0]) as u16 as i16 as u32);
    w.scalar[index as usize] = result;
    w.scc = overflow;
}
