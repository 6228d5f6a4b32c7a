//! Normalisation over the last axes: mean and variance in two passes.
use graph::DType;
use graph::prim::Norm;
use smallvec::SmallVec;

use crate::convert::round_to;
use crate::number::Number;
use crate::rows::{Rows, ranges_with};
use crate::simd::vectorised;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
const GRAIN: usize = 16 * 1024;
/// Independent partial sums, so that the additions do not wait for each other.
const LANES: usize = 16;

pub(crate) fn run(
    norm: &Norm,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if y.elems() == 0 {
        return Ok(());
    }
    let scale = norm.scale.then(|| inputs[1]);
    let bias = norm.bias.then(|| inputs[1 + usize::from(norm.scale)]);
    // Scale and bias are the same for every row.
    let padded = |tensor: Option<Tensor<'_>>| -> SmallVec<[isize; 6]> {
        let mut strides = SmallVec::from_elem(0, x.shape().len());
        let own = tensor.map_or(&[][..], |tensor| tensor.strides());
        let start = strides.len() - own.len();
        strides[start..].copy_from_slice(own);
        strides
    };
    let (scale_strides, bias_strides) = (padded(scale), padded(bias));
    let rows = Rows::new(x.shape(), norm.axes, &[x.strides(), y.strides(), &scale_strides, &bias_strides]);
    let job = Job { norm, x, y, scale, bias, rows: &rows };
    let (count, length) = (rows.count(), rows.length());
    let grain = (GRAIN / length).max(1);
    match x.dtype() {
        DType::F64 => ranges_with(cx, count, grain, 3 * length, |range, memory| job.rows_f64(range, memory)),
        dtype if dtype.is_float() => {
            ranges_with(cx, count, grain, 3 * length, |range, memory| job.rows_f32(range, memory));
        }
        dtype => return Err(OpError::Unsupported { prim: "norm", dtype }),
    }
    Ok(())
}

struct Job<'a> {
    norm: &'a Norm,
    x: Tensor<'a>,
    y: TensorMut<'a>,
    scale: Option<Tensor<'a>>,
    bias: Option<Tensor<'a>>,
    /// Views: x, y, scale, bias.
    rows: &'a Rows,
}

impl Job<'_> {
    /// A row's scale or bias, in place or else in `memory`.
    fn factors<'m, N: Number>(&self, view: usize, tensor: Option<Tensor<'_>>, memory: &'m mut [N]) -> Option<&'m [N]> {
        self.rows.load(view, &tensor?, 0, 0, memory);
        Some(memory)
    }

    fn rows_f32(&self, range: std::ops::Range<usize>, memory: &mut [f32]) {
        let length = self.rows.length();
        let (values, rest) = memory.split_at_mut(length);
        let (scale, bias) = rest.split_at_mut(length);
        let (scale, bias) = (self.factors(2, self.scale, scale), self.factors(3, self.bias, bias));
        for row in range {
            // SAFETY: each row belongs to one task, and no input shares the output's memory.
            let direct = unsafe { self.rows.slice_mut::<f32>(1, &self.y, row) };
            let is_direct = direct.is_some();
            let to: &mut [f32] = match direct {
                Some(direct) => direct,
                None => &mut *values,
            };
            match self.rows.slice::<f32>(0, &self.x, row) {
                Some(from) => normalise(from, to, self.norm.centre, self.norm.epsilon),
                None => {
                    self.rows.load(0, &self.x, row, 0, to);
                    normalise_in_place(to, self.norm.centre, self.norm.epsilon);
                }
            }
            if self.norm.round_before_scale {
                round_to(self.x.dtype(), to);
            }
            affine(to, scale, bias);
            if !is_direct {
                self.rows.store(1, &self.y, row, 0, to);
            }
        }
    }

    fn rows_f64(&self, range: std::ops::Range<usize>, memory: &mut [f64]) {
        let length = self.rows.length();
        let (values, rest) = memory.split_at_mut(length);
        let (scale, bias) = rest.split_at_mut(length);
        let (scale, bias) = (self.factors(2, self.scale, scale), self.factors(3, self.bias, bias));
        for row in range {
            self.rows.load(0, &self.x, row, 0, values);
            let mean = if self.norm.centre { values.iter().sum::<f64>() / length as f64 } else { 0.0 };
            let square = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / length as f64;
            let factor = 1.0 / (square + f64::from(self.norm.epsilon)).sqrt();
            for (at, value) in values.iter_mut().enumerate() {
                let scaled = (*value - mean) * factor * scale.map_or(1.0, |scale| scale[at]);
                *value = scaled + bias.map_or(0.0, |bias| bias[at]);
            }
            self.rows.store(1, &self.y, row, 0, values);
        }
    }
}

/// The sum of a function of the elements, as partial sums that are combined in double precision.
#[inline(always)]
fn sum(x: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let mut total = 0.0;
    for stretch in x.chunks(1024) {
        let mut lanes = [0.0f32; LANES];
        let (chunks, rest) = stretch.as_chunks::<LANES>();
        for chunk in chunks {
            for (lane, &x) in lanes.iter_mut().zip(chunk) {
                *lane += of(x);
            }
        }
        let rest = rest.iter().map(|&x| f64::from(of(x)));
        total += lanes.iter().map(|&lane| f64::from(lane)).chain(rest).sum::<f64>();
    }
    total
}

/// What is subtracted, and the factor for the difference.
#[inline(always)]
fn statistics(x: &[f32], centre: bool, epsilon: f32) -> (f32, f32) {
    let count = x.len() as f64;
    // Subtracting a pivot preserves precision if all elements are far from zero.
    let pivot = x.first().copied().unwrap_or(0.0);
    let mean = if centre { (f64::from(pivot) + sum(x, |x| x - pivot) / count) as f32 } else { 0.0 };
    let square = sum(x, |x| (x - mean) * (x - mean)) / count;
    (mean, (1.0 / (square + f64::from(epsilon)).sqrt()) as f32)
}

vectorised! {
    fn normalise(x: &[f32], y: &mut [f32], centre: bool, epsilon: f32) {
        let (mean, factor) = statistics(x, centre, epsilon);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (x - mean) * factor;
        }
    }
}

vectorised! {
    fn normalise_in_place(values: &mut [f32], centre: bool, epsilon: f32) {
        let (mean, factor) = statistics(values, centre, epsilon);
        values.iter_mut().for_each(|value| *value = (*value - mean) * factor);
    }
}

vectorised! {
    fn affine(values: &mut [f32], scale: Option<&[f32]>, bias: Option<&[f32]>) {
        if let Some(scale) = scale {
            values.iter_mut().zip(scale).for_each(|(value, scale)| *value *= scale);
        }
        if let Some(bias) = bias {
            values.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
    }
}
