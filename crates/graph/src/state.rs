//! Layers of decoders that keep a state of fixed size instead of a cache.
//!
//! At run time the new state may have the address of the old one, as described for [`Append`](crate::prim::Append).

/// A depthwise convolution along a sequence, which sees only earlier elements, some of them in a state.
///
/// The inputs are x `[batch, channels, length]`, weights `[channels, taps]`, then with `past` the state
/// `[batch, channels, (taps - 1) · dilation]`, and with `bias` a bias `[channels]`. The outputs are y in x's shape, and
/// the new state in the state's shape. With s the old state, or zeros, followed by x along the sequence,
/// `y[t] = bias + Σ weights[j] · s[t + j · dilation]`, and the new state is the end of s. All have one type: f32, f16 or
/// bf16. Sums are in single precision. Strides are arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CausalConv {
    /// The distance between taps.
    pub dilation: usize,
    /// Whether there is an old state.
    pub past: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Applies `y · sigmoid(y)`.
    pub silu: bool,
}

/// Attention with a state instead of a cache.
///
/// The inputs are queries `[batch, query heads, length, size]`, keys `[batch, key heads, length, size]`, values
/// `[batch, heads, length, width]`, then with `past` the state `[batch, heads, size, width]`, with `decay` the logarithm
/// of a factor for each row of the state `[batch, heads, length, size]`, and with `delta` a rate
/// `[batch, heads, length]`. The outputs are y `[batch, max(query heads, heads), length, width]` and the new state, dense.
/// Queries, keys, values, decay, rate and y have one type; the states have one, too. Both are f32, f16 or bf16.
///
/// For each token, the state S becomes `S' + k ⊗ u` with `S' = exp(decay) · S`, and `u = v`, or with `delta`
/// `u = rate · (v - S'ᵀ k)`. Then `y = scale · qᵀ S`. Of n heads of states and m of queries or keys, head `h` reads head
/// `h · m / n`; if there are more queries than states, each query head has a result of its own. Numbers are in single
/// precision, and the state is rounded after the last token only. The innermost stride of queries, keys, values and y
/// is 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearAttention {
    /// The factor of the result.
    pub scale: f32,
    /// Whether there is an old state; otherwise it is zero.
    pub past: bool,
    /// Whether the state decays.
    pub decay: bool,
    /// Whether a token replaces what the state holds for its key, instead of adding to it.
    pub delta: bool,
}
