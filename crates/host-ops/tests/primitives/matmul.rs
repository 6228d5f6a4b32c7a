//! Matrix products against three loops in double precision.
use graph::{DType, Prim};
use proptest::prelude::*;
use testkit::ops::matmul::Product;
use testkit::ops::{ARRANGEMENTS, Arrangement, Sample, dense, reversed, spread, tensor};

use crate::common::{self, arrangement, error, laid};

fn check(dtypes: [DType; 3], [batch, m, n, k]: [usize; 4], layouts: [Arrangement; 3], alpha: f32, seed: u64) {
    let case = Product { alpha, ..Product::new([batch, m, k, n]) };
    let [a, b] = case.inputs();
    let inputs = vec![laid(layouts[0](0, dtypes[0], &a), seed), laid(layouts[1](1, dtypes[1], &b), seed + 1)];
    let sample = Sample::new(case.prim(), inputs, vec![layouts[2](2, dtypes[2], &case.output())]);
    // Sums of k products of size up to 4.
    let scale = (k as f64).max(1.0).sqrt() * 4.0;
    common::check(&sample, &[case.expected(&sample.values())], error(dtypes[2]) * scale, (case, &sample.step));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn agrees_with_three_loops(
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64]),
        extents in (1usize..4, 0usize..40, 0usize..70, 0usize..40),
        layouts in (arrangement(), arrangement(), arrangement()),
        seed in 0u64..1000,
    ) {
        let (batch, m, n, k) = extents;
        check([dtype; 3], [batch, m, n, k], layouts.into(), 1.0, seed);
    }
}

#[test]
fn deep_and_wide_products_are_split_into_blocks() {
    for extents in [[1, 30, 290, 520], [2, 13, 33, 257], [1, 5, 40, 1000], [2, 300, 3, 300], [1, 25, 64, 512]] {
        let layouts: [[Arrangement; 3]; 3] = [[dense; 3], [reversed; 3], [dense, reversed, spread]];
        for layouts in layouts {
            check([DType::F32; 3], extents, layouts, 0.5, 3);
        }
    }
}

#[test]
fn a_large_right_operand_is_read_in_place_with_prefetching() {
    // Many row strips, a partial last column strip, and several depth blocks.
    check([DType::F32; 3], [1, 40, 430, 320], [dense; 3], 1.0, 4);
    check([DType::F16; 3], [1, 40, 430, 620], [dense; 3], 1.0, 4);
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
        for layout in ARRANGEMENTS {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32] {
                check([dtype; 3], extents, [dense, layout, dense], 1.0, 5);
                check([dtype; 3], extents, [layout, dense, spread], 1.0, 6);
            }
        }
    }
}

#[test]
fn byte_products_are_summed_in_32_bits() {
    for a in [DType::I8, DType::U8] {
        for b in [DType::I8, DType::U8] {
            for extents in [[2, 7, 19, 65], [1, 1, 300, 65]] {
                check([a, b, DType::I32], extents, [dense; 3], 1.0, 9);
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
        let inputs = [[1, 2, 3], [1, 3, 2]].iter().zip(0..);
        let inputs = inputs.map(|(shape, at)| (dense(at, dtype, shape), tensor(dtype, [value; 6]))).collect();
        let sample = Sample::new(Prim::matmul(1.0), inputs, vec![dense(2, dtype, &[1, 2, 2])]);
        common::check(&sample, &[vec![want; 4]], 0.0, dtype);
    }
}

#[test]
fn infinities_do_not_spread_to_other_columns() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let a = (dense(0, DType::F32, &[1, 2, 2]), tensor(DType::F32, [1.0, 2.0, 3.0, 4.0]));
    let b = (dense(1, DType::F32, &[1, 2, 3]), tensor(DType::F32, [inf, 1.0, nan, 0.0, 1.0, 1.0]));
    let sample = Sample::new(Prim::matmul(1.0), vec![a, b], vec![dense(2, DType::F32, &[1, 2, 3])]);
    common::check(&sample, &[vec![inf, 3.0, nan, inf, 7.0, nan]], 0.0, "infinities");
}
