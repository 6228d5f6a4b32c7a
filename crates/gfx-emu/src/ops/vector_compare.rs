//! Comparisons of all lanes, which write a mask: to a scalar register, or to EXEC.

use super::float::is_class;
use super::lane::{
    compare_b16, compare_b32, compare_b64, compare_f16, compare_f32, compare_f64, source_f16, source_f32, source_f64,
    write_compare,
};
use super::{Entry, Shape, op};
use crate::inst::{Dst, Inst, reg};
use crate::wave::{LANES, Wave};

/// A comparison that writes EXEC. On gfx9 the text names a second result.
#[inline(always)]
fn exec(w: &mut Wave, i: &Inst, run: fn(&mut Wave, &Inst)) {
    run(w, i);
    if let Dst::S(index) = i.dst
        && index != reg::EXEC
    {
        let mask = w.mask(index);
        w.set_exec(mask);
    }
}

fn class_f32(w: &mut Wave, i: &Inst) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(w.halves) {
        let (mut room0, mut room1) = ([0; LANES], [0; LANES]);
        let a = source_f32(w, i, 0, half, &mut room0);
        let b = w.lanes32(i.src[1], half, &mut room1);
        for lane in 0..LANES {
            out[lane] = u32::from(is_class(u64::from(a[lane]), 0x7f80_0000, 0x40_0000, 0x8000_0000, b[lane]));
        }
    }
    write_compare(w, i, result);
}

fn class_f16(w: &mut Wave, i: &Inst) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(w.halves) {
        let (a, b) = (source_f16(w, i, 0, half), w.lanes16(i, 1, half));
        for lane in 0..LANES {
            out[lane] = u32::from(is_class(u64::from(a[lane]), 0x7c00, 0x200, 0x8000, b[lane]));
        }
    }
    write_compare(w, i, result);
}

fn class_f64(w: &mut Wave, i: &Inst) {
    let mut result = [[0; LANES]; 2];
    for (half, out) in result.iter_mut().enumerate().take(w.halves) {
        let mut room = [0; LANES];
        let a = source_f64(w, i, 0, half);
        let b = w.lanes32(i.src[1], half, &mut room);
        for lane in 0..LANES {
            out[lane] = u32::from(is_class(a[lane].to_bits(), 0x7ff << 52, 1 << 51, 1 << 63, b[lane]));
        }
    }
    write_compare(w, i, result);
}

/// The entry for a mask and the one for EXEC.
macro_rules! pair {
    ($test:literal, $kind:literal, $run:expr) => {
        [
            op(concat!("v_cmp_", $test, $kind), $run),
            Entry { name: concat!("v_cmpx_", $test, $kind), shape: Shape::CompareExec, run: |w, i| exec(w, i, $run) },
        ]
    };
}

/// The six comparisons of a kind of integer.
macro_rules! integers {
    ($kind:literal, $compare:ident, $cast:ty) => {
        [
            pair!("eq_", $kind, |w, i| $compare(w, i, |a, b| a == b)),
            pair!("ne_", $kind, |w, i| $compare(w, i, |a, b| a != b)),
            pair!("lt_", $kind, |w, i| $compare(w, i, |a, b| (a as $cast) < (b as $cast))),
            pair!("le_", $kind, |w, i| $compare(w, i, |a, b| (a as $cast) <= (b as $cast))),
            pair!("gt_", $kind, |w, i| $compare(w, i, |a, b| (a as $cast) > (b as $cast))),
            pair!("ge_", $kind, |w, i| $compare(w, i, |a, b| (a as $cast) >= (b as $cast))),
        ]
    };
}

/// The comparisons of a kind of float: `n` negates, so that NaN makes it true; `o` and `u` are ordered and unordered.
macro_rules! floats {
    ($kind:literal, $compare:ident) => {
        [
            pair!("eq_", $kind, |w, i| $compare(w, i, |a, b| a == b)),
            pair!("neq_", $kind, |w, i| $compare(w, i, |a, b| a != b)),
            pair!("lg_", $kind, |w, i| $compare(w, i, |a, b| a < b || a > b)),
            pair!("nlg_", $kind, |w, i| $compare(w, i, |a, b| !(a < b || a > b))),
            pair!("lt_", $kind, |w, i| $compare(w, i, |a, b| a < b)),
            pair!("nlt_", $kind, |w, i| $compare(w, i, |a, b| !(a < b))),
            pair!("le_", $kind, |w, i| $compare(w, i, |a, b| a <= b)),
            pair!("nle_", $kind, |w, i| $compare(w, i, |a, b| !(a <= b))),
            pair!("gt_", $kind, |w, i| $compare(w, i, |a, b| a > b)),
            pair!("ngt_", $kind, |w, i| $compare(w, i, |a, b| !(a > b))),
            pair!("ge_", $kind, |w, i| $compare(w, i, |a, b| a >= b)),
            pair!("nge_", $kind, |w, i| $compare(w, i, |a, b| !(a >= b))),
            pair!("o_", $kind, |w, i| $compare(w, i, |a, b| !(a.is_nan() || b.is_nan()))),
            pair!("u_", $kind, |w, i| $compare(w, i, |a, b| a.is_nan() || b.is_nan())),
        ]
    };
}

const INT: [[[Entry; 2]; 6]; 6] = [
    integers!("u32", compare_b32, u32),
    integers!("i32", compare_b32, i32),
    integers!("u64", compare_b64, u64),
    integers!("i64", compare_b64, i64),
    integers!("u16", compare_b16, u16),
    integers!("i16", compare_b16, i16),
];

const FLOAT: [[[Entry; 2]; 14]; 3] =
    [floats!("f32", compare_f32), floats!("f64", compare_f64), floats!("f16", compare_f16)];

const CLASS: [[Entry; 2]; 3] =
    [pair!("class_", "f32", class_f32), pair!("class_", "f16", class_f16), pair!("class_", "f64", class_f64)];

pub const TABLE: &[Entry] = {
    static INTS: [[[Entry; 2]; 6]; 6] = INT;
    INTS.as_flattened().as_flattened()
};
pub const FLOATS: &[Entry] = {
    static ALL: [[[Entry; 2]; 14]; 3] = FLOAT;
    ALL.as_flattened().as_flattened()
};
pub const CLASSES: &[Entry] = {
    static ALL: [[Entry; 2]; 3] = CLASS;
    ALL.as_flattened()
};
