//! Sums and embeddings that are normalised in the same operator: ONNX Runtime's SkipLayerNormalization,
//! SkipSimplifiedLayerNormalization and EmbedLayerNormalization.
use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::norm::{Layer, one_float_type};
use crate::ops::{Entry, NodeInfo, Op, RowWise};
use crate::prim::ReduceKind;
use crate::{DType, Declined, LowerError, Scalar, Val};

const MICROSOFT: &str = "com.microsoft";

/// Stands for an output that cannot be requested.
fn placeholder() -> Val {
    Val::scalar(DType::F32, Scalar::zero(DType::F32))
}

#[derive(Debug)]
struct SkipNormOp {
    name: &'static str,
    layer: Layer,
}

impl Op for SkipNormOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Norm(2)
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let skip = cx.required(inputs, 1)?;
        let gamma = cx.required(inputs, 2)?;
        // The simplified form has no beta, so its bias comes one input earlier.
        let beta = if self.layer.centre { inputs.get(3).and_then(Option::as_ref) } else { None };
        let bias = inputs.get(if self.layer.centre { 4 } else { 3 }).and_then(Option::as_ref);
        if x.rank() == 0 {
            return Err(cx.invalid("the input has no axes"));
        }
        let terms: Vec<&Val> = [Some(x), Some(skip), bias].into_iter().flatten().collect();
        let sum = cx.map_to(&terms, x.dtype(), x.shape(), |expr, arguments| {
            let first = expr.binary(Binary::Add, arguments[0], arguments[1]);
            arguments[2..].iter().fold(first, |sum, &term| expr.binary(Binary::Add, sum, term))
        })?;
        let result = self.layer.lower(cx, &sum, 1, Some(gamma), beta)?;
        Ok(vec![result, placeholder(), placeholder(), sum])
    }
}

fn parse_skip_norm(node: &NodeInfo<'_>, name: &'static str, centre: bool) -> Result<Box<dyn Op>, Declined> {
    one_float_type(node)?;
    if node.wants(1) || node.wants(2) {
        return Err(Declined::new("the outputs mean and deviation are not supported; only training uses them"));
    }
    let epsilon = node.attributes.float("epsilon", 1e-12)?;
    Ok(Box::new(SkipNormOp { name, layer: Layer { epsilon, centre, round_before_scale: false } }))
}

#[derive(Debug)]
pub(super) struct EmbedNormOp {
    pub epsilon: f32,
}

/// The rows that embeddings found.
pub(super) struct Embedded<'a> {
    pub words: &'a Val,
    pub places: &'a Val,
    pub segments: Option<&'a Val>,
}

impl EmbedNormOp {
    /// The extents of ids: batch and sequence.
    fn extents(cx: &Lower<'_>, ids: &Val) -> Result<[usize; 2], LowerError> {
        <[usize; 2]>::try_from(ids.shape())
            .map_err(|_| cx.invalid(format!("input_ids has shape {:?}, expected [batch, sequence]", ids.shape())))
    }

    /// The embeddings of the first positions.
    pub(super) fn first_places(cx: &Lower<'_>, ids: &Val, table: &Val) -> Result<Val, LowerError> {
        let [_, steps] = Self::extents(cx, ids)?;
        if table.rank() == 2 && table.shape()[0] >= steps {
            Ok(table.sliced(0, 0, 1, steps))
        } else {
            Err(cx.invalid(format!("{steps} steps, but position_embedding is {:?}", table.shape())))
        }
    }

    /// Adds and normalises embeddings; counts the tokens in the mask; and returns the sum, too.
    pub(super) fn finish(
        &self,
        cx: &mut Lower<'_>,
        rows: Embedded<'_>,
        [gamma, beta]: [Option<&Val>; 2],
        (ids, mask): (&Val, Option<&Val>),
    ) -> Result<Vec<Val>, LowerError> {
        let [batch, _] = Self::extents(cx, ids)?;
        let words = rows.words;
        let terms: Vec<&Val> = [words, rows.places].into_iter().chain(rows.segments).collect();
        let sum = cx.map_to(&terms, words.dtype(), words.shape(), |expr, arguments| {
            let first = expr.binary(Binary::Add, arguments[0], arguments[1]);
            arguments[2..].iter().fold(first, |sum, &term| expr.binary(Binary::Add, sum, term))
        })?;
        let layer = Layer { epsilon: self.epsilon, centre: true, round_before_scale: false };
        let result = layer.lower(cx, &sum, 1, gamma, beta)?;
        let lengths = match mask {
            None => cx.full(DType::I32, &[batch], Scalar::Int(0))?,
            Some(mask) => {
                let ones = cx.map(&[mask], DType::I32, |expr, arguments| {
                    let one = expr.constant(Scalar::Int(1), DType::I32);
                    expr.binary(Binary::Eq, arguments[0], one)
                })?;
                cx.reduce(&ones, &[1], false, ReduceKind::Sum)?
            }
        };
        Ok(vec![result, lengths, sum])
    }
}

impl Op for EmbedNormOp {
    fn name(&self) -> &'static str {
        "EmbedLayerNormalization"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let optional = |index: usize| inputs.get(index).and_then(Option::as_ref);
        let ids = cx.required(inputs, 0)?;
        let words = cx.gather(cx.required(inputs, 2)?, ids, 0)?;
        let table = cx.required(inputs, 3)?;
        let places = match optional(8) {
            Some(ids) => cx.gather(table, ids, 0)?,
            None => Self::first_places(cx, ids, table)?,
        };
        let segments = match (optional(1), optional(4)) {
            (Some(ids), Some(table)) => Some(cx.gather(table, ids, 0)?),
            _ => None,
        };
        let rows = Embedded { words: &words, places: &places, segments: segments.as_ref() };
        self.finish(cx, rows, [Some(cx.required(inputs, 5)?), optional(6)], (ids, optional(7)))
    }
}

fn parse_embed_norm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in [0, 1, 7, 8] {
        if let Some(input) = node.optional(index).filter(|input| input.dtype != DType::I32) {
            return Err(Declined::new(format!("input {index} has unsupported type {}", input.dtype)));
        }
    }
    let dtype = node.accept(2, |dtype| dtype.is_float())?;
    for index in [3, 4, 5, 6] {
        if let Some(input) = node.optional(index).filter(|input| input.dtype != dtype) {
            return Err(Declined::new(format!("inputs have different types {dtype} and {}", input.dtype)));
        }
    }
    Ok(Box::new(EmbedNormOp { epsilon: node.attributes.float("epsilon", 1e-12)? }))
}

pub(super) const OPS: &[Entry] = &[
    Entry {
        domain: MICROSOFT,
        op_type: "SkipLayerNormalization",
        parse: |node| parse_skip_norm(node, "SkipLayerNormalization", true),
    },
    Entry {
        domain: MICROSOFT,
        op_type: "SkipSimplifiedLayerNormalization",
        parse: |node| parse_skip_norm(node, "SkipSimplifiedLayerNormalization", false),
    },
    Entry { domain: MICROSOFT, op_type: "EmbedLayerNormalization", parse: parse_embed_norm },
];
