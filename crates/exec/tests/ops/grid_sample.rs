//! Compares GridSample, AffineGrid and the windows of signals with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::{Array, indices};
use crate::common::{Case, assert_close, numbers, tensor};

/// A number mirrored at two borders until it is between them.
fn mirrored(mut value: f64, low: f64, high: f64) -> f64 {
    while value < low || value > high {
        value = if value < low { 2.0 * low - value } else { 2.0 * high - value };
        if low == high {
            return low;
        }
    }
    value
}

/// The weights of the neighbours, from the first one on.
fn weights(mode: &str, fraction: f64) -> Vec<f64> {
    const A: f64 = -0.75;
    let near = |d: f64| (A + 2.0) * d.powi(3) - (A + 3.0) * d.powi(2) + 1.0;
    let far = |d: f64| A * d.powi(3) - 5.0 * A * d.powi(2) + 8.0 * A * d - 4.0 * A;
    match mode {
        "nearest" => vec![1.0],
        "linear" => vec![1.0 - fraction, fraction],
        _ => vec![far(1.0 + fraction), near(fraction), near(1.0 - fraction), far(2.0 - fraction)],
    }
}

fn sampled(x: &Array, grid: &Array, mode: &str, padding: &str, align: bool) -> Array {
    let rank = x.shape.len() - 2;
    let to: Vec<usize> = x.shape[..2].iter().chain(&grid.shape[1..=rank]).copied().collect();
    Array::of(&to, |at| {
        let point = |column: usize| grid.at(&[&at[..1], &at[2..], &[column]].concat());
        let taps: Vec<(i64, Vec<f64>)> = (0..rank)
            .map(|axis| {
                let (position, extent) = (point(rank - 1 - axis), x.shape[2 + axis] as f64);
                let place = if align {
                    (position + 1.0) / 2.0 * (extent - 1.0)
                } else {
                    ((position + 1.0) * extent - 1.0) / 2.0
                };
                let place = if mode == "nearest" { place.round_ties_even() } else { place };
                let first = place.floor() as i64 - i64::from(mode == "cubic");
                (first, weights(mode, place - place.floor()))
            })
            .collect();
        let counts: Vec<usize> = taps.iter().map(|(_, weights)| weights.len()).collect();
        indices(&counts).iter().fold(0.0, |sum, tap| {
            let mut weight = 1.0;
            let mut place = at[..2].to_vec();
            for (axis, &number) in tap.iter().enumerate() {
                let (extent, pixel) = (x.shape[2 + axis] as f64, (taps[axis].0 + number as i64) as f64);
                weight *= taps[axis].1[number];
                let pixel = match padding {
                    "zeros" if pixel < 0.0 || pixel >= extent => return sum,
                    "reflection" if align => mirrored(pixel, 0.0, extent - 1.0),
                    "reflection" => mirrored(pixel, -0.5, extent - 0.5),
                    _ => pixel.clamp(0.0, extent - 1.0),
                };
                place.push(pixel as usize);
            }
            sum + weight * x.at(&place)
        })
    })
}

#[test]
fn images_are_sampled_inside_and_outside_of_their_borders() {
    for (image, points) in [(vec![2, 3, 4, 5], vec![2, 3, 4, 2]), (vec![2, 2, 1, 6], vec![2, 5, 1, 2])] {
        compare(&image, &points, &["nearest", "linear", "cubic"], DType::F32);
    }
    compare(&[1, 2, 7, 3], &[1, 4, 4, 2], &["linear", "cubic"], DType::F16);
    compare(&[1, 2, 3, 7], &[1, 2, 3, 2], &["linear"], DType::F64);
}

#[test]
fn volumes_and_lines_are_sampled() {
    compare(&[2, 2, 3, 4, 5], &[2, 2, 3, 2, 3], &["nearest", "linear"], DType::F32);
    compare(&[2, 3, 5], &[2, 4, 1], &["nearest", "linear"], DType::F32);
}

fn compare(image: &[usize], points: &[usize], modes: &[&str], dtype: DType) {
    let x = Array::random(dtype, image, 1);
    // Up to three image sizes away, at positions that are not ties.
    let far = Array::random(dtype, points, 2);
    let grid = Array { shape: points.to_vec(), values: far.values.iter().map(|value| 3.07 * value).collect() };
    let grid = Array::from(&grid.tensor(dtype));
    for &mode in modes {
        for padding in ["zeros", "border", "reflection"] {
            for align in [false, true] {
                let case = Case::new("GridSample", 20, vec![x.tensor(dtype), grid.tensor(dtype)], &[dtype])
                    .attribute("mode", Attribute::Text(mode.to_owned()))
                    .attribute("padding_mode", Attribute::Text(padding.to_owned()))
                    .attribute("align_corners", Attribute::Int(i64::from(align)));
                let wanted = sampled(&x, &grid, mode, padding, align);
                let tolerance = if dtype == DType::F16 { 3e-3 } else { 3e-5 };
                println!("{image:?} {mode} {padding} {align}");
                assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, tolerance);
            }
        }
    }
}

#[test]
fn what_is_outside_of_an_infinite_image_is_zero() {
    let x = tensor(DType::F32, &[1, 1, 1, 2], &[f64::INFINITY, 1.0]);
    let grid = tensor(DType::F32, &[1, 1, 2, 2], &[-40.0, 0.0, f64::from(f32::MAX), f64::from(f32::MIN)]);
    let found = Case::new("GridSample", 16, vec![x, grid], &[DType::F32]).run().unwrap();
    assert_eq!(numbers(&found[0]), [0.0, 0.0]);
}

#[test]
fn a_grid_of_another_rank_is_an_error() {
    let (x, grid) = (tensor(DType::F32, &[1, 1, 1, 1], &[1.0]), tensor(DType::F32, &[1, 1, 3], &[0.0; 3]));
    let error = Case::new("GridSample", 16, vec![x, grid], &[DType::F32]).run().unwrap_err();
    assert!(error.contains("a grid of shape [1, 1, 3] for an image of shape [1, 1, 1, 1]"), "{error}");
}

#[test]
fn affine_grids_are_transformed_positions() {
    for size in [vec![2, 1, 3, 4], vec![1, 2, 2, 3, 4], vec![1, 1, 1, 5]] {
        let rank = size.len() - 2;
        let theta = Array::random(DType::F32, &[size[0], rank, rank + 1], 3);
        for align in [false, true] {
            let position = |index: usize, extent: usize| match (align, extent) {
                (true, 1) => -1.0,
                (true, _) => 2.0 * index as f64 / (extent - 1) as f64 - 1.0,
                (false, _) => (2.0 * index as f64 + 1.0) / extent as f64 - 1.0,
            };
            let to: Vec<usize> = [&size[..1], &size[2..], &[rank]].concat();
            let wanted = Array::of(&to, |at| {
                let row = |column: usize| theta.at(&[at[0], at[rank + 1], column]);
                (0..rank)
                    .fold(row(rank), |sum, axis| sum + row(rank - 1 - axis) * position(at[1 + axis], size[2 + axis]))
            });
            let extents: Vec<f64> = size.iter().map(|&extent| extent as f64).collect();
            let extents = tensor(DType::I64, &[extents.len()], &extents);
            let case = Case::new("AffineGrid", 20, vec![theta.tensor(DType::F32), extents], &[DType::F32])
                .attribute("align_corners", Attribute::Int(i64::from(align)));
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, 1e-6);
        }
    }
}

#[test]
fn windows_are_sums_of_cosines() {
    type Window = fn(f64) -> f64;
    let windows: [(&'static str, Window); 3] = [
        ("HannWindow", |t| (t / 2.0).sin().powi(2)),
        ("HammingWindow", |t| 25.0 / 46.0 - 21.0 / 46.0 * t.cos()),
        ("BlackmanWindow", |t| 0.42 - 0.5 * t.cos() + 0.08 * (2.0 * t).cos()),
    ];
    for (name, window) in windows {
        for (periodic, size) in [(true, 400), (false, 7)] {
            let intervals = if periodic { size } else { size - 1 };
            let wanted: Vec<f64> =
                (0..size).map(|at| window(std::f64::consts::TAU * at as f64 / intervals as f64)).collect();
            let given = tensor(DType::I64, &[], &[size as f64]);
            let case = Case::new(name, 17, vec![given], &[DType::F32])
                .attribute("periodic", Attribute::Int(i64::from(periodic)));
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted, 1e-6);
        }
    }
}
