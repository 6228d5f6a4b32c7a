//! Tests convolutions in the simulator, against loops in double precision.

use graph::DType;
use graph::prim::ProductKind;
use testkit::ops::conv::{self, Convolution};
use testkit::ops::{Arrangement, Sample, channels_last};

use crate::common::{check_numbers, check_on, dense, kernel_of, random, random_ints, step};

const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];
const F32: (DType, f64) = (DType::F32, 3e-5);
const F16: (DType, f64) = (DType::F16, 4e-3);
const LAYOUTS: [Arrangement; 2] = [dense, channels_last];

fn check(case: &Convolution, layout: Arrangement, (dtype, relative): (DType, f64)) {
    let layouts = [layout, dense, dense];
    let inputs = (0..).zip(case.inputs()).zip(layouts).map(|((number, shape), layout)| {
        (layout(number, dtype, &shape), random(dtype, shape.iter().product(), 3 + u64::from(number)))
    });
    let output = layout(3, dtype, &case.output().unwrap());
    let sample = Sample::new(case.prim(), inputs.collect(), vec![output]);
    check_numbers(&TARGETS, &sample, &[case.expected(&sample.values())], relative);
}

#[test]
fn one_two_and_three_axes() {
    let [line, plane, room] = conv::axes().try_into().unwrap();
    for layout in LAYOUTS {
        for types in [F32, F16, (DType::Bf16, 4e-2)] {
            check(&line, layout, types);
            check(&plane, layout, types);
        }
        check(&room, layout, F32);
    }
}

/// Images and weights with channels innermost: each tile, a split depth, steps across taps, and few channels.
#[test]
fn channels_last_images_are_multiplied_in_tiles() {
    for (images, channels, input, kernel, stride) in [
        (1, [16, 24], [5, 7], 3, 1),
        (3, [8, 136], [8, 7], 3, 2),
        (6, [64, 64], [8, 9], 1, 1),
        (1, [96, 40], [3, 4], 3, 1),
        (2, [3, 16], [9, 8], 5, 2),
    ] {
        let case = Convolution {
            transposed: false,
            images,
            channels,
            groups: 1,
            input: input.to_vec(),
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![[kernel as isize / 2; 2]; 2],
            bias: true,
        };
        let inputs = (0..).zip(case.inputs()).map(|(number, shape)| {
            let layout = if shape.len() == 4 { channels_last } else { dense };
            (layout(number, F16.0, &shape), random(F16.0, shape.iter().product(), 3 + u64::from(number)))
        });
        let output = channels_last(3, F16.0, &case.output().unwrap());
        let sample = Sample::new(case.prim(), inputs.collect(), vec![output]);
        let name = |target| kernel_of(&sample.step, target).name;
        assert_eq!([name("gfx1100"), name("gfx942"), name("gfx1030")], ["conv", "conv", "gemm"]);
        check_numbers(&["gfx1100", "gfx942", "gfx1201", "sm_90"], &sample, &[case.expected(&sample.values())], F16.1);
    }
}

#[test]
fn pads_crop_and_strides_skip() {
    for types in [F32, F16] {
        check(&conv::cropped(), dense, types);
    }
}

#[test]
fn groups_and_depthwise() {
    for (layout, case) in LAYOUTS.into_iter().flat_map(|layout| conv::grouped().into_iter().map(move |of| (layout, of)))
    {
        check(&case, layout, F32);
        check(&case, layout, F16);
    }
}

#[test]
fn a_convolution_with_one_tap_is_a_matrix_product() {
    for (layout, case) in
        LAYOUTS.into_iter().flat_map(|layout| conv::pointwise().into_iter().map(move |of| (layout, of)))
    {
        check(&case, layout, F32);
        check(&case, layout, F16);
    }
}

#[test]
fn a_deep_convolution_is_split() {
    check(&conv::deep(), dense, (DType::F32, 5e-5));
    check(&conv::deep(), dense, (DType::F16, 1e-2));
}

#[test]
fn transposed_by_phases() {
    for layout in LAYOUTS {
        conv::transposed().iter().for_each(|case| check(case, layout, F32));
    }
    let case = Convolution { transposed: true, strides: vec![2, 2], ..Convolution::new([16, 24], &[5, 4], &[4, 4]) };
    check(&case, dense, F16);
}

#[test]
fn bytes_minus_their_zero_points() {
    for (groups, channels) in [(1, [7, 18]), (9, [9, 9])] {
        for (x_type, w_type) in [(DType::U8, DType::I8), (DType::I8, DType::U8), (DType::U8, DType::U8)] {
            let case = Convolution {
                groups,
                bias: false,
                pads: vec![[1, 1]; 2],
                ..Convolution::new(channels, &[6, 7], &[3, 3])
            };
            let [x, w] = case.inputs().try_into().unwrap();
            let (inputs, output) =
                (vec![dense(0, x_type, &x), dense(1, w_type, &w)], dense(3, DType::I32, &case.output().unwrap()));
            let data = [random_ints(x_type, inputs[0].elems(), 128, 3), random_ints(w_type, inputs[1].elems(), 128, 4)];
            let zeros = [if x_type == DType::U8 { 200 } else { -7 }, if w_type == DType::U8 { 130 } else { 5 }];
            let prim = ProductKind::IntegerConv { conv: case.attributes(), zeros }.into();
            let elems = output.elems();
            check_on(&TARGETS, &step(prim, inputs, vec![output]), &data, &[elems], 0.0);
        }
    }
    for rows in [1, 30] {
        for k in [70, 64] {
            let inputs = vec![dense(0, DType::U8, &[1, rows, k]), dense(1, DType::I8, &[1, k, 40])];
            let data = [random_ints(DType::U8, rows * k, 256, 3), random_ints(DType::I8, k * 40, 128, 4)];
            let prim = ProductKind::IntegerMatMul { zeros: [255, -128] }.into();
            let output = dense(2, DType::I32, &[1, rows, 40]);
            check_on(&TARGETS, &step(prim, inputs, vec![output]), &data, &[rows * 40], 0.0);
        }
    }
}
