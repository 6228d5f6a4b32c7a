//! Selection: by a condition, by bounds, by the kind of number.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

#[derive(Debug)]
struct Where;

impl Op for Where {
    fn name(&self) -> &'static str {
        "Where"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (condition, x, y) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let result = cx.map(&[condition, x, y], x.dtype(), |expr, arguments| {
            expr.select(arguments[0], arguments[1], arguments[2])
        })?;
        Ok(vec![result])
    }
}

fn parse_where(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype == DType::Bool)?;
    let (x, y) = (node.input(1)?.dtype, node.input(2)?.dtype);
    if x != y {
        return Err(Declined::new(format!("the choices have different types {x} and {y}")));
    }
    Ok(Box::new(Where))
}

/// Bounds from attributes (before opset 11) or inputs. If they contradict each other, the upper one wins.
#[derive(Debug)]
struct Clip {
    bounds: Option<(f32, f32)>,
}

/// Where a bound comes from.
enum Bound {
    /// The map's operand with this index.
    Operand(usize),
    Constant(f64),
}

impl Op for Clip {
    fn name(&self) -> &'static str {
        "Clip"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let dtype = x.dtype();
        let mut operands = vec![x.clone()];
        let mut bounds = Vec::new();
        if let Some((low, high)) = self.bounds {
            bounds.push((Binary::Max, Bound::Constant(low.into())));
            bounds.push((Binary::Min, Bound::Constant(high.into())));
        } else {
            // A missing bound is the type's extreme finite number: ONNX says so, and it matters for infinities.
            let last = largest_finite(dtype);
            for (index, op, default) in [(1, Binary::Max, last.map(|last| -last)), (2, Binary::Min, last)] {
                if let Some(bound) = inputs.get(index).and_then(Option::as_ref) {
                    bounds.push((op, Bound::Operand(operands.len())));
                    operands.push(cx.reshape(bound, &[])?);
                } else if let Some(default) = default {
                    bounds.push((op, Bound::Constant(default)));
                }
            }
        }
        if bounds.is_empty() {
            return Ok(vec![x.clone()]);
        }
        let operands: Vec<&Val> = operands.iter().collect();
        let result = cx.map(&operands, dtype, |expr, arguments| {
            bounds.iter().fold(arguments[0], |value, (op, bound)| {
                let bound = match bound {
                    Bound::Operand(number) => arguments[*number],
                    Bound::Constant(number) => expr.constant(Scalar::Float(*number), dtype),
                };
                expr.binary(*op, value, bound)
            })
        })?;
        Ok(vec![result])
    }
}

/// The largest finite number of a floating-point type.
fn largest_finite(dtype: DType) -> Option<f64> {
    Some(match dtype {
        DType::F32 => f32::MAX.into(),
        DType::F64 => f64::MAX,
        DType::F16 => half::f16::MAX.into(),
        DType::Bf16 => half::bf16::MAX.into(),
        _ => return None,
    })
}

fn parse_clip(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| dtype != DType::Bool)?;
    if node.since_version < 11 {
        if !dtype.is_float() {
            return Err(Declined::new(format!("input 0 has unsupported type {dtype}")));
        }
        let bounds = (node.attributes.float("min", f32::MIN)?, node.attributes.float("max", f32::MAX)?);
        return Ok(Box::new(Clip { bounds: Some(bounds) }));
    }
    for bound in [1, 2] {
        if node.optional(bound).is_some_and(|input| input.dtype != dtype) {
            return Err(Declined::new(format!("a bound is not {dtype}")));
        }
    }
    Ok(Box::new(Clip { bounds: None }))
}

#[derive(Debug)]
struct IsInf {
    negative: bool,
    positive: bool,
}

impl Op for IsInf {
    fn name(&self) -> &'static str {
        "IsInf"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let result = cx.map(&[x], DType::Bool, |expr, arguments| {
            let dtype = expr.dtype(arguments[0]);
            let is = |expr: &mut crate::expr::Expr, value: f64| {
                let value = expr.constant(Scalar::Float(value), dtype);
                expr.binary(Binary::Eq, arguments[0], value)
            };
            match (self.negative, self.positive) {
                (true, true) => expr.unary(Unary::IsInf, arguments[0]),
                (true, false) => is(expr, f64::NEG_INFINITY),
                (false, true) => is(expr, f64::INFINITY),
                (false, false) => expr.constant(Scalar::Int(0), DType::Bool),
            }
        })?;
        Ok(vec![result])
    }
}

fn parse_is_inf(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    let negative = node.attributes.flag_or("detect_negative", true)?;
    let positive = node.attributes.flag_or("detect_positive", true)?;
    Ok(Box::new(IsInf { negative, positive }))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Where", parse: parse_where },
    Entry { domain: "", op_type: "Clip", parse: parse_clip },
    Entry { domain: "", op_type: "IsInf", parse: parse_is_inf },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Attribute;
    use crate::ops::case::{Case, assert_close, tensor, vector};

    #[test]
    fn where_broadcasts_all_three() {
        let case = Case::new("Where", 16)
            .input(tensor(DType::Bool, &[2, 1], &[1.0, 0.0]))
            .input(vector(DType::I64, &[1.0, 2.0]))
            .input(tensor(DType::I64, &[], &[9.0]));
        assert_eq!(case.output(DType::I64).floats(), [1.0, 2.0, 9.0, 9.0]);
    }

    #[test]
    fn where_accepts_any_type_if_both_choices_have_it() {
        for dtype in DType::ALL {
            let case = Case::new("Where", 9).input(vector(DType::Bool, &[1.0, 0.0]));
            let case = case.input(vector(dtype, &[1.0, 1.0])).input(vector(dtype, &[0.0, 0.0])).output(dtype);
            assert_eq!(case.floats(), [1.0, 0.0], "{dtype}");
        }
        let mixed = Case::new("Where", 9).input(vector(DType::Bool, &[1.0]));
        let mixed = mixed.input(vector(DType::F32, &[1.0])).input(vector(DType::F16, &[1.0]));
        assert_eq!(mixed.parse().unwrap_err(), "the choices have different types f32 and f16");
    }

    fn clip(version: i32, dtype: DType, values: &[f64]) -> Case {
        Case::new("Clip", version).input(vector(dtype, values)).output(dtype)
    }

    #[test]
    fn bounds_are_attributes_in_old_opsets_and_inputs_later() {
        let old = clip(6, DType::F32, &[-5.0, 0.5, 5.0, f64::NAN]).with("min", Attribute::Float(0.0));
        assert_close(&old.floats(), &[0.0, 0.5, 5.0, f64::NAN], 0.0);
        let bound = |value| tensor(DType::I8, &[], &[value]);
        let both = clip(13, DType::I8, &[-5.0, 1.0, 5.0]).input(bound(-1.0)).input(bound(2.0));
        assert_eq!(both.floats(), [-1.0, 1.0, 2.0]);
        assert_eq!(clip(13, DType::I8, &[-5.0, 5.0]).left_out().input(bound(2.0)).floats(), [-5.0, 2.0]);
        assert_eq!(clip(13, DType::I8, &[-5.0, 5.0]).input(bound(0.0)).floats(), [0.0, 5.0]);
        assert_eq!(clip(13, DType::I8, &[-5.0, 5.0]).floats(), [-5.0, 5.0]);
    }

    #[test]
    fn a_missing_bound_is_the_largest_finite_number() {
        let infinite = [f64::NEG_INFINITY, 1.0, f64::INFINITY];
        assert_eq!(clip(13, DType::F16, &infinite).floats(), [-65504.0, 1.0, 65504.0]);
        let low = clip(13, DType::F32, &infinite).input(tensor(DType::F32, &[], &[0.0]));
        assert_eq!(low.floats(), [0.0, 1.0, f32::MAX.into()]);
    }

    #[test]
    fn the_upper_bound_wins_and_nan_is_kept() {
        let bound = |value| tensor(DType::F16, &[], &[value]);
        let crossed = clip(13, DType::F16, &[0.0, 9.0, f64::NAN]).input(bound(3.0)).input(bound(1.0));
        assert_close(&crossed.floats(), &[1.0, 1.0, f64::NAN], 0.0);
    }

    #[test]
    fn a_bound_is_one_number() {
        let two = clip(13, DType::F32, &[0.0, 1.0]).input(vector(DType::F32, &[0.0, 1.0]));
        assert!(two.run().unwrap_err().contains("shape [2] cannot be reshaped to []"));
        let one = clip(13, DType::F32, &[0.0, 3.0]).input(vector(DType::F32, &[2.0]));
        assert_eq!(one.floats(), [2.0, 3.0]);
    }

    #[test]
    fn infinities_are_detected_by_sign() {
        let values = [f64::NEG_INFINITY, -1.0, f64::NAN, f64::INFINITY];
        let found = |negative, positive| {
            Case::new("IsInf", 20)
                .with("detect_negative", Attribute::Int(negative))
                .with("detect_positive", Attribute::Int(positive))
                .input(vector(DType::F16, &values))
                .output(DType::Bool)
                .floats()
        };
        assert_eq!(found(1, 1), [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(found(1, 0), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(found(0, 1), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(found(0, 0), [0.0; 4]);
    }
}
