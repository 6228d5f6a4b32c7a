//! Maps against the planner's own evaluation, one element at a time.

use graph::expr::{Binary, Expr, Ref, Unary};
use graph::prim::Map;
use graph::{DType, Prim, Scalar};
use proptest::prelude::*;
use testkit::ops::map::{COMPARISONS, FLOAT_BINARY, FLOAT_UNARY, INT_BINARY, INT_UNARY};

use crate::common::{Case, Layout, assert_close, indices, layout, noise, tolerance, values};

/// Runs an expression and compares with its evaluation element by element.
fn check(expr: &Expr, dtypes: &[DType], layouts: &[Layout], into: DType, output: &Layout, seed: u64, threads: usize) {
    let mut case = Case::new(Prim::Map(Map { expr: expr.clone() })).threads(threads);
    for (number, (&dtype, layout)) in dtypes.iter().zip(layouts).enumerate() {
        case = case.input(dtype, layout, &values(dtype, output.elems(), seed + number as u64));
    }
    let inputs: Vec<Vec<Scalar>> = (0..dtypes.len()).map(|number| case.read(number)).collect();
    let got = case.output(into, output).run().unwrap().remove(0);
    let want: Vec<Scalar> = indices(&output.shape)
        .iter()
        .enumerate()
        .map(|(at, index)| {
            let elements: Vec<Scalar> = inputs.iter().map(|values| values[at]).collect();
            expr.eval(&elements, index).cast(into)
        })
        .collect();
    // The coarsest type in the expression determines the tolerance.
    let coarsest = expr.nodes().iter().map(|node| tolerance(node.1)).fold(tolerance(into), f64::max);
    assert_close(&got, &want, coarsest, &format!("{expr:?} of {dtypes:?}"));
}

fn check_dense(expr: &Expr, dtypes: &[DType], into: DType, count: usize) {
    let dense = Layout::dense(&[count]);
    check(expr, dtypes, &vec![dense.clone(); dtypes.len()], into, &dense, 7, 1);
}

#[test]
fn every_unary_operation_agrees_with_the_planner() {
    for dtype in DType::ALL {
        let ops: &[Unary] =
            if dtype.is_float() { &FLOAT_UNARY } else { &INT_UNARY[if dtype == DType::Bool { 3 } else { 0 }..] };
        let more = [Unary::Ceil, Unary::Floor, Unary::Round, Unary::Trunc];
        for &op in ops.iter().chain(more.iter().filter(|_| dtype.is_float())) {
            let mut expr = Expr::new();
            let x = expr.input(0, dtype);
            expr.unary(op, x);
            check_dense(&expr, &[dtype], dtype, 1500);
        }
        for op in [Unary::IsNan, Unary::IsInf] {
            let mut expr = Expr::new();
            let x = expr.input(0, dtype);
            expr.unary(op, x);
            check_dense(&expr, &[dtype], DType::Bool, 100);
        }
    }
}

#[test]
fn every_binary_operation_agrees_with_the_planner() {
    for dtype in DType::ALL {
        let ops: &[Binary] = if dtype.is_float() { &FLOAT_BINARY } else { &INT_BINARY };
        for &op in ops.iter().chain(&COMPARISONS) {
            let mut expr = Expr::new();
            let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
            expr.binary(op, a, b);
            let into = if op.is_comparison() { DType::Bool } else { dtype };
            check_dense(&expr, &[dtype, dtype], into, 1500);
        }
    }
}

#[test]
fn every_cast_agrees_with_the_planner() {
    for from in DType::ALL {
        for to in DType::ALL {
            check_dense(&Expr::copy(from, to), &[from], to, 1500);
        }
    }
}

#[test]
fn casts_of_numbers_out_of_range_wrap_as_the_planner_does() {
    let wild = [3e9, -3e9, 1e10, 255.5, -129.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e19, -1e19, 4e18];
    for from in [DType::F32, DType::F64] {
        for to in DType::ALL.into_iter().filter(|to| !to.is_float()) {
            let values: Vec<Scalar> = wild.iter().map(|&x| Scalar::Float(x).cast(from)).collect();
            let case = Case::new(Prim::Map(Map { expr: Expr::copy(from, to) })).dense(from, &[wild.len()], &values);
            let got = case.output(to, &Layout::dense(&[wild.len()])).run().unwrap().remove(0);
            let want: Vec<Scalar> = values.iter().map(|value| value.cast(to)).collect();
            assert_eq!(got, want, "{from} to {to}");
        }
    }
}

#[test]
fn every_operation_handles_infinities_and_nan() {
    let wild = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-45, 3e38, -3e38, 0.5];
    for dtype in [DType::F32, DType::F64] {
        for op in FLOAT_UNARY {
            let mut expr = Expr::new();
            let x = expr.input(0, dtype);
            expr.unary(op, x);
            let values: Vec<Scalar> = wild.iter().map(|&x| Scalar::Float(x).cast(dtype)).collect();
            let want: Vec<Scalar> = values.iter().map(|&x| expr.eval(&[x], &[])).collect();
            let case = Case::new(Prim::Map(Map { expr })).dense(dtype, &[wild.len()], &values);
            let got = case.output(dtype, &Layout::dense(&[wild.len()])).run().unwrap().remove(0);
            assert_close(&got, &want, 1e-6, &format!("{op:?} of {dtype}"));
        }
        for op in FLOAT_BINARY.into_iter().chain(COMPARISONS) {
            let mut expr = Expr::new();
            let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
            expr.binary(op, a, b);
            let pairs: Vec<(Scalar, Scalar)> = wild
                .iter()
                .flat_map(|&a| wild.iter().map(move |&b| (Scalar::Float(a).cast(dtype), Scalar::Float(b).cast(dtype))))
                .collect();
            let want: Vec<Scalar> = pairs.iter().map(|&(a, b)| expr.eval(&[a, b], &[])).collect();
            let (left, right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            let into = expr.result();
            let case = Case::new(Prim::Map(Map { expr })).dense(dtype, &[left.len()], &left).dense(
                dtype,
                &[left.len()],
                &right,
            );
            let got = case.output(into, &Layout::dense(&[left.len()])).run().unwrap().remove(0);
            assert_close(&got, &want, 1e-6, &format!("{op:?} of {dtype}"));
        }
    }
}

#[test]
fn a_map_in_place_reads_before_it_writes() {
    for (from, into) in
        [(DType::F32, DType::F32), (DType::I32, DType::F32), (DType::F16, DType::Bf16), (DType::U8, DType::Bool)]
    {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, from), expr.input(1, from));
        let product = expr.binary(Binary::Mul, a, b);
        let sum = expr.binary(Binary::Add, product, a);
        let last = expr.cast(sum, into);
        expr.finish(last);
        let (left, right) = (values(from, 5000, 1), values(from, 5000, 2));
        let case = Case::new(Prim::Map(Map { expr: expr.clone() })).threads(3);
        let case = case.dense(from, &[5000], &left).dense(from, &[5000], &right);
        let got = case.output_in_place(into, 0).run().unwrap().remove(0);
        let want: Vec<Scalar> = left.iter().zip(&right).map(|(&a, &b)| expr.eval(&[a, b], &[]).cast(into)).collect();
        assert_close(&got, &want, tolerance(into), &format!("{from} to {into}"));
    }
}

#[test]
fn transposes_of_every_width_move_every_element() {
    for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for shape in [[2, 33, 50], [3, 16, 16], [1, 5, 100], [4, 3, 70], [2, 200, 3]] {
            for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
                let from = Layout::arranged(&shape, &order, &[1; 3], &[false; 3], &[false; 3]);
                check(&Expr::copy(dtype, dtype), &[dtype], &[from], dtype, &Layout::dense(&shape), 3, 2);
            }
        }
    }
}

/// A random expression over inputs of the given types, with its result type.
fn random_expr(dtypes: &[DType], rank: usize, length: usize, seed: u64) -> Expr {
    let mut next = noise(seed);
    let mut expr = Expr::new();
    let mut known: Vec<Ref> =
        dtypes.iter().enumerate().map(|(number, &dtype)| expr.input(number as u16, dtype)).collect();
    let mut pick = move |count: usize| (next() % count as u64) as usize;
    for _ in 0..length {
        let a = known[pick(known.len())];
        let dtype = expr.dtype(a);
        let mates: Vec<Ref> = known.iter().copied().filter(|&at| expr.dtype(at) == dtype).collect();
        let b = mates[pick(mates.len())];
        let made = match pick(8) {
            0 if dtype.is_float() => {
                // Operations that stay bounded and do not magnify errors.
                let ops = [Unary::Neg, Unary::Abs, Unary::Tanh, Unary::Sigmoid, Unary::Erf, Unary::Sin];
                expr.unary(ops[pick(ops.len())], a)
            }
            0 if dtype == DType::Bool => expr.unary(Unary::Not, a),
            0 => expr.unary(INT_UNARY[pick(4)], a),
            1 | 2 if dtype.is_float() => {
                let ops = [Binary::Add, Binary::Sub, Binary::Max, Binary::Min];
                expr.binary(ops[pick(4)], a, b)
            }
            1 | 2 => expr.binary(INT_BINARY[pick(INT_BINARY.len())], a, b),
            // Floats may differ by a rounding error, so only integers are compared.
            3 if !dtype.is_float() => expr.binary(COMPARISONS[pick(6)], a, b),
            4 => {
                let conditions: Vec<Ref> = known.iter().copied().filter(|&at| expr.dtype(at) == DType::Bool).collect();
                if conditions.is_empty() { a } else { expr.select(conditions[pick(conditions.len())], a, b) }
            }
            5 if rank > 0 => expr.index(pick(rank) as u16),
            6 => expr.constant(Scalar::from_i64(pick(5) as i64 - if dtype.is_signed() { 2 } else { 0 }, dtype), dtype),
            7 if !dtype.is_float() => expr.cast(a, DType::ALL[pick(13)]),
            7 => expr.cast(a, [DType::F32, DType::F64, DType::F16, DType::Bf16][pick(4)]),
            _ => a,
        };
        known.push(made);
    }
    let last = known[known.len() - 1];
    expr.finish(last);
    expr
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        3 => prop::collection::vec(1usize..7, 0..5),
        1 => prop::collection::vec(0usize..3, 1..3),
        1 => (1usize..4, 100usize..700).prop_map(|(a, b)| vec![a, b]),
        1 => (300usize..900, 1usize..5).prop_map(|(a, b)| vec![a, b]),
        1 => (900usize..6000).prop_map(|n| vec![n]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 4000 }))]

    #[test]
    fn random_expressions_over_random_views_agree_with_the_planner(
        (shape, layouts, output) in shapes().prop_flat_map(|shape| (
            Just(shape.clone()),
            prop::collection::vec(layout(shape.clone(), true), 1..4),
            layout(shape, false),
        )),
        picks in prop::collection::vec(0usize..13, 3),
        length in 0usize..14,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtypes: Vec<DType> = layouts.iter().zip(&picks).map(|(_, &at)| DType::ALL[at]).collect();
        let expr = random_expr(&dtypes, shape.len(), length, seed);
        // Half types are stored as the expression's result type, or as the half type itself.
        let into = expr.result();
        let half = [DType::F16, DType::Bf16][(seed % 2) as usize];
        let into = if into == DType::F32 && seed % 3 == 0 { half } else { into };
        check(&expr, &dtypes, &layouts, into, &output, seed >> 8, threads);
    }
}
