//! Softmax, norms and local response normalisation.

use graph::prim::{Lrn, Norm};
use graph::{DType, Scalar};

use super::view::indices;

/// The softmax of a row, or its logarithm.
pub fn softmax(log: bool, row: &[f64]) -> Vec<f64> {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = row.iter().map(|x| (x - largest).exp()).sum();
    row.iter().map(|x| if log { x - largest - total.ln() } else { (x - largest).exp() / total }).collect()
}

/// A normalised row. An empty scale or bias is absent; `dtype` is the type that is rounded to before scaling, if the
/// norm says so.
pub fn norm(norm: &Norm, dtype: DType, row: &[f64], scale: &[f64], bias: &[f64]) -> Vec<f64> {
    let count = row.len() as f64;
    let mean = if norm.centre { row.iter().sum::<f64>() / count } else { 0.0 };
    let square = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let element = |(at, x): (usize, &f64)| {
        let mut y = (x - mean) / (square + f64::from(norm.epsilon)).sqrt();
        if norm.round_before_scale {
            y = Scalar::Float(y).cast(dtype).as_f64();
        }
        y * scale.get(at).unwrap_or(&1.0) + bias.get(at).unwrap_or(&0.0)
    };
    row.iter().enumerate().map(element).collect()
}

/// Channels `[n, c, …]` divided by what those around them are.
pub fn lrn(lrn: &Lrn, shape: &[usize], x: &[f64]) -> Vec<f64> {
    let (channels, plane): (usize, usize) = (shape[1], shape[2..].iter().product());
    let element = |(at, index): (usize, &Vec<usize>)| {
        let channel = index[1];
        let first = channel.saturating_sub((lrn.size - 1) / 2);
        let last = (channel + (lrn.size - 1).div_ceil(2)).min(channels - 1);
        let squares: f64 = (first..=last).map(|other| x[at + other * plane - channel * plane].powi(2)).sum();
        let base = f64::from(lrn.bias) + f64::from(lrn.alpha) / lrn.size as f64 * squares;
        x[at] / base.powf(lrn.beta.into())
    };
    indices(shape).iter().enumerate().map(element).collect()
}
