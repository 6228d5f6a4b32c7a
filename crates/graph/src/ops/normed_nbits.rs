//! Products with packed weights of one normalised input: com.microsoft's `MatMulNBitsMlp` and `MatMulNBitsQkv`.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::activation::Activation;
use crate::ops::matmul_nbits::{QuantProduct, is_short_float};
use crate::ops::norm::Layer;
use crate::ops::{Entry, NodeInfo, Op};
use crate::quant::{QuantMatMul, WeightLayout, Zeros};
use crate::{DType, Declined, LowerError, Val};

/// The input with the first product's weights; scales and a bias follow, then those of the other products.
const FIRST: usize = 3;

/// Inputs A, a residual that is added to it, and the scale of a norm; the last two are optional.
#[derive(Debug)]
struct NormedProducts {
    name: &'static str,
    layer: Layer,
    /// The products, with three inputs for each.
    products: Vec<QuantProduct>,
    /// The first product's result goes through SiLU and is multiplied by the second one.
    gated: bool,
}

impl Op for NormedProducts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).cloned().flatten();
        let mut x = cx.required(inputs, 0)?.clone();
        if let Some(skip) = given(1) {
            x = cx.map_to(&[&x, &skip], x.dtype(), x.shape(), |expr, operands| {
                expr.binary(Binary::Add, operands[0], operands[1])
            })?;
        }
        let sum = x.clone();
        if let Some(scale) = given(2) {
            x = self.layer.lower(cx, &x, 1, Some(&scale), None)?;
        }
        let mut results = Vec::new();
        for (at, product) in self.products.iter().enumerate() {
            let first = FIRST + 3 * at;
            let operands = [Some(x.clone()), given(first), given(first + 1), None, None, given(first + 2)];
            results.extend(product.lower(cx, &operands)?);
        }
        if let (true, [gate, up]) = (self.gated, &results[..]) {
            let made = cx.map(&[gate, up], gate.dtype(), |expr, operands| {
                let gate = Activation::Swish { alpha: 1.0 }.build(expr, operands[0]);
                expr.binary(Binary::Mul, gate, operands[1])
            })?;
            results = vec![made];
        }
        results.push(sum);
        Ok(results)
    }
}

fn parse(node: &NodeInfo<'_>, name: &'static str, columns: &[&str], epsilon: f32) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    let positive = |name: &str| match node.attributes.int(name, 0)? {
        value @ 1..=0xFFFF_FFFF => Ok(value as usize),
        value => Err(Declined::new(format!("its {name} is {value}"))),
    };
    let bits = match node.attributes.int("bits", 4)? {
        bits @ (2 | 4 | 8) => bits as usize,
        bits => return Err(Declined::new(format!("weights of {bits} bits are not supported; 2, 4 and 8 are"))),
    };
    let (depth, block) = (positive("K")?, positive("block_size")?);
    if !(16..=256).contains(&block) || !block.is_power_of_two() {
        return Err(Declined::new(format!("blocks of {block} are not supported; powers of two from 16 to 256 are")));
    }
    let mut products = Vec::new();
    for (at, columns) in columns.iter().enumerate() {
        let first = FIRST + 3 * at;
        node.accept(first, |dtype| dtype == DType::U8)?;
        node.accept(first + 1, is_short_float)?;
        let product = QuantMatMul {
            bits,
            block,
            zeros: Zeros::Middle,
            rounds_activations: node.attributes.int("accuracy_level", 0)? == 4,
            layout: WeightLayout::Onnx,
        };
        products.push(QuantProduct { product, depth, columns: positive(columns)?, parts: Vec::new() });
    }
    let biases = (0..columns.len()).map(|at| FIRST + 3 * at + 2);
    if let Some(at) = [1, 2].into_iter().chain(biases).find(|&at| node.optional(at).is_some_and(|it| it.dtype != dtype))
    {
        return Err(Declined::new(format!("input {at} is not {dtype}")));
    }
    if node.optional(1).is_some() && node.optional(2).is_none() {
        return Err(Declined::new("a skip input without norm_scale"));
    }
    let layer = Layer { epsilon: node.attributes.float("epsilon", epsilon)?, centre: false, round_before_scale: false };
    Ok(Box::new(NormedProducts { name, layer, products, gated: columns.len() == 2 }))
}

fn parse_mlp(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    match node.attributes.text("activation", "")? {
        "silu" => parse(node, "MatMulNBitsMlp", &["N", "N"], 1e-5),
        other => Err(Declined::new(format!("activation {other:?} is not supported"))),
    }
}

fn parse_qkv(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.input(2)?;
    parse(node, "MatMulNBitsQkv", &["Nq", "Nkv", "Nkv"], 1e-6)
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "MatMulNBitsMlp", parse: parse_mlp },
    Entry { domain: MICROSOFT, op_type: "MatMulNBitsQkv", parse: parse_qkv },
];
