//! Tensors from numbers: Shape, Size, ConstantOfShape, Range, EyeLike, OneHot.
use crate::expr::Binary;
use crate::lower::{Lower, SliceSpec};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Shape, Val};

#[derive(Debug)]
struct ShapeOf {
    start: i64,
    end: i64,
}

impl Op for ShapeOf {
    fn name(&self) -> &'static str {
        "Shape"
    }

    fn reads_only_shapes(&self) -> bool {
        true
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let extents: Vec<i64> = cx.required(inputs, 0)?.shape().iter().map(|&extent| extent as i64).collect();
        let all = Val::i64s(&extents);
        Ok(vec![cx.slice(&all, 0, SliceSpec { start: self.start, end: self.end, step: 1 })?])
    }
}

#[derive(Debug)]
struct Size;

impl Op for Size {
    fn name(&self) -> &'static str {
        "Size"
    }

    fn reads_only_shapes(&self) -> bool {
        true
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let elems = cx.required(inputs, 0)?.elems();
        Ok(vec![Val::scalar(DType::I64, Scalar::Int(elems as i64))])
    }
}

#[derive(Debug)]
struct ConstantOfShape {
    dtype: DType,
    value: Scalar,
}

impl ConstantOfShape {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        let Some(value) = node.attributes.tensor("value")? else {
            return Ok(Box::new(Self { dtype: DType::F32, value: Scalar::Float(0.0) }));
        };
        if value.elems() != 1 {
            return Err(Declined::new(format!("attribute value has {} elements", value.elems())));
        }
        Ok(Box::new(Self { dtype: value.dtype(), value: value.get(0) }))
    }
}

impl Op for ConstantOfShape {
    fn name(&self) -> &'static str {
        "ConstantOfShape"
    }

    fn host_inputs(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let to = cx.extents(&cx.known(inputs, 0)?.to_i64s())?;
        Ok(vec![cx.full(self.dtype, &to, self.value)?])
    }
}

#[derive(Debug)]
struct Range;

impl Range {
    /// How many numbers there are from `start` to below `limit`, or `None` if that is not a number. A count that
    /// overflows saturates: it exceeds any memory.
    fn count(start: Scalar, limit: Scalar, delta: Scalar) -> Option<usize> {
        if let (Scalar::Int(start), Scalar::Int(limit), Scalar::Int(delta)) = (start, limit, delta) {
            let (span, delta) = (i128::from(limit) - i128::from(start), i128::from(delta));
            let count = span.checked_div(delta)? + i128::from(span % delta != 0 && (span < 0) == (delta < 0));
            return Some(usize::try_from(count.max(0)).unwrap_or(usize::MAX));
        }
        let count = ((limit.as_f64() - start.as_f64()) / delta.as_f64()).ceil();
        // Comparing with infinity also rejects NaN.
        (count < f64::INFINITY).then_some(count.max(0.0) as usize)
    }
}

impl Op for Range {
    fn name(&self) -> &'static str {
        "Range"
    }

    fn host_inputs(&self) -> &[usize] {
        &[0, 1, 2]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let mut numbers = [Scalar::Int(0); 3];
        for (index, number) in numbers.iter_mut().enumerate() {
            let tensor = cx.known(inputs, index)?;
            if tensor.elems() != 1 {
                return Err(cx.invalid(format!("input {index} has shape {:?}, expected one number", tensor.shape())));
            }
            *number = tensor.get(0);
        }
        let [start, limit, delta] = numbers;
        let dtype = cx.required(inputs, 0)?.dtype();
        let count = Self::count(start, limit, delta).ok_or_else(|| {
            let [start, limit, delta] = numbers.map(Scalar::as_f64);
            cx.invalid(format!("there is no range from {start} to {limit} by {delta}"))
        })?;
        let result = cx.map_to(&[], dtype, &[count], |expr, _| {
            let place = expr.index(0);
            let place = expr.cast(place, dtype);
            let (start, delta) = (expr.constant(start, dtype), expr.constant(delta, dtype));
            let moved = expr.binary(Binary::Mul, place, delta);
            expr.binary(Binary::Add, moved, start)
        })?;
        Ok(vec![result])
    }
}

#[derive(Debug)]
struct EyeLike {
    dtype: DType,
    diagonal: i64,
}

impl EyeLike {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        let dtype = node.outputs.first().copied().flatten().ok_or_else(|| Declined::new("output 0 is missing"))?;
        Ok(Box::new(Self { dtype, diagonal: node.attributes.int("k", 0)? }))
    }
}

impl Op for EyeLike {
    fn name(&self) -> &'static str {
        "EyeLike"
    }

    fn reads_only_shapes(&self) -> bool {
        true
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let to: Shape = cx.required(inputs, 0)?.shape().into();
        if to.len() != 2 {
            return Err(cx.invalid(format!("shape {to:?} is not a matrix")));
        }
        let result = cx.map_to(&[], self.dtype, &to, |expr, _| {
            let (row, column) = (expr.index(0), expr.index(1));
            let distance = expr.binary(Binary::Sub, column, row);
            let diagonal = expr.constant(Scalar::Int(self.diagonal), DType::I64);
            expr.binary(Binary::Eq, distance, diagonal)
        })?;
        Ok(vec![result])
    }
}

#[derive(Debug)]
struct OneHot {
    axis: i64,
}

impl Op for OneHot {
    fn name(&self) -> &'static str {
        "OneHot"
    }

    fn host_inputs(&self) -> &[usize] {
        &[1]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (indices, values) = (cx.required(inputs, 0)?, cx.required(inputs, 2)?);
        let depth = cx.known(inputs, 1)?;
        let depth = (depth.elems() == 1).then(|| depth.get(0).as_i64()).filter(|&depth| depth > 0);
        let depth = depth.ok_or_else(|| cx.invalid("the depth must be one positive number"))?;
        if values.shape() != [2] {
            return Err(cx.invalid(format!("the values have shape {:?}, expected [2]", values.shape())));
        }
        let axis = cx.axis(self.axis, indices.rank() + 1)?;
        let mut to: Shape = indices.shape().into();
        to.insert(axis, depth as usize);
        let pick = |at: usize| values.sliced(0, at, 1, 1).squeezed(0);
        let indices = indices.unsqueezed(axis);
        let dtype = values.dtype();
        let result = cx.map_to(&[&indices, &pick(0), &pick(1)], dtype, &to, |expr, arguments| {
            let exact = expr.dtype(arguments[0]);
            // A fraction matches no position, so floating-point indices are compared as they are.
            let number = if exact.is_float() { exact } else { DType::I64 };
            let index = if exact == number { arguments[0] } else { expr.cast(arguments[0], number) };
            let index = if exact.is_signed() {
                // Wraps around once only: an index that is still outside matches no position.
                let (depth, zero) = (expr.constant(Scalar::Int(depth), number), expr.constant(Scalar::Int(0), number));
                let turned = expr.binary(Binary::Add, index, depth);
                let negative = expr.binary(Binary::Lt, index, zero);
                expr.select(negative, turned, index)
            } else {
                index
            };
            let place = expr.index(axis as u16);
            let place = if number == DType::I64 { place } else { expr.cast(place, number) };
            let hit = expr.binary(Binary::Eq, index, place);
            expr.select(hit, arguments[2], arguments[1])
        })?;
        Ok(vec![result])
    }
}

const fn number(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_int()
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: "",
        op_type: "Shape",
        parse: |node| {
            let (start, end) = (node.attributes.int("start", 0)?, node.attributes.int("end", i64::MAX)?);
            Ok(Box::new(ShapeOf { start, end }))
        },
    },
    Entry { domain: "", op_type: "Size", parse: |_| Ok(Box::new(Size)) },
    Entry { domain: "", op_type: "ConstantOfShape", parse: ConstantOfShape::parse },
    Entry {
        domain: "",
        op_type: "Range",
        parse: |node| {
            node.accept(0, number)?;
            Ok(Box::new(Range))
        },
    },
    Entry { domain: "", op_type: "EyeLike", parse: EyeLike::parse },
    Entry {
        domain: "",
        op_type: "OneHot",
        parse: |node| {
            node.accept(0, number)?;
            node.accept(1, number)?;
            Ok(Box::new(OneHot { axis: node.attributes.int("axis", -1)? }))
        },
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;
    use crate::ops::trial::{Given, Trial, ints, numbers};

    #[test]
    fn shape_and_size_are_known_for_any_input() {
        let shape = || Trial::new("Shape", 15).gives(&[DType::I64]).input(Given::Device(DType::F32, &[2, 3, 0]));
        assert_eq!(ints(shape()), (vec![2, 3, 0], vec![3]));
        assert_eq!(ints(shape().int("start", 1)).0, [3, 0]);
        assert_eq!(ints(shape().int("start", -2).int("end", -1)).0, [3]);
        assert_eq!(ints(shape().int("start", 2).int("end", 1)), (vec![], vec![0]));
        let size = Trial::new("Size", 13).gives(&[DType::I64]).input(Given::Device(DType::Bool, &[4, 5]));
        assert_eq!(ints(size), (vec![20], vec![]));
    }

    #[test]
    fn constant_of_shape_has_the_type_of_its_value() {
        let seven = Tensor::scalar(DType::I32, Scalar::Int(7)).reshaped(&[1]).unwrap();
        let sevens = Trial::new("ConstantOfShape", 9).tensor("value", seven).gives(&[DType::I32]);
        assert_eq!(ints(sevens.clone().input(Given::I64(&[2, 2], &[2]))), (vec![7; 4], vec![2, 2]));
        assert_eq!(ints(sevens.clone().input(Given::I64(&[], &[0]))), (vec![7], vec![]));
        assert!(sevens.clone().input(Given::I64(&[-1], &[1])).shapes().is_err());
        assert!(sevens.input(Given::I64(&[i64::MAX, 3], &[2])).shapes().is_err());
        let zeros = Trial::new("ConstantOfShape", 9).gives(&[DType::F32]).input(Given::I64(&[3], &[1]));
        assert_eq!(numbers(zeros), [0.0; 3]);
    }

    #[test]
    fn ranges_stop_before_the_limit() {
        for (start, limit, delta, want) in [
            (0, 5, 2, vec![0, 2, 4]),
            (5, 0, -2, vec![5, 3, 1]),
            (0, 4, 2, vec![0, 2]),
            (3, 3, 1, vec![]),
            (3, 5, -1, vec![]),
            (i64::MAX - 1, i64::MAX, 1, vec![i64::MAX - 1]),
        ] {
            let given = [[start], [limit], [delta]];
            let trial = given.iter().fold(Trial::new("Range", 11), |trial, value| trial.input(Given::I64(value, &[])));
            assert_eq!(ints(trial).0, want, "{start} to {limit} by {delta}");
        }
        let float = |values: &[f64; 3]| {
            let given = values.map(|value| [value]);
            let range = Trial::new("Range", 11);
            let trial = given.iter().fold(range, |trial, value| trial.input(Given::Numbers(DType::F32, value, &[])));
            trial.known().map(|known| known[0].scalars().map(Scalar::as_f64).collect::<Vec<_>>())
        };
        assert_eq!(float(&[1.0, 2.25, 0.5]).unwrap(), [1.0, 1.5, 2.0]);
        assert!(float(&[0.0, 1.0, 0.0]).is_err());
        assert!(float(&[0.0, f64::NAN, 1.0]).is_err());
        assert!(float(&[0.0, 1.0, 1e-38]).is_err_and(|error| error.contains("more than 2^63 bytes")));
    }

    #[test]
    fn a_range_with_a_step_of_zero_is_rejected() {
        let trial = Trial::new("Range", 11).input(Given::I64(&[0], &[])).input(Given::I64(&[5], &[]));
        let error = trial.input(Given::I64(&[0], &[])).shapes().unwrap_err();
        assert_eq!(error, "Range: there is no range from 0 to 5 by 0");
    }

    #[test]
    fn eye_like_has_ones_on_the_requested_diagonal() {
        let eye = |k| {
            let trial = Trial::new("EyeLike", 9).int("k", k).gives(&[DType::F64]);
            numbers(trial.input(Given::Device(DType::I32, &[2, 3])))
        };
        assert_eq!(eye(0), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(eye(1), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(eye(-1), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(eye(i64::MIN), [0.0; 6]);
    }

    #[test]
    fn one_hot_wraps_negative_indices_once() {
        let one_hot = |axis| {
            let trial = Trial::new("OneHot", 11).int("axis", axis).gives(&[DType::F32]);
            trial.input(Given::I64(&[0, -1, 3], &[3])).input(Given::I64(&[3], &[]))
        };
        let values = Given::Numbers(DType::F32, &[5.0, 9.0], &[2]);
        assert_eq!(numbers(one_hot(-1).input(values)), [9.0, 5.0, 5.0, 5.0, 5.0, 9.0, 5.0, 5.0, 5.0]);
        assert_eq!(numbers(one_hot(0).input(values)), [9.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 5.0]);
        assert!(one_hot(2).input(values).shapes().is_err());
        let fractions = Given::Numbers(DType::F16, &[1.0, 1.5, -1.0, -1.5], &[4]);
        let trial = Trial::new("OneHot", 11).gives(&[DType::F32]).input(fractions).input(Given::I64(&[2], &[1]));
        assert_eq!(numbers(trial.input(values)), [5.0, 9.0, 5.0, 5.0, 5.0, 9.0, 5.0, 5.0]);
        let huge = Given::Numbers(DType::U64, &[18_446_744_073_709_549_568.0, 1.0], &[2]);
        let trial = Trial::new("OneHot", 11).gives(&[DType::F32]).input(huge).input(Given::I64(&[2], &[1]));
        assert_eq!(numbers(trial.input(values)), [5.0, 5.0, 5.0, 9.0]);
        assert_eq!(one_hot(0).input(Given::Device(DType::F32, &[2])).steps().unwrap(), ["map"]);
    }
}
