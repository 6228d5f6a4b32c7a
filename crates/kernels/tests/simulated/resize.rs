//! Tests interpolation in the simulator.

use graph::prim::{Coordinates, Interpolation, Nearest, Resize};
use graph::{DType, Prim, View};
use testkit::ops::resize::COORDINATES;

use crate::common::{check, dense, random, random_ints, step, strided};

const CUBIC: Interpolation = Interpolation::Cubic { a: -0.75, exclude_outside: false };

fn resize(interpolation: Interpolation, coordinates: Coordinates, x: &View, extents: &[usize]) -> Resize {
    let scales = x.shape.iter().zip(extents).map(|(&from, &to)| to as f32 / from as f32);
    // All of the first axes, and a part of the others that reaches beyond the end.
    let is_crop = coordinates == Coordinates::TfCropAndResize;
    let region = |at: usize| if is_crop && at >= 2 { (0.2, 1.1) } else { (0.0, 1.0) };
    Resize {
        interpolation,
        coordinates,
        scales: scales.collect(),
        roi: (0..extents.len()).map(region).collect(),
        extrapolation: 7.0,
        antialias: false,
    }
}

fn check_resize(prim: Resize, x: View, y: View) {
    let dtype = x.dtype;
    let relative = match dtype {
        DType::F32 => 4e-6,
        DType::F64 => 1e-6,
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 0.0,
    };
    let (count, elems) = (x.elems(), y.elems());
    let buffer = if dtype.is_float() { random(dtype, count, 3) } else { random_ints(dtype, count, 100, 3) };
    check(&step(Prim::Resize(prim), vec![x], vec![y]), &[buffer], &[elems], relative);
}

#[test]
fn nearest_elements_in_all_coordinates() {
    let roundings = [Nearest::RoundPreferFloor, Nearest::RoundPreferCeil, Nearest::Floor, Nearest::Ceil];
    for coordinates in COORDINATES {
        for (at, extents) in [[2, 3, 10, 4], [2, 3, 3, 14], [2, 3, 1, 7], [2, 3, 5, 7]].into_iter().enumerate() {
            let x = dense(0, DType::F32, &[2, 3, 5, 7]);
            let prim = resize(Interpolation::Nearest(roundings[at]), coordinates, &x, &extents);
            check_resize(prim, x, dense(1, DType::F32, &extents));
        }
    }
}

#[test]
fn weighted_elements_in_all_coordinates() {
    for coordinates in COORDINATES {
        for interpolation in [Interpolation::Linear, CUBIC] {
            for extents in [[2, 3, 10, 4], [2, 3, 1, 9]] {
                let x = dense(0, DType::F32, &[2, 3, 5, 7]);
                let prim = resize(interpolation, coordinates, &x, &extents);
                check_resize(prim, x, dense(1, DType::F32, &extents));
            }
        }
    }
}

#[test]
fn outside_positions_are_excluded_and_filters_are_stretched() {
    let x = dense(0, DType::F32, &[1, 2, 16, 20]);
    for interpolation in [Interpolation::Linear, CUBIC, Interpolation::Cubic { a: -0.5, exclude_outside: true }] {
        for extents in [[1, 2, 5, 7], [1, 2, 40, 6]] {
            let mut prim = resize(interpolation, Coordinates::HalfPixel, &x, &extents);
            check_resize(prim.clone(), x.clone(), dense(1, DType::F32, &extents));
            prim.antialias = true;
            check_resize(prim, x.clone(), dense(1, DType::F32, &extents));
        }
    }
}

#[test]
fn every_type() {
    let extents = [1, 2, 12, 9];
    for dtype in [DType::F64, DType::F16, DType::Bf16, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool] {
        let x = dense(0, dtype, &[1, 2, 6, 6]);
        let nearest = Interpolation::Nearest(Nearest::Floor);
        let prim = resize(nearest, Coordinates::TfCropAndResize, &x, &extents);
        check_resize(prim, x.clone(), dense(1, dtype, &extents));
        if dtype != DType::Bool {
            let prim = resize(Interpolation::Linear, Coordinates::Asymmetric, &x, &[1, 2, 12, 6]);
            check_resize(prim, x, dense(1, dtype, &[1, 2, 12, 6]));
        }
    }
}

#[test]
fn integers_stay_within_their_bounds() {
    // Cubic interpolation overshoots.
    let x = dense(0, DType::U8, &[1, 1, 1, 8]);
    let prim = resize(CUBIC, Coordinates::Asymmetric, &x, &[1, 1, 1, 16]);
    let scalars = [0, 255, 255, 0, 0, 255, 0, 255].map(graph::Scalar::Int);
    let buffer = graph::Tensor::from_scalars(DType::U8, &[8], scalars).unwrap();
    check(&step(Prim::Resize(prim), vec![x], vec![dense(1, DType::U8, &[1, 1, 1, 16])]), &[buffer], &[16], 0.0);
}

#[test]
fn channels_innermost_and_one_or_three_axes() {
    for (dtype, channels) in [(DType::F16, 16), (DType::F32, 12), (DType::F32, 5)] {
        let c = channels as isize;
        let x = strided(0, dtype, &[2, channels, 4, 5], &[20 * c, 1, 5 * c, c], 0);
        let y = strided(1, dtype, &[2, channels, 8, 10], &[80 * c, 1, 10 * c, c], 0);
        for interpolation in [Interpolation::Nearest(Nearest::Floor), Interpolation::Linear] {
            let prim = resize(interpolation, Coordinates::HalfPixel, &x, &y.shape);
            check_resize(prim, x.clone(), y.clone());
        }
    }
    for (from, to) in [(&[3usize, 2, 9][..], &[3usize, 2, 14][..]), (&[1, 2, 3, 4, 5], &[1, 2, 6, 5, 8])] {
        let x = dense(0, DType::F32, from);
        let prim = resize(Interpolation::Linear, Coordinates::HalfPixel, &x, to);
        check_resize(prim, x, dense(1, DType::F32, to));
    }
}
