//! Attention with an expression for its scores, by loops over rows and keys.

use graph::expr::{Binary, Expr, Ref};
use graph::prim::Attention;
use graph::{DType, Prim, Scalar, Tensor, View};

use super::{Sample, dense, gather, random, strided};

/// The factor of the products of queries and keys.
const ALPHA: f32 = 0.25;

/// Heads that share keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// The number of batches of keys.
    pub batch: usize,
    /// The heads that share the keys of a batch.
    pub heads: usize,
    /// The rows of a head.
    pub rows: usize,
    /// The number of keys.
    pub total: usize,
    /// The size of a key.
    pub size: usize,
    /// The size of a value.
    pub width: usize,
}

impl Heads {
    /// The shape of the scores.
    pub fn shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.rows, self.total]
    }

    /// The step. Keys are stored row by row, as a projection produces them, and heads are concatenated in the output.
    pub fn sample(&self, dtype: DType, scores: Expr, operands: Vec<(View, Tensor)>, zero_if_hidden: bool) -> Sample {
        let Self { batch, heads, rows, total, size, width } = *self;
        let k = strided(1, dtype, &[batch, size, total], &[(total * size) as isize, 1, size as isize], 0);
        let own = [dense(0, dtype, &[batch, heads * rows, size]), k, dense(2, dtype, &[batch, total, width])];
        let own = own.into_iter().zip(3..).map(|(view, seed)| {
            let numbers = random(dtype, view.elems(), seed);
            (view, numbers)
        });
        let strides = [(rows * heads * width) as isize, width as isize, (heads * width) as isize, 1];
        let out = strided(9, dtype, &[batch, heads, rows, width], &strides, 0);
        let shape = self.shape().into_iter().collect();
        let prim = Prim::Attention(Attention { alpha: ALPHA, shape, scores, zero_if_hidden });
        Sample::new(prim, own.chain(operands).collect(), vec![out])
    }

    /// The result of such a step.
    ///
    /// # Panics
    /// When the step is not an attention.
    pub fn expected(&self, sample: &Sample) -> Vec<f64> {
        let Self { batch, heads, rows, total, size, width } = *self;
        let Prim::Attention(attention) = &sample.step.prim else { unreachable!("{:?}", sample.step) };
        let values = sample.values();
        let operands: Vec<Vec<Scalar>> = (sample.step.inputs.iter().zip(&sample.inputs).skip(3))
            .map(|(view, buffer)| gather(view, buffer).scalars().collect())
            .collect();
        let mut out = Vec::new();
        for (at, query) in values[0].chunks(size).enumerate() {
            let (of, head, row) = (at / rows / heads, at / rows % heads, at % rows);
            let score = |key: usize| {
                let column = |d: usize| values[1][(of * size + d) * total + key];
                let product: f64 = query.iter().enumerate().map(|(d, q)| q * column(d)).sum();
                let own = Scalar::Float(product * f64::from(attention.alpha));
                let others = operands.iter().map(|operand| operand[at * total + key]);
                attention.scores.eval(&[own].into_iter().chain(others).collect::<Vec<_>>(), &[of, head, row, key])
            };
            let scores: Vec<f64> = (0..total).map(|key| score(key).as_f64()).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if largest == f64::NEG_INFINITY && attention.zero_if_hidden {
                out.extend(std::iter::repeat_n(0.0, width));
                continue;
            }
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let value = |e: usize| weights.iter().enumerate().map(move |(key, weight)| (key, weight, e));
            out.extend((0..width).map(|e| {
                let terms = value(e).map(|(key, weight, e)| weight * values[2][(of * total + key) * width + e]);
                terms.sum::<f64>() / sum
            }));
        }
        debug_assert_eq!(out.len(), batch * heads * rows * width);
        out
    }
}

/// Plain products as scores.
pub fn plain(dtype: DType) -> Expr {
    Expr::copy(dtype, dtype.compute())
}

/// Hides keys after the row's own position plus `past`.
fn causal(mut expr: Expr, score: Ref, past: i64) -> Expr {
    let (query, key) = (expr.index(2), expr.index(3));
    let past = expr.constant(Scalar::Int(past), DType::I64);
    let own = expr.binary(Binary::Add, query, past);
    let ahead = expr.binary(Binary::Gt, key, own);
    let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), expr.dtype(score));
    let value = expr.select(ahead, never, score);
    expr.finish(value);
    expr
}

/// Products with keys up to the row's own position plus `past`.
pub fn causal_products(dtype: DType, past: i64) -> Expr {
    let mut expr = Expr::new();
    let product = expr.input(0, dtype);
    causal(expr, product, past)
}

/// Products with a mask in single precision, up to three keys after the row's own.
pub fn masked(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let (product, mask) = (expr.input(0, dtype), expr.input(1, DType::F32));
    let mask = expr.cast(mask, expr.dtype(product));
    let sum = expr.binary(Binary::Add, product, mask);
    causal(expr, sum, 3)
}

/// Few and many rows and keys, with sizes that are and are not a multiple of anything.
pub fn extents() -> Vec<Heads> {
    vec![
        Heads { batch: 2, heads: 2, rows: 35, total: 70, size: 32, width: 32 },
        Heads { batch: 1, heads: 1, rows: 20, total: 5, size: 19, width: 37 },
        Heads { batch: 1, heads: 3, rows: 1, total: 1100, size: 20, width: 70 },
    ]
}
