//! Which nodes MIGraphX supports.
use std::collections::{BTreeSet, HashSet};

use ort_ep::view::{Node, ValueInfo};
use ort_ep::{ElementType, Result};

use super::contrib::{self, MICROSOFT};
use crate::mgx::Version;

/// Operators that ONNX adopted from Microsoft's domain with different inputs. MIGraphX's parsers expect the old form.
const OTHER_FORM_IN_ONNX: [&str; 2] = ["Attention", "RotaryEmbedding"];

/// Operators worth a partition.
const HEAVY: [&str; 27] = [
    "Attention",
    "AveragePool",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "Einsum",
    "GRU",
    "Gemm",
    "GlobalAveragePool",
    "GroupNorm",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LSTM",
    "LayerNormalization",
    "MatMul",
    "MatMulInteger",
    "MatMulNBits",
    "MaxPool",
    "MultiHeadAttention",
    "QLinearConv",
    "QLinearMatMul",
    "RNN",
    "Resize",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
];

/// Names of values that are known at compile time.
pub(super) type Known = HashSet<String>;

/// Decides which nodes are taken.
pub(super) struct Support<'a> {
    /// The operators that the loaded library supports.
    pub operators: &'a BTreeSet<String>,
    /// The release of the library, if its file records it.
    pub release: Option<Version>,
    /// Leaves control-flow nodes to the CPU.
    pub cpu_control_flow: bool,
}

impl Support<'_> {
    /// Returns why a node is not taken. `known` holds the values that are known at compile time.
    ///
    /// # Errors
    /// ONNX Runtime failed to describe the node.
    pub fn refusal(&self, node: Node<'_>, known: &Known) -> Result<Option<String>> {
        let (op, domain) = (node.op_type()?, node.domain()?);
        let subgraphs = node.subgraphs()?;
        if let Some(reason) = contrib::refusal(node, op, domain, self.release)? {
            return Ok(Some(reason));
        }
        if let Some(reason) = self.unknown(op, domain) {
            return Ok(Some(reason));
        }
        for value in node.inputs()?.into_iter().chain(node.outputs()?).flatten() {
            if let Some(reason) = unfit(value)? {
                return Ok(Some(reason));
            }
        }
        if self.cpu_control_flow && (!subgraphs.is_empty() || ["Greater", "Cast"].contains(&op)) {
            return Ok(Some("cpu_control_flow keeps it on the CPU".to_owned()));
        }
        for (_, body) in subgraphs {
            let mut inner = known.clone();
            for node in body.nodes()? {
                if let Some(reason) = self.refusal(node, &inner)? {
                    return Ok(Some(format!("its body contains {}: {reason}", node.op_type()?)));
                }
                learn(node, &mut inner)?;
            }
        }
        if matches!(domain, "" | "ai.onnx") { mode(node, op, known) } else { Ok(None) }
    }

    fn unknown(&self, op: &str, domain: &str) -> Option<String> {
        match domain {
            "" | "ai.onnx" if OTHER_FORM_IN_ONNX.contains(&op) => {
                Some("MIGraphX supports only Microsoft's version of it".to_owned())
            }
            "" | "ai.onnx" | MICROSOFT => {
                (!self.operators.contains(op)).then(|| "MIGraphX does not support this operator".to_owned())
            }
            other => Some(format!("MIGraphX supports no operators of the domain {other:?}")),
        }
    }
}

/// True for operators worth a partition, including those in a node's bodies.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(super) fn is_heavy(node: Node<'_>) -> Result<bool> {
    if HEAVY.contains(&node.op_type()?) {
        return Ok(true);
    }
    for (_, body) in node.subgraphs()? {
        for node in body.nodes()? {
            if is_heavy(node)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Marks a node's outputs as known if they depend only on known values: constants, and the shapes of any values.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(super) fn learn(node: Node<'_>, known: &mut Known) -> Result<()> {
    let op = node.op_type()?;
    let mut follows = !op.starts_with("Random") && node.subgraphs()?.is_empty();
    if !matches!(op, "Shape" | "Size") {
        for value in node.inputs()?.into_iter().flatten() {
            follows &= is_known(value, known)?;
        }
    }
    if follows {
        for value in node.outputs()?.into_iter().flatten() {
            known.insert(value.name()?.to_owned());
        }
    }
    Ok(())
}

fn is_known(value: ValueInfo<'_>, known: &Known) -> Result<bool> {
    Ok(value.is_constant_initializer()? || known.contains(value.name()?))
}

/// Why MIGraphX cannot handle a value.
fn unfit(value: ValueInfo<'_>) -> Result<Option<String>> {
    use ElementType as E;
    let name = value.name()?;
    let kind = value.value_type()?;
    let Some(tensor) = kind.tensor() else { return Ok(Some(format!("{name:?} is not a tensor but {kind:?}"))) };
    let fits = matches!(
        tensor.element,
        E::F16
            | E::Bf16
            | E::F32
            | E::F64
            | E::F4E2M1
            | E::F8E4M3Fn
            | E::F8E4M3FnUz
            | E::F8E5M2
            | E::F8E5M2FnUz
            | E::I4
            | E::I8
            | E::I16
            | E::I32
            | E::I64
            | E::U4
            | E::U8
            | E::U16
            | E::U32
            | E::U64
            | E::Bool
    );
    Ok((!fits).then(|| format!("{name:?} has the unsupported type {:?}", tensor.element)))
}

/// Why a particular form of a supported operator is not taken.
fn mode(node: Node<'_>, op: &str, known: &Known) -> Result<Option<String>> {
    let inputs = node.inputs()?;
    let present = |at: usize| inputs.get(at).copied().flatten();
    // Inputs in this range determine shapes, so they must be known at compile time.
    let computed = |range: std::ops::Range<usize>| -> Result<Option<String>> {
        for at in range {
            if let Some(value) = present(at)
                && !is_known(value, known)?
            {
                return Ok(Some(format!("its input {at} ({:?}) is not constant", value.name()?)));
            }
        }
        Ok(None)
    };
    let text = |name: &str| Ok::<_, ort_ep::Error>(node.string(name)?.unwrap_or_default());
    let refused = |reason: &str| Ok(Some(reason.to_owned()));
    match op {
        "ArgMax" | "ArgMin" if node.int("select_last_index")?.unwrap_or(0) != 0 => refused("select_last_index is set"),
        "NonZero" | "NonMaxSuppression" | "Unique" => refused("its output shape depends on input values"),
        // Seen in 2.14: wrong results with an ignored index or log probabilities, and an assertion that aborts the
        // process.
        "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss" => {
            refused("MIGraphX computes some variants of it incorrectly")
        }
        "BatchNormalization"
            if node.int("training_mode")?.unwrap_or(0) != 0 || node.outputs()?.iter().flatten().count() > 1 =>
        {
            refused("it is in training mode")
        }
        // Seen in 2.14: values other than 0 and 1 are first rounded or clamped to one of them.
        "Cast" | "CastLike" if makes_bool(node)? => refused("it converts numbers to booleans"),
        // Seen in 2.14: infinities and NaN are converted to other numbers.
        "Cast" | "CastLike" if touches_small_floats(node)? => refused("it converts 8-bit floats"),
        // Seen in 2.14: negative indices access other rows, except along the first axis.
        "GatherElements" if node.int("axis")?.unwrap_or(0) != 0 && !is_from_the_start(present(1))? => {
            refused("its indices may be negative")
        }
        // Seen in 2.14: the data's zero point is interpreted as a signed number.
        "ConvInteger" if inputs.len() > 2 => refused("it has a zero point"),
        "ConvInteger" | "MatMulInteger" => {
            for value in inputs.iter().flatten() {
                let kind = value.value_type()?;
                let element = kind.tensor().map(|tensor| tensor.element);
                if !matches!(element, Some(ElementType::I8 | ElementType::U8)) {
                    return refused("its inputs are not 8-bit integers");
                }
            }
            Ok(None)
        }
        "ConstantOfShape" => computed(0..1),
        "Expand" | "OneHot" | "Tile" | "TopK" | "ReduceSum" | "Unsqueeze" | "Squeeze" | "Reshape" => computed(1..2),
        "Range" => computed(0..3),
        "Split" => {
            for value in inputs.iter().flatten() {
                let kind = value.value_type()?;
                let shape = kind.tensor().and_then(|tensor| tensor.shape.as_deref());
                if shape.is_some_and(|dims| dims.len() == 1 && dims[0].fixed() == Some(0)) {
                    return refused("its split is empty");
                }
            }
            computed(1..2)
        }
        "Slice" => match (node.ints("starts")?, node.ints("ends")?) {
            (Some(starts), Some(ends)) if starts.iter().zip(&ends).any(|(start, end)| *end >= 0 && start > end) => {
                refused("it ends before it starts")
            }
            _ => computed(1..inputs.len().max(1)),
        },
        "MaxPool" => {
            if node.outputs()?.iter().flatten().count() > 1 {
                refused("it has an indices output")
            } else if node.ints("dilations")?.unwrap_or_default().iter().any(|&dilation| dilation != 1) {
                refused("it is dilated")
            } else if node.int("storage_order")?.unwrap_or(0) != 0 {
                refused("storage_order is set")
            } else {
                windows(node)
            }
        }
        "AveragePool" | "LpPool" => windows(node),
        "Pad" => match text("mode")?.as_str() {
            "" | "constant" | "reflect" | "edge" => computed(1..2),
            other => Ok(Some(format!("its mode is {other:?}"))),
        },
        "Resize" | "Upsample" => {
            if text("coordinate_transformation_mode")? == "tf_crop_and_resize" {
                refused("its coordinates are tf_crop_and_resize")
            } else if text("mode")? == "cubic" {
                refused("its mode is cubic")
            } else {
                computed(1..inputs.len().max(1))
            }
        }
        _ => Ok(None),
    }
}

fn element_of(value: Option<Option<ValueInfo<'_>>>) -> Result<Option<ElementType>> {
    let Some(Some(value)) = value else { return Ok(None) };
    Ok(value.value_type()?.tensor().map(|tensor| tensor.element))
}

/// True for constant, non-negative indices.
fn is_from_the_start(indices: Option<ValueInfo<'_>>) -> Result<bool> {
    let Some(indices) = indices else { return Ok(false) };
    if !indices.is_constant_initializer()? {
        return Ok(false);
    }
    let Some(data) = indices.initializer()? else { return Ok(false) };
    Ok(match data.element_type()? {
        ElementType::I64 => data.as_slice::<i64>()?.iter().all(|&index| index >= 0),
        ElementType::I32 => data.as_slice::<i32>()?.iter().all(|&index| index >= 0),
        _ => false,
    })
}

fn makes_bool(node: Node<'_>) -> Result<bool> {
    let from = element_of(node.inputs()?.first().copied())?;
    let to = element_of(node.outputs()?.first().copied())?;
    Ok(to == Some(ElementType::Bool) && from != to)
}

fn touches_small_floats(node: Node<'_>) -> Result<bool> {
    use ElementType as E;
    for value in node.inputs()?.into_iter().chain(node.outputs()?).flatten() {
        let kind = value.value_type()?;
        let element = kind.tensor().map(|tensor| tensor.element);
        if matches!(element, Some(E::F8E4M3Fn | E::F8E4M3FnUz | E::F8E5M2 | E::F8E5M2FnUz)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Why a pooling node with `ceil_mode` is not taken. ONNX drops a last window that would lie entirely in the padding;
/// MIGraphX keeps it.
fn windows(node: Node<'_>) -> Result<Option<String>> {
    if node.int("ceil_mode")?.unwrap_or(0) == 0 {
        return Ok(None);
    }
    let Some(Some(value)) = node.inputs()?.first().copied() else { return Ok(None) };
    let kind = value.value_type()?;
    let dims = kind.tensor().and_then(|tensor| tensor.shape.as_ref());
    let input: Option<Vec<i64>> = dims.and_then(|dims| dims.iter().skip(2).map(|dim| dim.fixed()).collect());
    let Some(input) = input.filter(|_| pads_explicitly(node)) else {
        return Ok(Some("its output extents are rounded up and unknown".to_owned()));
    };
    let list = |name: &str, default: i64, len: usize| -> Result<Vec<i64>> {
        Ok(node.ints(name)?.filter(|list| list.len() == len).unwrap_or_else(|| vec![default; len]))
    };
    let axes = input.len();
    let (kernel, strides, dilations) =
        (list("kernel_shape", 1, axes)?, list("strides", 1, axes)?, list("dilations", 1, axes)?);
    let pads = list("pads", 0, 2 * axes)?;
    let counts = |axis: usize| {
        let (stride, window) = (strides[axis].max(1), dilations[axis] * (kernel[axis] - 1) + 1);
        let free = input[axis] + pads[axis] + pads[axis + axes] - window;
        // The start of the last window.
        (free + stride - 1).div_euclid(stride) * stride < input[axis] + pads[axis]
    };
    Ok((!(0..axes).all(counts)).then(|| "its last window covers only padding".to_owned()))
}

fn pads_explicitly(node: Node<'_>) -> bool {
    matches!(node.string("auto_pad").as_ref().map(Option::as_deref), Ok(None | Some("NOTSET" | "")))
}
