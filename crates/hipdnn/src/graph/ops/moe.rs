//! Matrix products of a mixture of experts: each group of tokens is multiplied by the weights of its expert.

use crate::Result;
use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, AttributeType, DescriptorType, MoeGroupedMatmulMode};

/// How tokens are assigned to experts, over tokens `[1, rows, depth]` and weights `[experts, depth, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoeGroupedMatmul {
    /// Whether tokens are gathered or results scattered.
    pub mode: MoeGroupedMatmulMode,
    /// Number of experts per token, if tokens are gathered or scattered.
    pub top_k: i32,
    /// The row of each token, if tokens are gathered or scattered.
    pub token_index: Option<TensorId>,
    /// Which of its token's experts each row belongs to, if results are scattered.
    pub token_ks: Option<TensorId>,
}

impl Default for MoeGroupedMatmul {
    /// Tokens that are already sorted by expert.
    fn default() -> Self {
        Self { mode: MoeGroupedMatmulMode::NONE, top_k: 0, token_index: None, token_ks: None }
    }
}

const TOKENS: &str = "it must have three axes: one, rows, depth";
const WEIGHTS: &str = "it must have three axes: experts, depth, width";

/// The number of offsets, one per expert, whatever the tensor's shape.
fn offsets_of(tensors: &Tensors, offsets: TensorId) -> Result<i64> {
    let dims = tensors.dims(offsets);
    match dims.iter().try_fold(1i64, |count, &extent| count.checked_mul(extent)) {
        Some(count) => Ok(count),
        None => tensors.refuse(offsets, format!("extents {dims:?} overflow")),
    }
}

fn require_offsets(tensors: &Tensors, offsets: TensorId, experts: i64) -> Result<()> {
    let count = offsets_of(tensors, offsets)?;
    if count != experts {
        return tensors.refuse(offsets, format!("{count} offsets for {experts} experts"));
    }
    Ok(())
}

/// The product; `offsets` contains each expert's first row. The result's rows must be given if they differ from the
/// tokens'.
pub(in crate::graph) fn moe_grouped_matmul(
    what: MoeGroupedMatmul,
    [token, weight, offsets]: [TensorId; 3],
    output: TensorId,
) -> Operation {
    let mut reads = vec![
        (A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC, token),
        (A::OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC, weight),
        (A::OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC, offsets),
    ];
    reads.extend(what.token_index.map(|id| (A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC, id)));
    reads.extend(what.token_ks.map(|id| (A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC, id)));
    let rule = move |tensors: &mut Tensors| {
        let &[_, rows, depth] = tensors.dims(token) else { return tensors.refuse(token, TOKENS) };
        let &[experts, weight_depth, width] = tensors.dims(weight) else { return tensors.refuse(weight, WEIGHTS) };
        if weight_depth != depth {
            return tensors.refuse(weight, format!("its {weight_depth} rows do not match the tokens' {depth} columns"));
        }
        require_offsets(tensors, offsets, experts)?;
        let moves = what.mode != MoeGroupedMatmulMode::NONE;
        if moves && what.token_index.is_none() {
            return tensors.refuse(token, format!("mode {:?} needs the rows of the tokens", what.mode));
        }
        if moves && what.top_k < 1 {
            return tensors.refuse(token, format!("mode {:?} needs the number of experts of a token", what.mode));
        }
        let dims = match tensors.dims(output) {
            [] if moves => return tensors.refuse(output, "its extents cannot be inferred and must be set"),
            [] => vec![1, rows, width],
            &[first, rows, _] => vec![first, if moves { rows } else { tensors.dims(token)[1] }, width],
            _ => return tensors.refuse(output, TOKENS),
        };
        tensors.set_result(output, &dims, None)
    };
    Operation {
        name: "grouped product of experts",
        descriptor: DescriptorType::OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR,
        compute_type: A::OPERATION_MOE_GROUPED_MATMUL_MATH_PREC,
        reads,
        makes: vec![(A::OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC, output)],
        settings: vec![
            (A::OPERATION_MOE_GROUPED_MATMUL_MODE, Setting::Mode(AttributeType::MOE_GROUPED_MATMUL_MODE, what.mode.0)),
            (A::OPERATION_MOE_GROUPED_MATMUL_TOP_K, Setting::I32s(vec![what.top_k])),
        ],
        rule: Box::new(rule),
    }
}

/// The gradient of the weights, for tokens that are sorted by expert.
pub(in crate::graph) fn moe_grouped_matmul_backward(
    [d_output, token, offsets]: [TensorId; 3],
    d_weight: TensorId,
) -> Operation {
    let rule = move |tensors: &mut Tensors| {
        let &[_, rows, width] = tensors.dims(d_output) else { return tensors.refuse(d_output, TOKENS) };
        let &[_, token_rows, depth] = tensors.dims(token) else { return tensors.refuse(token, TOKENS) };
        if token_rows != rows {
            return tensors.refuse(token, format!("its {token_rows} rows do not match the gradient's {rows} rows"));
        }
        let experts = offsets_of(tensors, offsets)?;
        tensors.set_result(d_weight, &[experts, depth, width], None)
    };
    Operation {
        name: "grouped product of experts backward",
        descriptor: DescriptorType::OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR,
        compute_type: A::OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC,
        reads: vec![
            (A::OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC, d_output),
            (A::OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC, token),
            (A::OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC, offsets),
        ],
        makes: vec![(A::OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC, d_weight)],
        settings: Vec::new(),
        rule: Box::new(rule),
    }
}
