//! Layers with a state of fixed size: convolutions along a sequence, and linear attention.

use graph::prim::{CausalConv, LinearAttention};
use graph::{DType, Prim, View};

use super::{Sample, dense, list, random, strided, tensor};

/// A convolution with a state.
#[derive(Clone, Debug)]
pub struct Convolved {
    /// The type of all numbers.
    pub dtype: DType,
    /// Batch, channels and length.
    pub shape: [usize; 3],
    /// The number of taps.
    pub taps: usize,
    /// The primitive.
    pub prim: CausalConv,
    /// Channels are innermost, in x, y and the states.
    pub channels_last: bool,
}

impl Convolved {
    fn reach(&self) -> usize {
        (self.taps - 1) * self.prim.dilation
    }

    fn view(&self, buffer: u32, length: usize) -> View {
        let [batch, channels, _] = self.shape;
        let [channel, token] = if self.channels_last { [1, channels] } else { [length, 1] };
        let strides = [channels * length, channel, token].map(|stride| stride as isize);
        strided(buffer, self.dtype, &[batch, channels, length], &strides, 0)
    }

    /// The step; the new state may be in the buffer of the old one.
    pub fn sample(&self, in_place: bool) -> Sample {
        let [_, channels, length] = self.shape;
        let of = |view: View, seed: u64| {
            let numbers = random(self.dtype, view.elems(), seed);
            (view, numbers)
        };
        let mut inputs = vec![of(self.view(0, length), 1), of(dense(1, self.dtype, &[channels, self.taps]), 2)];
        inputs.extend(self.prim.past.then(|| of(self.view(2, self.reach()), 3)));
        inputs.extend(self.prim.bias.then(|| of(dense(3, self.dtype, &[channels]), 4)));
        let state = if in_place { 2 } else { 5 };
        Sample::new(Prim::CausalConv(self.prim), inputs, vec![self.view(4, length), self.view(state, self.reach())])
    }

    /// The outputs for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let [batch, channels, length] = self.shape;
        let reach = self.reach();
        let (mut y, mut state) = (Vec::new(), Vec::new());
        for row in 0..batch * channels {
            let old = if self.prim.past { values[2][row * reach..][..reach].to_vec() } else { vec![0.0; reach] };
            let seen = [&old[..], &values[0][row * length..][..length]].concat();
            let weights = &values[1][row % channels * self.taps..][..self.taps];
            let bias = if self.prim.bias { values[values.len() - 1][row % channels] } else { 0.0 };
            y.extend((0..length).map(|token| {
                let terms = weights.iter().enumerate().map(|(tap, w)| w * seen[token + tap * self.prim.dilation]);
                let sum = bias + terms.sum::<f64>();
                if self.prim.silu { sum / (1.0 + (-sum).exp()) } else { sum }
            }));
            state.extend_from_slice(&seen[length..]);
        }
        vec![y, state]
    }
}

/// Single tokens and prompts, in both layouts, with states shorter and longer than the input.
pub fn convolved() -> Vec<Convolved> {
    let prim = CausalConv { dilation: 1, past: true, bias: true, silu: true };
    let plain = Convolved { dtype: DType::F32, shape: [2, 5, 7], taps: 4, prim, channels_last: false };
    let with = |prim: CausalConv| Convolved { prim, ..plain.clone() };
    let mut cases = vec![
        plain.clone(),
        with(CausalConv { past: false, ..prim }),
        with(CausalConv { bias: false, silu: false, ..prim }),
        with(CausalConv { dilation: 3, ..prim }),
        Convolved { shape: [3, 300, 1], ..plain.clone() },
        Convolved { shape: [1, 3, 2], taps: 6, ..plain.clone() },
        Convolved { shape: [1, 2, 300], ..plain.clone() },
        Convolved { taps: 1, prim: CausalConv { past: false, ..prim }, ..plain.clone() },
        Convolved { shape: [1, 2, 3], taps: 40, prim: CausalConv { dilation: 2, ..prim }, ..plain.clone() },
    ];
    cases.extend([DType::F16, DType::Bf16].map(|dtype| Convolved { dtype, ..plain.clone() }));
    let turned: Vec<Convolved> = cases.iter().map(|case| Convolved { channels_last: true, ..case.clone() }).collect();
    cases.into_iter().chain(turned).collect()
}

/// Attention with a state.
#[derive(Clone, Debug)]
pub struct Attended {
    /// The type of queries, keys, values and results.
    pub dtype: DType,
    /// The type of the states.
    pub state: DType,
    /// The batch, and the number of tokens.
    pub batch: [usize; 2],
    /// Heads of queries, keys and states.
    pub heads: [usize; 3],
    /// The sizes of a key and a value.
    pub sizes: [usize; 2],
    /// The primitive.
    pub prim: LinearAttention,
    /// The decay and the rate are the same for all rows and heads.
    pub shared: bool,
}

impl Attended {
    /// The step; the new state may be in the buffer of the old one.
    pub fn sample(&self, in_place: bool) -> Sample {
        let ([batch, length], [queries, keys, heads], [size, width]) = (self.batch, self.heads, self.sizes);
        // Tokens have all their heads side by side.
        let by_token = |buffer: u32, heads: usize, size: usize| {
            let strides = [length * heads * size, size, heads * size, 1].map(|stride| stride as isize);
            strided(buffer, self.dtype, &[batch, heads, length, size], &strides, 0)
        };
        let of = |view: View, seed: u64| {
            let numbers = list(&random(view.dtype, view.elems(), seed)).into_iter().map(|value| value / 2.0);
            let numbers = tensor(view.dtype, numbers);
            (view, numbers)
        };
        let state = |buffer: u32| dense(buffer, self.state, &[batch, heads, size, width]);
        // Updates with longer keys would let the state grow with every token.
        let short = list(&random(self.dtype, batch * length * keys * size, 2)).into_iter();
        let short_keys = tensor(self.dtype, short.map(|value| value / (size as f64).sqrt()));
        let mut inputs = vec![
            of(by_token(0, queries, size), 1),
            (by_token(1, keys, size), short_keys),
            of(by_token(2, heads, width), 3),
        ];
        inputs.extend(self.prim.past.then(|| of(state(3), 4)));
        let [row, head] = if self.shared { [0, 0] } else { [1, size] };
        let strides = [length * heads * size, head, heads * size, row].map(|stride| stride as isize);
        let decay = strided(4, self.dtype, &[batch, heads, length, size], &strides, 0);
        inputs.extend(self.prim.decay.then(|| of(decay, 5)));
        let strides = [length * heads, usize::from(!self.shared), heads].map(|stride| stride as isize);
        inputs.extend(self.prim.delta.then(|| of(strided(5, self.dtype, &[batch, heads, length], &strides, 0), 6)));
        let outputs = vec![by_token(6, queries.max(heads), width), state(if in_place { 3 } else { 7 })];
        Sample::new(Prim::LinearAttention(self.prim), inputs, outputs)
    }

    /// The outputs for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let ([batch, length], [queries, keys, heads], [size, width]) = (self.batch, self.heads, self.sizes);
        let shown = queries.max(heads);
        let mut optional = values[3..].iter();
        let past = self.prim.past.then(|| optional.next()).flatten();
        let decay = self.prim.decay.then(|| optional.next()).flatten();
        let rate = self.prim.delta.then(|| optional.next()).flatten();
        let mut y = vec![0.0; batch * shown * length * width];
        let mut states = past.cloned().unwrap_or_else(|| vec![0.0; batch * heads * size * width]);
        for (at, state) in states.chunks_mut(size * width).enumerate() {
            let (b, h) = (at / heads, at % heads);
            for t in 0..length {
                let row = |tensor: &[f64], heads: usize, head: usize, size: usize| {
                    tensor[((b * heads + head) * length + t) * size..][..size].to_vec()
                };
                let key = row(&values[1], keys, h * keys / heads, size);
                let mut update = row(&values[2], heads, h, width);
                if let Some(decay) = decay {
                    let decay = row(decay, heads, h, size);
                    state.chunks_mut(width).zip(decay).for_each(|(row, decay)| {
                        row.iter_mut().for_each(|value| *value *= decay.exp());
                    });
                }
                let product = |left: &[f64], state: &[f64], column: usize| -> f64 {
                    left.iter().enumerate().map(|(row, left)| left * state[row * width + column]).sum()
                };
                if let Some(rate) = rate {
                    let rate = rate[(b * heads + h) * length + t];
                    for (column, update) in update.iter_mut().enumerate() {
                        *update = rate * (*update - product(&key, state, column));
                    }
                }
                for (row, key) in state.chunks_mut(width).zip(&key) {
                    row.iter_mut().zip(&update).for_each(|(value, update)| *value += key * update);
                }
                for head in (0..shown).filter(|head| head * heads / shown == h) {
                    let query = row(&values[0], queries, head * queries / shown, size);
                    for column in 0..width {
                        let result = f64::from(self.prim.scale) * product(&query, state, column);
                        y[((b * shown + head) * length + t) * width + column] = result;
                    }
                }
            }
        }
        vec![y, states]
    }
}

/// Every update rule and grouping of heads, for single tokens and prompts.
pub fn attended() -> Vec<Attended> {
    let prim = LinearAttention { scale: 0.25, past: true, decay: true, delta: true };
    let plain = Attended {
        dtype: DType::F32,
        state: DType::F32,
        batch: [2, 5],
        heads: [2, 2, 2],
        sizes: [16, 8],
        prim,
        shared: false,
    };
    let mut cases = Vec::new();
    for (decay, delta) in [(false, false), (true, false), (false, true), (true, true)] {
        let prim = LinearAttention { decay, delta, ..prim };
        cases.push(Attended { prim, ..plain.clone() });
        cases.push(Attended { prim, shared: true, batch: [1, 1], ..plain.clone() });
    }
    cases.push(Attended { prim: LinearAttention { past: false, ..prim }, ..plain.clone() });
    cases.extend([[4, 2, 2], [2, 4, 4], [2, 2, 4]].map(|heads| Attended { heads, ..plain.clone() }));
    cases.extend([[7, 70], [64, 3], [130, 65]].map(|sizes| Attended { sizes, ..plain.clone() }));
    for dtype in [DType::F16, DType::Bf16] {
        cases.push(Attended { dtype, state: dtype, ..plain.clone() });
        cases.push(Attended { dtype, ..plain.clone() });
    }
    cases
}

/// The rounding error of results of this type.
pub fn relative(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}
