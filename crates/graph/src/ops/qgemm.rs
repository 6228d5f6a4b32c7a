//! com.microsoft's `QGemm`: a product of 8-bit matrices plus a row or matrix of 32-bit integers, scaled to floats or to
//! 8-bit integers.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::quantized::{byte, centred, requantized};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// The input numbers.
mod input {
    pub const A: usize = 0;
    pub const A_SCALE: usize = 1;
    pub const A_ZERO: usize = 2;
    pub const B: usize = 3;
    pub const B_SCALE: usize = 4;
    pub const B_ZERO: usize = 5;
    pub const C: usize = 6;
    pub const Y_SCALE: usize = 7;
    pub const Y_ZERO: usize = 8;
}

#[derive(Debug)]
struct QGemm {
    alpha: f32,
    transpose_a: bool,
    transpose_b: bool,
}

impl Op for QGemm {
    fn name(&self) -> &'static str {
        "QGemm"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (a, b) = (cx.required(inputs, input::A)?, cx.required(inputs, input::B)?);
        if a.rank() != 2 || b.rank() != 2 {
            return Err(cx.invalid(format!("A {:?} and B {:?} must be matrices", a.shape(), b.shape())));
        }
        let a = if self.transpose_a { a.transposed() } else { a.clone() };
        let b = if self.transpose_b { b.transposed() } else { b.clone() };
        let columns = b.shape()[1];
        for at in [input::A_SCALE, input::A_ZERO, input::B_SCALE, input::B_ZERO, input::Y_SCALE, input::Y_ZERO] {
            let by_column = matches!(at, input::B_SCALE | input::B_ZERO);
            let fits = |value: &Val| value.elems() == 1 || by_column && value.shape() == [columns];
            if let Some(value) = given(at).filter(|value| !fits(value)) {
                return Err(cx.invalid(format!("input {at} has shape {:?} for {columns} columns", value.shape())));
            }
        }
        let a = centred(cx, &a, given(input::A_ZERO))?;
        let b = centred(cx, &b, given(input::B_ZERO))?;
        let mut sums = cx.matmul(&a, &b)?;
        if let Some(c) = given(input::C) {
            let c = cx.expand(c, sums.shape())?;
            sums = cx.binary(Binary::Add, &sums, &c)?;
        }
        let scale = self.scale(cx, inputs)?;
        if let Some(zero) = given(input::Y_ZERO) {
            return Ok(vec![requantized(cx, &sums, &scale, zero)?]);
        }
        let made = cx.map_to(&[&sums, &scale], DType::F32, sums.shape(), |expr, operands| {
            let sum = expr.cast(operands[0], DType::F32);
            expr.binary(Binary::Mul, sum, operands[1])
        })?;
        Ok(vec![made])
    }
}

impl QGemm {
    /// The factor for sums of products: `alpha · a · b`, divided by the scale of the result if it has one.
    fn scale(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Val, LowerError> {
        let mut scales = Vec::new();
        for at in [input::A_SCALE, input::B_SCALE, input::Y_SCALE] {
            if let Some(value) = inputs.get(at).and_then(Option::as_ref) {
                scales.push(if value.elems() == 1 { cx.reshape(value, &[])? } else { value.clone() });
            }
        }
        let operands: Vec<&Val> = scales.iter().collect();
        cx.map(&operands, DType::F32, |expr, operands| {
            let alpha = expr.constant(Scalar::Float(self.alpha.into()), DType::F32);
            let left = expr.binary(Binary::Mul, alpha, operands[0]);
            let product = expr.binary(Binary::Mul, left, operands[1]);
            operands.get(2).map_or(product, |&result| expr.binary(Binary::Div, product, result))
        })
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let (a, b) = (node.accept(input::A, byte)?, node.accept(input::B, byte)?);
    let single = DType::F32;
    let kinds = [(input::A_SCALE, single), (input::A_ZERO, a), (input::B_SCALE, single), (input::B_ZERO, b)];
    for (at, dtype) in kinds.into_iter().chain([(input::C, DType::I32), (input::Y_SCALE, single)]) {
        if let Some(input) = node.optional(at).filter(|input| input.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, expected {dtype}", input.dtype)));
        }
    }
    for at in [input::A_SCALE, input::B_SCALE] {
        node.input(at)?;
    }
    if node.optional(input::Y_SCALE).is_some() != node.optional(input::Y_ZERO).is_some() {
        return Err(Declined::new("y_scale and y_zero_point must be given together"));
    }
    if node.optional(input::Y_ZERO).is_some() {
        node.accept(input::Y_ZERO, byte)?;
    }
    let (transpose_a, transpose_b) = (node.attributes.flag("transA")?, node.attributes.flag("transB")?);
    Ok(Box::new(QGemm { alpha: node.attributes.float("alpha", 1.0)?, transpose_a, transpose_b }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "QGemm", parse }];
