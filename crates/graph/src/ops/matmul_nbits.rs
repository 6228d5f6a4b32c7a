//! Products with quantised weights.
use crate::expr::Binary;
use crate::fragments;
use crate::lower::Lower;
use crate::ops::matmul::in_parts;
use crate::ops::{Entry, Meaning, NodeInfo, Op, RowWise};
use crate::prim::ProductKind;
use crate::quant::{QuantMatMul, QuantWeights, WeightLayout, Zeros};
use crate::{DType, Declined, Graph, LowerError, Node, Shape, Val, shape};

/// The largest block of weights that share a scale.
const MAX_BLOCK: i64 = 256;

/// `MatMulNBits`: inputs A, weights, scales, zero points, a group index that is not read, and a bias.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantProduct {
    pub(crate) product: QuantMatMul,
    pub(crate) depth: usize,
    pub(crate) columns: usize,
    /// The number of columns of each output if there are several; the weights are stacked.
    pub(crate) parts: Vec<usize>,
}

impl QuantProduct {
    /// The weights, if they are constants that match the operator.
    pub(crate) fn weights(&self, graph: &Graph, node: &Node) -> Option<QuantWeights> {
        let count = if self.product.zeros == Zeros::Middle { 2 } else { 3 };
        let constant = |input: usize| graph.value((*node.inputs.get(input)?)?).constant.clone();
        let tensors: Vec<_> = (1..1 + count).map(constant).collect::<Option<_>>()?;
        let fits =
            tensors.iter().zip(self.shapes()).all(|(tensor, shape)| shape::elems(&shape) == Some(tensor.elems()));
        let (product, columns, depth) = (self.product.clone(), self.columns, self.depth);
        (fits || product.layout != WeightLayout::Onnx).then_some(QuantWeights { product, columns, depth, tensors })
    }

    /// The shapes of weights, scales and zero points in ONNX's layout.
    fn shapes(&self) -> [Shape; 3] {
        let QuantProduct { product, depth, columns, .. } = self;
        let blocks = product.blocks(*depth);
        let zeros = if product.zeros == Zeros::Packed { product.zero_bytes(*depth) } else { blocks };
        [
            Shape::from_slice(&[*columns, blocks, product.block_bytes()]),
            Shape::from_slice(&[*columns, blocks]),
            Shape::from_slice(&[*columns, zeros]),
        ]
    }

    /// An operand of the primitive, reshaped for it.
    fn operand(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>], index: usize) -> Result<Val, LowerError> {
        let value = cx.required(inputs, index)?;
        match self.product.layout {
            WeightLayout::Onnx => {}
            WeightLayout::Own(_) => return Ok(value.clone()),
            WeightLayout::Fragments { .. } => {
                return Err(cx.invalid("weights packed for CUDA must be constants that match K, N and bits"));
            }
        }
        let wanted = &self.shapes()[index - 1];
        if Some(value.elems()) != shape::elems(wanted) {
            let (found, wanted) = (value.shape(), wanted.as_slice());
            return Err(cx.invalid(format!("input {index} has shape {found:?}, expected {wanted:?}")));
        }
        let value = cx.reshape(value, wanted)?;
        cx.dense(&value)
    }
}

impl Op for QuantProduct {
    fn name(&self) -> &'static str {
        "MatMulNBits"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::QuantMatMul(self)
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Product
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let a = cx.required(inputs, 0)?;
        let Some((&depth, leading)) = a.shape().split_last().filter(|(depth, _)| **depth == self.depth) else {
            return Err(cx.invalid(format!("A has shape {:?}, expected {} columns", a.shape(), self.depth)));
        };
        let rows = shape::elems(leading).ok_or_else(|| cx.invalid(format!("{leading:?} is too many rows")))?;
        let mut operands = vec![cx.reshape(a, &[1, rows, depth])?];
        let weights = if self.product.zeros == Zeros::Middle { 2 } else { 3 };
        for index in 1..=weights {
            operands.push(self.operand(cx, inputs, index)?);
        }
        let operands: Vec<&Val> = operands.iter().collect();
        let prim = ProductKind::QuantMatMul(self.product.clone()).into();
        let flat = cx.apply(prim, &operands, a.dtype(), &[1, rows, self.columns])?;
        let mut to: Shape = leading.into();
        to.push(self.columns);
        let result = cx.reshape(&flat, &to)?;
        let result = match inputs.get(5).and_then(Option::as_ref) {
            Some(bias) => cx.binary(Binary::Add, &result, bias)?,
            None => result,
        };
        Ok(in_parts(&result, &self.parts))
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.accept(0, is_short_float)?;
    node.accept(1, |dtype| dtype == DType::U8)?;
    node.accept(2, is_short_float)?;
    let positive = |name: &str| match node.attributes.int(name, 0)? {
        value @ 1.. => Ok(value as usize),
        value => Err(Declined::new(format!("its {name} is {value}"))),
    };
    let (depth, columns) = (positive("K")?, positive("N")?);
    let bits = match node.attributes.int("bits", 4)? {
        bits @ (2 | 4 | 8) => bits as usize,
        bits => return Err(Declined::new(format!("weights of {bits} bits are not supported; 2, 4 and 8 are"))),
    };
    let block = node.attributes.int("block_size", 0)?;
    if !(16..=MAX_BLOCK).contains(&block) || block & (block - 1) != 0 {
        return Err(Declined::new(format!(
            "blocks of {block} are not supported; powers of two from 16 to {MAX_BLOCK} are"
        )));
    }
    let zeros = match node.optional(3).map(|zeros| zeros.dtype) {
        None => Zeros::Middle,
        Some(DType::U8) => Zeros::Packed,
        Some(zeros) if is_short_float(zeros) => Zeros::Floats,
        Some(other) => return Err(Declined::new(format!("input 3 has unsupported type {other}"))),
    };
    let rounds_activations = node.attributes.int("accuracy_level", 0)? == 4;
    let layout = layout(node, bits)?;
    let product = QuantMatMul { bits, block: block as usize, zeros, rounds_activations, layout };
    if let WeightLayout::Fragments { is_tiled } = layout {
        let group = fragments::group(bits, is_tiled);
        if !depth.is_multiple_of(fragments::TILE.max(product.block)) || !columns.is_multiple_of(group) {
            return Err(Declined::new(format!("weights packed for CUDA with K {depth} and N {columns}")));
        }
        // The kernels of other layouts may read zero points differently.
        if zeros != Zeros::Middle {
            return Err(Declined::new("weights packed for CUDA with zero points are not supported"));
        }
    }
    in_order(node, depth, product.block)?;
    if node.optional(5).is_some_and(|bias| bias.dtype != dtype) {
        return Err(Declined::new(format!("the bias is not {dtype}")));
    }
    Ok(Box::new(QuantProduct { product, depth, columns, parts: Vec::new() }))
}

/// The order in which the model stores the weights.
fn layout(node: &NodeInfo<'_>, bits: usize) -> Result<WeightLayout, Declined> {
    match node.attributes.int("weight_prepacked", 0)? {
        0 => Ok(WeightLayout::Onnx),
        // For Ampere, and for Hopper.
        packed @ 1..=2 if matches!(bits, 4 | 8) => Ok(WeightLayout::Fragments { is_tiled: packed == 1 }),
        packed => Err(Declined::new(format!("weight_prepacked {packed} with {bits} bits is not supported"))),
    }
}

/// Declines channel groups that differ from the blocks.
fn in_order(node: &NodeInfo<'_>, depth: usize, block: usize) -> Result<(), Declined> {
    let Some(groups) = node.optional(4) else { return Ok(()) };
    let groups = groups.constant.ok_or_else(|| Declined::new("g_idx is not a constant"))?;
    let groups = groups.to_i64s();
    let is_plain = groups.len() >= depth && groups[..depth].iter().enumerate().all(|(k, &at)| at == (k / block) as i64);
    if is_plain {
        Ok(())
    } else {
        Err(Declined::new("g_idx reorders the input channels (act-order), which is not supported"))
    }
}

pub(super) const fn is_short_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16)
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "MatMulNBits", parse }];
