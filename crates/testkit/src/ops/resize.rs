//! Interpolation by a recursion over the axes that follows the operator's definition.

use graph::prim::{Coordinates, Interpolation, Nearest, Resize};

use super::view::{flat, indices};

/// Every relation of coordinates.
pub const COORDINATES: [Coordinates; 7] = [
    Coordinates::HalfPixel,
    Coordinates::HalfPixelSymmetric,
    Coordinates::PytorchHalfPixel,
    Coordinates::AlignCorners,
    Coordinates::Asymmetric,
    Coordinates::TfCropAndResize,
    Coordinates::TfHalfPixelForNn,
];

/// The elements of an output of these extents, for a dense input of a shape. Nothing is rounded.
///
/// # Panics
/// When the input is too short.
pub fn expected(prim: &Resize, shape: &[usize], x: &[f64], output: &[usize]) -> Vec<f64> {
    indices(output).iter().map(|at| element(prim, shape, x, output, at, &[])).collect()
}

/// The coordinate of an output index in the input.
fn coordinate(prim: &Resize, axis: usize, at: usize, input: usize, output: usize) -> f64 {
    let (x, scale, length) = (at as f64, f64::from(prim.scales[axis]), input as f64);
    match prim.coordinates {
        Coordinates::HalfPixel => (x + 0.5) / scale - 0.5,
        Coordinates::PytorchHalfPixel => {
            if output > 1 {
                (x + 0.5) / scale - 0.5
            } else {
                0.0
            }
        }
        Coordinates::HalfPixelSymmetric => {
            length / 2.0 * (1.0 - output as f64 / (scale * length)) + (x + 0.5) / scale - 0.5
        }
        Coordinates::AlignCorners if output == 1 => 0.0,
        Coordinates::AlignCorners => x * (length - 1.0) / (scale * length - 1.0),
        Coordinates::Asymmetric => x / scale,
        Coordinates::TfHalfPixelForNn => (x + 0.5) / scale,
        Coordinates::TfCropAndResize => {
            let (start, end) = (f64::from(prim.roi[axis].0), f64::from(prim.roi[axis].1));
            if output > 1 {
                start * (length - 1.0) + x * (end - start) * (length - 1.0) / (output as f64 - 1.0)
            } else {
                0.5 * (start + end) * (length - 1.0)
            }
        }
    }
}

/// Weights of the elements around a coordinate, by its distance from the element below.
fn coefficients(prim: &Resize, ratio: f64, scale: f64) -> Vec<f64> {
    let scale = if prim.antialias { scale.min(1.0) } else { 1.0 };
    let normal = |weights: Vec<f64>| {
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect::<Vec<f64>>()
    };
    match prim.interpolation {
        Interpolation::Nearest(rounding) => {
            let up = match rounding {
                _ if ratio == 1.0 => true,
                Nearest::RoundPreferFloor => ratio > 0.5,
                Nearest::RoundPreferCeil => ratio >= 0.5,
                Nearest::Floor => false,
                Nearest::Ceil => true,
            };
            if up { vec![0.0, 1.0] } else { vec![1.0, 0.0] }
        }
        Interpolation::Linear => {
            let first = (-1.0 / scale).floor() as i64 + 1;
            normal((first..2 - first).map(|i| (1.0 - ((i as f64 - ratio) * scale).abs()).clamp(0.0, 1.0)).collect())
        }
        Interpolation::Cubic { a, .. } => {
            let a = f64::from(a);
            let first = (-2.0 / scale).floor() as i64 + 1;
            let weight = |i: i64| {
                let x = ((i as f64 - ratio) * scale).abs();
                if x <= 1.0 {
                    (a + 2.0) * x.powi(3) - (a + 3.0) * x * x + 1.0
                } else if x < 2.0 {
                    a * x.powi(3) - 5.0 * a * x * x + 8.0 * a * x - 4.0 * a
                } else {
                    0.0
                }
            };
            normal((first..2 - first).map(weight).collect())
        }
    }
}

/// One element of the output.
fn element(prim: &Resize, shape: &[usize], x: &[f64], output: &[usize], at: &[usize], prefix: &[usize]) -> f64 {
    let axis = prefix.len();
    if axis == shape.len() {
        return x[flat(shape, prefix)];
    }
    let input = shape[axis];
    let crops = prim.coordinates == Coordinates::TfCropAndResize;
    if prim.scales[axis] == 1.0 && !crops {
        let prefix: Vec<usize> = prefix.iter().copied().chain([at[axis]]).collect();
        return element(prim, shape, x, output, at, &prefix);
    }
    let place = coordinate(prim, axis, at[axis], input, output[axis]);
    if crops && (place < 0.0 || place > input as f64 - 1.0) {
        return f64::from(prim.extrapolation);
    }
    // A coordinate exactly on an element belongs to the upper end of the interval.
    let below = if place == place.floor() { place - 1.0 } else { place.floor() };
    let mut weights = coefficients(prim, place - below, f64::from(prim.scales[axis]));
    let first = below as i64 + 1 - weights.len() as i64 / 2;
    if let Interpolation::Cubic { exclude_outside: true, .. } = prim.interpolation {
        for (i, weight) in weights.iter_mut().enumerate() {
            if !(0..input as i64).contains(&(first + i as i64)) {
                *weight = 0.0;
            }
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
    }
    let value = |i: usize| {
        let index = (first + i as i64).clamp(0, input as i64 - 1) as usize;
        let prefix: Vec<usize> = prefix.iter().copied().chain([index]).collect();
        element(prim, shape, x, output, at, &prefix)
    };
    weights.iter().enumerate().map(|(i, weight)| if *weight == 0.0 { 0.0 } else { weight * value(i) }).sum()
}
