//! Work along axes: reductions, arg-max and arg-min, softmax.
use smallvec::SmallVec;

use crate::expr::{Binary, Unary};
use crate::lower::{Lower, Val};
use crate::prim::{ArgReduce, Reduce, ReduceKind, Softmax};
use crate::{DType, LowerError, Prim, Scalar, Shape, Tensor, shape};

/// Axes of a tensor.
type Axes = SmallVec<[usize; 6]>;

impl Lower<'_> {
    /// Reduces some axes. Without axes, each element still gets what the kind does to single elements. For an empty
    /// reduction the result is the one ONNX defines.
    ///
    /// # Errors
    /// The result is too large, or the kind needs floats (roots, logarithms) but the elements are integers.
    pub fn reduce(&mut self, value: &Val, axes: &[usize], keepdims: bool, kind: ReduceKind) -> Result<Val, LowerError> {
        if !value.dtype().is_float() && needs_floats(kind) {
            return Err(self.invalid(format!("{kind:?} of {} is not defined", value.dtype())));
        }
        let mut gone: Axes = axes.into();
        gone.sort_unstable();
        let kept: Axes = (0..value.rank()).filter(|axis| !gone.contains(axis)).collect();
        let outer: Shape = kept.iter().map(|&axis| value.shape()[axis]).collect();
        let extents: Shape = gone.iter().map(|&axis| value.shape()[axis]).collect();
        let order: Axes = kept.iter().chain(&gone).copied().collect();
        let moved = value.permuted(&order);
        let mut result = match shape::elems(&extents).unwrap_or(usize::MAX) {
            0 => self.full(value.dtype(), &outer, of_nothing(kind, value.dtype()))?,
            1 => {
                let single = gone.iter().fold(moved, |view, _| view.squeezed(view.rank() - 1));
                self.of_one(&single, kind)?
            }
            count => self.reduce_last(&moved, gone.len(), count, &outer, kind)?,
        };
        if keepdims {
            for &axis in &gone {
                result = result.unsqueezed(axis);
            }
        }
        Ok(result)
    }

    /// Reduces the last axes, which have `count` elements.
    fn reduce_last(
        &mut self,
        value: &Val,
        axes: usize,
        count: usize,
        outer: &[usize],
        kind: ReduceKind,
    ) -> Result<Val, LowerError> {
        let dtype = value.dtype();
        if value.elems() <= self.known_limit()
            && let Some(tensor) = value.to_tensor()
        {
            let elements: Vec<Scalar> = tensor.scalars().collect();
            let rows = elements.chunks(count).map(|row| fold(kind, dtype, row));
            let known = Tensor::from_scalars(dtype, outer, rows);
            return known.map(Val::known).ok_or_else(|| self.invalid("a known value does not match its shape"));
        }
        match kind {
            // Devices reduce numbers only; booleans become the numbers 0 and 1.
            _ if dtype == DType::Bool => {
                let bytes = self.cast(value, DType::U8)?;
                let result = self.reduce_last(&bytes, axes, count, outer, kind)?;
                self.cast(&result, DType::Bool)
            }
            ReduceKind::Mean if !dtype.is_float() => {
                let sum = self.reduce_last(value, axes, count, outer, ReduceKind::Sum)?;
                let divisor = Val::scalar(dtype, Scalar::from_i64(count as i64, dtype));
                self.binary(Binary::Div, &sum, &divisor)
            }
            _ => self.apply(Prim::Reduce(Reduce { kind, axes }), &[value], dtype, outer),
        }
    }

    /// What a kind computes from a single element.
    fn of_one(&mut self, value: &Val, kind: ReduceKind) -> Result<Val, LowerError> {
        match kind {
            ReduceKind::Sum
            | ReduceKind::Mean
            | ReduceKind::Prod
            | ReduceKind::Max
            | ReduceKind::Min
            | ReduceKind::LogSumExp => Ok(value.clone()),
            ReduceKind::SumSquare => self.binary(Binary::Mul, value, value),
            ReduceKind::L1 | ReduceKind::L2 => self.unary(Unary::Abs, value),
            ReduceKind::LogSum => self.unary(Unary::Log, value),
        }
    }

    /// The i64 index of the largest or smallest element along an axis; of equal ones the first, or the last.
    ///
    /// # Errors
    /// The axis has no elements.
    pub fn arg_reduce(
        &mut self,
        value: &Val,
        axis: usize,
        keepdims: bool,
        largest: bool,
        last: bool,
    ) -> Result<Val, LowerError> {
        let moved = axis_last(value, axis);
        let outer: Shape = moved.shape()[..moved.rank() - 1].into();
        if value.shape()[axis] == 0 && shape::elems(&outer) != Some(0) {
            return Err(self.invalid(format!("axis {axis} of {:?} has no elements to search", value.shape())));
        }
        let prim = Prim::ArgReduce(ArgReduce { largest, last });
        let result = self.apply(prim, &[&moved], DType::I64, &outer)?;
        Ok(if keepdims { result.unsqueezed(axis) } else { result })
    }

    /// Softmax along an axis, or its logarithm.
    ///
    /// # Errors
    /// The result is too large.
    pub fn softmax(&mut self, value: &Val, axis: usize, log: bool) -> Result<Val, LowerError> {
        let moved = axis_last(value, axis);
        let to: Shape = moved.shape().into();
        let result = self.apply(Prim::Softmax(Softmax { log }), &[&moved], value.dtype(), &to)?;
        Ok(axis_back(&result, axis))
    }
}

/// The value with one axis moved to the end.
pub(crate) fn axis_last(value: &Val, axis: usize) -> Val {
    let order: Axes = (0..value.rank()).filter(|&at| at != axis).chain([axis]).collect();
    value.permuted(&order)
}

/// The value with its last axis moved to `axis`: undoes [`axis_last`].
pub(crate) fn axis_back(value: &Val, axis: usize) -> Val {
    let last = value.rank() - 1;
    let order: Axes = (0..axis).chain([last]).chain(axis..last).collect();
    value.permuted(&order)
}

/// True for kinds whose result may be fractional even if all elements are integers.
pub(crate) const fn needs_floats(kind: ReduceKind) -> bool {
    matches!(kind, ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp)
}

/// The result that ONNX defines for an empty reduction.
fn of_nothing(kind: ReduceKind, dtype: DType) -> Scalar {
    match kind {
        ReduceKind::Sum | ReduceKind::SumSquare | ReduceKind::L1 | ReduceKind::L2 => Scalar::zero(dtype),
        ReduceKind::Prod => Scalar::one(dtype),
        ReduceKind::Mean if dtype.is_float() => Scalar::Float(f64::NAN),
        ReduceKind::Mean => Scalar::zero(dtype),
        ReduceKind::LogSum | ReduceKind::LogSumExp => Scalar::Float(f64::NEG_INFINITY),
        ReduceKind::Max => extreme(dtype, true),
        ReduceKind::Min => extreme(dtype, false),
    }
}

/// The lowest or highest value of a type; infinite if the type has infinities.
fn extreme(dtype: DType, lowest: bool) -> Scalar {
    let bits = dtype.bytes() * 8;
    match dtype {
        _ if dtype.is_float() => Scalar::Float(if lowest { f64::NEG_INFINITY } else { f64::INFINITY }),
        DType::Bool => Scalar::Int(i64::from(!lowest)),
        _ if dtype.is_signed() => Scalar::Int(if lowest { i64::MIN } else { i64::MAX } >> (64 - bits)),
        _ => Scalar::Uint(if lowest { 0 } else { u64::MAX >> (64 - bits) }),
    }
}

/// Reduces one row of known elements.
fn fold(kind: ReduceKind, dtype: DType, row: &[Scalar]) -> Scalar {
    if dtype.is_float() { fold_floats(kind, row) } else { fold_integers(kind, dtype, row) }
}

fn fold_floats(kind: ReduceKind, row: &[Scalar]) -> Scalar {
    let values = || row.iter().map(|value| value.as_f64());
    // `f64::max` drops a NaN, but a reduction must keep it.
    let keep_nan = |a: f64, b: f64, best: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { best };
    let largest = || values().fold(f64::NEG_INFINITY, |a, b| keep_nan(a, b, a.max(b)));
    Scalar::Float(match kind {
        ReduceKind::Sum => values().sum(),
        ReduceKind::Mean => values().sum::<f64>() / row.len() as f64,
        ReduceKind::Prod => values().product(),
        ReduceKind::Max => largest(),
        ReduceKind::Min => values().fold(f64::INFINITY, |a, b| keep_nan(a, b, a.min(b))),
        ReduceKind::SumSquare => values().map(|value| value * value).sum(),
        ReduceKind::L1 => values().map(f64::abs).sum(),
        ReduceKind::L2 => values().map(|value| value * value).sum::<f64>().sqrt(),
        ReduceKind::LogSum => values().sum::<f64>().ln(),
        ReduceKind::LogSumExp => {
            let top = largest();
            if top.is_finite() { top + values().map(|value| (value - top).exp()).sum::<f64>().ln() } else { top }
        }
    })
}

/// Integers wrap, so the low 64 bits are enough, signed or unsigned. Kinds that need floats do not get here.
fn fold_integers(kind: ReduceKind, dtype: DType, row: &[Scalar]) -> Scalar {
    let bits = || row.iter().map(|value| value.as_i64());
    let best = |a: Scalar, b: Scalar, larger: bool| {
        let b_larger = match (a, b) {
            (Scalar::Uint(a), Scalar::Uint(b)) => b > a,
            (a, b) => b.as_i64() > a.as_i64(),
        };
        if b_larger == larger { b } else { a }
    };
    let result = match kind {
        ReduceKind::Sum | ReduceKind::L2 | ReduceKind::LogSum | ReduceKind::LogSumExp => {
            bits().fold(0i64, i64::wrapping_add)
        }
        ReduceKind::Mean => {
            let sum = Scalar::Int(bits().fold(0i64, i64::wrapping_add)).wrap(dtype);
            return match sum {
                Scalar::Uint(sum) => Scalar::Uint(sum / row.len().max(1) as u64),
                sum => Scalar::Int(sum.as_i64() / row.len().max(1) as i64),
            };
        }
        ReduceKind::Prod => bits().fold(1i64, i64::wrapping_mul),
        ReduceKind::Max => return row.iter().fold(extreme(dtype, true), |a, &b| best(a, b, true)),
        ReduceKind::Min => return row.iter().fold(extreme(dtype, false), |a, &b| best(a, b, false)),
        ReduceKind::SumSquare => bits().fold(0i64, |a, b| a.wrapping_add(b.wrapping_mul(b))),
        ReduceKind::L1 => bits().fold(0i64, |a, b| a.wrapping_add(b.wrapping_abs())),
    };
    Scalar::Int(result).wrap(dtype)
}
