//! Quantisation: integers that stand for multiples of a scale.
use crate::expr::{Binary, Expr, Ref, Unary};
use crate::float8::Format;
use crate::lower::Lower;
use crate::ops::cast::dtype_attribute;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Shape, Val, shape};

/// The planner dequantises tensors of up to this many elements.
const FEW_WEIGHTS: usize = 256;

/// Which elements share a scale and a zero point.
#[derive(Clone, Copy, Debug)]
struct Granularity {
    axis: i64,
    /// Elements per block along the axis; 0 for one scale along the whole axis or tensor.
    block: usize,
}

impl Granularity {
    fn read(node: &NodeInfo<'_>) -> Result<Self, Declined> {
        let block = node.attributes.int("block_size", 0)?;
        let block = usize::try_from(block).map_err(|_| Declined::new(format!("attribute block_size is {block}")))?;
        // Before opset 13 there was one scale for the whole tensor.
        let axis = node.attributes.int("axis", 1)?;
        Ok(Self { axis, block })
    }

    /// Views of x, scale and zero point that broadcast together. If the blocks divide the extent, they become a
    /// separate axis; a map over the views gives the first view's shape, and the caller reshapes it back.
    fn fit(self, cx: &mut Lower<'_>, x: &Val, parameters: &[&Val]) -> Result<(Val, Vec<Val>), LowerError> {
        let scale = parameters[0];
        if let Some(other) = parameters.iter().find(|other| other.shape() != scale.shape()) {
            // ONNX Runtime accepts [1] for a scalar and the other way round.
            if other.elems() != 1 || scale.elems() != 1 {
                return Err(cx.invalid(format!(
                    "scale {:?} and zero point {:?} differ in shape",
                    scale.shape(),
                    other.shape()
                )));
            }
        }
        let mut views = Vec::with_capacity(parameters.len());
        if self.block == 0 && scale.elems() == 1 && scale.rank() <= 1 {
            for parameter in parameters {
                views.push(cx.reshape(parameter, &[])?);
            }
            return Ok((x.clone(), views));
        }
        let axis = shape::axis(self.axis, x.rank())
            .ok_or_else(|| cx.invalid(format!("axis {} is out of range for shape {:?}", self.axis, x.shape())))?;
        let extent = x.shape()[axis];
        let misfit = |cx: &Lower<'_>| {
            cx.invalid(format!(
                "a scale of shape {:?} does not match {:?} along axis {axis} with blocks of {}",
                scale.shape(),
                x.shape(),
                self.block
            ))
        };
        if self.block == 0 {
            if scale.rank() != 1 || scale.shape()[0] != extent {
                return Err(misfit(cx));
            }
            let mut to: Shape = Shape::from_elem(1, x.rank());
            to[axis] = extent;
            for parameter in parameters {
                views.push(cx.reshape(parameter, &to)?);
            }
            return Ok((x.clone(), views));
        }
        let blocks = extent.div_ceil(self.block);
        let mut wanted: Shape = x.shape().into();
        wanted[axis] = blocks;
        if scale.shape() != wanted.as_slice() {
            return Err(misfit(cx));
        }
        if blocks * self.block == extent {
            let mut split: Shape = x.shape().into();
            split[axis] = blocks;
            split.insert(axis + 1, self.block);
            let x = cx.reshape(x, &split)?;
            return Ok((x, parameters.iter().map(|parameter| parameter.unsqueezed(axis + 1)).collect()));
        }
        // The last block is partial: repeat the parameters and cut off the excess.
        for parameter in parameters {
            let mut repeated: Shape = wanted.clone();
            repeated.insert(axis + 1, self.block);
            let mut merged: Shape = wanted.clone();
            merged[axis] = blocks * self.block;
            let parameter = parameter.unsqueezed(axis + 1);
            let parameter = cx.expand(&parameter, &repeated)?;
            views.push(cx.reshape(&parameter, &merged)?.sliced(axis, 0, 1, extent));
        }
        Ok((x.clone(), views))
    }
}

/// The smallest and largest integer of a type that values are quantised to.
const fn range(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U16 => (0.0, 65535.0),
        DType::I4 => (-8.0, 7.0),
        DType::U4 => (0.0, 15.0),
        DType::I2 => (-2.0, 1.0),
        DType::U2 => (0.0, 3.0),
        _ => return None,
    })
}

/// round(x / scale) + zero, clamped to the range; all in one floating-point type.
fn quantized(expr: &mut Expr, x: Ref, scale: Ref, zero: Option<Ref>, (low, high): (f64, f64)) -> Ref {
    let dtype = expr.dtype(x);
    let ratio = expr.binary(Binary::Div, x, scale);
    let mut whole = expr.unary(Unary::Round, ratio);
    if let Some(zero) = zero {
        let zero = expr.cast(zero, dtype);
        whole = expr.binary(Binary::Add, whole, zero);
    }
    let low = expr.constant(Scalar::Float(low), dtype);
    let high = expr.constant(Scalar::Float(high), dtype);
    let raised = expr.binary(Binary::Max, whole, low);
    expr.binary(Binary::Min, raised, high)
}

/// What numbers are rounded to.
#[derive(Clone, Copy, Debug)]
enum Codes {
    Integers { low: f64, high: f64 },
    Floats { format: Format, saturate: bool },
}

#[derive(Debug)]
struct QuantizeLinear {
    granularity: Granularity,
    to: DType,
    codes: Codes,
}

impl Op for QuantizeLinear {
    fn name(&self) -> &'static str {
        "QuantizeLinear"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (whole, scale) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let mut parameters = vec![scale];
        parameters.extend(inputs.get(2).and_then(Option::as_ref));
        let (x, parameters) = self.granularity.fit(cx, whole, &parameters)?;
        // The zero point of 8-bit floats is zero.
        let used = if matches!(self.codes, Codes::Floats { .. }) { &parameters[..1] } else { &parameters };
        let operands: Vec<&Val> = std::iter::once(&x).chain(used).collect();
        let result = cx.map_to(&operands, self.to.stored(), x.shape(), |expr, arguments| {
            let computed = expr.dtype(arguments[1]);
            // Integers are divided in the scale's precision.
            let x = if expr.dtype(arguments[0]) == computed { arguments[0] } else { expr.cast(arguments[0], computed) };
            match self.codes {
                Codes::Integers { low, high } => {
                    quantized(expr, x, arguments[1], arguments.get(2).copied(), (low, high))
                }
                Codes::Floats { format, saturate } => {
                    let ratio = expr.binary(Binary::Div, x, arguments[1]);
                    format.encoded(expr, ratio, saturate)
                }
            }
        })?;
        Ok(vec![cx.reshape(&result, whole.shape())?])
    }
}

fn parse_quantize(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype.is_float() || dtype == DType::I32)?;
    node.accept(1, |dtype| dtype.is_float() && dtype != DType::F64)?;
    let named = match node.optional(2) {
        Some(zero) => Some(zero.dtype),
        None => dtype_attribute(node, "output_dtype")?,
    };
    // A constant zero point of packed integers has the type of their bytes.
    let declared = node.outputs.first().copied().flatten().filter(|dtype| dtype.is_packed());
    let to = declared.or(named).unwrap_or(DType::U8);
    if named.is_some_and(|named| named.unpacked() != to.unpacked()) {
        return Err(Declined::new(format!("the zero point is not {to}")));
    }
    let codes = match (Format::of(to), range(to)) {
        (Some(format), _) => Codes::Floats { format, saturate: node.attributes.flag_or("saturate", true)? },
        (None, Some((low, high))) => Codes::Integers { low, high },
        (None, None) => return Err(Declined::new(format!("quantisation to {to} is not supported"))),
    };
    // The division has the scale's precision unless specified otherwise.
    if dtype_attribute(node, "precision")?.is_some_and(|dtype| dtype.compute() != DType::F32) {
        return Err(Declined::new("attribute precision must be float, float16 or bfloat16"));
    }
    Ok(Box::new(QuantizeLinear { granularity: Granularity::read(node)?, to, codes }))
}

#[derive(Debug)]
struct DequantizeLinear {
    granularity: Granularity,
    /// The format of 8-bit floats; integers otherwise.
    format: Option<Format>,
    to: DType,
}

impl Op for DequantizeLinear {
    fn name(&self) -> &'static str {
        "DequantizeLinear"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (whole, scale) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let mut parameters = vec![scale];
        parameters.extend(inputs.get(2).and_then(Option::as_ref));
        let (x, parameters) = self.granularity.fit(cx, whole, &parameters)?;
        let used = if self.format.is_some() { &parameters[..1] } else { &parameters };
        let operands: Vec<&Val> = std::iter::once(&x).chain(used).collect();
        // Weights stay quantised until it is known whether their product is one of integers.
        let later = x.rank() > 1 && x.elems() > FEW_WEIGHTS && !cx.is_needed();
        let limit = if later { 0 } else { cx.known_limit() };
        let result = cx.map_within(limit, &operands, self.to, x.shape(), |expr, arguments| {
            let computed = expr.dtype(arguments[1]);
            let mut x = self.format.map_or(arguments[0], |format| format.decoded(expr, arguments[0]));
            if let Some(&zero) = arguments.get(2) {
                // The difference of two integers may overflow their type; for narrow types it is exact in floats.
                let wide = if expr.dtype(x).bytes() <= 2 { computed } else { DType::I32 };
                let (wide, zero) = (expr.cast(x, wide), expr.cast(zero, wide));
                x = expr.binary(Binary::Sub, wide, zero);
            }
            let x = expr.cast(x, computed);
            expr.binary(Binary::Mul, x, arguments[1])
        })?;
        Ok(vec![cx.reshape(&result, whole.shape())?])
    }
}

fn parse_dequantize(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let from = node.accept(0, |dtype| range(dtype).is_some() || dtype == DType::I32 || dtype.is_float8())?;
    let scale = node.accept(1, |dtype| dtype.is_float() && dtype != DType::F64)?;
    if node.optional(2).is_some_and(|zero| zero.dtype.unpacked() != from.unpacked()) {
        return Err(Declined::new(format!("the zero point is not {from}")));
    }
    let to = dtype_attribute(node, "output_dtype")?.unwrap_or(scale);
    if !to.is_float() {
        return Err(Declined::new(format!("dequantisation to {to} is not supported")));
    }
    Ok(Box::new(DequantizeLinear { granularity: Granularity::read(node)?, format: Format::of(from), to }))
}

/// Scale and zero point from the input's range, which is extended to include zero.
#[derive(Debug)]
struct DynamicQuantizeLinear;

impl Op for DynamicQuantizeLinear {
    fn name(&self) -> &'static str {
        "DynamicQuantizeLinear"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        Ok(dynamically_quantized(cx, x)?.to_vec())
    }
}

/// Numbers as unsigned bytes, with their scale and their zero point.
pub(super) fn dynamically_quantized(cx: &mut Lower<'_>, x: &Val) -> Result<[Val; 3], LowerError> {
    let flat = cx.reshape(x, &[x.elems()])?;
    let mut extreme = |kind| {
        if flat.elems() == 0 {
            return Ok(Val::scalar(DType::F32, Scalar::Float(0.0)));
        }
        cx.reduce(&flat, &[0], false, kind)
    };
    let (low, high) = (extreme(ReduceKind::Min)?, extreme(ReduceKind::Max)?);
    let scale = cx.map(&[&low, &high], DType::F32, |expr, arguments| {
        let (zero, one) = (number(expr, 0.0), number(expr, 1.0));
        let low = expr.binary(Binary::Min, arguments[0], zero);
        let high = expr.binary(Binary::Max, arguments[1], zero);
        let span = expr.binary(Binary::Sub, high, low);
        let steps = number(expr, 255.0);
        let scale = expr.binary(Binary::Div, span, steps);
        // If all elements are zero, any scale works.
        let flat = expr.binary(Binary::Eq, low, high);
        expr.select(flat, one, scale)
    })?;
    let zero = cx.map(&[&low, &scale], DType::U8, |expr, arguments| {
        let (zero, highest) = (number(expr, 0.0), number(expr, 255.0));
        let low = expr.binary(Binary::Min, arguments[0], zero);
        let distance = expr.binary(Binary::Div, low, arguments[1]);
        let distance = expr.unary(Unary::Neg, distance);
        let bounded = expr.binary(Binary::Max, distance, zero);
        let bounded = expr.binary(Binary::Min, bounded, highest);
        expr.unary(Unary::Round, bounded)
    })?;
    let y = cx.map(&[x, &scale, &zero], DType::U8, |expr, arguments| {
        quantized(expr, arguments[0], arguments[1], Some(arguments[2]), (0.0, 255.0))
    })?;
    Ok([y, scale, zero])
}

fn number(expr: &mut Expr, value: f64) -> Ref {
    expr.constant(Scalar::Float(value), DType::F32)
}

fn parse_dynamic_quantize(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype == DType::F32)?;
    Ok(Box::new(DynamicQuantizeLinear))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "QuantizeLinear", parse: parse_quantize },
    Entry { domain: "", op_type: "DequantizeLinear", parse: parse_dequantize },
    Entry { domain: "", op_type: "DynamicQuantizeLinear", parse: parse_dynamic_quantize },
    // For 16-bit types, which ONNX itself has only had since opset 21.
    Entry { domain: "com.microsoft", op_type: "QuantizeLinear", parse: parse_quantize },
    Entry { domain: "com.microsoft", op_type: "DequantizeLinear", parse: parse_dequantize },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Tensor;
    use crate::ops::Attribute;
    use crate::ops::case::{Case, tensor, vector};

    fn node(op_type: &'static str, inputs: [Tensor; 3], to: DType) -> Case {
        inputs.into_iter().fold(Case::new(op_type, 21).output(to), Case::input)
    }

    #[test]
    fn values_are_rounded_to_even_and_clamped() {
        let x = vector(DType::F32, &[0.0, 1.0, 3.0, 5.0, -1000.0, 1000.0]);
        let scalar = |dtype, value| tensor(dtype, &[], &[value]);
        let case =
            |zero: f64, dtype| node("QuantizeLinear", [x.clone(), scalar(DType::F32, 2.0), scalar(dtype, zero)], dtype);
        assert_eq!(case(10.0, DType::U8).floats(), [10.0, 10.0, 12.0, 12.0, 0.0, 255.0]);
        assert_eq!(case(1.0, DType::I8).floats(), [1.0, 1.0, 3.0, 3.0, -128.0, 127.0]);
        assert_eq!(case(1.0, DType::I16).floats(), [1.0, 1.0, 3.0, 3.0, -499.0, 501.0]);
        assert_eq!(case(1.0, DType::I32).parse().unwrap_err(), "quantisation to i32 is not supported");
    }

    #[test]
    fn the_type_comes_from_the_zero_point_or_the_attribute_or_is_u8() {
        let case = || {
            Case::new("QuantizeLinear", 21).input(vector(DType::F32, &[-3.0])).input(tensor(DType::F32, &[1], &[1.0]))
        };
        assert_eq!(case().output(DType::U8).floats(), [0.0]);
        assert_eq!(case().with("output_dtype", Attribute::Int(5)).output(DType::I16).floats(), [-3.0]);
        let four_bits = case().with("output_dtype", Attribute::Int(23));
        assert_eq!(four_bits.parse().unwrap_err(), "attribute output_dtype is the unsupported ONNX element type 23");
    }

    #[test]
    fn each_index_of_an_axis_has_its_own_scale() {
        let x = tensor(DType::U8, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let case = |axis| {
            let inputs = [x.clone(), vector(DType::F32, &[1.0, 10.0]), vector(DType::U8, &[0.0, 1.0])];
            node("DequantizeLinear", inputs, DType::F32).with("axis", Attribute::Int(axis)).floats()
        };
        assert_eq!(case(1), [1.0, 10.0, 3.0, 30.0]);
        assert_eq!(case(-2), [1.0, 2.0, 20.0, 30.0]);
        let inputs = [x, vector(DType::F32, &[1.0; 3]), vector(DType::U8, &[0.0; 3])];
        let error = node("DequantizeLinear", inputs, DType::F32).run().unwrap_err();
        assert!(error.contains("a scale of shape [3] does not match [2, 2] along axis 1"), "{error}");
    }

    #[test]
    fn subtracting_the_zero_point_does_not_wrap() {
        let inputs = [vector(DType::I8, &[-128.0, 127.0]), vector(DType::F16, &[0.5]), vector(DType::I8, &[127.0])];
        assert_eq!(node("DequantizeLinear", inputs, DType::F16).floats(), [-127.5, 0.0]);
    }

    /// One scale per block of an axis, element by element.
    fn blocked_reference(x: &[f64], shape: [usize; 3], axis: usize, block: usize, scales: &[f64]) -> Vec<f64> {
        let mut groups = shape;
        groups[axis] = shape[axis].div_ceil(block);
        let mut result = Vec::new();
        for i in 0..shape[0] {
            for j in 0..shape[1] {
                for k in 0..shape[2] {
                    let mut at = [i, j, k];
                    let value = x[(i * shape[1] + j) * shape[2] + k];
                    at[axis] /= block;
                    result.push(value * scales[(at[0] * groups[1] + at[1]) * groups[2] + at[2]]);
                }
            }
        }
        result
    }

    proptest! {
        #[test]
        fn blocks_along_any_axis_have_their_own_scales(
            shape in prop::array::uniform3(1usize..7), axis in 0usize..3, block in 1usize..5,
        ) {
            let elems = shape.iter().product::<usize>();
            let x: Vec<f64> = (0..elems).map(|at| (at % 100) as f64).collect();
            let mut groups = shape;
            groups[axis] = shape[axis].div_ceil(block);
            let scales: Vec<f64> = (0..groups.iter().product::<usize>()).map(|at| (at + 1) as f64).collect();
            let case = Case::new("DequantizeLinear", 21)
                .with("axis", Attribute::Int(axis as i64))
                .with("block_size", Attribute::Int(block as i64))
                .input(tensor(DType::I8, &shape, &x))
                .input(tensor(DType::F32, &groups, &scales))
                .output(DType::F32);
            let outputs = case.run().unwrap();
            prop_assert_eq!(outputs[0].shape(), &shape);
            let found: Vec<f64> = outputs[0].scalars().map(Scalar::as_f64).collect();
            prop_assert_eq!(found, blocked_reference(&x, shape, axis, block, &scales));
        }

        #[test]
        fn dequantised_values_are_within_half_a_step(x in -12.0f64..12.0) {
            let scale = f64::from(0.1f32);
            let parameters = |value: Tensor| [value, vector(DType::F32, &[scale]), vector(DType::I8, &[3.0])];
            let there = node("QuantizeLinear", parameters(vector(DType::F32, &[x])), DType::I8).run().unwrap();
            let back = node("DequantizeLinear", parameters(there[0].clone()), DType::F32).floats()[0];
            prop_assert!((back - x).abs() <= scale / 2.0 + 1e-5, "{} {}", back, x);
        }
    }

    fn dynamic(values: &[f64]) -> Vec<Vec<f64>> {
        let case = Case::new("DynamicQuantizeLinear", 11).input(vector(DType::F32, values));
        let outputs = case.output(DType::U8).output(DType::F32).output(DType::U8).run().unwrap();
        outputs.iter().map(|tensor| tensor.scalars().map(Scalar::as_f64).collect()).collect()
    }

    #[test]
    fn dynamic_quantisation_spans_the_input_and_zero() {
        // The examples from ONNX's own test of the operator.
        let found = dynamic(&[0.0, 2.0, -3.0, -2.5, 1.34, 0.5]);
        assert_eq!(found[0], [153.0, 255.0, 0.0, 26.0, 221.0, 179.0]);
        assert!((found[1][0] - 0.019_607_844).abs() < 1e-8);
        assert_eq!(found[2], [153.0]);
        assert_eq!(dynamic(&[-1.0, -2.1, -1.3, -2.5, -3.34, -4.0])[2], [255.0]);
        assert_eq!(dynamic(&[1.0, 2.1, 1.3, 2.5, 3.34, 4.0])[2], [0.0]);
    }

    #[test]
    fn dynamic_quantisation_of_empty_or_zero_input_has_a_scale_of_one() {
        assert_eq!(dynamic(&[0.0, 0.0]), [vec![0.0, 0.0], vec![1.0], vec![0.0]]);
        assert_eq!(dynamic(&[]), [vec![], vec![1.0], vec![0.0]]);
    }
}
