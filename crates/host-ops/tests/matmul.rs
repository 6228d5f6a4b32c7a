//! Matrix products against three loops in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::{DType, Prim};
use proptest::prelude::*;

use support::{Data, Layout, Out, assert_near, run, tolerance};

fn reference(a: &Data, b: &Data, alpha: f64) -> Vec<f64> {
    let &[batch, rows, depth] = &a.shape[..] else { panic!() };
    let columns = b.shape[2];
    let mut out = Vec::new();
    for at in 0..batch {
        for row in 0..rows {
            for column in 0..columns {
                let sum: f64 = (0..depth).map(|p| a.at(&[at, row, p]) * b.at(&[at, p, column])).sum();
                out.push(alpha * sum);
            }
        }
    }
    out
}

fn check(types: [DType; 3], [batch, m, n, k]: [usize; 4], layouts: [Layout; 3], alpha: f32, seed: u64) {
    let a = Data::noise(types[0], &[batch, m, k], seed).laid(layouts[0]);
    let b = Data::noise(types[1], &[batch, k, n], seed + 1).laid(layouts[1]);
    let out = Out::new(types[2], &[batch, m, n]).laid(layouts[2]);
    let got = run(Prim::matmul(alpha), &[a.clone(), b.clone()], &[out]).unwrap();
    let want = reference(&a, &b, f64::from(alpha));
    // Sums of k products of size up to 4.
    let scale = (k as f64).max(1.0).sqrt() * 4.0;
    assert_near(&got[0], &want, tolerance(types[2]) * scale, (types, batch, m, n, k, layouts));
}

fn layout() -> impl Strategy<Value = Layout> {
    prop::sample::select(&Layout::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn agrees_with_three_loops(
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64]),
        extents in (1usize..4, 0usize..40, 0usize..70, 0usize..40),
        layouts in (layout(), layout(), layout()),
        seed in 0u64..1000,
    ) {
        let (batch, m, n, k) = extents;
        check([dtype; 3], [batch, m, n, k], layouts.into(), 1.0, seed);
    }
}

#[test]
fn cuts_deep_and_wide_products_into_blocks() {
    for extents in [[1, 30, 290, 520], [2, 13, 33, 257], [1, 5, 40, 1000], [2, 300, 3, 300], [1, 25, 64, 512]] {
        for layouts in [[Layout::Dense; 3], [Layout::Reversed; 3], [Layout::Dense, Layout::Reversed, Layout::Gaps]] {
            check([DType::F32; 3], extents, layouts, 0.5, 3);
        }
    }
}

#[test]
fn reads_a_large_right_operand_in_place_and_ahead() {
    // Many row strips, a partial last column strip, and several depth blocks.
    check([DType::F32; 3], [1, 40, 430, 320], [Layout::Dense; 3], 1.0, 4);
    check([DType::F16; 3], [1, 40, 430, 620], [Layout::Dense; 3], 1.0, 4);
}

#[test]
fn multiplies_vectors_and_matrices() {
    for extents in [
        [1, 1, 3000, 70],
        [1, 1, 4200, 40],
        [1, 1, 300, 600],
        [1, 3000, 1, 70],
        [4, 1, 50, 33],
        [4, 50, 1, 33],
        [1, 1, 1, 100],
        [1, 1, 5, 0],
    ] {
        for layout in Layout::ALL {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32] {
                check([dtype; 3], extents, [Layout::Dense, layout, Layout::Dense], 1.0, 5);
                check([dtype; 3], extents, [layout, Layout::Dense, Layout::Gaps], 1.0, 6);
            }
        }
    }
}

#[test]
fn adds_bytes_up_in_32_bits() {
    for a in [DType::I8, DType::U8] {
        for b in [DType::I8, DType::U8] {
            for extents in [[2, 7, 19, 65], [1, 1, 300, 65]] {
                check([a, b, DType::I32], extents, [Layout::Dense; 3], 1.0, 9);
            }
        }
    }
}

#[test]
fn integers_wrap_around() {
    for (dtype, value, want) in [
        (DType::I8, 100.0, f64::from((10_000i32 * 3) as i8)),
        (DType::U8, 200.0, f64::from((40_000i32 * 3) as u8)),
        (DType::I32, 65536.0, 0.0),
        (DType::U32, 3e9, f64::from(3_000_000_000u32.wrapping_mul(3_000_000_000).wrapping_mul(3))),
    ] {
        let a = Data::new(dtype, &[1, 2, 3], vec![value; 6]);
        let b = Data::new(dtype, &[1, 3, 2], vec![value; 6]);
        let got = run(Prim::matmul(1.0), &[a, b], &[Out::new(dtype, &[1, 2, 2])]).unwrap();
        assert_near(&got[0], &[want; 4], 0.0, dtype);
    }
}

#[test]
fn infinities_do_not_spread_to_other_columns() {
    let a = Data::new(DType::F32, &[1, 2, 2], vec![1.0, 2.0, 3.0, 4.0]);
    let b = Data::new(DType::F32, &[1, 2, 3], vec![f64::INFINITY, 1.0, f64::NAN, 0.0, 1.0, 1.0]);
    let got = run(Prim::matmul(1.0), &[a, b], &[Out::new(DType::F32, &[1, 2, 3])]).unwrap();
    assert_near(&got[0], &[f64::INFINITY, 3.0, f64::NAN, f64::INFINITY, 7.0, f64::NAN], 0.0, "");
}
