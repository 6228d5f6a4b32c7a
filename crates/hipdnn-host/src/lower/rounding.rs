//! Rounds values to the format of their tensor.

use graph::DType;

use super::{Answer, LoweredValue, Lowering};
use crate::format::{Format, Small};

impl Lowering {
    /// A result in the type of its tensor; small floats are single precision, rounded to the small format.
    pub(super) fn stored(&mut self, made: &LoweredValue, format: Format) -> Answer<LoweredValue> {
        match format {
            Format::Plain(dtype) if dtype.is_int() && made.dtype.is_float() => self.integer(made, dtype),
            Format::Plain(dtype) => self.cast(made, dtype),
            Format::Small(small) => self.small(made, small),
        }
    }

    /// A value in the compute type, as if it had been stored and read again.
    pub(super) fn rounded(&mut self, made: &LoweredValue, format: Format) -> Answer<LoweredValue> {
        let stored = self.stored(made, format)?;
        self.cast(&stored, self.compute())
    }

    /// Rounds to the nearest integer, within the type's limits.
    fn integer(&mut self, made: &LoweredValue, dtype: DType) -> Answer<LoweredValue> {
        let bits = dtype.bytes() as u32 * 8;
        let (low, high) = if dtype.is_signed() {
            (-((bits - 1) as f64).exp2(), ((bits - 1) as f64).exp2() - 1.0)
        } else {
            (0.0, f64::from(bits).exp2() - 1.0)
        };
        // The largest value that both the compute type and the integer type can represent.
        let high = match made.dtype {
            DType::F32 if bits >= 32 => f64::from((high as f32).next_down()),
            DType::F64 if bits >= 64 => high.next_down(),
            _ => high,
        };
        let whole = self.same("Round", &[made])?;
        let clipped = self.clipped(&whole, low, high)?;
        self.cast(&clipped, dtype)
    }

    /// Let `p` be the largest power of two that is not above a number's magnitude, but at least that of the smallest
    /// normal number: the format's numbers are spaced by `p` times a power of two.
    fn small(&mut self, made: &LoweredValue, small: Small) -> Answer<LoweredValue> {
        let made = self.cast(made, DType::F32)?;
        match small {
            Small::Int4 => {
                let whole = self.same("Round", &[&made])?;
                self.clipped(&whole, -8.0, 7.0)
            }
            Small::Power => {
                // Round up to a power of two, so that values divided by it stay within their type.
                let least = f64::from(f32::MIN_POSITIVE);
                let clipped = self.clipped(&made, least, small.largest().into())?;
                self.power(&clipped, f32::MIN_POSITIVE.to_bits() as i64 - 1)
            }
            Small::Float { fraction, bias, .. } => {
                let largest = f64::from(small.largest());
                let clipped = self.clipped(&made, -largest, largest)?;
                let size = self.same("Abs", &[&clipped])?;
                let power = self.power(&size, 0)?;
                let least = self.float(f64::from(1 - bias).exp2());
                let power = self.same("Max", &[&power, &least])?;
                let apart = self.float((-f64::from(fraction)).exp2());
                let apart = self.same("Mul", &[&power, &apart])?;
                let steps = self.same("Div", &[&clipped, &apart])?;
                let steps = self.same("Round", &[&steps])?;
                self.same("Mul", &[&steps, &apart])
            }
        }
    }

    /// Adds `more` to the bits of a positive number and returns the power of two at or below the result.
    fn power(&mut self, made: &LoweredValue, more: i64) -> Answer<LoweredValue> {
        let bits = self.bits(made, DType::I32)?;
        let exponent = i64::from(f32::INFINITY.to_bits());
        let [more, exponent] = [more, exponent].map(|value| {
            let scalar = graph::Scalar::Int(value);
            self.constant(graph::Tensor::scalar(DType::I32, scalar))
        });
        let moved = self.elementwise_to("Add", &[&bits, &more], DType::I32)?;
        let kept = self.elementwise_to("BitwiseAnd", &[&moved, &exponent], DType::I32)?;
        self.bits(&kept, DType::F32)
    }

    /// Clamps to limits.
    pub(super) fn clipped(&mut self, made: &LoweredValue, low: f64, high: f64) -> Answer<LoweredValue> {
        let [low, high] = [low, high].map(|value| {
            let scalar = graph::Scalar::Float(value);
            self.constant(graph::Tensor::scalar(made.dtype, scalar))
        });
        let above = self.same("Max", &[made, &low])?;
        self.same("Min", &[&above, &high])
    }

    fn float(&mut self, value: f64) -> LoweredValue {
        self.constant(graph::Tensor::scalar(DType::F32, graph::Scalar::Float(value)))
    }

    /// An elementwise node in its operands' type.
    fn same(&mut self, op: &str, inputs: &[&LoweredValue]) -> Answer<LoweredValue> {
        let dtype = inputs.first().map_or(DType::F32, |made| made.dtype);
        self.elementwise_to(op, inputs, dtype)
    }
}
