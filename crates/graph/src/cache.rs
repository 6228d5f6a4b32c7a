//! What decoders do with the keys and values of tokens that came before.
use crate::{Prim, Step};

/// How full a cache is before a step: of each batch `max(0, lengths[batch] + shift)` rows, where `lengths [batch]`, i32 or
/// i64, is an operand of the step.
///
/// Lengths are the device's: no plan depends on their values, so that one plan, or one capture of it, does every step of a
/// generation. A device bounds what it makes of them: rows outside a view are neither read nor written, whatever they say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// What is added to a length.
    pub shift: i64,
}

impl Filled {
    /// A cache that holds nothing, whatever its length says.
    pub const EMPTY: Self = Self { shift: i64::MIN / 2 };

    /// The rows that a cache of this length holds before the step.
    pub fn before(self, length: i64) -> usize {
        usize::try_from(length.saturating_add(self.shift)).unwrap_or(0)
    }
}

/// Where tokens stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// The operand says it: `[batch, rows]`, i32 or i64.
    Given,
    /// Behind what is in a cache, one after the other; the operand is the cache's `lengths [batch]`.
    Behind(Filled),
}

/// Rotary position embeddings: x `[batch, rows, heads, size]`, cosines and sines `[count, half]`, then what `positions` says;
/// the output has x's shape. Of each head the first `2 · half` elements turn and the rest is copied. A position that is not
/// below `count` is an index out of range. Sums are in single precision, and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotary {
    /// Pairs are neighbours, instead of `half` apart.
    pub interleaved: bool,
    /// Where the tokens stand.
    pub positions: Positions,
}

/// New keys and values behind those of a cache.
///
/// The inputs are `lengths [batch]`, keys `[batch, heads, rows, size]`, values `[batch, heads, rows, width]`, then with `past`
/// the cache so far: keys `[batch, heads, held, size]` and values `[batch, heads, held, width]`. The outputs are the cache from
/// now on, dense: keys `[batch, heads, total, size]` and values `[batch, heads, total, width]`, with `held <= total`. With
/// `p = filled.before(lengths[batch])`, row `p + t` of an output is row `t` of what is new; rows before `p` are those of the
/// past, and rows behind `p + rows` are zeros. If `p + rows` is above `total`, or `p` above `held`, that is an index out of
/// range.
///
/// With `rotary` the new keys turn on their way, and so do the queries of the same tokens: four more inputs are queries
/// `[batch, query heads, rows, size]`, cosines and sines `[count, half]`, then what its `positions` say, and a third output is
/// the turned queries, of their shape. A position that is not below `count` is an index out of range.
///
/// # In place
/// In a run an output may have its past's address, if both have the same shape: the caller's cache, updated where it lies.
/// Then only the new rows are written, and all others stay as they are. A device compares the addresses when it runs the
/// step; plans are the same for both. So no step behind this one may read the past, which may be the output by then, and no
/// step before it may write the output, which may be the past. The planner's last stage sees to the first by copies, and
/// debug builds check both. No other primitive's output may lie where an input of the plan lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    /// How full the cache was.
    pub filled: Filled,
    /// There is a past.
    pub past: bool,
    /// How keys and queries turn.
    pub rotary: Option<Rotary>,
}

impl Append {
    /// Where the inputs of the rotation begin.
    pub fn turned_at(&self) -> usize {
        if self.past { 5 } else { 3 }
    }
}

impl Step {
    /// The pairs of a past and an output, as numbers of inputs and outputs, that may have one address in a run.
    pub fn updates(&self) -> &'static [(usize, usize)] {
        match &self.prim {
            Prim::Append(append) | Prim::AppendAttention(AppendAttention { append, .. }) if append.past => {
                &[(3, 0), (4, 1)]
            }
            _ => &[],
        }
    }
}

/// What the denominator of a softmax has besides the scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sinks {
    /// Nothing.
    #[default]
    None,
    /// A score of 0.
    Zero,
    /// A score for each head, which is the last operand `[heads]`.
    Given,
}

/// Attention over caches that are filled to lengths of their own.
///
/// The inputs are queries `[batch, heads, rows, size]`, keys `[batch, shared, total, size]`, values
/// `[batch, shared, total, width]`, `lengths [batch]`, then where there are any a bias `[batch, heads, rows, total]` and sinks.
/// Head `h` reads keys and values of head `h / (heads / shared)`. The output is `[batch, heads, rows, width]`, its innermost
/// stride 1 as those of queries, keys and values are.
///
/// With `p = filled.before(lengths[batch])`, row `t` sees the keys `j <= p + t` if `causal`, else `j < p + rows`, and of these
/// with a `window` the last `window` up to `p + t`; never more than `total`. The score of a key is `alpha · q·k`, then
/// `softcap · tanh(score / softcap)`, then the bias is added. Scores, softmax and sums are in single precision. A row that
/// sees no score above minus infinity gives zeros.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// Factor of queries and keys.
    pub alpha: f32,
    /// How full the cache was before the rows at hand, whose keys are in it already.
    pub filled: Filled,
    /// A row does not see the rows behind it.
    pub causal: bool,
    /// How many keys a row sees at most, its own among them.
    pub window: Option<usize>,
    /// Bounds scores to less than this on either side.
    pub softcap: Option<f32>,
    /// There is a bias.
    pub bias: bool,
    /// What the denominator has besides.
    pub sinks: Sinks,
}

/// A turning [`Append`] of one token, and the [`CachedAttention`] over the cache that it leaves, as one.
///
/// The inputs are those of the append, which has a past as long as what it makes of it, then a bias and sinks where the
/// attention has them. The outputs are the append's, then the attention's. A device need not store the turned queries: nobody
/// else reads them. An append in place stays one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppendAttention {
    /// What becomes of the token's keys, values and queries.
    pub append: Append,
    /// What the queries see.
    pub attention: CachedAttention,
}

impl AppendAttention {
    /// The two as steps of their own; `None` if the step has other operands.
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
