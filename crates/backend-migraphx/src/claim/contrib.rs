//! Operators outside the ONNX standard, in the forms that MIGraphX computes correctly.
//!
//! MIGraphX ignores domains and identifies these operators only by name. It computes some forms incorrectly, and some
//! crash the process. So a node is taken only in a form listed in [`FORMS`]; `tests/python/test_migraphx_contrib.py`
//! compares every row with ONNX Runtime's CPU provider on a real MIGraphX.
use ort_ep::view::Node;
use ort_ep::{ElementType, Result};

use crate::mgx::Version;

/// The domain of ONNX Runtime's own operators.
pub(super) const MICROSOFT: &str = "com.microsoft";

/// The release that the rows were checked with. Later releases are expected to be correct too; earlier ones are
/// untested.
const CHECKED: (u32, u32) = (2, 14);

/// An operator, and the conditions that a node must satisfy.
struct Form {
    domain: &'static str,
    op: &'static str,
    data: Data,
    needs: &'static [Condition],
}

/// Element types of the first input.
#[derive(Clone, Copy)]
enum Data {
    /// 32-bit and 16-bit floating-point types.
    Floats,
    /// Signed and unsigned 8-bit integers.
    Bytes,
    /// Signed and unsigned 8-bit and 16-bit integers.
    Integers,
}

/// A condition on a node.
enum Condition {
    /// An integer attribute has this value, or is absent and has it by default.
    Int(&'static str, i64),
    /// An integer attribute is present with this value.
    IntPresent(&'static str, i64),
    /// A float attribute has this value, or is absent and has it by default.
    Float(&'static str, f32),
    /// The node has no such attribute.
    NoAttribute(&'static str),
    /// The inputs with these indices are present.
    Present(&'static [(usize, &'static str)]),
    /// The inputs with these indices are absent.
    Absent(&'static [(usize, &'static str)]),
    /// If the input is present, it has this rank.
    Rank(usize, &'static str, usize),
    /// If the input is present, it has this type.
    Type(usize, &'static str, ElementType),
    /// The node has no other outputs than these.
    Outputs(&'static [usize]),
    /// A condition specific to this operator.
    Also(fn(Node<'_>) -> Result<Option<String>>),
}

use Condition::{Absent, Also, Float, Int, IntPresent, NoAttribute, Outputs, Present, Rank, Type};

const fn microsoft(op: &'static str, data: Data, needs: &'static [Condition]) -> Form {
    Form { domain: MICROSOFT, op, data, needs }
}

/// The forms that MIGraphX computes correctly.
const FORMS: &[Form] = &[
    microsoft(
        "Attention",
        Data::Floats,
        &[
            Present(&[(1, "weights"), (2, "bias")]),
            Absent(&[(4, "past"), (5, "attention_bias"), (6, "past_sequence_length")]),
            Rank(3, "mask_index", 2),
            Int("unidirectional", 0),
            Int("do_rotary", 0),
            NoAttribute("mask_filter_value"),
            NoAttribute("qkv_hidden_sizes"),
            Outputs(&[0]),
            Also(attention_scale),
        ],
    ),
    microsoft("BiasGelu", Data::Floats, &[]),
    microsoft("DequantizeLinear", Data::Integers, &[]),
    microsoft("FastGelu", Data::Floats, &[]),
    microsoft("Gelu", Data::Floats, &[]),
    microsoft("GroupNorm", Data::Floats, &[Int("channels_last", 1), Rank(0, "X", 4)]),
    microsoft(
        "MatMulNBits",
        Data::Floats,
        &[
            IntPresent("bits", 4),
            Type(3, "zero_points", ElementType::U8),
            Rank(3, "zero_points", 1),
            Absent(&[(4, "g_idx"), (5, "bias")]),
        ],
    ),
    microsoft(
        "MultiHeadAttention",
        Data::Floats,
        &[
            Present(&[(1, "key"), (2, "value")]),
            Rank(0, "query", 3),
            Absent(&[
                (3, "bias"),
                (4, "key_padding_mask"),
                (5, "attention_bias"),
                (6, "past_key"),
                (7, "past_value"),
                (8, "past_sequence_length"),
                (9, "cache_indirection"),
            ]),
            Int("unidirectional", 0),
            Outputs(&[0]),
            Also(key_and_value_ranks),
        ],
    ),
    microsoft("QLinearAdd", Data::Bytes, &[]),
    microsoft("QLinearAveragePool", Data::Bytes, &[Int("channels_last", 0), Int("ceil_mode", 0), Rank(0, "X", 4)]),
    microsoft("QLinearGlobalAveragePool", Data::Bytes, &[Int("channels_last", 0), Rank(0, "X", 4)]),
    microsoft("QuantizeLinear", Data::Floats, &[]),
    microsoft("QuickGelu", Data::Floats, &[]),
    microsoft(
        "RotaryEmbedding",
        Data::Floats,
        &[
            // With rank 4, MIGraphX confuses the head and token axes.
            Rank(0, "input", 3),
            Float("scale", 1.0),
            Int("is_packed_batching", 0),
            Also(heads_with_a_size),
        ],
    ),
    microsoft("SkipLayerNormalization", Data::Floats, &[Rank(0, "input", 3), Also(bias_with_a_beta)]),
    microsoft(
        "SkipSimplifiedLayerNormalization",
        Data::Floats,
        // MIGraphX adds the bias only to the sum output, not to the normalised value.
        &[Absent(&[(3, "bias")]), Outputs(&[0, 3]), Also(skip_of_the_same_rank)],
    ),
    // ONNX Runtime registers it in ONNX's domain, although it is not part of the standard.
    Form {
        domain: "",
        op: "SimplifiedLayerNormalization",
        data: Data::Floats,
        needs: &[Outputs(&[0]), Also(normalises_the_last_axis)],
    },
];

/// Operators that MIGraphX can parse, but none of whose forms is known to be computed correctly.
const NEVER: &[(&str, &str)] = &[
    (
        // Seen in 2.14: no form is safe to claim, because the same shapes occur in correct and incorrect runs.
        "GroupQueryAttention",
        "MIGraphX computes it wrongly for batches, for shared key heads and for prompts after the first, \
         and crashes without a rotary embedding or with a growing cache",
    ),
    ("NhwcConv", "MIGraphX rejects it"),
];

/// Returns why a node outside the ONNX standard is not taken; always `None` for standard nodes.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(super) fn refusal(node: Node<'_>, op: &str, domain: &str, release: Option<Version>) -> Result<Option<String>> {
    let domain = if domain == "ai.onnx" { "" } else { domain };
    let Some(form) = FORMS.iter().find(|form| form.op == op && form.domain == domain) else {
        return Ok((domain == MICROSOFT).then(|| unlisted(op)));
    };
    if let Some(version) = release
        && (version.major, version.minor) < CHECKED
    {
        let (major, minor) = CHECKED;
        return Ok(Some(format!("it is verified with MIGraphX {major}.{minor} and later, but this is {version}")));
    }
    if let Some(reason) = form.data.refusal(node)? {
        return Ok(Some(reason));
    }
    for need in form.needs {
        if let Some(reason) = need.refusal(node)? {
            return Ok(Some(reason));
        }
    }
    Ok(None)
}

fn unlisted(op: &str) -> String {
    let known = NEVER.iter().find(|(name, _)| *name == op);
    known.map_or("MIGraphX is not verified to compute this contrib operator correctly", |(_, reason)| reason).to_owned()
}

impl Data {
    fn refusal(self, node: Node<'_>) -> Result<Option<String>> {
        use ElementType as E;
        let Some(found) = element(node, 0)? else { return Ok(Some("its first input is absent".to_owned())) };
        let (fits, wanted) = match self {
            Self::Floats => (matches!(found, E::F32 | E::F16), "F32 or F16"),
            Self::Bytes => (matches!(found, E::I8 | E::U8), "I8 or U8"),
            Self::Integers => (matches!(found, E::I8 | E::U8 | E::I16 | E::U16), "I8, U8, I16 or U16"),
        };
        Ok((!fits).then(|| format!("its data is {found:?}; MIGraphX is verified only for {wanted}")))
    }
}

impl Condition {
    fn refusal(&self, node: Node<'_>) -> Result<Option<String>> {
        let right_for = |what: &str, found: String, wanted: String| {
            Some(format!("its {what} is {found}; MIGraphX is verified only for {wanted}"))
        };
        Ok(match *self {
            Int(name, wanted) => {
                let found = node.int(name)?.unwrap_or(wanted);
                if found == wanted { None } else { right_for(name, found.to_string(), wanted.to_string()) }
            }
            IntPresent(name, wanted) => match node.int(name)? {
                Some(found) if found == wanted => None,
                Some(found) => right_for(name, found.to_string(), wanted.to_string()),
                None => right_for(name, "absent".to_owned(), wanted.to_string()),
            },
            Float(name, wanted) => match node.float(name)? {
                Some(found) if found.to_bits() != wanted.to_bits() => {
                    right_for(name, found.to_string(), wanted.to_string())
                }
                _ => None,
            },
            NoAttribute(name) => {
                node.attribute(name)?.map(|_| format!("it has {name}; MIGraphX is verified only without it"))
            }
            Present(inputs) => {
                let missing = inputs.iter().find_map(|&(at, name)| match shape(node, at) {
                    Ok(Input::Absent) => Some(Ok(name)),
                    Ok(_) => None,
                    Err(error) => Some(Err(error)),
                });
                missing.transpose()?.map(|name| format!("it has no {name}; MIGraphX is verified only with it"))
            }
            Absent(inputs) => {
                let given = inputs.iter().find_map(|&(at, name)| match shape(node, at) {
                    Ok(Input::Absent) => None,
                    Ok(_) => Some(Ok(name)),
                    Err(error) => Some(Err(error)),
                });
                given.transpose()?.map(|name| format!("it has {name}; MIGraphX is verified only without it"))
            }
            Rank(at, name, wanted) => match shape(node, at)? {
                Input::Absent => None,
                Input::Unknown => Some(format!("the rank of its {name} is unknown")),
                Input::Dims(dims) if dims.len() == wanted => None,
                Input::Dims(dims) => right_for(&format!("{name} rank"), dims.len().to_string(), wanted.to_string()),
            },
            Type(at, name, wanted) => match element(node, at)? {
                Some(found) if found != wanted => {
                    right_for(&format!("{name} type"), format!("{found:?}"), format!("{wanted:?}"))
                }
                _ => None,
            },
            Outputs(wanted) => {
                let extra = node
                    .outputs()?
                    .iter()
                    .enumerate()
                    .find_map(|(at, value)| (value.is_some() && !wanted.contains(&at)).then_some(at));
                extra.map(|at| format!("it has output {at}; MIGraphX is verified only without it"))
            }
            Also(check) => check(node)?,
        })
    }
}

/// The shape of an input: the lengths of its axes, if they are fixed.
enum Input {
    Absent,
    Unknown,
    Dims(Vec<Option<i64>>),
}

fn shape(node: Node<'_>, at: usize) -> Result<Input> {
    let Some(Some(value)) = node.inputs()?.get(at).copied() else { return Ok(Input::Absent) };
    let kind = value.value_type()?;
    let dims = kind.tensor().and_then(|tensor| tensor.shape.as_ref());
    Ok(dims.map_or(Input::Unknown, |dims| Input::Dims(dims.iter().map(|dim| dim.fixed()).collect())))
}

fn rank(node: Node<'_>, at: usize) -> Result<Option<usize>> {
    Ok(match shape(node, at)? {
        Input::Dims(dims) => Some(dims.len()),
        Input::Absent | Input::Unknown => None,
    })
}

fn element(node: Node<'_>, at: usize) -> Result<Option<ElementType>> {
    let Some(Some(value)) = node.inputs()?.get(at).copied() else { return Ok(None) };
    Ok(value.value_type()?.tensor().map(|tensor| tensor.element))
}

/// Seen in 2.14: without `scale`, the head size is computed from the width of the input instead of the queries.
fn attention_scale(node: Node<'_>) -> Result<Option<String>> {
    if node.float("scale")?.is_some_and(|scale| scale != 0.0) {
        return Ok(None);
    }
    let right = match shape(node, 1)? {
        Input::Dims(dims) => matches!(dims[..], [Some(width), Some(all)] if width.checked_mul(3) == Some(all)),
        Input::Absent | Input::Unknown => false,
    };
    Ok((!right).then(|| "it has no scale, and its heads may differ in width from its input".to_owned()))
}

fn key_and_value_ranks(node: Node<'_>) -> Result<Option<String>> {
    let ranks = (rank(node, 1)?, rank(node, 2)?);
    let right = matches!(ranks, (Some(3), Some(3)) | (Some(4), Some(4)));
    Ok((!right).then(|| "its key and value are packed, or their ranks are unknown".to_owned()))
}

/// MIGraphX 2.14 rejects one without the other.
fn heads_with_a_size(node: Node<'_>) -> Result<Option<String>> {
    let (heads, size) = (node.int("num_heads")?.unwrap_or(0), node.int("rotary_embedding_dim")?.unwrap_or(0));
    Ok(((heads == 0) != (size == 0)).then(|| "it has only one of num_heads and rotary_embedding_dim".to_owned()))
}

/// MIGraphX 2.14 rejects a bias without a beta.
fn bias_with_a_beta(node: Node<'_>) -> Result<Option<String>> {
    let alone = matches!(shape(node, 3)?, Input::Absent) && !matches!(shape(node, 4)?, Input::Absent);
    Ok(alone.then(|| "it has a bias without a beta".to_owned()))
}

/// MIGraphX 2.14 rejects a skip of lower rank.
fn skip_of_the_same_rank(node: Node<'_>) -> Result<Option<String>> {
    let ranks = (rank(node, 0)?, rank(node, 1)?);
    let right = matches!(ranks, (Some(input), Some(skip)) if input == skip);
    Ok((!right).then(|| "its input and skip may differ in rank".to_owned()))
}

/// Seen in 2.14: only the last axis is normalised, regardless of `axis`.
fn normalises_the_last_axis(node: Node<'_>) -> Result<Option<String>> {
    let axis = node.int("axis")?.unwrap_or(-1);
    let last =
        axis == -1 || rank(node, 0)?.is_some_and(|rank| usize::try_from(axis).is_ok_and(|axis| axis + 1 == rank));
    Ok((!last).then(|| format!("its axis is {axis}, which may not be the last one")))
}
