//! Compares regions of images with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

const EXTENTS: [usize; 2] = [6, 9];

fn images(dtype: DType) -> Array {
    Array::random(dtype, &[2, 3, EXTENTS[0], EXTENTS[1]], 1)
}

/// The value of a channel at a place within the image.
fn bilinear(x: &Array, image: usize, channel: usize, at: [f64; 2]) -> f64 {
    let mut sum = 0.0;
    for corner in 0..4usize {
        let far = [corner / 2, corner % 2];
        let (mut weight, mut place) = (1.0, [image, channel, 0, 0]);
        for axis in 0..2 {
            let fraction = at[axis] - at[axis].floor();
            weight *= if far[axis] == 1 { fraction } else { 1.0 - fraction };
            place[2 + axis] = (at[axis].floor() as usize + far[axis]).min(EXTENTS[axis] - 1);
        }
        sum += weight * x.at(&place);
    }
    sum
}

#[test]
fn crops_are_resized() {
    let numbers_of = [0usize, 1, 1, 0];
    let boxes = [[0.0, 0.0, 1.0, 1.0], [0.25, 0.125, 0.75, 0.5], [0.75, 1.0, 0.0, 0.25], [-0.25, 0.5, 1.25, 0.75]];
    for (dtype, nearest, size) in [(DType::F32, false, [4, 5]), (DType::F32, true, [3, 1]), (DType::F16, false, [1, 4])]
    {
        let x = images(dtype);
        let wanted = Array::of(&[4, 3, size[0], size[1]], |at| {
            let side = boxes[at[0]];
            let mut place = [0.0; 2];
            for axis in 0..2 {
                let last = EXTENTS[axis] as f64 - 1.0;
                let (start, end) = (side[axis], side[axis + 2]);
                let share = if size[axis] == 1 { 0.5 } else { at[2 + axis] as f64 / (size[axis] as f64 - 1.0) };
                place[axis] = (start + (end - start) * share) * last;
                if place[axis] < 0.0 || place[axis] > last {
                    return -1.5;
                }
                if nearest {
                    place[axis] = place[axis].round();
                }
            }
            bilinear(&x, numbers_of[at[0]], at[1], place)
        });
        let inputs = vec![
            x.tensor(dtype),
            tensor(dtype, &[4, 4], boxes.as_flattened()),
            tensor(DType::I32, &[4], &numbers_of.map(|number| number as f64)),
            tensor(DType::I32, &[2], &size.map(|extent| extent as f64)),
        ];
        let mut case = Case::new("CropAndResize", 1, inputs, &[dtype])
            .attribute("mode", Attribute::Text(if nearest { "nearest" } else { "bilinear" }.to_owned()))
            .attribute("extrapolation_value", Attribute::Float(-1.5));
        case.domain = "com.microsoft";
        case.constants = vec![3];
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape);
        assert_close(&numbers(&found[0]), &wanted.values, if dtype == DType::F32 { 1e-5 } else { 5e-3 });
    }
}

fn roi_align(dtype: DType, version: i32, inputs: Vec<Tensor>) -> Case {
    Case::new("RoiAlign", version, inputs, &[dtype])
        .attribute("output_height", Attribute::Int(3))
        .attribute("output_width", Attribute::Int(2))
        .attribute("spatial_scale", Attribute::Float(0.5))
}

#[test]
fn cells_of_regions_are_means_of_points() {
    let numbers_of = [1usize, 0, 1];
    // Columns first. The second region is small; the third reaches out of the image.
    let boxes = [[2.0f64, 1.0, 14.0, 10.0], [4.0, 4.0, 4.5, 4.25], [-6.0, -3.0, 5.0, 30.0]];
    let (cells, points) = ([3, 2], 2);
    for (dtype, version, half_pixel) in [(DType::F32, 16, true), (DType::F32, 10, false), (DType::F64, 16, true)] {
        let x = images(dtype);
        let wanted = Array::of(&[3, 3, cells[0], cells[1]], |at| {
            let mut sum = 0.0;
            for point in 0..points * points {
                let own = [point / points, point % points];
                let (mut place, mut is_outside) = ([0.0; 2], false);
                for axis in 0..2 {
                    let offset = if half_pixel { 0.5 } else { 0.0 };
                    let [start, end] = [1 - axis, 3 - axis].map(|side| boxes[at[0]][side] * 0.5 - offset);
                    let span = if half_pixel { end - start } else { (end - start).max(1.0) };
                    let cell = span / cells[axis] as f64;
                    let share = (own[axis] as f64 + 0.5) / points as f64;
                    let coordinate = start + cell * (at[2 + axis] as f64 + share);
                    is_outside |= coordinate < -1.0 || coordinate > EXTENTS[axis] as f64;
                    place[axis] = coordinate.clamp(0.0, EXTENTS[axis] as f64 - 1.0);
                }
                if !is_outside {
                    sum += bilinear(&x, numbers_of[at[0]], at[1], place);
                }
            }
            sum / (points * points) as f64
        });
        let inputs = || {
            let numbers = tensor(DType::I64, &[3], &numbers_of.map(|number| number as f64));
            vec![x.tensor(dtype), tensor(dtype, &[3, 4], boxes.as_flattened()), numbers]
        };
        let case = roi_align(dtype, version, inputs()).attribute("sampling_ratio", Attribute::Int(points as i64));
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape);
        assert_close(&numbers(&found[0]), &wanted.values, 1e-5);
        let adaptive = roi_align(dtype, version, inputs()).run().unwrap_err();
        assert!(adaptive.contains("the number of points depends on the regions"), "{adaptive}");
    }
}

#[test]
fn an_image_that_does_not_exist_is_an_error() {
    // The last one is 0 in its lower 32 bits.
    for number in [2.0, -1.0, 2f64.powi(32)] {
        let regions = tensor(DType::F32, &[1, 4], &[0.0, 0.0, 4.0, 4.0]);
        let inputs = vec![images(DType::F32).tensor(DType::F32), regions, tensor(DType::I64, &[1], &[number])];
        let case = roi_align(DType::F32, 16, inputs).attribute("sampling_ratio", Attribute::Int(1));
        assert!(case.run().is_err(), "image {number}");
    }
}
