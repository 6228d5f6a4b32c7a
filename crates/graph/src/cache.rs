//! Primitives for decoders that keep the keys and values of earlier tokens in a cache.
use crate::{Prim, Step};

/// How many rows of a cache are filled before a step: `max(0, lengths[batch] + shift)` for each batch, where
/// `lengths [batch]`, i32 or i64, is an operand of the step.
///
/// The lengths stay on the device. No plan depends on their values, so one plan, or one captured graph of it, serves
/// every step of a generation. A device checks the bounds itself: it never reads or writes rows outside a view,
/// whatever the lengths say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// The number added to a length.
    pub shift: i64,
}

impl Filled {
    /// An empty cache, whatever its length says.
    pub const EMPTY: Self = Self { shift: i64::MIN / 2 };

    /// How many rows a cache of this length holds before the step.
    pub fn before(self, length: i64) -> usize {
        usize::try_from(length.saturating_add(self.shift)).unwrap_or(0)
    }
}

/// Where a token's position comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// From the operand: `[batch, rows]`, i32 or i64.
    Given,
    /// Consecutive positions after the rows in a cache; the operand is the cache's `lengths [batch]`.
    Behind(Filled),
}

/// Rotary position embeddings: x `[batch, rows, heads, size]`, cosines and sines `[count, half]`, then the operand that
/// `positions` asks for; the output has x's shape. In each head the first `2 · half` elements are rotated and the rest
/// are copied. A position of `count` or more is an index out of range. Computed in single precision and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotary {
    /// Rotates adjacent pairs, instead of elements `half` apart.
    pub interleaved: bool,
    /// Where the positions come from.
    pub positions: Positions,
}

/// Appends new keys and values to a cache.
///
/// The inputs are `lengths [batch]`, keys `[batch, heads, rows, size]`, values `[batch, heads, rows, width]`, then with
/// `past` the cache so far: keys `[batch, heads, held, size]` and values `[batch, heads, held, width]`. The outputs are
/// the updated cache, dense: keys `[batch, heads, total, size]` and values `[batch, heads, total, width]`, with
/// `held <= total`. With `p = filled.before(lengths[batch])`, row `p + t` of an output is row `t` of the new keys or
/// values; rows before `p` come from the past, and rows from `p + rows` on are zeros. It is an index out of range if
/// `p + rows` is above `total`, or `p` above `held`.
///
/// With `rotary` the new keys are rotated on the way, and so are the queries of the same tokens. The four extra inputs
/// are queries `[batch, query heads, rows, size]`, cosines and sines `[count, half]`, then the operand that its
/// `positions` asks for. The third output is the rotated queries, in the same shape. A position of `count` or more is
/// an index out of range.
///
/// # In place
/// At run time an output may have the same address as its past, if both have the same shape: the caller's cache is then
/// updated in place. Only the new rows are written; all others stay as they are. A device compares the addresses when
/// it runs the step; the plan is the same either way. So no later step may read the past, which the output may have
/// overwritten, and no earlier step may write the output, which may overwrite the past. The planner's last stage
/// ensures the first by copying, and debug builds check both. No other primitive's output may share the address of a
/// plan input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    /// How full the cache was before.
    pub filled: Filled,
    /// Whether there is a past.
    pub past: bool,
    /// How keys and queries are rotated, if at all.
    pub rotary: Option<Rotary>,
}

impl Append {
    /// The index of the first input of the rotation.
    pub fn turned_at(&self) -> usize {
        if self.past { 5 } else { 3 }
    }
}

impl Step {
    /// The pairs of a past and an output, as input and output indices, that may share an address at run time.
    pub fn updates(&self) -> &'static [(usize, usize)] {
        match &self.prim {
            Prim::Append(append) | Prim::AppendAttention(AppendAttention { append, .. }) if append.past => {
                &[(3, 0), (4, 1)]
            }
            Prim::PagedAppend | Prim::Retain => &[(3, 0), (4, 1)],
            Prim::CausalConv(conv) if conv.past => &[(2, 1)],
            Prim::LinearAttention(attention) if attention.past => &[(3, 1)],
            _ => &[],
        }
    }
}

/// The extra term in a softmax's denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sinks {
    /// None.
    #[default]
    None,
    /// A score of 0.
    Zero,
    /// One score per head, given by the last operand `[heads]`.
    Given,
}

/// Attention over caches, each filled to its own length.
///
/// The inputs are queries `[batch, heads, rows, size]`, keys `[batch, shared, total, size]`, values
/// `[batch, shared, total, width]`, `lengths [batch]`, then optionally a bias `[batch, heads, rows, total]` and sinks.
/// Head `h` reads the keys and values of head `h / (heads / shared)`. The output is `[batch, heads, rows, width]`. Its
/// innermost stride is 1, as are those of queries, keys and values.
///
/// With `p = filled.before(lengths[batch])`, row `t` sees the keys `j <= p + t` if `causal`, else `j < p + rows`. A
/// `window` limits these to the last `window` keys up to `p + t`; never more than `total`. The score of a key is
/// `alpha · q·k`, then `softcap · tanh(score / softcap)`, then the bias is added. Scores, softmax and sums are in
/// single precision. A row with no score above minus infinity gives zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// The factor applied to the product of queries and keys.
    pub alpha: f32,
    /// How full the cache was before the current rows, whose keys it already holds.
    pub filled: Filled,
    /// Whether a row cannot see the rows after it.
    pub causal: bool,
    /// The most keys a row sees, including its own.
    pub window: Option<usize>,
    /// Limits the absolute value of the scores to below this.
    pub softcap: Option<f32>,
    /// Whether there is a bias.
    pub bias: bool,
    /// The extra term in the denominator.
    pub sinks: Sinks,
}

/// An [`Append`] of one token with rotation, and the [`CachedAttention`] over the updated cache, in one step.
///
/// The inputs are those of the append, whose past is as long as its output, then the attention's bias and sinks if it
/// has them. The outputs are the append's, then the attention's. A device need not store the rotated queries: no other
/// step reads them. An in-place append stays in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppendAttention {
    /// How the token's keys, values and queries are stored.
    pub append: Append,
    /// The attention over them.
    pub attention: CachedAttention,
}

impl AppendAttention {
    /// The append and the attention as separate steps; `None` if the step's operands do not match.
    pub fn parts(&self, step: &Step) -> Option<[Step; 2]> {
        let (own, more) = step.inputs.split_at_checked(self.append.turned_at() + 4)?;
        let [keys, values, queries, out] = &step.outputs[..] else { return None };
        let of = |prim, inputs, outputs| Step { node: step.node, prim, inputs, outputs };
        let made = vec![keys.clone(), values.clone(), queries.clone()];
        let mut seen = vec![queries.clone(), keys.clone(), values.clone(), own[0].clone()];
        seen.extend_from_slice(more);
        Some([
            of(Prim::Append(self.append), own.to_vec(), made),
            of(Prim::CachedAttention(self.attention), seen, vec![out.clone()]),
        ])
    }
}
