//! The most common epilogues of products, without an interpreter: scale, add, clamp, quantise.
use graph::expr::{Binary, Expr, Node, Ref, Unary};
use graph::{DType, Scalar};

use crate::microkernel::Compute;
use crate::simd::vectorised;

/// Elements kept in registers.
const LANES: usize = 16;

/// A factor or summand: none, a number, or an operand's element.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Term {
    None,
    Number(f32),
    Operand(usize),
}

/// `clamp(x · scale + first + second)`, then optionally quantised.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Affine {
    scale: Term,
    terms: [Term; 2],
    low: f32,
    high: f32,
    quantize: Option<Quantize>,
}

/// `clamp(round(x · factor or x / divisor) + zero)` as a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantize {
    factor: f32,
    divides: bool,
    zero: f32,
    low: f32,
    high: f32,
    dtype: DType,
}

/// An operand along a row.
#[derive(Clone, Copy)]
pub(crate) enum Along {
    /// One number.
    Uniform(f32),
    /// A number for each element of the row, contiguous.
    Row(*const f32),
}

/// How far an expression was matched: each stage may occur once, in this order.
#[derive(PartialEq, PartialOrd, Clone, Copy)]
enum Stage {
    Scale,
    First,
    Second,
    Low,
    High,
    Ratio,
    Round,
    Zero,
    ByteLow,
    ByteHigh,
    Byte,
}

impl Affine {
    /// The expression in this form, if it matches; sums have type `from`, the output has type `to`.
    pub(crate) fn new(expr: &Expr, from: DType, to: DType) -> Option<Self> {
        let bytes = matches!(to, DType::U8 | DType::I8);
        if !matches!(from, DType::F32 | DType::I32) || !(bytes || to == DType::F32) {
            return None;
        }
        let mut affine = Self {
            scale: Term::None,
            terms: [Term::None; 2],
            low: f32::NEG_INFINITY,
            high: f32::INFINITY,
            quantize: None,
        };
        let mut quantize = Quantize {
            factor: 1.0,
            divides: false,
            zero: -0.0,
            low: f32::NEG_INFINITY,
            high: f32::INFINITY,
            dtype: to,
        };
        let nodes = expr.nodes();
        let term = |at: Ref| match nodes[usize::from(at)] {
            (Node::Const(Scalar::Float(value)), DType::F32) => Some(Term::Number(value as f32)),
            (Node::Input(number), DType::F32) if number > 0 => Some(Term::Operand(usize::from(number) - 1)),
            _ => None,
        };
        let (mut value, mut stage): (Option<Ref>, Stage) = (None, Stage::Scale);
        for (at, &(node, dtype)) in nodes.iter().enumerate() {
            let at = at as Ref;
            let other = |a: Ref, b: Ref| match value {
                Some(value) if value == a && value != b => term(b),
                Some(value) if value == b && value != a => term(a),
                _ => None,
            };
            match node {
                Node::Input(0) if value.is_none() => {}
                Node::Input(0) => return None,
                Node::Input(_) | Node::Const(_) => continue,
                Node::Cast(a) if Some(a) == value && dtype == DType::F32 && stage == Stage::Scale => {}
                Node::Cast(a) if Some(a) == value && dtype == to && bytes && at as usize + 1 == nodes.len() => {
                    stage = Stage::Byte;
                }
                Node::Binary(op, a, b) if dtype == DType::F32 => {
                    let term = other(a, b)?;
                    let number = if let Term::Number(number) = term { Some(number) } else { None };
                    match (op, number) {
                        (Binary::Mul, _) if stage == Stage::Scale && affine.scale == Term::None => affine.scale = term,
                        (Binary::Add, _) if stage <= Stage::First => {
                            affine.terms[0] = term;
                            stage = Stage::Second;
                        }
                        (Binary::Add, _) if stage == Stage::Second && affine.terms[1] == Term::None => {
                            affine.terms[1] = term;
                            stage = Stage::Low;
                        }
                        (Binary::Max, Some(low)) if stage <= Stage::Low => {
                            affine.low = low;
                            stage = Stage::High;
                        }
                        (Binary::Min, Some(high)) if stage <= Stage::High => {
                            affine.high = high;
                            stage = Stage::Ratio;
                        }
                        (Binary::Div | Binary::Mul, Some(factor)) if stage <= Stage::Ratio && value != Some(b) => {
                            quantize.factor = factor;
                            quantize.divides = op == Binary::Div;
                            stage = Stage::Round;
                        }
                        (Binary::Add, Some(zero)) if stage == Stage::Zero => {
                            quantize.zero = zero;
                            stage = Stage::ByteLow;
                        }
                        (Binary::Max, Some(low)) if (Stage::Zero..=Stage::ByteLow).contains(&stage) => {
                            quantize.low = low;
                            stage = Stage::ByteHigh;
                        }
                        (Binary::Min, Some(high)) if stage == Stage::ByteHigh => {
                            quantize.high = high;
                            stage = Stage::Byte;
                        }
                        _ => return None,
                    }
                }
                Node::Unary(Unary::Round, a) if Some(a) == value && bytes && stage <= Stage::Round => {
                    stage = Stage::Zero;
                }
                _ => return None,
            }
            value = Some(at);
        }
        let is_last = value.is_some_and(|value| usize::from(value) + 1 == nodes.len());
        let in_range = quantize.low >= range(to).0 && quantize.high <= range(to).1;
        if bytes {
            // The interpreter handles casts of out-of-range values.
            if stage != Stage::Byte || !in_range {
                return None;
            }
            affine.quantize = Some(quantize);
        } else if stage > Stage::Ratio {
            return None;
        }
        (is_last && expr.result() == to).then_some(affine)
    }

    /// A row, or a part of one, that is ready to be computed. `first` turns a sum into what the product would have
    /// stored.
    pub(crate) fn segment<C: Compute>(
        &self,
        sums: &[C],
        first: (f32, C),
        operand: impl Fn(usize) -> Along,
        out: *mut u8,
    ) -> Segment<C> {
        let find = |term: Term| match term {
            Term::None => None,
            Term::Number(number) => Some(Along::Uniform(number)),
            Term::Operand(number) => Some(operand(number)),
        };
        let mut segment = Segment {
            sums: sums.as_ptr(),
            count: sums.len(),
            alpha: first.0,
            bias: first.1,
            factor: 1.0,
            addend: -0.0,
            rows: [std::ptr::null(); 2],
            last: -0.0,
            out,
        };
        if let Some(Along::Uniform(number)) = find(self.scale) {
            segment.factor = number;
        }
        let terms = self.terms.map(find);
        match terms[0] {
            Some(Along::Uniform(number)) => segment.addend = number,
            Some(Along::Row(row)) => segment.rows[0] = row,
            None => {}
        }
        match terms[1] {
            Some(Along::Uniform(number)) => segment.last = number,
            Some(Along::Row(row)) => segment.rows[1] = row,
            None => {}
        }
        segment
    }

    /// The bounds, if the epilogue only clamps.
    pub(crate) fn bounds(&self) -> Option<(f32, f32)> {
        let is_all = self.scale == Term::None && self.terms == [Term::None; 2] && self.quantize.is_none();
        is_all.then_some((self.low, self.high))
    }

    /// The operand that elements are multiplied with, if there is one; it must be constant along a row.
    pub(crate) fn factor(&self) -> Option<usize> {
        if let Term::Operand(operand) = self.scale { Some(operand) } else { None }
    }

    /// Computes segments.
    ///
    /// # Safety
    /// Each segment's memory is valid: sums, rows of operands, and an output of the expression's type that nothing else
    /// uses.
    pub(crate) unsafe fn run<C: Compute + Single>(&self, segments: &[Segment<C>]) {
        match &self.quantize {
            None => to_singles(segments, self.low, self.high),
            Some(last) => to_bytes(segments, self.low, self.high, last),
        }
    }
}

/// Part of a row.
#[derive(Clone, Copy)]
pub(crate) struct Segment<C> {
    sums: *const C,
    count: usize,
    /// The factor that turns a sum into what the product would have stored.
    alpha: f32,
    bias: C,
    factor: f32,
    addend: f32,
    /// Null if unused.
    rows: [*const f32; 2],
    last: f32,
    out: *mut u8,
}

impl<C: Compute + Single> Segment<C> {
    /// Some contiguous elements before they are clamped.
    ///
    /// # Safety
    /// The segment's memory is valid that far.
    #[inline(always)]
    unsafe fn values<const N: usize>(&self, at: usize) -> [f32; N] {
        // SAFETY: guaranteed by the caller.
        let sums = unsafe { self.sums.add(at).cast::<[C; N]>().read_unaligned() };
        let mut values = [0.0; N];
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = sum.scaled(self.alpha).plus(self.bias).single() * self.factor + self.addend;
        }
        for row in self.rows {
            if !row.is_null() {
                // SAFETY: guaranteed by the caller.
                let row = unsafe { row.add(at).cast::<[f32; N]>().read_unaligned() };
                for (value, term) in values.iter_mut().zip(row) {
                    *value += term;
                }
            }
        }
        for value in &mut values {
            *value += self.last;
        }
        values
    }
}

/// The smallest and the largest value of a byte type.
const fn range(dtype: DType) -> (f32, f32) {
    if matches!(dtype, DType::I8) { (-128.0, 127.0) } else { (0.0, 255.0) }
}

/// A sum as an `f32`.
pub(crate) trait Single: Copy {
    fn single(self) -> f32;
}

impl Single for f32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
}

impl Single for i32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self as f32
    }
}

// These types never have such an epilogue; [`Affine::new`] makes sure of it.
impl Single for f64 {
    fn single(self) -> f32 {
        self as f32
    }
}

impl Single for i64 {
    fn single(self) -> f32 {
        self as f32
    }
}

/// What the loops need from a sum.
trait Sum: Compute + Single {}

impl<C: Compute + Single> Sum for C {}

/// Clamps a value; NaN stays NaN.
#[inline(always)]
pub(crate) fn bounded(value: f32, low: f32, high: f32) -> f32 {
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

// Plain loops without closures: a closure is not compiled for the wide vectors of the function that calls it.

/// # Safety
/// The segment's memory is valid that far.
#[inline(always)]
unsafe fn store_singles<C: Sum, const N: usize>(segment: &Segment<C>, at: usize, low: f32, high: f32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut values = segment.values::<N>(at);
        for value in &mut values {
            *value = bounded(*value, low, high);
        }
        segment.out.cast::<f32>().add(at).cast::<[f32; N]>().write_unaligned(values);
    }
}

vectorised! {
    fn to_singles<C: Sum>(segments: &[Segment<C>], low: f32, high: f32) {
        for segment in segments {
            let mut at = 0;
            while at < segment.count {
                // SAFETY: `run`'s caller vouches for the segments.
                unsafe {
                    if at + LANES <= segment.count {
                        store_singles::<C, LANES>(segment, at, low, high);
                        at += LANES;
                    } else {
                        store_singles::<C, 1>(segment, at, low, high);
                        at += 1;
                    }
                }
            }
        }
    }
}

/// # Safety
/// The segment's memory is valid that far.
#[inline(always)]
unsafe fn store_bytes<C: Sum, const N: usize>(segment: &Segment<C>, at: usize, low: f32, high: f32, last: &Quantize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut values = segment.values::<N>(at);
        for value in &mut values {
            let bounded = bounded(*value, low, high);
            *value = if last.divides { bounded / last.factor } else { bounded * last.factor };
        }
        let mut bytes = [0u8; N];
        for (byte, value) in bytes.iter_mut().zip(values) {
            // Within a byte's range, so the low byte of the integer is the result.
            *byte = whole(bounded(value.round_ties_even() + last.zero, last.low, last.high)) as u8;
        }
        segment.out.add(at).cast::<[u8; N]>().write_unaligned(bytes);
    }
}

vectorised! {
    fn to_bytes<C: Sum>(segments: &[Segment<C>], low: f32, high: f32, last: &Quantize) {
        for segment in segments {
            let mut at = 0;
            while at < segment.count {
                // SAFETY: `run`'s caller vouches for the segments.
                unsafe {
                    if at + LANES <= segment.count {
                        store_bytes::<C, LANES>(segment, at, low, high, last);
                        at += LANES;
                    } else {
                        store_bytes::<C, 1>(segment, at, low, high, last);
                        at += 1;
                    }
                }
            }
        }
    }
}

/// Converts to an integer; NaN gives zero. Unlike a saturating conversion, this compiles to one instruction.
#[inline(always)]
fn whole(value: f32) -> i32 {
    let value = if value.abs() < 1024.0 { value } else { 0.0 };
    // SAFETY: the absolute value is below 1024.
    unsafe { value.to_int_unchecked() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relu_of_scaled() -> Expr {
        let mut expr = Expr::new();
        let (x, scale, bias) = (expr.input(0, DType::F32), expr.input(1, DType::F32), expr.input(2, DType::F32));
        let scaled = expr.binary(Binary::Mul, x, scale);
        let sum = expr.binary(Binary::Add, bias, scaled);
        let zero = expr.constant(Scalar::Float(0.0), DType::F32);
        expr.binary(Binary::Max, sum, zero);
        expr
    }

    #[test]
    fn chains_of_scale_add_and_clamp_are_recognised() {
        let found = Affine::new(&relu_of_scaled(), DType::F32, DType::F32).unwrap();
        assert_eq!((found.scale, found.terms), (Term::Operand(0), [Term::Operand(1), Term::None]));
        assert_eq!((found.low, found.high), (0.0, f32::INFINITY));
    }

    #[test]
    fn other_orders_and_operations_are_not_recognised() {
        let mut square = Expr::new();
        let x = square.input(0, DType::F32);
        square.binary(Binary::Mul, x, x);
        assert_eq!(Affine::new(&square, DType::F32, DType::F32), None);
        let mut scaled_sum = Expr::new();
        let (x, term) = (scaled_sum.input(0, DType::F32), scaled_sum.input(1, DType::F32));
        let sum = scaled_sum.binary(Binary::Add, x, term);
        scaled_sum.binary(Binary::Mul, sum, term);
        assert_eq!(Affine::new(&scaled_sum, DType::F32, DType::F32), None);
        let mut reciprocal = Expr::new();
        let x = reciprocal.input(0, DType::F32);
        let one = reciprocal.constant(Scalar::Float(1.0), DType::F32);
        reciprocal.binary(Binary::Div, one, x);
        assert_eq!(Affine::new(&reciprocal, DType::F32, DType::F32), None);
    }

    #[test]
    fn nan_is_kept_and_becomes_byte_zero() {
        assert!(bounded(f32::NAN, 0.0, 1.0).is_nan());
        assert_eq!((whole(f32::NAN), whole(-3.0), whole(255.0)), (0, -3, 255));
    }
}
