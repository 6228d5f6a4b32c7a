//! com.microsoft's `DecoderMaskedMultiHeadAttention`: `MultiHeadAttention` for one token, with its inputs in another
//! order.
use crate::lower::Lower;
use crate::ops::contrib_attention::{Common, MultiHeadAttention, decline_mask};
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val};

/// For each input of `MultiHeadAttention`: query, key, value, bias, mask, attention bias, past key and value, and the
/// number of past rows, the number of the input here.
const ORDER: [usize; 9] = [0, 1, 2, 10, 3, 4, 5, 6, 7];
const PAST: [usize; 3] = [5, 6, 7];
const BEAMS: usize = 9;

#[derive(Debug)]
struct DecoderMaskedAttention {
    attention: MultiHeadAttention,
}

impl Op for DecoderMaskedAttention {
    fn name(&self) -> &'static str {
        "DecoderMaskedMultiHeadAttention"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let query = cx.required(inputs, 0)?;
        if query.rank() != 3 || query.shape()[1] != 1 {
            return Err(cx.invalid(format!("queries of shape {:?}, expected one token", query.shape())));
        }
        let moved: Vec<Option<Val>> = ORDER.iter().map(|&at| inputs.get(at).cloned().flatten()).collect();
        self.attention.lower(cx, &moved)
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| matches!(dtype, DType::F32 | DType::F16))?;
    if node.optional(1).is_none() || node.optional(2).is_none() {
        return Err(Declined::new("queries, keys and values packed into one input are not supported"));
    }
    if node.optional(BEAMS).is_some() {
        return Err(Declined::new("cache_indirection (beam search) is not supported"));
    }
    if node.wants(3) || node.attributes.flag("output_qk")? {
        return Err(Declined::new("the output qk is not supported"));
    }
    // ONNX Runtime has two forms only: a cache that is updated in place, and keys and values of another sequence.
    let given = PAST.map(|at| node.optional(at).is_some());
    let in_place = node.attributes.flag("past_present_share_buffer")?;
    if given != [in_place; 3] {
        return Err(Declined::new("past_present_share_buffer, the past and its length must be given together"));
    }
    for at in [1, 2] {
        let wanted = if in_place { 3 } else { 4 };
        if node.input(at)?.rank != Some(wanted) {
            return Err(Declined::new(format!("input {at} does not have rank {wanted}")));
        }
    }
    if !in_place && (node.wants(1) || node.wants(2)) {
        return Err(Declined::new("keys and values of another sequence are not outputs"));
    }
    if let Some(held) = node.optional(PAST[2]).filter(|held| held.dtype != DType::I32) {
        return Err(Declined::new(format!("past_sequence_length has type {}", held.dtype)));
    }
    decline_mask(node, 3)?;
    if node.optional(3).is_some_and(|mask| mask.rank != Some(2)) {
        return Err(Declined::new("a mask whose rank is not 2 is not supported"));
    }
    Ok(Box::new(DecoderMaskedAttention { attention: MultiHeadAttention { common: Common::parse(node)? } }))
}

pub(super) const OPS: &[Entry] =
    &[Entry { domain: "com.microsoft", op_type: "DecoderMaskedMultiHeadAttention", parse }];
