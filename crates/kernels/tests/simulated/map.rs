//! Tests maps in the simulator.

use graph::expr::{Binary, Expr};
use graph::prim::Map;
use graph::{DType, Prim, Scalar, Step, View};

use crate::common::{SHIFT, check, dense, random, random_ints, simulate, step, strided};

fn map(expr: Expr, inputs: Vec<View>, y: View) -> Step {
    step(Prim::Map(Map { expr }), inputs, vec![y])
}

/// `a * 2 + b`, in the type of the first.
fn sum(a: DType, b: DType) -> Expr {
    let mut expr = Expr::new();
    let (x, y) = (expr.input(0, a), expr.input(1, b));
    let two = expr.constant(Scalar::Float(2.0), a);
    let double = expr.binary(Binary::Mul, x, two);
    let y = expr.cast(y, a.compute());
    let sum = expr.binary(Binary::Add, double, y);
    expr.cast(sum, a);
    expr
}

#[test]
fn dense_operands_of_all_lengths() {
    for (a, b, relative) in
        [(DType::F32, DType::F32, 1e-6), (DType::F16, DType::F32, 2e-3), (DType::F64, DType::I8, 0.0)]
    {
        for count in [1, 3, 64, 257, 2049] {
            let expr = sum(a, b);
            let step = map(expr, vec![dense(0, a, &[count]), dense(1, b, &[count])], dense(2, a, &[count]));
            check(&step, &[random(a, count, 1), random(b, count, 2)], &[count], relative);
        }
    }
}

#[test]
fn operands_that_repeat_along_rows_and_columns() {
    let dtype = DType::F32;
    for (shape, strides) in [
        ([6, 8, 16], [0isize, 0, 0]),
        ([6, 8, 16], [0, 0, 1]),
        ([6, 8, 16], [8, 1, 0]),
        ([6, 8, 16], [0, 1, 0]),
        ([6, 7, 7], [7, 0, 1]),
        ([6, 8, 6], [1, 6, 0]),
    ] {
        let elems: usize = shape.iter().product();
        let inputs = vec![dense(0, dtype, &shape), strided(1, dtype, &shape, &strides, 0)];
        let step = map(sum(dtype, dtype), inputs, dense(2, dtype, &shape));
        check(&step, &[random(dtype, elems, 1), random(dtype, 400, 2)], &[elems], 1e-6);
    }
}

#[test]
fn copies_between_any_strides() {
    for (dtype, shape, x, y, offset) in [
        // Transposes in registers, with complete and partial blocks, and with a batch in between.
        (DType::F32, vec![72, 100], vec![1, 72], vec![100, 1], 0),
        (DType::F16, vec![136, 144], vec![1, 136], vec![144, 1], 0),
        (DType::F64, vec![40, 34], vec![1, 40], vec![34, 1], 0),
        (DType::U8, vec![2, 160, 24], vec![3840, 1, 160], vec![3840, 24, 1], 0),
        (DType::Bool, vec![16, 16], vec![1, 16], vec![16, 1], 0),
        (DType::F32, vec![64, 2, 32], vec![1, 64, 128], vec![64, 32, 1], 64),
        // Transposes through complete and partial tiles.
        (DType::F32, vec![70, 50], vec![1, 70], vec![50, 1], 0),
        (DType::F16, vec![130, 66], vec![1, 130], vec![66, 1], 0),
        (DType::F64, vec![40, 33], vec![1, 40], vec![33, 1], 0),
        (DType::U8, vec![3, 70, 20], vec![1400, 1, 70], vec![1400, 20, 1], 0),
        (DType::F32, vec![20, 3, 30], vec![1, 20, 60], vec![90, 30, 1], 0),
        (DType::F32, vec![20, 30], vec![30, 1], vec![1, 20], 0),
        // Backwards, with gaps, and six axes that cannot be merged.
        (DType::F32, vec![5, 9], vec![-9, -1], vec![9, 1], 44),
        (DType::F16, vec![7, 16], vec![40, 2], vec![16, 1], 3),
        (DType::I64, vec![2, 3, 2, 3, 2, 3], vec![1, 2, 6, 12, 36, 72], vec![108, 36, 18, 6, 3, 1], 0),
        (DType::F32, vec![3, 8], vec![8, 1], vec![11, 1], 0),
    ] {
        let elems: usize = shape.iter().product();
        let room = shape.iter().zip(&y).map(|(&n, &s): (&usize, &isize)| (n - 1) * s.unsigned_abs()).sum::<usize>() + 1;
        let step = map(
            Expr::copy(dtype, dtype),
            vec![strided(0, dtype, &shape, &x, offset)],
            strided(1, dtype, &shape, &y, 0),
        );
        check(&step, &[random(dtype, elems * 3, 5)], &[room], 0.0);
    }
}

#[test]
fn rows_that_are_not_a_multiple_of_a_pack() {
    for (dtype, relative) in [(DType::F32, 1e-6), (DType::F16, 2e-3)] {
        let mut expr = sum(dtype, DType::F32);
        let (row, sum) = (expr.index(0), 4);
        let row = expr.cast(row, DType::F32);
        let total = expr.binary(Binary::Add, sum, row);
        expr.cast(total, dtype);
        for (shape, other) in [([3, 5, 49], [0, 1, 0]), ([2, 4, 7], [7, 0, 1]), ([1, 33, 13], [0, 1, 33])] {
            let elems: usize = shape.iter().product();
            let inputs = vec![dense(0, dtype, &shape), strided(1, DType::F32, &shape, &other, 0)];
            let step = map(expr.clone(), inputs, dense(2, dtype, &shape));
            check(&step, &[random(dtype, elems, 1), random(DType::F32, 500, 2)], &[elems], relative);
        }
    }
}

#[test]
fn a_transposed_operand_with_others() {
    let (shape, dtype) = ([3, 40, 50], DType::F16);
    let mut expr = sum(dtype, dtype);
    let (column, row) = (expr.index(2), expr.index(1));
    let both = expr.binary(Binary::Sub, column, row);
    let both = expr.cast(both, DType::F32);
    let sum = 4;
    let total = expr.binary(Binary::Add, sum, both);
    expr.cast(total, dtype);
    let inputs = vec![strided(0, dtype, &shape, &[2000, 1, 40], 0), strided(1, dtype, &shape, &[0, 50, 1], 0)];
    let step = map(expr, inputs, dense(2, dtype, &shape));
    check(&step, &[random(dtype, 6000, 1), random(dtype, 2000, 2)], &[6000], 2e-3);
}

#[test]
fn a_transposed_operand_with_others_in_packs() {
    for (dtype, relative) in [(DType::F32, 1e-6), (DType::F16, 2e-3)] {
        let shape = [2, 48, 32];
        let mut expr = sum(dtype, DType::F32);
        let (column, sum) = (expr.index(2), 4);
        let column = expr.cast(column, DType::F32);
        let total = expr.binary(Binary::Add, sum, column);
        expr.cast(total, dtype);
        for other in [[0, 32, 1], [0, 1, 0], [96, 2, 3]] {
            let inputs = vec![strided(0, dtype, &shape, &[1536, 1, 48], 0), strided(1, DType::F32, &shape, &other, 0)];
            let step = map(expr.clone(), inputs, dense(2, dtype, &shape));
            check(&step, &[random(dtype, 3072, 1), random(DType::F32, 1536, 2)], &[3072], relative);
        }
    }
}

#[test]
fn offsets_that_are_not_aligned_to_packs() {
    let dtype = DType::F32;
    let inputs = vec![strided(0, dtype, &[40], &[1], 1), strided(1, dtype, &[40], &[1], 0)];
    let step = map(sum(dtype, dtype), inputs, strided(2, dtype, &[40], &[1], 3));
    check(&step, &[random(dtype, 41, 1), random(dtype, 40, 2)], &[43], 1e-6);
}

#[test]
fn buffers_that_are_not_aligned_to_packs() {
    // Shifts every buffer by one element, so that none is aligned to a pack.
    SHIFT.set(1);
    dense_operands_of_all_lengths();
    operands_that_repeat_along_rows_and_columns();
    copies_between_any_strides();
    rows_that_are_not_a_multiple_of_a_pack();
    SHIFT.set(0);
}

#[test]
fn large_work_has_several_packs_per_thread() {
    let dtype = DType::U8;
    for (shape, x) in [([2, 300_000], [300_000, 1]), ([300_001, 1], [1, 1])] {
        let elems = shape[0] * shape[1];
        let step =
            map(Expr::copy(dtype, DType::F32), vec![strided(0, dtype, &shape, &x, 0)], dense(1, DType::F32, &shape));
        let source = random_ints(dtype, elems, 256, 3);
        let (found, _) = simulate(&step, std::slice::from_ref(&source), &[elems], "gfx942", 2).unwrap();
        assert!(found[0].scalars().zip(source.scalars()).all(|(found, wanted)| found.as_f64() == wanted.as_f64()));
    }
}

#[test]
fn indices_without_inputs() {
    let mut expr = Expr::new();
    let (row, column) = (expr.index(0), expr.index(1));
    let ten = expr.constant(Scalar::Int(10), DType::I64);
    let tens = expr.binary(Binary::Mul, row, ten);
    let sum = expr.binary(Binary::Add, tens, column);
    expr.cast(sum, DType::I32);
    check(&map(expr, vec![], dense(0, DType::I32, &[6, 9])), &[], &[54], 0.0);
    let mut seven = Expr::new();
    seven.constant(Scalar::Float(7.0), DType::F16);
    check(&map(seven, vec![], dense(0, DType::F16, &[3, 5])), &[], &[15], 0.0);
}

#[test]
fn empty_tensors_need_no_launch() {
    let step = map(sum(DType::F32, DType::F32), vec![dense(0, DType::F32, &[0, 3]); 2], dense(2, DType::F32, &[0, 3]));
    let work = kernels::work(&step, &kernels::Arch::new("gfx1100", 4)).unwrap();
    assert!(work.launches.is_empty());
}
