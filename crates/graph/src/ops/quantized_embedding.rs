//! com.microsoft's `QEmbedLayerNormalization`: `EmbedLayerNormalization` whose tables are 8-bit integers.
use crate::lower::Lower;
use crate::ops::qlinear::Parameters;
use crate::ops::quantized::byte;
use crate::ops::skip_norm::{EmbedNormOp, Embedded};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val};

/// The inputs that are integers: words, positions, segments, gamma and beta.
const INTEGERS: [usize; 5] = [2, 3, 4, 5, 6];
/// The scale of the first of these; those of the others follow.
const SCALES: usize = 8;
/// The zero point of the first of these.
const ZEROS: usize = 13;

#[derive(Debug)]
struct QuantizedEmbedding {
    norm: EmbedNormOp,
}

/// The numbers for integers taken from input `INTEGERS[at]`.
fn dequantized(cx: &mut Lower<'_>, inputs: &[Option<Val>], at: usize, taken: &Val) -> Result<Val, LowerError> {
    let (scale, zero) = (cx.required(inputs, SCALES + at)?, cx.required(inputs, ZEROS + at)?);
    let pair = [Some(scale.clone()), Some(zero.clone())];
    Parameters::read(cx, &pair, 0)?.dequantized(cx, taken)
}

impl Op for QuantizedEmbedding {
    fn name(&self) -> &'static str {
        "QEmbedLayerNormalization"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let ids = cx.required(inputs, 0)?;
        // Rows are converted after they are read: a table may be large.
        let words = cx.gather(cx.required(inputs, 2)?, ids, 0)?;
        let places = EmbedNormOp::first_places(cx, ids, cx.required(inputs, 3)?)?;
        let segments = match (given(1), given(4)) {
            (Some(ids), Some(table)) => Some(cx.gather(table, ids, 0)?),
            _ => None,
        };
        let words = dequantized(cx, inputs, 0, &words)?;
        let places = dequantized(cx, inputs, 1, &places)?;
        let segments = segments.map(|rows| dequantized(cx, inputs, 2, &rows)).transpose()?;
        let gamma = dequantized(cx, inputs, 3, cx.required(inputs, 5)?)?;
        let beta = dequantized(cx, inputs, 4, cx.required(inputs, 6)?)?;
        let rows = Embedded { words: &words, places: &places, segments: segments.as_ref() };
        let mut results = self.norm.finish(cx, rows, [Some(&gamma), Some(&beta)], (ids, given(7)))?;
        // The sum is not an output of this operator.
        results.truncate(2);
        Ok(results)
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let is = |at: usize, wanted: DType| match node.optional(at) {
        Some(input) if input.dtype != wanted => {
            Err(Declined::new(format!("input {at} has type {}, expected {wanted}", input.dtype)))
        }
        _ => Ok(()),
    };
    for at in [0, 1, 7] {
        is(at, DType::I32)?;
    }
    let dtype = node.accept(2, byte)?;
    for (at, integers) in INTEGERS.into_iter().enumerate() {
        is(integers, dtype)?;
        is(SCALES + at, DType::F32)?;
        is(ZEROS + at, dtype)?;
    }
    let segments = [1, 4, SCALES + 2, ZEROS + 2].map(|at| node.optional(at).is_some());
    if segments != [segments[0]; 4] {
        return Err(Declined::new("only some of the inputs for segments are given"));
    }
    Ok(Box::new(QuantizedEmbedding { norm: EmbedNormOp { epsilon: node.attributes.float("epsilon", 1e-12)? } }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "QEmbedLayerNormalization", parse }];
