//! Primitives for caches in pages: blocks of rows, which a table assigns to sequences.
//!
//! A cache is `[blocks, block, heads, size]`. Row `p` of a sequence is row `p % block` of the block
//! `table[sequence, p / block]`. The new tokens of all sequences are side by side, without padding. Which sequence they
//! belong to is known on the device only, so one plan serves every step with as many tokens.
use crate::prim::Sinks;

/// Finds the place of each token.
///
/// The inputs are `starts [sequences + 1]`, the token that each sequence starts with; `lengths [sequences]`, the rows that
/// each has in the cache; `table [sequences, most]`; and with `slots` a row of the whole cache for each token
/// `[tokens]`. All are i32. The output is i32 `[4, tokens]`, dense: the rows of [`place`].
///
/// With `starts[s] <= t < starts[s + 1]`, token `t` belongs to sequence `s`. A token that belongs to none has position 0,
/// slot -1, sequence 0 and end 0. A negative length, and a position whose block is not in the table or not in the cache,
/// is an index out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PagedPlaces {
    /// Rows of a block.
    pub block: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    /// Whether a token cannot see the tokens after it.
    pub causal: bool,
    /// Whether slots are given, instead of following from the positions.
    pub slots: bool,
}

/// The rows of the output of [`PagedPlaces`].
pub mod place {
    /// The token's position in its sequence.
    pub const POSITION: usize = 0;
    /// The row of the whole cache that takes its key and value; negative if none does.
    pub const SLOT: usize = 1;
    /// The sequence.
    pub const SEQUENCE: usize = 2;
    /// The number of rows of its sequence up to the last one that it sees.
    pub const END: usize = 3;
    /// How many rows there are.
    pub const ROWS: usize = 4;
}

/// Attention of tokens over a cache in pages, which already holds their keys and values.
///
/// The inputs are queries `[tokens, heads, size]`, keys `[blocks, block, shared, size]`, values
/// `[blocks, block, shared, width]`, places `[4, tokens]` (see [`PagedPlaces`]), `table [sequences, most]`, then with
/// given sinks `[heads]`. The output is `[tokens, heads, width]`. All four have an innermost stride of 1, and caches are
/// dense.
///
/// A token sees the keys before its end; a `window` limits these to the last `window` up to its own position. Scores and
/// sums are those of [`CachedAttention`](crate::prim::CachedAttention). A token without keys gives zeros. A key whose block
/// is not in the cache is an index out of range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PagedAttention {
    /// The factor applied to the product of queries and keys.
    pub alpha: f32,
    /// The most keys a token sees up to its own.
    pub window: Option<usize>,
    /// Limits the absolute value of the scores to below this.
    pub softcap: Option<f32>,
    /// The extra term in the denominator.
    pub sinks: Sinks,
}
