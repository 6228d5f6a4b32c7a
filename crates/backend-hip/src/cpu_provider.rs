//! What ONNX Runtime's CPU provider cannot run either.
//!
//! A node that this provider declines goes to the CPU provider. If that has no kernel for it, ONNX Runtime fails with a
//! message about its own source code; if its kernel refuses the inputs, the first run fails. This module reports such
//! nodes before that, with our reason for declining them. ONNX Runtime ignores errors while nodes are claimed, so a
//! node without any kernel is claimed, and compiling it fails. The lists are those of ONNX Runtime 1.31.1:
//! `get_all_opkernel_def` of its Python package names the kernels.
use std::collections::BTreeMap;

use graph::Declined;
use ort_ep::view::{Dim, Node, ValueType};
use ort_ep::{ElementType, Error, ErrorCode, Result};

/// The newest release, 1.31, whose kernels are listed here. A later one may have more.
const NEWEST: u32 = 31;

/// Operators of com.microsoft that have no kernel on the CPU.
const WITHOUT_KERNEL: &[&str] = &[
    "BiasAdd",
    "BiasDropout",
    "BiasSoftmax",
    "BiasSplitGelu",
    "BitmaskBiasDropout",
    "BitmaskDropout",
    "ComplexMul",
    "ComplexMulConj",
    "DecoderAttention",
    "DecoderMaskedSelfAttention",
    "DequantizeBFP",
    "DequantizeWithOrder",
    "DynamicSparseAttention",
    "FusedMatMulActivation",
    "GatedDeltaNet",
    "GatedRelativePositionBias",
    "GemmFastGelu",
    "GemmFloat8",
    "GemmaRotaryEmbedding",
    "GroupNorm",
    "Irfft",
    "IsAllFinite",
    "LongformerAttention",
    "MatMulBlockQuantizedFp4Weight",
    "MatMulBlockQuantizedFp8Weight",
    "MatMulNBitsMlp",
    "MatMulNBitsQkv",
    "MulInteger",
    "NhwcConv",
    "NhwcFusedConv",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "PackedSparseAttentionIndexer",
    "PagedAttention",
    "QLinearReduceMean",
    "QOrderedAttention",
    "QOrderedGelu",
    "QOrderedLayerNormalization",
    "QOrderedLongformerAttention",
    "QOrderedMatMul",
    "QuantizeBFP",
    "QuantizeWithOrder",
    "ReduceSumInteger",
    "RelativePositionBias",
    "RemovePadding",
    "RestorePadding",
    "Rfft",
    "SkipGroupNorm",
    "SparseAttentionIndexer",
    "SparsePagedAttention",
    "TorchEmbedding",
    "VarlenCausalConvWithState",
];

/// Operators of com.microsoft with a kernel for bfloat16. ONNX Runtime converts float16 to float for all others, but not
/// bfloat16.
const WITH_BFLOAT16: &[&str] = &[
    "BranchwiseRMSNorm",
    "ExpandDims",
    "GatherND",
    "HyperConnectionPostMix",
    "HyperConnectionPreMix",
    "ScaledSiLU",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "UnfoldTensor",
];

/// The same for ONNX's own operators.
const WITH_BFLOAT16_IN_ONNX: &[&str] = &[
    "BitCast",
    "Cast",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "ConstantOfShape",
    "DynamicSlice",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "If",
    "IsInf",
    "IsNaN",
    "LayerNormalization",
    "Loop",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "RandomNormalLike",
    "RandomUniformLike",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "Shape",
    "Shrink",
    "Sign",
    "SimplifiedLayerNormalization",
    "Slice",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "TensorScatter",
    "Transpose",
    "Unsqueeze",
];

/// ONNX's operators that other operators define: ONNX Runtime replaces a declined one, and offers the result again.
const DEFINED_BY_OTHERS: &[&str] = &[
    "AffineGrid",
    "Attention",
    "Bernoulli",
    "BlackmanWindow",
    "CastLike",
    "CausalConvWithState",
    "Celu",
    "CenterCropPad",
    "Clip",
    "DepthToSpace",
    "DynamicQuantizeLinear",
    "Elu",
    "Gelu",
    "GreaterOrEqual",
    "GroupNormalization",
    "HammingWindow",
    "HannWindow",
    "HardSigmoid",
    "HardSwish",
    "LayerNormalization",
    "LeakyRelu",
    "LessOrEqual",
    "LinearAttention",
    "LogSoftmax",
    "MeanVarianceNormalization",
    "Mish",
    "NegativeLogLikelihoodLoss",
    "PRelu",
    "RMSNormalization",
    "Range",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
    "Relu",
    "RotaryEmbedding",
    "Selu",
    "SequenceMap",
    "Shrink",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "SwiGLU",
    "Swish",
    "ThresholdedRelu",
];

/// The only operator of com.microsoft with a kernel for float8.
const READS_FLOAT8: &str = "GatherBlockQuantized";

/// GroupQueryAttention's weights of the norms of queries and keys.
const HEAD_NORMS: [usize; 2] = [14, 15];

/// Weights and scales of the layers of QMoE.
const QMOE_LAYERS: [[usize; 2]; 3] = [[2, 3], [5, 6], [8, 9]];

/// Why the CPU provider cannot run a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It has no kernel, perhaps only with an element type, so there can be no session.
    NoKernel { with: Option<&'static str> },
    /// The kernel fails at the first run.
    AtRun(&'static str),
    /// Its kernel computes something else, without an error, so there should be no session.
    Misread,
}

impl Refusal {
    /// Why the CPU provider cannot run a node; `None` if it can, as far as is known.
    ///
    /// # Errors
    /// ONNX Runtime failed to describe the node.
    pub fn of(node: Node<'_>) -> Result<Option<Self>> {
        let op = node.op_type()?;
        let is_microsoft = match node.domain()? {
            "com.microsoft" => true,
            "" | "ai.onnx" => false,
            _ => return Ok(None),
        };
        if is_microsoft && WITHOUT_KERNEL.contains(&op) {
            return Ok(Some(Self::NoKernel { with: None }));
        }
        if is_microsoft && is_packed_for_cuda(node)? {
            return Ok(Some(Self::Misread));
        }
        let has_kernel = match is_microsoft {
            true => WITH_BFLOAT16.contains(&op),
            false => WITH_BFLOAT16_IN_ONNX.contains(&op) || DEFINED_BY_OTHERS.contains(&op),
        };
        for value in node.inputs()?.into_iter().chain(node.outputs()?).flatten() {
            let ValueType::Tensor(tensor) = value.value_type()? else { continue };
            let with = match tensor.element {
                ElementType::Bf16 if !has_kernel => "bfloat16",
                // Mostly the caches of attention. ONNX's own operators that accept these types have kernels.
                ElementType::F8E4M3Fn | ElementType::F8E5M2 | ElementType::F8E8M0
                    if is_microsoft && op != READS_FLOAT8 =>
                {
                    "float8"
                }
                _ => continue,
            };
            return Ok(Some(Self::NoKernel { with: Some(with) }));
        }
        if is_microsoft && op == "GroupQueryAttention" {
            let inputs = node.inputs()?;
            if HEAD_NORMS.iter().any(|&at| inputs.get(at).is_some_and(Option::is_some)) {
                return Ok(Some(Self::AtRun("refuses q_norm_weight and k_norm_weight")));
            }
        }
        Ok(None)
    }

    /// Whether there can be no session in this release.
    fn is_fatal(self, release: Option<u32>) -> bool {
        match self {
            Self::NoKernel { .. } => release.is_some_and(|release| release <= NEWEST),
            Self::Misread => true,
            Self::AtRun(_) => false,
        }
    }

    fn text(self) -> String {
        match self {
            Self::NoKernel { with: Some(element) } => format!("has no kernel for it with {element}"),
            Self::NoKernel { with: None } => "has no kernel for it".to_owned(),
            Self::AtRun(what) => format!("{what} when it runs"),
            Self::Misread => "reads its weights, which are packed for CUDA, as if they were not".to_owned(),
        }
    }
}

/// Whether a node's weights have the layout of CUDA's kernels. The CPU provider does not look.
fn is_packed_for_cuda(node: Node<'_>) -> Result<bool> {
    match node.op_type()? {
        "MatMulNBits" => Ok(node.int("weight_prepacked")?.is_some_and(|packed| packed != 0)),
        // 4-bit floats have one layout.
        "QMoE" if node.string("quant_type")?.is_some_and(|kind| kind != "int") => Ok(false),
        "QMoE" => match node.int("weights_prepacked")? {
            Some(packed @ 0..) => Ok(packed > 0),
            // In that layout, the columns, which the scales count, are along the last axis.
            _ => {
                let inputs = node.inputs()?;
                let second = |at: usize| -> Result<Option<i64>> {
                    let Some(value) = inputs.get(at).copied().flatten() else { return Ok(None) };
                    let value = value.value_type()?;
                    let shape = value.tensor().and_then(|tensor| tensor.shape.as_deref());
                    Ok(shape.and_then(|shape| shape.get(1)).and_then(Dim::fixed))
                };
                let mut is_turned = false;
                for [weights, scales] in QMOE_LAYERS {
                    is_turned |= second(weights)?.zip(second(scales)?).is_some_and(|(rows, columns)| rows != columns);
                }
                Ok(is_turned)
            }
        },
        _ => Ok(false),
    }
}

/// Adds to the reasons of declined nodes that the CPU provider cannot run them either, and logs a warning. `family` is
/// the type of the model, if the application named it. If there can be no session, returns the first such node and an
/// error with all of them.
///
/// # Errors
/// ONNX Runtime failed to describe a node.
pub(crate) fn check<'a>(
    declined: &mut [(Node<'a>, Declined)],
    family: Option<&str>,
    release: Option<u32>,
) -> Result<Option<(Node<'a>, Error)>> {
    let mut counts: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let mut first = None;
    for (node, reason) in declined {
        // Another provider may already have it.
        let Some(refusal) = Refusal::of(*node)?.filter(|_| node.ep_name().is_ok_and(|name| name.is_none())) else {
            continue;
        };
        let domain = if node.domain()? == "com.microsoft" { "com.microsoft." } else { "" };
        let op = node.op_type()?;
        let problem = format!("{domain}{op}: {reason}, and ONNX Runtime's CPU provider {}", refusal.text());
        let is_fatal = refusal.is_fatal(release);
        if is_fatal {
            first.get_or_insert(*node);
        }
        let entry = counts.entry(problem).or_default();
        *entry = (entry.0 + 1, is_fatal);
        *reason = Declined::new(format!("{reason}; ONNX Runtime's CPU provider {}", refusal.text()));
    }
    let of_family = family.map(|family| format!(" of this {family:?} model")).unwrap_or_default();
    let mut fatal = Vec::new();
    for (problem, (nodes, is_fatal)) in counts {
        let problem = format!("{nodes} node{}{of_family} cannot run: {problem}", if nodes == 1 { "" } else { "s" });
        if is_fatal {
            fatal.push(problem);
        } else {
            tracing::warn!(target: "amdgpu_ep::partition", "{problem}");
        }
    }
    Ok(first.map(|node| {
        let help = "use a build of the model in float16 or float32, for another provider, or without this operator";
        (node, Error::new(ErrorCode::NotImplemented, format!("{}\n  help: {help}", fatal.join("; "))))
    }))
}
