//! Matrix products: plain and quantised.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, Meaning, NodeInfo, Op, RowWise, quantized};
use crate::{DType, Declined, LowerError, Scalar, Val};

/// `MatMul` and `FusedMatMul`.
#[derive(Debug)]
pub(super) struct MatMulOp {
    name: &'static str,
    alpha: f32,
    a: Side,
    b: Side,
}

/// How one operand of a `FusedMatMul` is transposed.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Swaps the last two axes.
    transpose: bool,
    /// Moves the first axis in front of the last one, before the swap.
    transpose_batch: bool,
}

impl Side {
    fn turned(self, value: &Val) -> Val {
        let rank = value.rank();
        if rank < 2 {
            return value.clone();
        }
        let mut order: Vec<usize> = (0..rank).collect();
        if self.transpose_batch {
            order[..rank - 1].rotate_left(1);
        }
        if self.transpose {
            order.swap(rank - 2, rank - 1);
        }
        value.permuted(&order)
    }
}

impl Op for MatMulOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn meaning(&self) -> Meaning<'_> {
        if self.name == "MatMul" { Meaning::MatMul } else { Meaning::Opaque }
    }

    fn row_wise(&self) -> RowWise {
        if self.name == "MatMul" { RowWise::Product } else { RowWise::No }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        Ok(vec![self.emit(cx, inputs)?])
    }
}

impl MatMulOp {
    /// Emits the product of the first two inputs.
    pub(super) fn emit(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Val, LowerError> {
        let a = self.a.turned(cx.required(inputs, 0)?);
        let b = self.b.turned(cx.required(inputs, 1)?);
        cx.matmul_scaled(&a, &b, self.alpha)
    }
}

fn parse_matmul(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, multiplied)?;
    node.accept(1, multiplied)?;
    Ok(Box::new(MatMulOp { name: "MatMul", alpha: 1.0, a: Side::default(), b: Side::default() }))
}

fn parse_fused_matmul(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    Ok(Box::new(fused_matmul(node, "FusedMatMul")?))
}

/// `FusedMatMul` or one of its variants. Those without attributes for batches have none to transpose.
pub(super) fn fused_matmul(node: &NodeInfo<'_>, name: &'static str) -> Result<MatMulOp, Declined> {
    node.accept(0, float)?;
    node.accept(1, float)?;
    let flag = |name| node.attributes.flag(name);
    let a = Side { transpose: flag("transA")?, transpose_batch: flag("transBatchA")? };
    let b = Side { transpose: flag("transB")?, transpose_batch: flag("transBatchB")? };
    Ok(MatMulOp { name, alpha: node.attributes.float("alpha", 1.0)?, a, b })
}

/// Several `MatMul`s of one value, with their matrices side by side in one.
#[derive(Debug)]
pub(crate) struct MergedMatMul {
    /// The number of columns of each.
    pub(crate) parts: Vec<usize>,
}

impl Op for MergedMatMul {
    fn name(&self) -> &'static str {
        "MatMul"
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Product
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (a, b) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let whole = cx.matmul(a, b)?;
        Ok(in_parts(&whole, &self.parts))
    }
}

/// The sum of a value and a row, split along the last axis: the bias of several products merged into one.
#[derive(Debug)]
pub(crate) struct BiasedParts {
    /// The number of columns of each.
    pub(crate) parts: Vec<usize>,
}

impl Op for BiasedParts {
    fn name(&self) -> &'static str {
        "Add"
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (whole, row) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let sum = cx.binary(Binary::Add, whole, row)?;
        Ok(in_parts(&sum, &self.parts))
    }
}

/// A value split along its last axis into parts of these extents; the whole value if there are none.
pub(super) fn in_parts(whole: &Val, parts: &[usize]) -> Vec<Val> {
    if parts.is_empty() {
        return vec![whole.clone()];
    }
    let mut start = 0;
    let mut next = |&extent: &usize| {
        let part = whole.sliced(whole.rank() - 1, start, 1, extent);
        start += extent;
        part
    };
    parts.iter().map(&mut next).collect()
}

/// `Gemm` and `FusedGemm`: `alpha · A · B + beta · C`.
#[derive(Debug)]
struct Gemm {
    name: &'static str,
    alpha: f32,
    beta: f32,
    transpose_a: bool,
    transpose_b: bool,
    activation: Option<Activation>,
}

/// The activation that a `FusedGemm` applies to its result.
#[derive(Clone, Copy, Debug)]
enum Activation {
    Relu,
    LeakyRelu { alpha: f32 },
    Tanh,
    Sigmoid,
}

impl Op for Gemm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (a, b) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        if a.rank() != 2 || b.rank() != 2 {
            return Err(cx.invalid(format!("A {:?} and B {:?} must be matrices", a.shape(), b.shape())));
        }
        let a = if self.transpose_a { a.transposed() } else { a.clone() };
        let b = if self.transpose_b { b.transposed() } else { b.clone() };
        let mut result = cx.matmul_scaled(&a, &b, self.alpha)?;
        if let Some(c) = inputs.get(2).and_then(Option::as_ref).filter(|_| self.beta != 0.0) {
            let c = cx.expand(c, &[a.shape()[0], b.shape()[1]])?;
            result = cx.map(&[&result, &c], a.dtype(), |expr, arguments| {
                let mut addend = arguments[1];
                if self.beta != 1.0 {
                    let beta = expr.constant(Scalar::Float(f64::from(self.beta)), expr.dtype(addend));
                    addend = expr.binary(Binary::Mul, beta, addend);
                }
                expr.binary(Binary::Add, arguments[0], addend)
            })?;
        }
        let Some(activation) = self.activation else { return Ok(vec![result]) };
        let dtype = result.dtype();
        let active = cx.map(&[&result], dtype, |expr, arguments| {
            let x = arguments[0];
            let zero = expr.constant(Scalar::Float(0.0), dtype);
            match activation {
                Activation::Relu => expr.binary(Binary::Max, x, zero),
                Activation::LeakyRelu { alpha } => {
                    let alpha = expr.constant(Scalar::Float(f64::from(alpha)), dtype);
                    let small = expr.binary(Binary::Mul, alpha, x);
                    let negative = expr.binary(Binary::Lt, x, zero);
                    expr.select(negative, small, x)
                }
                Activation::Tanh => expr.unary(Unary::Tanh, x),
                Activation::Sigmoid => expr.unary(Unary::Sigmoid, x),
            }
        })?;
        Ok(vec![active])
    }
}

fn parse_gemm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    gemm("Gemm", node, None)
}

fn parse_fused_gemm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let activation = match node.attributes.text("activation", "")? {
        "" => None,
        "Relu" => Some(Activation::Relu),
        "LeakyRelu" => Some(Activation::LeakyRelu { alpha: node.attributes.float("activation_alpha", 0.01)? }),
        "Tanh" => Some(Activation::Tanh),
        "Sigmoid" => Some(Activation::Sigmoid),
        other => return Err(Declined::new(format!("unsupported activation {other}"))),
    };
    gemm("FusedGemm", node, activation)
}

fn gemm(name: &'static str, node: &NodeInfo<'_>, activation: Option<Activation>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, multiplied)?;
    node.accept(1, multiplied)?;
    let (alpha, beta) = (node.attributes.float("alpha", 1.0)?, node.attributes.float("beta", 1.0)?);
    if !dtype.is_float() && (alpha != 1.0 || beta != 1.0) {
        return Err(Declined::new(format!("scaling {dtype} by alpha {alpha} and beta {beta} is not supported")));
    }
    let (transpose_a, transpose_b) = (node.attributes.flag("transA")?, node.attributes.flag("transB")?);
    Ok(Box::new(Gemm { name, alpha, beta, transpose_a, transpose_b, activation }))
}

/// `MatMulInteger`: products of 8-bit integers minus their zero points, in 32 bits.
#[derive(Debug)]
struct MatMulInteger;

impl Op for MatMulInteger {
    fn name(&self) -> &'static str {
        "MatMulInteger"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (a, b) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        let zero = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let a = quantized::centred(cx, a, zero(2).map(|zero| rows(zero, a)).as_ref())?;
        let b = quantized::centred(cx, b, zero(3))?;
        Ok(vec![cx.matmul(&a, &b)?])
    }
}

/// One number per row of the left operand, as a column; other shapes are broadcast as they are.
fn rows(value: &Val, a: &Val) -> Val {
    if value.rank() == 1 && value.shape()[0] > 1 && a.rank() > 1 { value.unsqueezed(1) } else { value.clone() }
}

fn parse_matmul_integer(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, quantized::byte)?;
    node.accept(1, quantized::byte)?;
    Ok(Box::new(MatMulInteger))
}

/// `QLinearMatMul`: like `MatMulInteger`, rescaled to 8 bits.
#[derive(Debug)]
struct QLinearMatMul;

impl Op for QLinearMatMul {
    fn name(&self) -> &'static str {
        "QLinearMatMul"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let get = |cx: &Lower<'_>, at| cx.required(inputs, at).cloned();
        let (a, b) = (get(cx, 0)?, get(cx, 3)?);
        let (a_scale, a_zero) = (rows(&get(cx, 1)?, &a), rows(&get(cx, 2)?, &a));
        let (b_scale, b_zero) = (get(cx, 4)?, get(cx, 5)?);
        let (y_scale, y_zero) = (rows(&get(cx, 6)?, &a), rows(&get(cx, 7)?, &a));
        let left = quantized::centred(cx, &a, Some(&a_zero))?;
        let right = quantized::centred(cx, &b, Some(&b_zero))?;
        let sums = cx.matmul(&left, &right)?;
        let scale = quantized::scale(cx, &a_scale, &b_scale, &y_scale)?;
        Ok(vec![quantized::requantized(cx, &sums, &scale, &y_zero)?])
    }
}

fn parse_qlinear_matmul(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in [0, 3, 7] {
        node.accept(index, quantized::byte)?;
    }
    for index in [1, 4, 6] {
        node.accept(index, float)?;
    }
    Ok(Box::new(QLinearMatMul))
}

const fn float(dtype: DType) -> bool {
    dtype.is_float()
}

const fn multiplied(dtype: DType) -> bool {
    dtype.is_float() || matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "MatMul", parse: parse_matmul },
    Entry { domain: "", op_type: "Gemm", parse: parse_gemm },
    Entry { domain: "", op_type: "MatMulInteger", parse: parse_matmul_integer },
    Entry { domain: "", op_type: "QLinearMatMul", parse: parse_qlinear_matmul },
    Entry { domain: "com.microsoft", op_type: "FusedMatMul", parse: parse_fused_matmul },
    // An older name of the same operator.
    Entry { domain: "com.microsoft", op_type: "TransposeMatMul", parse: parse_fused_matmul },
    Entry { domain: "com.microsoft", op_type: "FusedGemm", parse: parse_fused_gemm },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, device};

    #[test]
    fn products_have_the_shapes_that_numpy_defines() {
        for (a, b, want) in [
            (&[3][..], &[3][..], Ok(&[][..])),
            (&[3], &[2, 3, 4], Ok(&[2, 4])),
            (&[2, 5, 3], &[3], Ok(&[2, 5])),
            (&[2, 3], &[3, 4], Ok(&[2, 4])),
            (&[7, 1, 2, 3], &[5, 3, 4], Ok(&[7, 5, 2, 4])),
            (&[2, 0], &[0, 4], Ok(&[2, 4])),
            (&[0, 2, 3], &[3, 4], Ok(&[0, 2, 4])),
            (&[2, 3], &[4, 3], Err("MatMul: shapes [2, 3] and [4, 3] cannot be multiplied")),
            (&[2, 2, 3], &[3, 3, 4], Err("MatMul: shapes [2, 2, 3] and [3, 3, 4] cannot be multiplied")),
            (&[], &[1], Err("MatMul: shapes [] and [1] cannot be multiplied")),
        ] {
            let found = Trial::new("MatMul", 13).input(device(a)).input(device(b)).shapes();
            let want = want.map(|shape| vec![shape.to_vec()]).map_err(str::to_owned);
            assert_eq!(found, want, "{a:?} {b:?}");
        }
    }

    #[test]
    fn batches_on_the_left_of_one_matrix_are_one_product_without_copies() {
        let trial = Trial::new("MatMul", 13).input(device(&[2, 5, 3])).input(device(&[3, 4]));
        assert_eq!(trial.steps(), Ok(vec!["matmul"]));
        let trial = Trial::new("MatMul", 13).input(device(&[6, 1, 5, 3])).input(device(&[2, 3, 4]));
        assert_eq!(trial.shapes(), Ok(vec![vec![6, 2, 5, 4]]));
    }

    #[test]
    fn a_product_over_an_empty_axis_is_zero_without_a_step() {
        let trial = Trial::new("MatMul", 13).input(device(&[2, 0])).input(device(&[0, 4]));
        assert_eq!(trial.steps(), Ok(vec![]));
    }

    #[test]
    fn gemm_requires_matrices_and_a_matching_addend() {
        let gemm = || Trial::new("Gemm", 13).input(device(&[3, 2])).input(device(&[4, 3]));
        let transposed = gemm().int("transA", 1).int("transB", 1);
        assert_eq!(transposed.clone().input(device(&[4])).shapes(), Ok(vec![vec![2, 4]]));
        assert_eq!(transposed.clone().float("beta", 0.0).input(device(&[9])).steps(), Ok(vec!["matmul"]));
        assert_eq!(
            transposed.input(device(&[3])).shapes(),
            Err("Gemm: shape [3] cannot be broadcast to [2, 4]".to_owned())
        );
        let cube = Trial::new("Gemm", 13).input(device(&[1, 2, 3])).input(device(&[3, 4]));
        assert_eq!(cube.shapes(), Err("Gemm: A [1, 2, 3] and B [3, 4] must be matrices".to_owned()));
    }

    #[test]
    fn declines_integers_scaled_by_a_fraction() {
        let integers = Given::Device(DType::I32, &[2, 2]);
        let trial = Trial::new("Gemm", 13).float("alpha", 0.5).input(integers).input(integers);
        assert_eq!(trial.shapes(), Err("scaling i32 by alpha 0.5 and beta 1 is not supported".to_owned()));
    }
}
