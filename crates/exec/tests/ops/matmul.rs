//! Compares matrix products with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers};

/// A matrix product with broadcast leading axes.
fn product(a: &Array, b: &Array) -> Array {
    let (rank_a, rank_b) = (a.shape.len(), b.shape.len());
    let rank = rank_a.max(rank_b);
    let mut shape = Vec::new();
    for axis in 0..rank - 2 {
        let extent = |shape: &[usize]| (axis + shape.len()).checked_sub(rank).map_or(1, |at| shape[at]);
        shape.push(if extent(&a.shape) == 1 { extent(&b.shape) } else { extent(&a.shape) });
    }
    shape.extend([a.shape[rank_a - 2], b.shape[rank_b - 1]]);
    Array::of(&shape, |index| {
        let (batch, row, column) = (&index[..rank - 2], index[rank - 2], index[rank - 1]);
        let term = |k: usize| a.at(&[batch, &[row, k]].concat()) * b.at(&[batch, &[k, column]].concat());
        (0..a.shape[rank_a - 1]).map(term).sum()
    })
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        DType::F32 => 1e-5,
        _ => 1e-12,
    }
}

const TYPES: [DType; 8] =
    [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::U32, DType::I64, DType::U64];

#[test]
fn every_type_and_every_kind_of_batch() {
    for dtype in TYPES {
        for (a, b) in [
            (&[3, 5][..], &[5, 4][..]),
            (&[2, 3, 5], &[5, 4]),
            (&[3, 5], &[2, 5, 4]),
            (&[2, 1, 3, 5], &[3, 5, 4]),
            (&[2, 3, 1, 5], &[2, 3, 5, 1]),
            (&[1, 2, 3, 5], &[2, 1, 5, 4]),
            (&[17, 33], &[33, 19]),
        ] {
            let (a, b) = (Array::random(dtype, a, 1), Array::random(dtype, b, 2));
            let case = Case::new("MatMul", 13, vec![a.tensor(dtype), b.tensor(dtype)], &[dtype]);
            let found = case.run().unwrap();
            let wanted = product(&a, &b);
            assert_eq!(found[0].shape(), wanted.shape);
            // Signed and unsigned integers wrap in the same way.
            assert_close(&numbers(&found[0]), &wanted.values, tolerance(dtype));
        }
    }
}

#[test]
fn vectors_are_rows_on_the_left_and_columns_on_the_right() {
    let dtype = DType::F32;
    for (a, b, wide_a, wide_b, shape) in [
        (&[4][..], &[4][..], &[1, 4][..], &[4, 1][..], &[][..]),
        (&[4], &[2, 4, 3], &[1, 4], &[2, 4, 3], &[2, 3]),
        (&[2, 3, 4], &[4], &[2, 3, 4], &[4, 1], &[2, 3]),
    ] {
        let (a, b) = (Array::random(dtype, a, 3), Array::random(dtype, b, 4));
        let case = Case::new("MatMul", 13, vec![a.tensor(dtype), b.tensor(dtype)], &[dtype]);
        let found = case.run().unwrap();
        let (a, b) = (Array { shape: wide_a.to_vec(), ..a }, Array { shape: wide_b.to_vec(), ..b });
        assert_eq!(found[0].shape(), shape);
        assert_close(&numbers(&found[0]), &product(&a, &b).values, 1e-5);
    }
}

#[test]
fn products_over_an_empty_axis_are_zero() {
    let (a, b) = (Array::random(DType::F32, &[2, 0], 1), Array::random(DType::F32, &[0, 3], 1));
    let case = Case::new("MatMul", 13, vec![a.tensor(DType::F32), b.tensor(DType::F32)], &[DType::F32]);
    assert_eq!(numbers(&case.run().unwrap()[0]), [0.0; 6]);
}

#[test]
fn gemm_scales_transposes_and_adds() {
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for bits in 0..4 {
            let (turn_a, turn_b) = (bits & 1 != 0, bits & 2 != 0);
            let a = Array::random(dtype, if turn_a { &[4, 3] } else { &[3, 4] }, 5);
            let b = Array::random(dtype, if turn_b { &[5, 4] } else { &[4, 5] }, 6);
            for c in [&[][..], &[1], &[5], &[1, 5], &[3, 1], &[3, 5]] {
                let c = Array::random(dtype, c, 7);
                let inputs = vec![a.tensor(dtype), b.tensor(dtype), c.tensor(dtype)];
                let case = Case::new("Gemm", 13, inputs, &[dtype])
                    .attribute("alpha", Attribute::Float(0.5))
                    .attribute("beta", Attribute::Float(-2.0))
                    .attribute("transA", Attribute::Int(i64::from(turn_a)))
                    .attribute("transB", Attribute::Int(i64::from(turn_b)));
                let wanted = Array::of(&[3, 5], |index| {
                    let (row, column) = (index[0], index[1]);
                    let left = |k: usize| if turn_a { a.at(&[k, row]) } else { a.at(&[row, k]) };
                    let right = |k: usize| if turn_b { b.at(&[column, k]) } else { b.at(&[k, column]) };
                    0.5 * (0..4).map(|k| left(k) * right(k)).sum::<f64>() - 2.0 * c.at(index)
                });
                assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, tolerance(dtype));
            }
        }
    }
}

#[test]
fn fused_products_transpose_batches_and_matrices() {
    let dtype = DType::F32;
    for bits in 0..16 {
        let flag = |bit: usize| bits >> bit & 1 != 0;
        // Logically `[batch 2, 3 rows, 4]` and `[batch 2, 4, 5 columns]`.
        let stored = |rows: usize, columns: usize, turn: bool, turn_batch: bool, seed: u64| {
            let (rows, columns) = if turn { (columns, rows) } else { (rows, columns) };
            let shape = if turn_batch { [rows, 2, columns] } else { [2, rows, columns] };
            Array::random(dtype, &shape, seed)
        };
        let read = |array: &Array, turn: bool, turn_batch: bool, batch: usize, row: usize, column: usize| {
            let (row, column) = if turn { (column, row) } else { (row, column) };
            array.at(&if turn_batch { [row, batch, column] } else { [batch, row, column] })
        };
        let a = stored(3, 4, flag(0), flag(1), 8);
        let b = stored(4, 5, flag(2), flag(3), 9);
        let mut case = Case::new("FusedMatMul", 1, vec![a.tensor(dtype), b.tensor(dtype)], &[dtype])
            .attribute("alpha", Attribute::Float(1.5))
            .attribute("transA", Attribute::Int(i64::from(flag(0))))
            .attribute("transBatchA", Attribute::Int(i64::from(flag(1))))
            .attribute("transB", Attribute::Int(i64::from(flag(2))))
            .attribute("transBatchB", Attribute::Int(i64::from(flag(3))));
        case.domain = "com.microsoft";
        let wanted = Array::of(&[2, 3, 5], |index| {
            let term = |k: usize| {
                read(&a, flag(0), flag(1), index[0], index[1], k) * read(&b, flag(2), flag(3), index[0], k, index[2])
            };
            1.5 * (0..4).map(term).sum::<f64>()
        });
        assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, 1e-5);
    }
}

/// An operand minus its zero points: a single number, or one for each row or column.
fn centred(array: &Array, zero: &Array) -> Array {
    Array::of(&array.shape, |index| array.at(index) - zero.at(index))
}

#[test]
fn integer_products_subtract_zero_points_and_do_not_overflow() {
    for (dtype_a, dtype_b) in [(DType::U8, DType::U8), (DType::U8, DType::I8), (DType::I8, DType::I8)] {
        let (a, b) = (Array::random(dtype_a, &[3, 300], 1), Array::random(dtype_b, &[300, 4], 2));
        for (rows, columns) in [(false, false), (true, false), (true, true)] {
            let zero_a = Array::random(dtype_a, if rows { &[3] } else { &[] }, 3);
            let zero_b = Array::random(dtype_b, if columns { &[4] } else { &[] }, 4);
            let inputs = vec![a.tensor(dtype_a), b.tensor(dtype_b), zero_a.tensor(dtype_a), zero_b.tensor(dtype_b)];
            let found = Case::new("MatMulInteger", 10, inputs, &[DType::I32]).run().unwrap();
            let zero_a = Array { shape: if rows { vec![3, 1] } else { vec![] }, ..zero_a };
            let wanted = product(&centred(&a, &zero_a), &centred(&b, &zero_b));
            assert_eq!(numbers(&found[0]), wanted.values);
        }
    }
}

fn scalar(dtype: DType, value: f64) -> Tensor {
    crate::common::tensor(dtype, &[], &[value])
}

#[test]
fn quantised_products_round_halves_to_even_and_saturate() {
    // Sums of 1, 3, 5 and -3 times 0.5 are ties; 1000 and -1000 saturate.
    let a = crate::common::tensor(DType::I8, &[6, 1], &[1.0, 3.0, 5.0, -3.0, 100.0, -100.0]);
    let b = crate::common::tensor(DType::I8, &[1, 1], &[10.0]);
    let case = |dtype: DType, zero: f64| {
        let one = || scalar(DType::F32, 1.0);
        let inputs = vec![
            a.clone(),
            one(),
            scalar(DType::I8, 0.0),
            b.clone(),
            scalar(DType::F32, 0.05),
            scalar(DType::I8, 0.0),
            one(),
            scalar(dtype, zero),
        ];
        numbers(&Case::new("QLinearMatMul", 21, inputs, &[dtype]).run().unwrap()[0])
    };
    assert_eq!(case(DType::I8, 1.0), [1.0, 3.0, 3.0, -1.0, 51.0, -49.0]);
    assert_eq!(case(DType::U8, 30.0), [30.0, 32.0, 32.0, 28.0, 80.0, 0.0]);
    assert_eq!(case(DType::I8, 100.0), [100.0, 102.0, 102.0, 98.0, 127.0, 50.0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_shapes_agree_with_the_loops(
        m in 1usize..20, k in 1usize..40, n in 1usize..20, batch in 1usize..4, shared in any::<bool>(), seed in any::<u64>(),
    ) {
        let a = Array::random(DType::F32, &[batch, m, k], seed);
        let b = Array::random(DType::F32, if shared { vec![k, n] } else { vec![batch, k, n] }.as_slice(), seed ^ 1);
        let case = Case::new("MatMul", 13, vec![a.tensor(DType::F32), b.tensor(DType::F32)], &[DType::F32]);
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &product(&a, &b).values, 2e-5);
    }
}
