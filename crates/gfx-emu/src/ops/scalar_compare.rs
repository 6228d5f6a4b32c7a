//! Scalar comparisons: SOPC, and SOPK's with a constant.

use super::{Entry, op_sources};
use crate::inst::Inst;
use crate::wave::Wave;

#[inline(always)]
fn u(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> bool) {
    w.scc = f(w.s32(i.src[0]), w.s32(i.src[1]));
}

#[inline(always)]
fn s(w: &mut Wave, i: &Inst, f: impl Fn(i32, i32) -> bool) {
    w.scc = f(w.s32(i.src[0]) as i32, w.s32(i.src[1]) as i32);
}

/// With a signed 16-bit constant.
#[inline(always)]
fn k(w: &mut Wave, i: &Inst, f: impl Fn(i32, i32) -> bool) {
    w.scc = f(w.s32(i.src[0]) as i32, i32::from(w.s32(i.src[1]) as i16));
}

/// With an unsigned 16-bit constant.
#[inline(always)]
fn ku(w: &mut Wave, i: &Inst, f: impl Fn(u32, u32) -> bool) {
    w.scc = f(w.s32(i.src[0]), w.s32(i.src[1]) & 0xffff);
}

pub const TABLE: &[Entry] = &[
    op_sources("s_cmp_eq_i32", |w, i| u(w, i, |a, b| a == b)),
    op_sources("s_cmp_lg_i32", |w, i| u(w, i, |a, b| a != b)),
    op_sources("s_cmp_gt_i32", |w, i| s(w, i, |a, b| a > b)),
    op_sources("s_cmp_ge_i32", |w, i| s(w, i, |a, b| a >= b)),
    op_sources("s_cmp_lt_i32", |w, i| s(w, i, |a, b| a < b)),
    op_sources("s_cmp_le_i32", |w, i| s(w, i, |a, b| a <= b)),
    op_sources("s_cmp_eq_u32", |w, i| u(w, i, |a, b| a == b)),
    op_sources("s_cmp_lg_u32", |w, i| u(w, i, |a, b| a != b)),
    op_sources("s_cmp_gt_u32", |w, i| u(w, i, |a, b| a > b)),
    op_sources("s_cmp_ge_u32", |w, i| u(w, i, |a, b| a >= b)),
    op_sources("s_cmp_lt_u32", |w, i| u(w, i, |a, b| a < b)),
    op_sources("s_cmp_le_u32", |w, i| u(w, i, |a, b| a <= b)),
    op_sources("s_cmp_eq_u64", |w, i| w.scc = w.s64(i.src[0]) == w.s64(i.src[1])),
    op_sources("s_cmp_lg_u64", |w, i| w.scc = w.s64(i.src[0]) != w.s64(i.src[1])),
    op_sources("s_bitcmp0_b32", |w, i| u(w, i, |a, b| a >> (b & 31) & 1 == 0)),
    op_sources("s_bitcmp1_b32", |w, i| u(w, i, |a, b| a >> (b & 31) & 1 == 1)),
    op_sources("s_bitcmp0_b64", |w, i| w.scc = w.s64(i.src[0]) >> (w.s32(i.src[1]) & 63) & 1 == 0),
    op_sources("s_bitcmp1_b64", |w, i| w.scc = w.s64(i.src[0]) >> (w.s32(i.src[1]) & 63) & 1 == 1),
    op_sources("s_cmpk_eq_i32", |w, i| k(w, i, |a, b| a == b)),
    op_sources("s_cmpk_lg_i32", |w, i| k(w, i, |a, b| a != b)),
    op_sources("s_cmpk_gt_i32", |w, i| k(w, i, |a, b| a > b)),
    op_sources("s_cmpk_ge_i32", |w, i| k(w, i, |a, b| a >= b)),
    op_sources("s_cmpk_lt_i32", |w, i| k(w, i, |a, b| a < b)),
    op_sources("s_cmpk_le_i32", |w, i| k(w, i, |a, b| a <= b)),
    op_sources("s_cmpk_eq_u32", |w, i| ku(w, i, |a, b| a == b)),
    op_sources("s_cmpk_lg_u32", |w, i| ku(w, i, |a, b| a != b)),
    op_sources("s_cmpk_gt_u32", |w, i| ku(w, i, |a, b| a > b)),
    op_sources("s_cmpk_ge_u32", |w, i| ku(w, i, |a, b| a >= b)),
    op_sources("s_cmpk_lt_u32", |w, i| ku(w, i, |a, b| a < b)),
    op_sources("s_cmpk_le_u32", |w, i| ku(w, i, |a, b| a <= b)),
];
