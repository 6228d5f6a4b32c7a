//! Matrix products: WMMA of RDNA and MFMA of CDNA.
//!
//! A product has M x M results over K. What each lane holds differs by family: [`Layout`] describes it. Operands are
//! gathered into matrices first, so that the product itself is a loop over neighbouring numbers.

use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::{Entry, op};
use crate::Family;
use crate::inst::{Dst, Inst, Src};
use crate::simd::wide;
use crate::wave::Wave;

/// An element's format in the operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    F32,
    F16,
    Bf16,
    I8,
    U8,
    U4,
    F64,
}

impl Kind {
    fn bits(self) -> u32 {
        match self {
            Kind::F64 => 64,
            Kind::F32 => 32,
            Kind::F16 | Kind::Bf16 => 16,
            Kind::I8 | Kind::U8 => 8,
            Kind::U4 => 4,
        }
    }
}

/// What a lane's sum is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    F32,
    /// In both halves of registers, or in one of them.
    F16,
    Bf16,
    I32,
    F64,
}

/// The formats and sizes of an instruction.
#[derive(Clone, Copy)]
struct Product {
    kind: Kind,
    sum: Sum,
    m: u32,
    k: u32,
}

/// The most elements of an operand or of the results.
const MOST: usize = 1024;

/// Where elements lie.
#[derive(Clone, Copy)]
struct Layout {
    /// Elements of an operand in a lane: lane `at + m * (k / per)` has element `k % per` of row or column `at`.
    per: u32,
    /// Results in a lane.
    slots: u32,
    /// Results in neighbouring slots that are in neighbouring rows.
    run: u32,
    /// Rows between the runs of a lane.
    step: u32,
    /// Rows between a lane and the lane `m` after it.
    lane_step: u32,
    /// Results of 16 bits share registers.
    packed: bool,
}

impl Layout {
    fn of(w: &Wave, product: Product) -> Layout {
        let (lanes, m) = (w.lanes(), product.m);
        let slots = m * m / lanes;
        match w.target.family() {
            // Groups of four rows go round the lanes; 64-bit rows go one by one.
            Family::Cdna => {
                let run = if product.sum == Sum::F64 { 1 } else { 4 };
                Layout { per: m * product.k / 64, slots, run, step: run * 64 / m, lane_step: run, packed: false }
            }
            // The halves of a wave split k.
            Family::Rdna4 => {
                let per = m * product.k / lanes;
                Layout { per, slots, run: slots, step: m, lane_step: slots, packed: true }
            }
            // Each group of 16 lanes has all of the operands, and every n-th row of the results.
            Family::Rdna2 | Family::Rdna3 => {
                Layout { per: product.k, slots, run: 1, step: lanes / m, lane_step: 1, packed: false }
            }
        }
    }

    /// The row of a lane's result.
    #[inline(always)]
    fn row(&self, lane: u32, slot: u32, m: u32) -> u32 {
        slot / self.run * self.step + lane / m * self.lane_step + slot % self.run
    }
}

/// An operand's elements, as they lie in lanes, to `place(row or column, k)`.
#[inline(always)]
fn gather<T: Copy + Default>(
    w: &Wave,
    src: Src,
    product: Product,
    per: u32,
    place: impl Fn(u32, u32) -> u32,
    read: impl Fn(u64) -> T,
) -> [T; MOST] {
    let mut all = [T::default(); MOST];
    let Src::V(first) = src else { return all };
    let (bits, m) = (product.kind.bits(), product.m);
    for lane in 0..m * product.k / per {
        for at in 0..per {
            let bit = at * bits;
            let word = |index: u32| w.lane(first + (bit / 32 + index) as u16, lane);
            let raw = u64::from(word(0) >> (bit % 32));
            let raw = if bits == 64 { raw | u64::from(word(1)) << 32 } else { raw };
            all[place(lane % m, lane / m * per + at) as usize] = read(raw);
        }
    }
    all
}

/// Both operands: the first by rows, the second by k.
#[inline(always)]
fn operands<T: Copy + Default>(
    w: &Wave,
    i: &Inst,
    product: Product,
    per: u32,
    read: impl Fn(usize, u64) -> T,
) -> [[T; MOST]; 2] {
    let (m, k) = (product.m, product.k);
    let first = gather(w, i.src[0], product, per, |row, at| row * k + at, |raw| read(0, raw));
    [first, gather(w, i.src[1], product, per, |column, at| at * m + column, |raw| read(1, raw))]
}

/// Adds the product of two matrices to the results, k after k.
#[inline(always)]
fn multiply<T: Copy>(product: Product, [a, b]: &[[T; MOST]; 2], results: &mut [T; MOST], add: impl Fn(T, T, T) -> T) {
    let (m, depth) = (product.m as usize, product.k as usize);
    wide(
        #[inline(always)]
        || {
            for row in 0..m {
                let sums = &mut results[row * m..][..m];
                for k in 0..depth {
                    let (factor, line) = (a[row * depth + k], &b[k * m..][..m]);
                    for column in 0..m {
                        sums[column] = add(factor, line[column], sums[column]);
                    }
                }
            }
        },
    );
}

/// The results before the product, by rows.
#[inline(always)]
fn sums<T: Copy + Default>(w: &Wave, m: u32, layout: Layout, read: impl Fn(u32, u32) -> T) -> [T; MOST] {
    let mut all = [T::default(); MOST];
    for slot in 0..layout.slots {
        for lane in 0..w.lanes() {
            all[(layout.row(lane, slot, m) * m + lane % m) as usize] = read(lane, slot);
        }
    }
    all
}

/// Writes the results to the lanes. Inactive lanes are written too.
#[inline(always)]
fn scatter<T: Copy>(
    w: &mut Wave,
    m: u32,
    layout: Layout,
    results: &[T; MOST],
    mut write: impl FnMut(&mut Wave, u32, u32, T),
) {
    for slot in 0..layout.slots {
        for lane in 0..w.lanes() {
            write(w, lane, slot, results[(layout.row(lane, slot, m) * m + lane % m) as usize]);
        }
    }
}

/// One product.
fn run(w: &mut Wave, i: &Inst, product: Product) {
    let Dst::V(first) = i.dst else { return };
    if w.is(Family::Cdna) && i.imm != 0 {
        return w.stop("broadcasts and permutations of MFMA operands are not modelled");
    }
    let (layout, m) = (Layout::of(w, product), product.m);
    match product.sum {
        Sum::I32 => integers(w, i, product, layout, first),
        Sum::F64 => {
            let factors = operands(w, i, product, layout.per, |_, raw| f64::from_bits(raw));
            let third = i.src[2];
            let mut results = sums(w, m, layout, |lane, slot| match third {
                Src::V(third) => {
                    let (low, high) =
                        (w.lane(third + 2 * slot as u16, lane), w.lane(third + 2 * slot as u16 + 1, lane));
                    f64::from_bits(u64::from(low) | u64::from(high) << 32)
                }
                constant => f64::from_bits(w.s64(constant)),
            });
            multiply(product, &factors, &mut results, f64::mul_add);
            scatter(w, m, layout, &results, |w, lane, slot, value| {
                w.set_lane(first + 2 * slot as u16, lane, value.to_bits() as u32);
                w.set_lane(first + 2 * slot as u16 + 1, lane, (value.to_bits() >> 32) as u32);
            });
        }
        Sum::F32 | Sum::F16 | Sum::Bf16 => floats(w, i, product, layout, first),
    }
}

fn integers(w: &mut Wave, i: &Inst, product: Product, layout: Layout, first: u16) {
    // neg_lo says which operands are signed.
    let signed = |operand: usize| i.mods.neg >> operand & 1 == 1;
    let factors = operands(w, i, product, layout.per, |operand, raw| {
        i64::from(match product.kind {
            Kind::U8 if signed(operand) => i32::from(raw as i8),
            Kind::U4 if signed(operand) => (raw as i32) << 28 >> 28,
            Kind::I8 => i32::from(raw as i8),
            Kind::U4 => raw as i32 & 15,
            _ => i32::from(raw as u8),
        })
    });
    let third = i.src[2];
    let mut results = sums(w, product.m, layout, |lane, slot| match third {
        Src::V(third) => i64::from(w.lane(third + slot as u16, lane) as i32),
        constant => i64::from(w.s32(constant) as i32),
    });
    multiply(product, &factors, &mut results, |a, b, sum| sum + a * b);
    let clamp = i.mods.clamp;
    scatter(w, product.m, layout, &results, |w, lane, slot, sum| {
        let sum = if clamp { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { sum };
        w.set_lane(first + slot as u16, lane, sum as u32);
    });
}

fn floats(w: &mut Wave, i: &Inst, product: Product, layout: Layout, first: u16) {
    let negated = |operand: usize| i.mods.neg >> operand & 1 == 1;
    let factors = operands(w, i, product, layout.per, |operand, raw| {
        let value = match product.kind {
            Kind::F16 => f16_to_f32(raw as u32 & 0xffff),
            Kind::Bf16 => bf16_to_f32(raw as u32 & 0xffff),
            _ => f32::from_bits(raw as u32),
        };
        if negated(operand) { -value } else { value }
    });
    let (third, sum) = (i.src[2], product.sum);
    // On RDNA 3, op_sel chooses the half of each register.
    let place = |slot: u32| {
        if layout.packed { (slot as u16 / 2, slot & 1 == 1) } else { (slot as u16, i.mods.sel & 4 != 0) }
    };
    let mut results = sums(w, product.m, layout, |lane, slot| {
        let old = match (third, sum) {
            (Src::V(third), Sum::F16 | Sum::Bf16) => {
                let (register, high) = place(slot);
                let bits = w.lane(third + register, lane) >> if high { 16 } else { 0 } & 0xffff;
                if sum == Sum::F16 { f16_to_f32(bits) } else { bf16_to_f32(bits) }
            }
            (Src::V(third), _) => f32::from_bits(w.lane(third + slot as u16, lane)),
            (constant, _) => f32::from_bits(w.s32(constant)),
        };
        let old = if i.mods.neg_hi >> 2 & 1 == 1 { old.abs() } else { old };
        if negated(2) { -old } else { old }
    });
    multiply(product, &factors, &mut results, f32::mul_add);
    scatter(w, product.m, layout, &results, |w, lane, slot, value| match sum {
        Sum::F16 | Sum::Bf16 => {
            let bits = if sum == Sum::F16 { f32_to_f16(value) } else { f32_to_bf16(value) };
            let (register, high) = place(slot);
            let old = w.lane(first + register, lane);
            w.set_lane(first + register, lane, if high { old & 0xffff | bits << 16 } else { old & 0xffff_0000 | bits });
        }
        _ => w.set_lane(first + slot as u16, lane, value.to_bits()),
    });
}

const fn of(kind: Kind, sum: Sum, m: u32, k: u32) -> Product {
    Product { kind, sum, m, k }
}

pub const TABLE: &[Entry] = &[
    op("v_wmma_f32_16x16x16_f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 16, 16))),
    op("v_wmma_f32_16x16x16_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 16, 16))),
    op("v_wmma_f16_16x16x16_f16", |w, i| run(w, i, of(Kind::F16, Sum::F16, 16, 16))),
    op("v_wmma_bf16_16x16x16_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::Bf16, 16, 16))),
    op("v_wmma_i32_16x16x16_iu8", |w, i| run(w, i, of(Kind::U8, Sum::I32, 16, 16))),
    op("v_wmma_i32_16x16x16_iu4", |w, i| run(w, i, of(Kind::U4, Sum::I32, 16, 16))),
    op("v_wmma_i32_16x16x32_iu4", |w, i| run(w, i, of(Kind::U4, Sum::I32, 16, 32))),
    op("v_mfma_f32_16x16x16_f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 16, 16))),
    op("v_mfma_f32_16x16x16f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 16, 16))),
    op("v_mfma_f32_16x16x16_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 16, 16))),
    op("v_mfma_f32_16x16x16bf16_1k", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 16, 16))),
    op("v_mfma_f32_32x32x8_f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 32, 8))),
    op("v_mfma_f32_32x32x8f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 32, 8))),
    op("v_mfma_f32_32x32x8_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 32, 8))),
    op("v_mfma_f32_32x32x8bf16_1k", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 32, 8))),
    // gfx950: twice as deep.
    op("v_mfma_f32_16x16x32_f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 16, 32))),
    op("v_mfma_f32_16x16x32_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 16, 32))),
    op("v_mfma_f32_32x32x16_f16", |w, i| run(w, i, of(Kind::F16, Sum::F32, 32, 16))),
    op("v_mfma_f32_32x32x16_bf16", |w, i| run(w, i, of(Kind::Bf16, Sum::F32, 32, 16))),
    op("v_mfma_i32_16x16x64_i8", |w, i| run(w, i, of(Kind::I8, Sum::I32, 16, 64))),
    op("v_mfma_i32_32x32x32_i8", |w, i| run(w, i, of(Kind::I8, Sum::I32, 32, 32))),
    op("v_mfma_f32_16x16x4_f32", |w, i| run(w, i, of(Kind::F32, Sum::F32, 16, 4))),
    op("v_mfma_f32_16x16x4f32", |w, i| run(w, i, of(Kind::F32, Sum::F32, 16, 4))),
    op("v_mfma_f32_32x32x2_f32", |w, i| run(w, i, of(Kind::F32, Sum::F32, 32, 2))),
    op("v_mfma_f32_32x32x2f32", |w, i| run(w, i, of(Kind::F32, Sum::F32, 32, 2))),
    op("v_mfma_f64_16x16x4_f64", |w, i| run(w, i, of(Kind::F64, Sum::F64, 16, 4))),
    op("v_mfma_f64_16x16x4f64", |w, i| run(w, i, of(Kind::F64, Sum::F64, 16, 4))),
    op("v_mfma_i32_16x16x32_i8", |w, i| run(w, i, of(Kind::I8, Sum::I32, 16, 32))),
    op("v_mfma_i32_32x32x16_i8", |w, i| run(w, i, of(Kind::I8, Sum::I32, 32, 16))),
    op("v_mfma_i32_16x16x16i8", |w, i| run(w, i, of(Kind::I8, Sum::I32, 16, 16))),
];
