//! Interpolation against a recursion over the axes that follows the operator's definition.
use graph::prim::{Coordinates, Interpolation, Nearest, Resize};
use graph::{DType, Prim};
use proptest::prelude::*;
use testkit::ops::{Arrangement, Sample, dense, ints, resize, tensor};

use crate::common::{self, arrangement, error, laid};

fn check(prim: Resize, dtype: DType, shape: &[usize], layouts: [Arrangement; 2], seed: u64) {
    let output: Vec<usize> =
        shape.iter().zip(&prim.scales).map(|(&extent, &scale)| (extent as f32 * scale).floor() as usize).collect();
    if output.contains(&0) {
        return;
    }
    let x = laid(layouts[0](0, dtype, shape), seed);
    let sample = Sample::new(Prim::Resize(prim.clone()), vec![x], vec![layouts[1](1, dtype, &output)]);
    let expected = resize::expected(&prim, shape, &sample.values()[0], &output);
    // Coordinates and weights are single precision for every type.
    common::check(&sample, &[expected], error(dtype).max(1e-6) * 10.0, (&prim, shape));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn interpolation_follows_the_definition(
        interpolation in prop::sample::select(vec![
            Interpolation::Nearest(Nearest::RoundPreferFloor),
            Interpolation::Nearest(Nearest::RoundPreferCeil),
            Interpolation::Nearest(Nearest::Floor),
            Interpolation::Nearest(Nearest::Ceil),
            Interpolation::Linear,
            Interpolation::Cubic { a: -0.75, exclude_outside: false },
            Interpolation::Cubic { a: -0.5, exclude_outside: true },
        ]),
        coordinates in prop::sample::select(&resize::COORDINATES[..]),
        antialias in any::<bool>(),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16]),
        // Scales with exact coordinates on elements or half-way between them.
        axes in prop::collection::vec(
            (1usize..7, prop::sample::select(vec![0.5f32, 0.25, 0.75, 1.0, 1.5, 2.0, 3.0]), -0.25f32..0.5, 0.5f32..1.5),
            1..4,
        ),
        layouts in (arrangement(), arrangement()),
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
        check(prim, dtype, &[2, 3, 4], [dense; 2], 1);
    }
}

#[test]
fn fractions_of_bytes_are_truncated() {
    let x = (dense(0, DType::U8, &[2]), ints(DType::U8, [1, 200]));
    let prim = plain(Interpolation::Linear, Coordinates::HalfPixel, &[2.0]);
    let sample = Sample::new(Prim::Resize(prim), vec![x], vec![dense(1, DType::U8, &[4])]);
    common::check(&sample, &[vec![1.0, 50.0, 150.0, 200.0]], 0.0, "bytes");
}

#[test]
fn crops_the_region_of_interest() {
    let x = (dense(0, DType::F32, &[5]), tensor(DType::F32, [0.0, 10.0, 20.0, 30.0, 40.0]));
    for interpolation in [Interpolation::Nearest(Nearest::RoundPreferFloor), Interpolation::Linear] {
        let prim = Resize {
            roi: vec![(0.5, 1.5)],
            extrapolation: -1.0,
            ..plain(interpolation, Coordinates::TfCropAndResize, &[1.0])
        };
        let sample = Sample::new(Prim::Resize(prim), vec![x.clone()], vec![dense(1, DType::F32, &[5])]);
        common::check(&sample, &[vec![20.0, 30.0, 40.0, -1.0, -1.0]], 0.0, interpolation);
    }
}
