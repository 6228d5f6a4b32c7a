//! Products of 8-bit integers with floating-point results: `MatMulIntegerToFloat` and `DynamicQuantizeMatMul`.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::quantize::dynamically_quantized;
use crate::ops::{Entry, NodeInfo, Op, quantized};
use crate::{DType, Declined, LowerError, Val};

/// `MatMulIntegerToFloat`: inputs A, B, their scales, their zero points, and a bias.
#[derive(Debug)]
struct MatMulIntegerToFloat;

/// `DynamicQuantizeMatMul`: inputs A in floats, B, its scale, its zero point, and a bias.
#[derive(Debug)]
struct DynamicQuantizeMatMul;

/// The operands of a product of integers.
pub(super) struct Product<'a> {
    pub a: &'a Val,
    pub a_scale: &'a Val,
    pub a_zero: Option<&'a Val>,
    pub b: &'a Val,
    pub b_scale: &'a Val,
    pub b_zero: Option<&'a Val>,
    pub bias: Option<&'a Val>,
}

impl Product<'_> {
    pub fn lower(&self, cx: &mut Lower<'_>, dtype: DType) -> Result<Val, LowerError> {
        let columns = self.b.shape().last().copied().unwrap_or(0);
        for (name, value) in [("b_scale", Some(self.b_scale)), ("b_zero_point", self.b_zero), ("bias", self.bias)] {
            let fits = |value: &Val| value.elems() == 1 && name != "bias" || value.shape() == [columns];
            if let Some(value) = value.filter(|value| !fits(value)) {
                return Err(cx.invalid(format!("{name} {:?} for {columns} columns", value.shape())));
            }
        }
        if self.a_scale.elems() != 1 || self.a_zero.is_some_and(|zero| zero.elems() != 1) {
            return Err(cx.invalid("the left operand must have one scale and one zero point"));
        }
        let (a, b) = (quantized::centred(cx, self.a, self.a_zero)?, quantized::centred(cx, self.b, self.b_zero)?);
        let sums = cx.matmul(&a, &b)?;
        let mut single = |value: &Val| if value.elems() == 1 { cx.reshape(value, &[]) } else { Ok(value.clone()) };
        let scales = [single(self.a_scale)?, single(self.b_scale)?];
        let operands: Vec<&Val> = [&sums].into_iter().chain(&scales).chain(self.bias).collect();
        cx.map_to(&operands, dtype, sums.shape(), |expr, operands| {
            let sum = expr.cast(operands[0], DType::F32);
            let scale = expr.binary(Binary::Mul, operands[1], operands[2]);
            let scaled = expr.binary(Binary::Mul, sum, scale);
            operands.get(3).map_or(scaled, |&bias| expr.binary(Binary::Add, scaled, bias))
        })
    }
}

impl Op for MatMulIntegerToFloat {
    fn name(&self) -> &'static str {
        "MatMulIntegerToFloat"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (a, b) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let (a_scale, b_scale) = (cx.required(inputs, 2)?, cx.required(inputs, 3)?);
        let product = Product { a, a_scale, a_zero: given(4), b, b_scale, b_zero: given(5), bias: given(6) };
        Ok(vec![product.lower(cx, a_scale.dtype())?])
    }
}

fn parse_to_float(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, quantized::byte)?;
    node.accept(1, quantized::byte)?;
    let dtype = node.accept(2, |dtype| matches!(dtype, DType::F32 | DType::F16))?;
    match [3, 6].into_iter().find(|&at| node.optional(at).is_some_and(|input| input.dtype != dtype)) {
        Some(at) => Err(Declined::new(format!("input {at} is not {dtype}"))),
        None => Ok(Box::new(MatMulIntegerToFloat)),
    }
}

impl Op for DynamicQuantizeMatMul {
    fn name(&self) -> &'static str {
        "DynamicQuantizeMatMul"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (a, b, b_scale) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let [a, a_scale, a_zero] = dynamically_quantized(cx, a)?;
        let (a_scale, a_zero) = (&a_scale, Some(&a_zero));
        let product = Product { a: &a, a_scale, a_zero, b, b_scale, b_zero: given(3), bias: given(4) };
        Ok(vec![product.lower(cx, DType::F32)?])
    }
}

fn parse_dynamic(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(1, quantized::byte)?;
    for at in [0, 2] {
        node.accept(at, |dtype| dtype == DType::F32)?;
    }
    if node.optional(4).is_some_and(|bias| bias.dtype != DType::F32) {
        return Err(Declined::new("the bias is not f32"));
    }
    Ok(Box::new(DynamicQuantizeMatMul))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "MatMulIntegerToFloat", parse: parse_to_float },
    Entry { domain: MICROSOFT, op_type: "DynamicQuantizeMatMul", parse: parse_dynamic },
];
