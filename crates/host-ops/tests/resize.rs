//! Interpolation against a recursion over the axes that follows the operator's definition.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::prim::{Coordinates, Interpolation, Nearest, Resize};
use graph::{DType, Prim};
use proptest::prelude::*;

use support::{Data, Layout, Out, assert_near, indices, run, tolerance};

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
fn element(prim: &Resize, x: &Data, output: &[usize], at: &[usize], prefix: &[usize]) -> f64 {
    let axis = prefix.len();
    if axis == x.shape.len() {
        return x.at(prefix);
    }
    let input = x.shape[axis];
    let crops = prim.coordinates == Coordinates::TfCropAndResize;
    if prim.scales[axis] == 1.0 && !crops {
        let prefix: Vec<usize> = prefix.iter().copied().chain([at[axis]]).collect();
        return element(prim, x, output, at, &prefix);
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
        element(prim, x, output, at, &prefix)
    };
    weights.iter().enumerate().map(|(i, weight)| if *weight == 0.0 { 0.0 } else { weight * value(i) }).sum()
}

fn check(prim: Resize, dtype: DType, shape: &[usize], layouts: [Layout; 2], seed: u64) {
    let x = Data::noise(dtype, shape, seed).laid(layouts[0]);
    let output: Vec<usize> =
        shape.iter().zip(&prim.scales).map(|(&extent, &scale)| (extent as f32 * scale).floor() as usize).collect();
    if output.contains(&0) {
        return;
    }
    let out = Out::new(dtype, &output).laid(layouts[1]);
    let got = run(Prim::Resize(prim.clone()), std::slice::from_ref(&x), &[out]).unwrap();
    let want: Vec<f64> = indices(&output).iter().map(|at| element(&prim, &x, &output, at, &[])).collect();
    // Coordinates and weights are single precision for every type.
    assert_near(&got[0], &want, tolerance(dtype).max(1e-6) * 10.0, (&prim, shape));
}

fn layout() -> impl Strategy<Value = Layout> {
    prop::sample::select(&Layout::ALL[..])
}

const COORDINATES: [Coordinates; 7] = [
    Coordinates::HalfPixel,
    Coordinates::HalfPixelSymmetric,
    Coordinates::PytorchHalfPixel,
    Coordinates::AlignCorners,
    Coordinates::Asymmetric,
    Coordinates::TfCropAndResize,
    Coordinates::TfHalfPixelForNn,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn interpolates_as_the_definition_says(
        interpolation in prop::sample::select(vec![
            Interpolation::Nearest(Nearest::RoundPreferFloor),
            Interpolation::Nearest(Nearest::RoundPreferCeil),
            Interpolation::Nearest(Nearest::Floor),
            Interpolation::Nearest(Nearest::Ceil),
            Interpolation::Linear,
            Interpolation::Cubic { a: -0.75, exclude_outside: false },
            Interpolation::Cubic { a: -0.5, exclude_outside: true },
        ]),
        coordinates in prop::sample::select(&COORDINATES[..]),
        antialias in any::<bool>(),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16]),
        // Scales with exact coordinates on elements or half-way between them.
        axes in prop::collection::vec(
            (1usize..7, prop::sample::select(vec![0.5f32, 0.25, 0.75, 1.0, 1.5, 2.0, 3.0]), -0.25f32..0.5, 0.5f32..1.5),
            1..4,
        ),
        layouts in (layout(), layout()),
        seed in 0u64..1000,
    ) {
        let is_nearest = matches!(interpolation, Interpolation::Nearest(_));
        // A rounding error decides between neighbours if a coordinate is half-way or on the border.
        let exact = !matches!(coordinates, Coordinates::AlignCorners | Coordinates::TfCropAndResize | Coordinates::HalfPixelSymmetric);
        prop_assume!(!is_nearest || exact);
        let prim = Resize {
            interpolation,
            coordinates,
            scales: axes.iter().map(|axis| axis.1).collect(),
            roi: axes.iter().map(|axis| (axis.2, axis.3)).collect(),
            extrapolation: 7.0,
            antialias: antialias && !is_nearest,
        };
        // With one element the corners coincide, and so do all elements of the region.
        prop_assume!(coordinates != Coordinates::TfCropAndResize || axes.iter().all(|axis| axis.0 > 1));
        let shape: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        check(prim, dtype, &shape, layouts.into(), seed);
    }
}

fn plain(interpolation: Interpolation, coordinates: Coordinates, scales: &[f32]) -> Resize {
    Resize {
        interpolation,
        coordinates,
        scales: scales.to_vec(),
        roi: vec![(0.0, 1.0); scales.len()],
        extrapolation: 0.0,
        antialias: false,
    }
}

#[test]
fn nearest_copies_any_type() {
    for dtype in [DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool, DType::Bf16] {
        let prim = plain(Interpolation::Nearest(Nearest::Floor), Coordinates::Asymmetric, &[1.0, 2.0, 3.0]);
        check(prim, dtype, &[2, 3, 4], [Layout::Dense; 2], 1);
    }
}

#[test]
fn fractions_of_bytes_are_cut_off() {
    let x = Data::new(DType::U8, &[2], vec![1.0, 200.0]);
    let prim = plain(Interpolation::Linear, Coordinates::HalfPixel, &[2.0]);
    let got = run(Prim::Resize(prim), &[x], &[Out::new(DType::U8, &[4])]).unwrap();
    assert_near(&got[0], &[1.0, 50.0, 150.0, 200.0], 0.0, "");
}

#[test]
fn crops_the_region_of_interest() {
    let x = Data::new(DType::F32, &[5], vec![0.0, 10.0, 20.0, 30.0, 40.0]);
    let mut prim = plain(Interpolation::Nearest(Nearest::RoundPreferFloor), Coordinates::TfCropAndResize, &[1.0]);
    prim.roi = vec![(0.5, 1.5)];
    prim.extrapolation = -1.0;
    let got = run(Prim::Resize(prim.clone()), std::slice::from_ref(&x), &[Out::new(DType::F32, &[5])]).unwrap();
    assert_near(&got[0], &[20.0, 30.0, 40.0, -1.0, -1.0], 0.0, "");
    prim.interpolation = Interpolation::Linear;
    let got = run(Prim::Resize(prim), &[x], &[Out::new(DType::F32, &[5])]).unwrap();
    assert_near(&got[0], &[20.0, 30.0, 40.0, -1.0, -1.0], 0.0, "");
}
