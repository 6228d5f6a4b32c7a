//! Products with weights of a few bits that are no integers: com.microsoft's `MatMulBnb4`,
//! `MatMulBlockQuantizedFp8Weight` and `MatMulBlockQuantizedFp4Weight`.
//!
//! Weights become floats of the input's type. Those of a model are constants, so this is done once.
use crate::expr::{Binary, Expr, Ref};
use crate::float8::Format;
use crate::lower::Lower;
use crate::ops::matmul_nbits::is_short_float;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Val, shape};

/// The numbers of the 4-bit codes of bitsandbytes' FP4. Codes from 8 are their opposites.
const FP4: [f32; 8] = [0.0, 5.208_333_3e-3, 0.666_666_7, 1.0, 0.333_333_34, 0.5, 0.166_666_67, 0.25];
/// The numbers of the 4-bit codes of NF4.
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];
/// The numbers of the 4-bit codes of E2M1. Codes from 8 are their opposites.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The number of a 4-bit code.
fn of_code(expr: &mut Expr, table: &[f32], code: Ref) -> Ref {
    let code = expr.cast(code, DType::I32);
    let entry = |expr: &mut Expr, at: usize| {
        let value = if at < table.len() { table[at] } else { -table[at - table.len()] };
        expr.constant(Scalar::Float(value.into()), DType::F32)
    };
    let mut value = entry(expr, 0);
    for at in 1..16 {
        let bound = expr.constant(Scalar::Int(at as i64), DType::I32);
        let reached = expr.binary(Binary::Ge, code, bound);
        let own = entry(expr, at);
        value = expr.select(reached, own, value);
    }
    value
}

/// The 4-bit code of a byte for the current index along an axis of extent 2; the first one is in the upper or in the
/// lower bits.
fn nibble(expr: &mut Expr, byte: Ref, axis: u16, upper_first: bool) -> Ref {
    let byte = expr.cast(byte, DType::I32);
    let [four, mask] = [4, 15].map(|value| expr.constant(Scalar::Int(value), DType::I32));
    let upper = expr.binary(Binary::Shr, byte, four);
    let lower = expr.binary(Binary::And, byte, mask);
    let index = expr.index(axis);
    let zero = expr.constant(Scalar::Int(0), DType::I64);
    let is_first = expr.binary(Binary::Eq, index, zero);
    if upper_first { expr.select(is_first, upper, lower) } else { expr.select(is_first, lower, upper) }
}

/// `MatMulBnb4`: inputs A, the weights, and the largest magnitude of each block of them.
#[derive(Debug)]
struct Bnb4 {
    table: &'static [f32],
    block: usize,
    columns: usize,
    depth: usize,
    transpose: bool,
}

impl Bnb4 {
    /// The weights `[columns, depth]`.
    fn weights(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>], dtype: DType) -> Result<Val, LowerError> {
        let (packed, largest) = (cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let blocks = self.columns * self.depth / self.block;
        if packed.elems() != blocks * self.block / 2 || largest.elems() != blocks {
            let (packed, largest) = (packed.shape(), largest.shape());
            return Err(cx.invalid(format!("weights {packed:?} and absmax {largest:?} for {blocks} blocks")));
        }
        let packed = cx.reshape(packed, &[blocks, self.block / 2, 1])?;
        let largest = cx.reshape(largest, &[blocks, 1, 1])?;
        let to = [blocks, self.block / 2, 2];
        let made = cx.map_to(&[&packed, &largest], dtype, &to, |expr, operands| {
            let code = nibble(expr, operands[0], 2, true);
            let part = of_code(expr, self.table, code);
            expr.binary(Binary::Mul, part, operands[1])
        })?;
        cx.reshape(&made, &[self.columns, self.depth])
    }
}

impl Op for Bnb4 {
    fn name(&self) -> &'static str {
        "MatMulBnb4"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let a = cx.required(inputs, 0)?;
        let weights = self.weights(cx, inputs, a.dtype())?;
        let weights = if self.transpose { weights.transposed() } else { weights };
        Ok(vec![cx.matmul(a, &weights)?])
    }
}

fn positive(node: &NodeInfo<'_>, name: &str) -> Result<usize, Declined> {
    match node.attributes.int(name, 0)? {
        value @ 1..=0xFFFF_FFFF => Ok(value as usize),
        value => Err(Declined::new(format!("its {name} is {value}"))),
    }
}

fn parse_bnb4(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    node.accept(1, |dtype| dtype == DType::U8)?;
    if node.input(2)?.dtype != dtype {
        return Err(Declined::new(format!("input 2 is not {dtype}")));
    }
    let (columns, depth, block) = (positive(node, "N")?, positive(node, "K")?, positive(node, "block_size")?);
    if block < 16 || !block.is_power_of_two() || !shape::elems(&[columns, depth]).unwrap_or(1).is_multiple_of(block) {
        return Err(Declined::new(format!("blocks of {block} for weights of {columns} times {depth}")));
    }
    let table: &[f32] = match node.attributes.int("quant_type", -1)? {
        0 => &FP4,
        1 => &NF4,
        other => return Err(Declined::new(format!("quant_type {other} is not supported"))),
    };
    let transpose = node.attributes.flag_or("transB", true)?;
    Ok(Box::new(Bnb4 { table, block, columns, depth, transpose }))
}

/// `MatMulBlockQuantizedFp8Weight`, or with 4 bits `MatMulBlockQuantizedFp4Weight`: inputs A, the weights and the scales
/// of their blocks. The first then has an optional scale of A, the other a scale of all weights and one of A that is
/// not read. A bias comes last.
#[derive(Debug)]
struct BlockFloats {
    name: &'static str,
    format: Format,
    four_bits: bool,
    block: usize,
}

impl BlockFloats {
    /// The weights `[columns, depth]`.
    fn weights(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>], dtype: DType) -> Result<Val, LowerError> {
        let (codes, scales) = (cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let &[columns, width] = codes.shape() else {
            return Err(cx.invalid(format!("weights of shape {:?}, expected two axes", codes.shape())));
        };
        let depth = if self.four_bits { 2 * width } else { width };
        let blocks = depth.div_ceil(self.block);
        if scales.shape() != [columns, blocks] {
            let scales = scales.shape();
            return Err(cx.invalid(format!("scales of shape {scales:?}, expected [{columns}, {blocks}]")));
        }
        // A scale for each weight: a view if the blocks are whole.
        let scales = if depth == blocks * self.block {
            let repeated = cx.expand(&scales.unsqueezed(2), &[columns, blocks, self.block])?;
            cx.reshape(&repeated, &[columns, depth])?
        } else {
            let places: Vec<usize> = (0..depth).map(|at| at / self.block).collect();
            cx.take(scales, 1, &places)?
        };
        if !self.four_bits {
            return cx.map(&[codes, &scales], dtype, |expr, operands| {
                let weight = self.format.decoded(expr, operands[0]);
                expr.binary(Binary::Mul, weight, operands[1])
            });
        }
        let of_all = cx.reshape(cx.required(inputs, 3)?, &[])?;
        let scales = cx.reshape(&scales, &[columns, width, 2])?;
        let to = [columns, width, 2];
        let made = cx.map_to(&[&codes.unsqueezed(2), &scales, &of_all], dtype, &to, |expr, operands| {
            let code = nibble(expr, operands[0], 2, false);
            let weight = of_code(expr, &E2M1, code);
            let scale = self.format.decoded(expr, operands[1]);
            let weight = expr.binary(Binary::Mul, weight, operands[2]);
            expr.binary(Binary::Mul, weight, scale)
        })?;
        cx.reshape(&made, &[columns, depth])
    }

    /// A rounded to 8-bit floats with one scale, if there is one.
    fn rounded(&self, cx: &mut Lower<'_>, a: &Val, scale: Option<&Val>) -> Result<Val, LowerError> {
        let Some(scale) = scale.filter(|_| !self.four_bits) else { return Ok(a.clone()) };
        let scale = cx.reshape(scale, &[])?;
        cx.map_to(&[a, &scale], a.dtype(), a.shape(), |expr, operands| {
            let part = expr.binary(Binary::Div, operands[0], operands[1]);
            let code = self.format.encoded(expr, part, true);
            let part = self.format.decoded(expr, code);
            expr.binary(Binary::Mul, part, operands[1])
        })
    }
}

impl Op for BlockFloats {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let a = cx.required(inputs, 0)?;
        let weights = self.weights(cx, inputs, a.dtype())?;
        let a = self.rounded(cx, a, given(3))?;
        let product = cx.matmul(&a, &weights.transposed())?;
        Ok(vec![match given(if self.four_bits { 5 } else { 4 }) {
            Some(bias) => cx.binary(Binary::Add, &product, bias)?,
            None => product,
        }])
    }
}

fn parse_block_floats(node: &NodeInfo<'_>, name: &'static str, four_bits: bool) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, |dtype| matches!(dtype, DType::F16 | DType::Bf16))?;
    let bytes = if four_bits { DType::U8 } else { DType::F8E4M3Fn };
    let (scales, bias) = if four_bits { (DType::U8, 5) } else { (DType::F32, 4) };
    for (at, wanted) in [(1, bytes), (2, scales), (3, DType::F32), (bias, dtype)] {
        if let Some(input) = node.optional(at).filter(|input| input.dtype != wanted) {
            return Err(Declined::new(format!("input {at} has type {}, expected {wanted}", input.dtype)));
        }
    }
    if four_bits {
        node.input(3)?;
    }
    let block = node.attributes.int("block_size", if four_bits { 16 } else { 128 })?;
    let block = usize::try_from(block).ok().filter(|&block| block > 0);
    let block = block.ok_or_else(|| Declined::new("block_size is not positive"))?;
    let format = Format::of(DType::F8E4M3Fn).ok_or_else(|| Declined::new("8-bit floats are not supported"))?;
    Ok(Box::new(BlockFloats { name, format, four_bits, block }))
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "MatMulBnb4", parse: parse_bnb4 },
    Entry {
        domain: MICROSOFT,
        op_type: "MatMulBlockQuantizedFp8Weight",
        parse: |node| parse_block_floats(node, "MatMulBlockQuantizedFp8Weight", false),
    },
    Entry {
        domain: MICROSOFT,
        op_type: "MatMulBlockQuantizedFp4Weight",
        parse: |node| parse_block_floats(node, "MatMulBlockQuantizedFp4Weight", true),
    },
];
