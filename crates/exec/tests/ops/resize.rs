//! Compares `Resize` with a sum over all input elements, weighted along each axis as ONNX specifies.
use graph::ops::Attribute;
use graph::{DType, Tensor};

use crate::array::{Array, indices};
use crate::common::{Case, assert_close, numbers, tensor};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Nearest(&'static str),
    Linear,
    Cubic { a: f64, exclude: bool },
}

/// The weights of the input elements along one axis for one output element; `None` if it lies outside.
fn weights(
    mode: Mode,
    coordinates: &str,
    at: usize,
    scale: f64,
    input: usize,
    output: usize,
    roi: (f64, f64),
) -> Option<Vec<f64>> {
    let (x, last) = (at as f64, (input - 1) as f64);
    let half = (x + 0.5) / scale - 0.5;
    let place = match coordinates {
        "half_pixel" => half,
        "half_pixel_symmetric" => {
            let adjustment = output as f64 / (scale * input as f64);
            input as f64 / 2.0 * (1.0 - adjustment) + half
        }
        "pytorch_half_pixel" if output == 1 => 0.0,
        "pytorch_half_pixel" => half,
        "align_corners" if output == 1 => 0.0,
        "align_corners" => x * last / (output - 1) as f64,
        "asymmetric" => x / scale,
        _ => {
            assert_eq!(coordinates, "tf_crop_and_resize");
            let place = if output == 1 {
                0.5 * (roi.0 + roi.1) * last
            } else {
                roi.0 * last + x * (roi.1 - roi.0) * last / (output - 1) as f64
            };
            if place < 0.0 || place > last {
                return None;
            }
            place
        }
    };
    let mut weights = vec![0.0; input];
    let mut add = |at: f64, weight: f64| weights[at.clamp(0.0, last) as usize] += weight;
    match mode {
        Mode::Nearest("round_prefer_floor") => add((place - 0.5).ceil(), 1.0),
        Mode::Nearest("round_prefer_ceil") => add((place + 0.5).floor(), 1.0),
        Mode::Nearest("floor") => add(place.floor(), 1.0),
        Mode::Nearest(_) => add(place.ceil(), 1.0),
        Mode::Linear => {
            let share = place - place.floor();
            add(place.floor(), 1.0 - share);
            add(place.floor() + 1.0, share);
        }
        Mode::Cubic { a, exclude } => {
            let curve = |distance: f64| {
                let d = distance.abs();
                if d <= 1.0 {
                    (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0
                } else {
                    a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a
                }
            };
            let taps: Vec<f64> = (-1..3).map(|tap| place.floor() + f64::from(tap)).collect();
            let used = |tap: f64| !exclude || (0.0..=last).contains(&tap);
            let sum: f64 = taps.iter().filter(|&&tap| used(tap)).map(|&tap| curve(tap - place)).sum();
            for &tap in taps.iter().filter(|&&tap| used(tap)) {
                add(tap, curve(tap - place) / if exclude { sum } else { 1.0 });
            }
        }
    }
    Some(weights)
}

struct Problem {
    mode: Mode,
    coordinates: &'static str,
    scales: Vec<f64>,
    output: Vec<usize>,
    roi: Vec<(f64, f64)>,
}

fn reference(x: &Array, problem: &Problem, outside: f64) -> Array {
    Array::of(&problem.output, |index| {
        let along: Option<Vec<Vec<f64>>> = (0..index.len())
            .map(|axis| {
                let (input, output) = (x.shape[axis], problem.output[axis]);
                weights(
                    problem.mode,
                    problem.coordinates,
                    index[axis],
                    problem.scales[axis],
                    input,
                    output,
                    problem.roi[axis],
                )
            })
            .collect();
        let Some(along) = along else { return outside };
        let weight = |place: &[usize]| place.iter().zip(&along).map(|(&at, weights)| weights[at]).product::<f64>();
        indices(&x.shape).iter().map(|place| weight(place) * x.at(place)).sum()
    })
}

fn on(case: Case, mode: Mode, coordinates: &str) -> Case {
    let text = |text: &str| Attribute::Text(text.to_owned());
    let case = case.attribute("coordinate_transformation_mode", text(coordinates));
    match mode {
        Mode::Nearest(rounding) => case.attribute("mode", text("nearest")).attribute("nearest_mode", text(rounding)),
        Mode::Linear => case.attribute("mode", text("linear")),
        Mode::Cubic { a, exclude } => case
            .attribute("mode", text("cubic"))
            .attribute("cubic_coeff_a", Attribute::Float(a as f32))
            .attribute("exclude_outside", Attribute::Int(i64::from(exclude))),
    }
}

const MODES: [Mode; 7] = [
    Mode::Nearest("round_prefer_floor"),
    Mode::Nearest("round_prefer_ceil"),
    Mode::Nearest("floor"),
    Mode::Nearest("ceil"),
    Mode::Linear,
    Mode::Cubic { a: -0.75, exclude: false },
    Mode::Cubic { a: -0.5, exclude: true },
];

const COORDINATES: [&str; 5] =
    ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"];

fn float_tensor(values: &[f64]) -> Tensor {
    tensor(DType::F32, &[values.len()], values)
}

#[test]
fn sizes_in_every_mode_and_coordinate_system() {
    let x = Array::random(DType::F32, &[2, 3, 4, 8], 1);
    for mode in MODES {
        for coordinates in COORDINATES {
            // Powers of two, so that scales are exact and rounding cannot change a tie.
            for output in [[2, 3, 8, 4], [2, 3, 1, 16], [2, 3, 4, 2]] {
                let scales: Vec<f64> = output.iter().zip(&x.shape).map(|(&o, &i)| o as f64 / i as f64).collect();
                let problem = Problem { mode, coordinates, scales, output: output.to_vec(), roi: vec![(0.0, 1.0); 4] };
                let sizes = Tensor::from_i64s(&output.map(|extent| extent as i64));
                let mut case = Case::new("Resize", 19, vec![x.tensor(DType::F32)], &[DType::F32]);
                case.inputs.extend([None, None, Some(sizes)]);
                case.constants = vec![3];
                let found = on(case, mode, coordinates).run().unwrap();
                assert_eq!(found[0].shape(), output);
                let wanted = reference(&x, &problem, 0.0);
                let agree = numbers(&found[0]).iter().zip(&wanted.values).all(|(a, b)| (a - b).abs() < 1e-4);
                assert!(agree, "{mode:?} {coordinates} {output:?}: {:?} {:?}", numbers(&found[0]), wanted.values);
            }
        }
    }
}

#[test]
fn scales_with_a_remainder() {
    let x = Array::random(DType::F32, &[1, 2, 5, 6], 2);
    for mode in [Mode::Nearest("floor"), Mode::Linear, Mode::Cubic { a: -0.75, exclude: false }] {
        for coordinates in ["half_pixel", "half_pixel_symmetric", "asymmetric"] {
            let scales = vec![1.0, 1.0, 0.75, 1.375];
            let output = vec![1, 2, 3, 8];
            let mut case = Case::new("Resize", 19, vec![x.tensor(DType::F32)], &[DType::F32]);
            case.inputs.extend([None, Some(float_tensor(&scales))]);
            case.constants = vec![2];
            let found = on(case, mode, coordinates).run().unwrap();
            let problem = Problem { mode, coordinates, scales, output, roi: vec![(0.0, 1.0); 4] };
            assert_eq!(found[0].shape(), problem.output);
            assert_close(&numbers(&found[0]), &reference(&x, &problem, 0.0).values, 1e-4);
        }
    }
}

#[test]
fn a_region_of_interest_is_cut_out_and_extrapolated() {
    let x = Array::random(DType::F32, &[1, 1, 4, 4], 3);
    for mode in [Mode::Nearest("round_prefer_floor"), Mode::Linear] {
        let roi = [0.25, -0.5, 0.75, 1.25];
        let mut case = Case::new("Resize", 19, vec![x.tensor(DType::F32)], &[DType::F32]);
        case.inputs.extend([Some(float_tensor(&roi)), None, Some(Tensor::from_i64s(&[3, 5]))]);
        case.constants = vec![1, 3];
        let case = case
            .attribute("axes", Attribute::Ints(vec![2, 3]))
            .attribute("extrapolation_value", Attribute::Float(10.0));
        let found = on(case, mode, "tf_crop_and_resize").run().unwrap();
        let problem = Problem {
            mode,
            coordinates: "tf_crop_and_resize",
            scales: vec![1.0, 1.0, 0.75, 1.25],
            output: vec![1, 1, 3, 5],
            roi: vec![(0.0, 1.0), (0.0, 1.0), (0.25, 0.75), (-0.5, 1.25)],
        };
        assert_close(&numbers(&found[0]), &reference(&x, &problem, 10.0).values, 1e-4);
    }
}

#[test]
fn old_versions_round_down_where_an_axis_grows_and_up_where_it_shrinks() {
    let x = Array::random(DType::F32, &[1, 1, 4, 5], 4);
    let scales = [1.0, 1.0, 2.0, 0.6];
    let mut case = Case::new("Resize", 10, vec![x.tensor(DType::F32), float_tensor(&scales)], &[DType::F32]);
    case.constants = vec![1];
    let found = case.run().unwrap();
    let wanted = Array::of(&[1, 1, 8, 3], |index| {
        x.at(&[0, 0, index[2] / 2, ((index[3] as f64 / 0.6f32 as f64).ceil() as usize).min(4)])
    });
    assert_eq!(found[0].shape(), wanted.shape);
    assert_close(&numbers(&found[0]), &wanted.values, 0.0);
}

#[test]
fn upsample_repeats_integers_and_floats() {
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I32] {
        let x = Array::random(dtype, &[1, 2, 2, 3], 5);
        let mut case = Case::new("Upsample", 9, vec![x.tensor(dtype), float_tensor(&[1.0, 1.0, 2.0, 3.0])], &[dtype]);
        case.constants = vec![1];
        let wanted = Array::of(&[1, 2, 4, 9], |index| x.at(&[0, index[1], index[2] / 2, index[3] / 3]));
        assert_eq!(numbers(&case.run().unwrap()[0]), wanted.values);
    }
    let x = Array::random(DType::F32, &[1, 1, 2, 2], 6);
    let case = Case::new("Upsample", 7, vec![x.tensor(DType::F32)], &[DType::F32])
        .attribute("scales", Attribute::Floats(vec![1.0, 1.0, 2.0, 2.0]));
    let wanted = Array::of(&[1, 1, 4, 4], |index| x.at(&[0, 0, index[2] / 2, index[3] / 2]));
    assert_eq!(numbers(&case.run().unwrap()[0]), wanted.values);
}
