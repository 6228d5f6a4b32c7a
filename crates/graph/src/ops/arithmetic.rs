//! Arithmetic that takes more than one operation: any number of operands, mixed types, variants by attribute.
use crate::expr::{Binary, Expr, Ref};
use crate::lower::Lower;
use crate::ops::elementwise::BinaryOp;
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Shape, Val, shape};

/// The most operands that one step reads.
const MAX_OPERANDS: usize = 8;

/// One operation applied from left to right over any number of operands.
#[derive(Debug)]
struct Variadic {
    name: &'static str,
    op: Binary,
    /// Divides by the number of operands at the end.
    mean: bool,
}

impl Op for Variadic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let operands = (0..inputs.len()).map(|index| cx.required(inputs, index)).collect::<Result<Vec<_>, _>>()?;
        let (Some(&first), count) = (operands.first(), operands.len()) else {
            return Err(cx.invalid("expected at least one operand"));
        };
        if count == 1 {
            return Ok(vec![first.clone()]);
        }
        let dtype = first.dtype();
        let join = |expr: &mut Expr, arguments: &[Ref]| {
            let joined = arguments[1..].iter().fold(arguments[0], |sum, &next| expr.binary(self.op, sum, next));
            (joined, expr.dtype(joined))
        };
        let mut rest = &operands[1..];
        let mut result = first.clone();
        while rest.len() >= MAX_OPERANDS {
            let (now, later) = rest.split_at(MAX_OPERANDS - 1);
            let step: Vec<&Val> = std::iter::once(&result).chain(now.iter().copied()).collect();
            // Intermediate results stay in the compute type.
            result = cx.map(&step, dtype.compute(), |expr, arguments| join(expr, arguments).0)?;
            rest = later;
        }
        let step: Vec<&Val> = std::iter::once(&result).chain(rest.iter().copied()).collect();
        let result = cx.map(&step, dtype, |expr, arguments| {
            let (joined, dtype) = join(expr, arguments);
            if !self.mean {
                return joined;
            }
            let count = expr.constant(Scalar::Float(count as f64), dtype);
            expr.binary(Binary::Div, joined, count)
        })?;
        Ok(vec![result])
    }
}

macro_rules! variadic {
    ($op_type:literal, $op:ident, $mean:literal, $accepted:expr) => {
        Entry {
            domain: "",
            op_type: $op_type,
            parse: |node| {
                let dtype = node.accept(0, $accepted)?;
                for index in 1..node.inputs.len() {
                    if node.input(index)?.dtype != dtype {
                        return Err(Declined::new(format!("input {index} is not {dtype} like input 0")));
                    }
                }
                Ok(Box::new(Variadic { name: $op_type, op: Binary::$op, mean: $mean }))
            },
        }
    };
}

/// A power; the result has the base's type, whatever the exponent's.
#[derive(Debug)]
struct Pow;

impl Op for Pow {
    fn name(&self) -> &'static str {
        "Pow"
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Power
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (base, exponent) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        if let Some(times) = small_exponent(exponent) {
            let to: Shape = shape::broadcast(base.shape(), exponent.shape()).ok_or_else(|| {
                cx.invalid(format!("shapes {:?} and {:?} cannot be broadcast together", base.shape(), exponent.shape()))
            })?;
            let result = cx.map_to(&[base], base.dtype(), &to, |expr, arguments| {
                (1..times).fold(arguments[0], |power, _| expr.binary(Binary::Mul, power, arguments[0]))
            })?;
            return Ok(vec![result]);
        }
        let computed = pow_dtype(base.dtype(), exponent.dtype());
        let result = cx.map(&[base, exponent], base.dtype(), |expr, arguments| {
            let mut as_computed = |at: Ref| if expr.dtype(at) == computed { at } else { expr.cast(at, computed) };
            let (x, y) = (as_computed(arguments[0]), as_computed(arguments[1]));
            expr.binary(Binary::Pow, x, y)
        })?;
        Ok(vec![result])
    }
}

/// A known exponent that takes only a few multiplications: 1, 2 or 3.
fn small_exponent(exponent: &Val) -> Option<u32> {
    let value = (exponent.elems() == 1).then(|| exponent.to_tensor()).flatten()?.get(0).as_f64();
    [1, 2, 3].into_iter().find(|&times| f64::from(times) == value)
}

/// The type a power is computed in.
fn pow_dtype(base: DType, exponent: DType) -> DType {
    match (base.is_float(), exponent.is_float()) {
        (true, true) if exponent == DType::F64 => DType::F64,
        (true, _) => base.compute(),
        // Integers raised to fractional powers are rounded last.
        (false, true) => DType::F64,
        (false, false) if base == exponent => base,
        (false, false) => DType::I64,
    }
}

fn parse_pow(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in [0, 1] {
        node.accept(index, |dtype| dtype != DType::Bool)?;
    }
    Ok(Box::new(Pow))
}

/// The type of two operands, which must be the same.
fn common_dtype(node: &NodeInfo<'_>) -> Result<DType, Declined> {
    let (a, b) = (node.input(0)?.dtype, node.input(1)?.dtype);
    if a == b { Ok(a) } else { Err(Declined::new(format!("operands have different types {a} and {b}"))) }
}

fn parse_mod(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = common_dtype(node)?;
    let op = match (node.attributes.flag("fmod")?, dtype) {
        (_, DType::Bool) => return Err(Declined::new("input 0 has unsupported type bool")),
        (true, _) => Binary::Fmod,
        (false, dtype) if dtype.is_int() => Binary::Mod,
        (false, _) => return Err(Declined::new(format!("{dtype} needs fmod = 1"))),
    };
    Ok(Box::new(BinaryOp { name: "Mod", op }))
}

fn parse_bit_shift(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = common_dtype(node)?;
    if !dtype.is_int() || dtype.is_signed() {
        return Err(Declined::new(format!("input 0 has unsupported type {dtype}")));
    }
    let op = match node.attributes.text("direction", "")? {
        "LEFT" => Binary::Shl,
        "RIGHT" => Binary::Shr,
        other => return Err(Declined::new(format!("unsupported direction {other:?}"))),
    };
    Ok(Box::new(BinaryOp { name: "BitShift", op }))
}

const fn number(dtype: DType) -> bool {
    !matches!(dtype, DType::Bool)
}

pub(super) const OPS: &[Entry] = &[
    variadic!("Max", Max, false, number),
    variadic!("Min", Min, false, number),
    variadic!("Sum", Add, false, DType::is_float),
    variadic!("Mean", Add, true, DType::is_float),
    Entry { domain: "", op_type: "Pow", parse: parse_pow },
    Entry { domain: "", op_type: "Mod", parse: parse_mod },
    Entry { domain: "", op_type: "BitShift", parse: parse_bit_shift },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::Attribute;
    use crate::ops::case::{Case, assert_close, tensor, vector};

    #[test]
    fn any_number_of_operands_is_combined() {
        for count in 1..30usize {
            let operands = (0..count).map(|at| tensor(DType::F32, &[], &[at as f64]));
            let case = |name| {
                let case = Case::new(name, 13).output(DType::F32);
                operands.clone().fold(case, Case::input)
            };
            let sum = (count * (count - 1) / 2) as f64;
            assert_eq!(case("Sum").floats(), [sum]);
            assert_close(&case("Mean").floats(), &[sum / count as f64], 1e-7);
            assert_eq!(case("Max").floats(), [count as f64 - 1.0]);
            assert_eq!(case("Min").floats(), [0.0]);
            let steps = case("Sum").lower(false).unwrap().steps;
            assert!(steps.iter().all(|step| step.inputs.len() <= MAX_OPERANDS));
        }
    }

    #[test]
    fn nan_wins_and_shapes_broadcast() {
        let case = |name| {
            Case::new(name, 13)
                .input(tensor(DType::F64, &[2, 1], &[f64::NAN, 5.0]))
                .input(vector(DType::F64, &[1.0, 9.0]))
                .output(DType::F64)
        };
        assert_close(&case("Max").floats(), &[f64::NAN, f64::NAN, 5.0, 9.0], 0.0);
        assert_close(&case("Min").floats(), &[f64::NAN, f64::NAN, 1.0, 5.0], 0.0);
    }

    #[test]
    fn halves_are_added_before_they_are_rounded() {
        let sum = Case::new("Sum", 13).output(DType::F16).input(vector(DType::F16, &[2048.0]));
        let sum = (0..10).fold(sum, |case, _| case.input(vector(DType::F16, &[1.0])));
        assert_eq!(sum.floats(), [2058.0]);
    }

    fn pow(base: DType, bases: &[f64], exponent: DType, exponents: &[f64]) -> Vec<f64> {
        Case::new("Pow", 15).input(vector(base, bases)).input(vector(exponent, exponents)).output(base).floats()
    }

    #[test]
    fn powers_have_the_type_of_their_base() {
        assert_eq!(pow(DType::I32, &[2.0, 3.0], DType::F32, &[0.5, 2.5]), [1.0, 15.0]);
        assert_eq!(pow(DType::F32, &[2.0, 4.0], DType::I64, &[-1.0, 4.0]), [0.5, 256.0]);
        assert_eq!(pow(DType::I32, &[2.0, -1.0, 7.0], DType::I64, &[31.0, -3.0, -1.0]), [-2147483648.0, -1.0, 0.0]);
        assert_eq!(pow(DType::U8, &[3.0, 2.0], DType::U8, &[6.0, 7.0]), [217.0, 128.0]);
        assert_eq!(pow(DType::F16, &[3.0, 2.0], DType::F64, &[4.0, 0.5]), [81.0, 1.4140625]);
    }

    #[test]
    fn a_small_known_exponent_becomes_multiplications() {
        for exponent in [1.0, 2.0, 3.0] {
            assert_eq!(pow(DType::F32, &[-2.0, 3.0], DType::F32, &[exponent]), [-2f64, 3.0].map(|x| x.powf(exponent)));
        }
        let scalar = Case::new("Pow", 13).input(tensor(DType::F32, &[], &[3.0]));
        let outputs = scalar.input(tensor(DType::I32, &[1, 1], &[2.0])).output(DType::F32).run().unwrap();
        assert_eq!(outputs, [tensor(DType::F32, &[1, 1], &[9.0])]);
    }

    #[test]
    fn fmod_selects_the_sign_of_remainders() {
        let case = |dtype, fmod| {
            Case::new("Mod", 13)
                .with("fmod", Attribute::Int(fmod))
                .input(vector(dtype, &[-7.0, 7.0, -7.0]))
                .input(vector(dtype, &[3.0, -3.0, -3.0]))
                .output(dtype)
        };
        assert_eq!(case(DType::I32, 0).floats(), [2.0, -2.0, -1.0]);
        assert_eq!(case(DType::I32, 1).floats(), [-1.0, 1.0, -1.0]);
        assert_eq!(case(DType::F32, 1).floats(), [-1.0, 1.0, -1.0]);
        assert_eq!(case(DType::F32, 0).parse().unwrap_err(), "f32 needs fmod = 1");
    }

    #[test]
    fn bits_shifted_out_of_the_type_are_dropped() {
        let case = |direction: &str| {
            Case::new("BitShift", 11)
                .with("direction", Attribute::Text(direction.to_owned()))
                .input(vector(DType::U8, &[129.0, 1.0]))
                .input(vector(DType::U8, &[1.0, 8.0]))
                .output(DType::U8)
        };
        assert_eq!(case("LEFT").floats(), [2.0, 0.0]);
        assert_eq!(case("RIGHT").floats(), [64.0, 0.0]);
        assert_eq!(case("UP").parse().unwrap_err(), "unsupported direction \"UP\"");
    }

    proptest! {
        #[test]
        fn integer_powers_wrap_as_multiplication_does(base in -50i64..50, exponent in 0u32..12) {
            let found = pow(DType::I32, &[base as f64], DType::I32, &[f64::from(exponent)]);
            prop_assert_eq!(found, vec![f64::from((base as i32).wrapping_pow(exponent))]);
        }
    }
}
