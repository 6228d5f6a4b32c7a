//! ONNX operators: reading their attributes, and lowering them to primitives.
//!
//! One family per file. Each file ends in a table of [`Entry`]s: domain, operator, and a function that parses a node's
//! attributes into an [`Op`] or says why not. To add an operator, write its struct, its `Op`, and its table row.
use std::fmt;

use crate::lower::{Lower, Val};
use crate::{DType, Declined, LowerError, Tensor, Value};

mod activation;
mod affine_grid;
mod arithmetic;
mod attention;
mod attributes;
#[cfg(test)]
mod case;
mod cast;
mod channel_norm;
mod channels_last;
mod choice;
mod coded_weights;
mod contrib_attention;
mod conv;
mod cumulative;
mod decoder_masked_attention;
mod deform_conv;
mod diffusion;
mod einsum;
mod elementwise;
mod experts;
mod float4;
pub(crate) mod fused;
mod fused_conv;
mod fused_linear;
mod gated_delta_net;
mod gates;
mod gather;
mod gather_block_quantized;
mod generate;
mod grid_sample;
mod group_query_attention;
mod grouped_heads;
mod identity;
mod integer_float;
mod interleaved;
mod join;
mod last_rows;
mod left_alone;
mod linear_attention;
mod loss;
mod matmul;
mod matmul_nbits;
mod meaning;
mod mel_weights;
mod mrotary;
mod norm;
mod normed_nbits;
mod pad;
mod paged_attention;
mod pool;
mod qgemm;
mod qlinear;
mod qlinear_mean;
mod quantised_cache;
mod quantize;
mod quantized;
mod quantized_attention;
mod quantized_embedding;
mod quantized_lstm;
mod recurrent;
mod reduce;
mod regions;
mod relative_bias;
mod reshape;
mod resize;
mod rotary;
mod scatter;
mod scattered;
mod search;
mod select;
mod signal_window;
mod skip_norm;
mod slice;
mod softmax;
mod spatial_move;
mod table_positions;
#[cfg(test)]
mod trial;
mod window;
mod windowed_cache;

pub use attributes::{Attribute, Attributes};
pub(crate) use last_rows::{LastRows, PlacedRows};
pub(crate) use matmul::{BiasedParts, MergedMatMul};
pub use matmul_nbits::QuantProduct;
pub use meaning::{Meaning, RowWise};
pub(crate) use table_positions::TablePositions;

/// An ONNX node with its attributes parsed and checked.
///
/// An operator is a pure function: equal operators with the same inputs give the same outputs, and passes merge them.
/// Two are equal if `{:#?}` prints the same for both.
pub trait Op: fmt::Debug + Send + Sync {
    /// The operator's ONNX name.
    fn name(&self) -> &'static str;

    /// Inputs whose *values* the planner must know: shapes, axes, repeats. They must come from constants, shapes, or
    /// arithmetic on these.
    fn host_inputs(&self) -> &[usize] {
        &[]
    }

    /// True for operators such as Shape, whose result does not depend on any input's value.
    fn reads_only_shapes(&self) -> bool {
        false
    }

    /// True if the planner computes the results whenever it knows all inputs and they are small. This holds for
    /// everything built from maps, movement, gathers and reductions; operators with their own primitive return false.
    fn follows_known_values(&self) -> bool {
        true
    }

    /// What passes know about it.
    fn meaning(&self) -> Meaning<'_> {
        Meaning::Opaque
    }

    /// Whether it works row by row.
    fn row_wise(&self) -> RowWise {
        RowWise::No
    }

    /// Emits the steps for concrete inputs. Returns one value per ONNX output; unused trailing ones may be missing.
    ///
    /// # Errors
    /// The inputs break the operator's rules.
    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError>;
}

/// What is known about a node when it is offered: enough to take or decline it.
pub struct NodeInfo<'a> {
    /// The operator's domain; `""` is ONNX's own.
    pub domain: &'a str,
    /// The operator.
    pub op_type: &'a str,
    /// The opset version its schema appeared in.
    pub since_version: i32,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Types of its inputs, with ranks and values if known; `None` for omitted ones.
    pub inputs: &'a [Option<InputInfo<'a>>],
    /// Types of its outputs; `None` for unused ones.
    pub outputs: &'a [Option<DType>],
}

/// What is known about an input.
#[derive(Clone, Copy)]
pub struct InputInfo<'a> {
    /// Its element type.
    pub dtype: DType,
    /// Its rank, if known.
    pub rank: Option<usize>,
    /// Its value, if it is a constant.
    pub constant: Option<&'a Tensor>,
}

impl<'a> From<&'a Value> for InputInfo<'a> {
    fn from(value: &'a Value) -> Self {
        Self { dtype: value.dtype, rank: None, constant: value.constant.as_ref() }
    }
}

impl NodeInfo<'_> {
    /// The type of a required input.
    ///
    /// # Errors
    /// It is missing.
    pub fn input(&self, index: usize) -> Result<InputInfo<'_>, Declined> {
        self.optional(index).ok_or_else(|| Declined::new(format!("input {index} is missing")))
    }

    /// An optional input.
    pub fn optional(&self, index: usize) -> Option<InputInfo<'_>> {
        self.inputs.get(index).copied().flatten()
    }

    /// True if an output is used.
    pub fn wants(&self, index: usize) -> bool {
        self.outputs.get(index).is_some_and(Option::is_some)
    }

    /// Declines an input whose type is not `accepted`.
    ///
    /// # Errors
    /// The input has another type, or is missing.
    pub fn accept(&self, index: usize, accepted: fn(DType) -> bool) -> Result<DType, Declined> {
        let dtype = self.input(index)?.dtype;
        if accepted(dtype) {
            Ok(dtype)
        } else {
            Err(Declined::new(format!("input {index} has unsupported type {dtype}")))
        }
    }
}

/// Parses a node into an operator.
pub type Parse = fn(&NodeInfo<'_>) -> Result<Box<dyn Op>, Declined>;

/// A row of a family's table.
pub struct Entry {
    /// The domain; `""` is ONNX's own.
    pub domain: &'static str,
    /// The operator.
    pub op_type: &'static str,
    /// Parses a node.
    pub parse: Parse,
}

/// The families' tables.
const FAMILIES: &[&[Entry]] = &[
    reshape::OPS,
    slice::OPS,
    join::OPS,
    pad::OPS,
    gather::OPS,
    gather_block_quantized::OPS,
    scatter::OPS,
    scattered::OPS,
    generate::OPS,
    spatial_move::OPS,
    pool::OPS,
    conv::OPS,
    fused_conv::OPS,
    channels_last::OPS,
    matmul::OPS,
    matmul_nbits::OPS,
    normed_nbits::OPS,
    integer_float::OPS,
    qgemm::OPS,
    coded_weights::OPS,
    fused_linear::OPS,
    experts::OPS,
    activation::OPS,
    arithmetic::OPS,
    cast::OPS,
    identity::OPS,
    quantize::OPS,
    qlinear::OPS,
    qlinear_mean::OPS,
    select::OPS,
    choice::OPS,
    elementwise::UNARY,
    elementwise::BINARY,
    reduce::OPS,
    channel_norm::OPS,
    diffusion::OPS,
    norm::OPS,
    skip_norm::OPS,
    quantized_embedding::OPS,
    loss::OPS,
    softmax::OPS,
    search::OPS,
    cumulative::OPS,
    einsum::OPS,
    resize::OPS,
    grid_sample::OPS,
    regions::OPS,
    deform_conv::OPS,
    affine_grid::OPS,
    signal_window::OPS,
    mel_weights::OPS,
    attention::OPS,
    contrib_attention::OPS,
    quantized_attention::OPS,
    decoder_masked_attention::OPS,
    relative_bias::OPS,
    group_query_attention::OPS,
    paged_attention::OPS,
    rotary::OPS,
    mrotary::OPS,
    linear_attention::OPS,
    gated_delta_net::OPS,
    gates::OPS,
    recurrent::OPS,
    quantized_lstm::OPS,
];

/// The operators that convert 8-bit floats and integers of 4 or 2 bits, keep them in a cache, or move them as bytes.
const FLOAT8_OPS: &[&str] = &[
    "GroupQueryAttention",
    "MatMulBlockQuantizedFp8Weight",
    QMOE,
    "Cast",
    "CastLike",
    "QuantizeLinear",
    "DequantizeLinear",
    "Identity",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Shape",
    "Size",
];

/// The only operator that reads [`DType::F8E8M0`].
const QMOE: &str = "QMoE";

/// All table rows. Searched linearly: a map would leak its heap memory when the library around this crate is unloaded.
fn rows() -> impl Iterator<Item = &'static Entry> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The highest supported rank: work on shapes may take time quadratic in it.
pub const MAX_RANK: usize = 64;

/// Parses a node, or says why it is left to other providers.
///
/// # Errors
/// The operator, its version, an attribute or a type is not supported.
pub fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let domain = if node.domain == "ai.onnx" { "" } else { node.domain };
    let row = rows().find(|row| row.op_type == node.op_type && row.domain == domain);
    let row = row.ok_or_else(|| {
        let known = left_alone::all().find(|&(of, op_type, _)| (of, op_type) == (domain, node.op_type));
        Declined::new(known.map_or("the operator is not supported", |(_, _, reason)| reason))
    })?;
    let ranks =
        node.inputs.iter().flatten().filter_map(|input| input.rank.or(input.constant.map(|it| it.shape().len())));
    if let Some(rank) = ranks.max().filter(|&rank| rank > MAX_RANK) {
        return Err(Declined::new(format!("rank {rank} exceeds the maximum of {MAX_RANK}")));
    }
    let dtypes = node.inputs.iter().flatten().map(|input| input.dtype).chain(node.outputs.iter().flatten().copied());
    let mut stored = dtypes.filter(|dtype| dtype.is_float8() || dtype.is_packed());
    if stored.clone().any(|dtype| dtype == DType::F8E8M0) && node.op_type != QMOE {
        return Err(Declined::new(format!("{} holds scales of blocks, which only {QMOE} reads", DType::F8E8M0)));
    }
    if let Some(dtype) = stored.next()
        && !FLOAT8_OPS.contains(&node.op_type)
    {
        return Err(Declined::new(format!("{dtype} can be converted and moved, but not computed with")));
    }
    (row.parse)(node)
}

/// Every supported operator as (domain, operator), in order.
pub fn supported() -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = rows().map(|row| (row.domain, row.op_type)).collect();
    all.sort_unstable();
    all
}

/// The operators that are known but left to other providers, as (domain, operator, reason), in order.
pub fn left_alone() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all: Vec<_> = left_alone::all().collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_operators_give_a_reason() {
        let attributes = Attributes::default();
        let reason = |domain, op_type| {
            let (inputs, outputs) = (&[], &[]);
            let info = NodeInfo { domain, op_type, since_version: 1, attributes: &attributes, inputs, outputs };
            parse(&info).err().map(|declined| declined.to_string()).unwrap_or_default()
        };
        assert!(reason("com.microsoft", "SparseAttention").contains("sparse"));
        assert_eq!(reason("", "SparseAttention"), "the operator is not supported");
        let supported = supported();
        let mut names: Vec<_> = left_alone().into_iter().map(|(domain, op_type, _)| (domain, op_type)).collect();
        assert_eq!(names.iter().find(|name| supported.contains(name)), None);
        names.dedup();
        assert_eq!(names.len(), left_alone().len(), "an operator is listed twice");
    }
}
