//! Tests generated expressions in the simulator: elementary functions against double precision over their whole range,
//! and random expressions against their definition.

use graph::expr::{Binary, Expr, Ref, Unary, erf};
use graph::prim::Map;
use graph::{DType, Prim, Scalar, Step, Tensor};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::ops::map::{COMPARISONS, INT_BINARY, INT_UNARY};

use crate::common::{dense, simulate, step, strided};

/// The distance in units in the last place of single precision; 0 if the result is too small to have 24 bits.
fn ulps(found: f32, wanted: f64) -> f64 {
    if found == wanted as f32 || found.is_nan() && wanted.is_nan() {
        return 0.0;
    }
    if wanted.abs() < f64::from(f32::MIN_POSITIVE) {
        return if f64::from(found).abs() <= f64::from(f32::MIN_POSITIVE) { 0.0 } else { f64::INFINITY };
    }
    // An overflow by one rounding.
    if found.is_infinite()
        && wanted.abs() > f64::from(f32::MAX) * (1.0 - 1e-6)
        && wanted.signum() == f64::from(found.signum())
    {
        return 1.0;
    }
    let unit = 2f64.powi(wanted.abs().log2().floor() as i32 - 23);
    (f64::from(found) - wanted).abs() / unit
}

/// Numbers of all magnitudes, including special ones.
fn singles() -> Vec<f32> {
    let spread = (0..20_000u32).map(|at| f32::from_bits(at.wrapping_mul(214_741)));
    let near = (0..4000).map(|at| (at as f32 - 2000.0) / 400.0);
    let special =
        [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE];
    spread.chain(near).chain(special).collect()
}

fn run(step: &Step, inputs: &[Tensor], count: usize) -> Tensor {
    let (outputs, fault) = simulate(step, inputs, &[count], "gfx1100", 0).unwrap();
    assert_eq!(fault, 0);
    outputs.into_iter().next().unwrap()
}

fn tensor(dtype: DType, values: impl Iterator<Item = Scalar>) -> Tensor {
    let values: Vec<Scalar> = values.collect();
    Tensor::from_scalars(dtype, &[values.len()], values).unwrap()
}

#[test]
fn unary_functions_stay_within_their_error_bounds() {
    type Function = fn(f64) -> f64;
    let table: [(Unary, f64, Function); 20] = [
        (Unary::Recip, 0.5, |x| 1.0 / x),
        (Unary::Sqrt, 0.5, f64::sqrt),
        (Unary::Exp, 2.0, f64::exp),
        (Unary::Log, 2.0, f64::ln),
        (Unary::Log1p, 4.0, f64::ln_1p),
        (Unary::Expm1, 3.0, f64::exp_m1),
        (Unary::Erf, 3.0, erf),
        (Unary::Sin, 3.0, f64::sin),
        (Unary::Cos, 3.0, f64::cos),
        (Unary::Tan, 5.0, f64::tan),
        (Unary::Asin, 4.0, f64::asin),
        (Unary::Acos, 4.0, f64::acos),
        (Unary::Atan, 3.0, f64::atan),
        (Unary::Sinh, 4.0, f64::sinh),
        (Unary::Cosh, 4.0, f64::cosh),
        (Unary::Tanh, 3.0, f64::tanh),
        (Unary::Sigmoid, 4.0, |x| 1.0 / (1.0 + (-x).exp())),
        (Unary::Asinh, 6.0, f64::asinh),
        (Unary::Acosh, 6.0, f64::acosh),
        (Unary::Atanh, 6.0, f64::atanh),
    ];
    let values = singles();
    let count = values.len();
    let x = tensor(DType::F32, values.iter().map(|&x| Scalar::Float(f64::from(x))));
    for (op, bound, function) in table {
        let mut expr = Expr::new();
        let input = expr.input(0, DType::F32);
        expr.unary(op, input);
        let map = Prim::Map(Map { expr });
        let step = step(map, vec![dense(0, DType::F32, &[count])], vec![dense(1, DType::F32, &[count])]);
        for (&x, y) in values.iter().zip(run(&step, std::slice::from_ref(&x), count).scalars()) {
            let (found, wanted) = (y.as_f64() as f32, function(f64::from(x)));
            // The reference's own inverse hyperbolic functions suffer cancellation for large negative and tiny
            // arguments.
            if matches!(op, Unary::Asinh | Unary::Atanh) && x.abs() < 1e-3 {
                assert!(
                    (f64::from(found) - f64::from(x)).abs() <= f64::from(x.abs()) * 1e-6,
                    "{op:?}({x:e}) is {found:e}"
                );
                continue;
            }
            let error = ulps(found, wanted);
            assert!(error <= bound, "{op:?}({x:e}) is {found:e} instead of {wanted:e}: {error:.1} ulps");
        }
    }
}

#[test]
fn binary_functions_stay_within_their_error_bounds() {
    type Function = fn(f64, f64) -> f64;
    let table: [(Binary, f64, Function); 4] = [
        (Binary::Pow, 4.0, f64::powf),
        (Binary::Atan2, 4.0, f64::atan2),
        (Binary::Fmod, 0.0, |x, y| x % y),
        (Binary::Mod, 0.5, |x, y| {
            let rest = x % y;
            if rest != 0.0 && (rest < 0.0) != (y < 0.0) { rest + y } else { rest }
        }),
    ];
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, 3e38, 1e9];
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&x| special.map(|y| (x, y))).collect();
    for at in 0..12_000u32 {
        let (a, b) =
            (at.wrapping_mul(2_654_435_761), at.wrapping_mul(40_503).wrapping_add(77).wrapping_mul(2_246_822_519));
        pairs.push((f32::from_bits(a), f32::from_bits(b)));
        pairs.push((a as f32 / 4e8, b as f32 / 1e8 - 20.0));
        pairs.push((a as f32 / 4e8 - 5.0, (b as f32 / 1e8 - 20.0).round()));
    }
    let count = pairs.len();
    let inputs = [
        tensor(DType::F32, pairs.iter().map(|pair| Scalar::Float(f64::from(pair.0)))),
        tensor(DType::F32, pairs.iter().map(|pair| Scalar::Float(f64::from(pair.1)))),
    ];
    for (op, bound, function) in table {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, DType::F32), expr.input(1, DType::F32));
        expr.binary(op, a, b);
        let views = vec![dense(0, DType::F32, &[count]), dense(1, DType::F32, &[count])];
        let step = step(Prim::Map(Map { expr }), views, vec![dense(2, DType::F32, &[count])]);
        for (&(x, y), z) in pairs.iter().zip(run(&step, &inputs, count).scalars()) {
            let (found, wanted) = (z.as_f64() as f32, function(f64::from(x), f64::from(y)));
            let error = ulps(found, wanted);
            assert!(error <= bound, "{op:?}({x:e}, {y:e}) is {found:e} instead of {wanted:e}: {error:.1} ulps");
        }
    }
}

#[test]
fn powers_that_fit_single_precision_are_exact() {
    let mut pairs: Vec<(f32, f32)> = (1..2000u16)
        .flat_map(|n| {
            let n = f32::from(n);
            [(n * n, 0.5), (n, 2.0), (n, 3.0), (n, 4.0), (n, 1.0)]
        })
        .collect();
    pairs.extend((-120..120).flat_map(|n: i16| [(2.0, f32::from(n)), (4.0, f32::from(n) / 2.0), (10.0, f32::from(n))]));
    pairs.retain(|&(x, y)| {
        let power = f64::from(x).powf(f64::from(y));
        f64::from(power as f32) == power
    });
    let count = pairs.len();
    let inputs = [
        tensor(DType::F32, pairs.iter().map(|pair| Scalar::Float(f64::from(pair.0)))),
        tensor(DType::F32, pairs.iter().map(|pair| Scalar::Float(f64::from(pair.1)))),
    ];
    let mut expr = Expr::new();
    let (a, b) = (expr.input(0, DType::F32), expr.input(1, DType::F32));
    expr.binary(Binary::Pow, a, b);
    let views = vec![dense(0, DType::F32, &[count]), dense(1, DType::F32, &[count])];
    let step = step(Prim::Map(Map { expr }), views, vec![dense(2, DType::F32, &[count])]);
    for (&(x, y), z) in pairs.iter().zip(run(&step, &inputs, count).scalars()) {
        assert_eq!(z.as_f64(), f64::from(x).powf(f64::from(y)), "{x} to the {y}");
    }
}

/// A sequence of choices from a list that proptest shrinks; zeros when it is used up.
struct Choices<'a>(std::slice::Iter<'a, u32>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.0.next().map_or(0, |&word| word as usize % count)
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const UNARY_FLOAT: [Unary; 12] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Not,
    Unary::Recip,
    Unary::Sqrt,
    Unary::Ceil,
    Unary::Floor,
    Unary::Round,
    Unary::Trunc,
    Unary::IsNan,
    Unary::IsInf,
];
const BINARY_FLOAT: [Binary; 13] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Fmod,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
];
fn binary_int() -> Vec<Binary> {
    INT_BINARY.into_iter().chain(COMPARISONS).collect()
}

/// An expression with exact results, so that there is one correct value for all operands. Its last node has the type
/// that is stored.
fn expression(choices: &mut Choices<'_>, inputs: &[DType]) -> Expr {
    let mut expr = Expr::new();
    let mut known: Vec<Ref> = inputs.iter().enumerate().map(|(at, &dtype)| expr.input(at as u16, dtype)).collect();
    known.push(expr.index(choices.below(2) as u16));
    for _ in 0..12 {
        let a = choices.of(&known);
        let dtype = expr.dtype(a);
        let made = match choices.below(5) {
            0 if dtype.is_float() => expr.unary(choices.of(&UNARY_FLOAT), a),
            0 if dtype == DType::Bool => expr.unary(Unary::Not, a),
            0 => expr.unary(choices.of(&INT_UNARY), a),
            1 | 2 => {
                let same: Vec<Ref> = known.iter().copied().filter(|&at| expr.dtype(at) == dtype).collect();
                let b = choices.of(&same);
                let op = if dtype.is_float() { choices.of(&BINARY_FLOAT) } else { choices.of(&binary_int()) };
                expr.binary(op, a, b)
            }
            3 => {
                let to = choices.of(&DType::ALL);
                // 64-bit integers are rounded once to single precision here, but twice in the definition.
                let wide = matches!(dtype, DType::I64 | DType::U64) && to.is_float() && to != DType::F64;
                expr.cast(a, if wide { DType::F64 } else { to })
            }
            _ => {
                let truths: Vec<Ref> = known.iter().copied().filter(|&at| expr.dtype(at) == DType::Bool).collect();
                let same: Vec<Ref> = known.iter().copied().filter(|&at| expr.dtype(at) == dtype).collect();
                if truths.is_empty() {
                    let value = choices.of(&[0.0, 1.0, -3.0, 1e10, f64::INFINITY]);
                    expr.constant(Scalar::Float(value), dtype)
                } else {
                    let (condition, b) = (choices.of(&truths), choices.of(&same));
                    expr.select(condition, a, b)
                }
            }
        };
        known.push(made);
    }
    let last = known[known.len() - 1];
    expr.finish(last);
    expr
}

/// Elements of a type, including those at its limits and around zero.
fn elements(dtype: DType, count: usize, seed: u32) -> Tensor {
    let ends = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.5,
        -3.5,
        1e-7,
        300.0,
        -40000.0,
        3e9,
        -9.3e18,
        1.9e19,
        1e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut state = seed | 1;
    let values = (0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let choice = state >> 8;
        let number = match choice % 4 {
            0 => ends[choice as usize / 4 % ends.len()],
            1 => f64::from(choice >> 2) / 1000.0 - 2000.0,
            _ => f64::from(choice >> 2 & 31) - 16.0,
        };
        Scalar::Float(number).cast(dtype)
    });
    tensor(dtype, values)
}

/// Combines the results of several operations in one expression: the first axis selects one.
fn one_of(expr: &mut Expr, results: &[Ref]) {
    let which = expr.index(0);
    let mut chosen = results[0];
    for (at, &result) in results.iter().enumerate().skip(1) {
        let number = expr.constant(Scalar::Int(at as i64), DType::I64);
        let is_this = expr.binary(Binary::Eq, which, number);
        chosen = expr.select(is_this, result, chosen);
    }
    expr.finish(chosen);
}

/// All pairs of test numbers, as two tensors of a type.
fn pairs_of(dtype: DType) -> [Tensor; 2] {
    let mut ends: Vec<Scalar> = [0.0, 1.0, -1.0, 2.0, -3.0, 7.0, 5.5, 63.0, 64.0, 200.0, 70_000.0]
        .map(|value| Scalar::Float(value).cast(dtype))
        .to_vec();
    if dtype.is_float() {
        ends.extend(
            [-0.0, 2.5, -0.5, 1e-30, 3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN]
                .map(|v| Scalar::Float(v).cast(dtype)),
        );
    } else {
        let bits = dtype.bytes() as u32 * 8;
        let top = Scalar::Uint(1 << (bits - 1));
        ends.extend([top.cast(dtype), Scalar::Uint((1 << (bits - 1)) - 1).cast(dtype), Scalar::Int(-2).cast(dtype)]);
    }
    let [a, b]: [Vec<Scalar>; 2] = [
        ends.iter().flat_map(|&a| ends.iter().map(move |_| a)).collect(),
        ends.iter().flat_map(|_| ends.iter().copied()).collect(),
    ];
    [tensor(dtype, a.into_iter()), tensor(dtype, b.into_iter())]
}

/// Runs an expression over input rows, once for every index along the first axis, and compares with its definition.
fn hold_to_definition(expr: &Expr, inputs: &[Tensor], rows: usize) {
    let count = inputs[0].elems();
    let shape = [rows, count];
    let views = inputs.iter().enumerate().map(|(at, x)| strided(at as u32, x.dtype(), &shape, &[0, 1], 0)).collect();
    let y = dense(inputs.len() as u32, expr.result(), &shape);
    let found = run(&step(Prim::Map(Map { expr: expr.clone() }), views, vec![y]), inputs, rows * count);
    for (at, found) in found.scalars().enumerate() {
        let (row, column) = (at / count, at % count);
        let operands: Vec<Scalar> = inputs.iter().map(|x| x.get(column)).collect();
        let wanted = expr.eval(&operands, &[row, column]).cast(expr.result());
        let same = found == wanted || found.as_f64().is_nan() && wanted.as_f64().is_nan();
        assert!(same, "number {row} of {expr:?} of {operands:?} is {found:?} instead of {wanted:?}");
    }
}

#[test]
fn every_operation_at_the_limits_of_every_type() {
    for dtype in DType::ALL {
        let inputs = pairs_of(dtype);
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
        let mut results = Vec::new();
        let (unary, binary): (&[Unary], Vec<Binary>) = match dtype {
            _ if dtype.is_float() => (&UNARY_FLOAT, BINARY_FLOAT.to_vec()),
            DType::Bool => (&[Unary::Not], binary_int()),
            _ => (&INT_UNARY, binary_int()),
        };
        results.extend(unary.iter().map(|&op| expr.unary(op, a)));
        results.extend(binary.iter().map(|&op| expr.binary(op, a, b)));
        let results: Vec<Ref> = results.into_iter().map(|result| expr.cast(result, dtype.compute())).collect();
        one_of(&mut expr, &results);
        hold_to_definition(&expr, &inputs, results.len());
    }
}

#[test]
fn every_cast_at_the_limits_of_every_type() {
    for from in DType::ALL {
        let inputs = [pairs_of(from)[0].clone()];
        for to_floats in [false, true] {
            let mut expr = Expr::new();
            let x = expr.input(0, from);
            let targets = DType::ALL.into_iter().filter(|to| to.is_float() == to_floats);
            // The type for the comparison can represent all values of the target.
            let common = if to_floats { DType::F64 } else { DType::I64 };
            let results: Vec<Ref> = targets
                .map(|to| {
                    let cast = expr.cast(x, to);
                    expr.cast(cast, common)
                })
                .collect();
            one_of(&mut expr, &results);
            hold_to_definition(&expr, &inputs, results.len());
        }
    }
}

#[test]
fn random_expressions_follow_their_definition() {
    let config = Config { cases: 48, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    // The same expressions every time, so that compiled code is reused.
    let mut runner = TestRunner::new_with_rng(config, TestRunner::deterministic().rng().clone());
    runner
        .run(&prop::collection::vec(any::<u32>(), 60), |words| {
            let mut choices = Choices(words.iter());
            let types: Vec<DType> = (0..3).map(|_| choices.of(&DType::ALL)).collect();
            let expr = expression(&mut choices, &types);
            let shape = [13, 12];
            // The second input is a row, the third a column.
            let views = vec![
                dense(0, types[0], &shape),
                strided(1, types[1], &shape, &[0, 1], 0),
                strided(2, types[2], &shape, &[1, 0], 0),
            ];
            let inputs =
                [elements(types[0], 156, words[0]), elements(types[1], 12, words[1]), elements(types[2], 13, words[2])];
            let [a, b, c]: [Vec<Scalar>; 3] = [0, 1, 2].map(|at: usize| inputs[at].scalars().collect());
            let y = dense(3, expr.result(), &shape);
            let found = run(&step(Prim::Map(Map { expr: expr.clone() }), views, vec![y]), &inputs, 156);
            for (at, found) in found.scalars().enumerate() {
                let (row, column) = (at / 12, at % 12);
                let wanted = expr.eval(&[a[at], b[column], c[row]], &[row, column]).cast(expr.result());
                let same = found == wanted || found.as_f64().is_nan() && wanted.as_f64().is_nan();
                prop_assert!(
                    same,
                    "{expr:?} of {:?}, {:?}, {:?} is {found:?} instead of {wanted:?}",
                    a[at],
                    b[column],
                    c[row]
                );
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}
