//! Compares convolutions with loops in double precision.
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;
use testkit::ops::conv::Convolution;

use crate::array::Array;
use crate::chain::Chain;
use crate::common::{Case, assert_close, numbers, tensor};

#[derive(Clone, Debug)]
struct Window {
    strides: Vec<usize>,
    dilations: Vec<usize>,
    /// Padding before each axis, then after each.
    pads: Vec<i64>,
    groups: usize,
}

impl Window {
    fn plain(rank: usize) -> Self {
        Self { strides: vec![1; rank], dilations: vec![1; rank], pads: vec![0; 2 * rank], groups: 1 }
    }

    fn attributes(&self) -> [(&'static str, Attribute); 4] {
        let ints = |list: &[usize]| Attribute::Ints(list.iter().map(|&value| value as i64).collect());
        [
            ("strides", ints(&self.strides)),
            ("dilations", ints(&self.dilations)),
            ("pads", Attribute::Ints(self.pads.clone())),
            ("group", Attribute::Int(self.groups as i64)),
        ]
    }

    fn on(&self, case: Case) -> Case {
        self.attributes().into_iter().fold(case, |case, (name, value)| case.attribute(name, value))
    }

    /// The convolution of x `[n, c, …]` with w, by its definition.
    fn of(&self, transposed: bool, x: &Array, w: &Array, bias: Option<&Array>) -> Convolution {
        let rank = self.strides.len();
        let channels = if transposed { w.shape[1] * self.groups } else { w.shape[0] };
        Convolution {
            transposed,
            images: x.shape[0],
            channels: [x.shape[1], channels],
            groups: self.groups,
            input: x.shape[2..].to_vec(),
            kernel: w.shape[2..].to_vec(),
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            pads: (0..rank).map(|axis| [self.pads[axis] as isize, self.pads[rank + axis] as isize]).collect(),
            bias: bias.is_some(),
        }
    }
}

fn result(case: &Convolution, x: &Array, w: &Array, bias: Option<&Array>) -> Array {
    let values: Vec<Vec<f64>> = [Some(x), Some(w), bias].into_iter().flatten().map(|of| of.values.clone()).collect();
    Array { shape: case.output().unwrap(), values: case.expected(&values) }
}

/// x `[n, c, …]` convolved with w `[m, c / groups, …]`.
fn convolution(x: &Array, w: &Array, bias: Option<&Array>, window: &Window) -> Array {
    result(&window.of(false, x, w, bias), x, w, bias)
}

/// x `[n, c, …]` scattered by w `[c, m / groups, …]` into an output with these spatial extents.
fn transposed(x: &Array, w: &Array, bias: Option<&Array>, window: &Window, spatial: &[usize]) -> Array {
    let mut case = window.of(true, x, w, bias);
    // The rest of each extent is padding at the end.
    let all =
        Convolution { pads: case.pads.iter().map(|pads| [pads[0], 0]).collect(), ..case.clone() }.output().unwrap();
    for (axis, pads) in case.pads.iter_mut().enumerate() {
        pads[1] = all[2 + axis] as isize - spatial[axis] as isize;
    }
    result(&case, x, w, bias)
}

fn check(x: &[usize], w: &[usize], window: &Window, dtype: DType, tolerance: f64) {
    let (x, w) = (Array::random(dtype, x, 1), Array::random(dtype, w, 2));
    let bias = Array::random(dtype, &w.shape[..1], 3);
    for bias in [None, Some(&bias)] {
        let mut inputs = vec![x.tensor(dtype), w.tensor(dtype)];
        inputs.extend(bias.map(|bias| bias.tensor(dtype)));
        let found = window.on(Case::new("Conv", 11, inputs, &[dtype])).run().unwrap();
        let wanted = convolution(&x, &w, bias, window);
        assert_eq!(found[0].shape(), wanted.shape);
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    }
}

#[test]
fn one_two_and_three_axes_in_every_type() {
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12), (DType::F16, 1e-2)] {
        check(&[2, 3, 11], &[4, 3, 3], &Window::plain(1), dtype, tolerance);
        check(&[2, 3, 7, 9], &[4, 3, 3, 2], &Window::plain(2), dtype, tolerance);
        check(&[1, 2, 5, 6, 4], &[3, 2, 2, 3, 2], &Window::plain(3), dtype, tolerance);
        check(&[2, 8, 5, 5], &[6, 8, 1, 1], &Window::plain(2), dtype, tolerance);
    }
}

#[test]
fn groups_down_to_single_channels() {
    for (groups, maps) in [(2, 4), (4, 4), (4, 8)] {
        let window = Window { pads: vec![1; 4], groups, ..Window::plain(2) };
        check(&[2, 4, 6, 5], &[maps, 4 / groups, 3, 3], &window, DType::F32, 2e-5);
    }
}

#[test]
fn automatic_padding_equals_the_explicit_one() {
    for (mode, pads) in [("SAME_UPPER", vec![0, 1, 1, 1]), ("SAME_LOWER", vec![1, 1, 0, 1]), ("VALID", vec![0; 4])] {
        let (x, w) = (Array::random(DType::F32, &[1, 2, 6, 5], 1), Array::random(DType::F32, &[3, 2, 3, 3], 2));
        let window = Window { strides: vec![2, 2], pads, ..Window::plain(2) };
        let case = Case::new("Conv", 11, vec![x.tensor(DType::F32), w.tensor(DType::F32)], &[DType::F32])
            .attribute("strides", Attribute::Ints(vec![2, 2]))
            .attribute("auto_pad", Attribute::Text(mode.to_owned()));
        let wanted = convolution(&x, &w, None, &window);
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape, "{mode}");
        assert_close(&numbers(&found[0]), &wanted.values, 2e-5);
    }
}

#[test]
fn transposed_convolutions_scatter_what_convolutions_gather() {
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12)] {
        for (x, w, window, extra) in [
            (&[2, 3, 5][..], &[3, 2, 3][..], Window::plain(1), vec![0]),
            (&[1, 2, 3, 4], &[2, 3, 3, 2], Window { strides: vec![3, 2], ..Window::plain(2) }, vec![0, 0]),
            (
                &[1, 4, 3, 3],
                &[4, 1, 3, 3],
                Window { strides: vec![2, 2], pads: vec![1, 0, 1, 1], groups: 2, ..Window::plain(2) },
                vec![1, 0],
            ),
            (&[1, 1, 3, 3], &[1, 1, 2, 2], Window { dilations: vec![2, 2], ..Window::plain(2) }, vec![0, 0]),
            (&[1, 2, 2, 3, 2], &[2, 2, 2, 2, 3], Window { strides: vec![1, 2, 1], ..Window::plain(3) }, vec![0, 1, 0]),
        ] {
            let (x, w) = (Array::random(dtype, x, 1), Array::random(dtype, w, 2));
            let bias = Array::random(dtype, &[w.shape[1] * window.groups], 3);
            let rank = x.shape.len() - 2;
            let spatial: Vec<usize> = (0..rank)
                .map(|axis| {
                    let reach = (w.shape[axis + 2] - 1) * window.dilations[axis] + 1;
                    let whole = (x.shape[axis + 2] - 1) * window.strides[axis] + reach + extra[axis];
                    (whole as i64 - window.pads[axis] - window.pads[rank + axis]) as usize
                })
                .collect();
            let inputs = || vec![x.tensor(dtype), w.tensor(dtype), bias.tensor(dtype)];
            let mut dynamic = Case::new("ConvTransposeWithDynamicPads", 1, inputs(), &[dtype]);
            dynamic.domain = "com.microsoft";
            dynamic.inputs.insert(2, Some(Tensor::from_i64s(&window.pads)));
            dynamic.constants = vec![2];
            // The padding is an input of the second one, so it has no such attribute.
            let unpadded = Window { pads: vec![0; 2 * rank], ..window.clone() };
            let plain = window.on(Case::new("ConvTranspose", 11, inputs(), &[dtype]));
            for case in [plain, unpadded.on(dynamic)] {
                let extra = Attribute::Ints(extra.iter().map(|&extra| extra as i64).collect());
                let found = case.attribute("output_padding", extra).run().unwrap();
                let wanted = transposed(&x, &w, Some(&bias), &window, &spatial);
                assert_eq!(found[0].shape(), wanted.shape);
                assert_close(&numbers(&found[0]), &wanted.values, tolerance);
            }
        }
    }
}

#[test]
fn an_output_shape_decides_the_padding() {
    let (x, w) = (Array::random(DType::F32, &[1, 1, 3, 3], 1), Array::random(DType::F32, &[1, 2, 3, 3], 2));
    for (shape, front) in [([10, 8], [0, 0]), ([6, 6], [2, 1])] {
        let inputs = vec![x.tensor(DType::F32), w.tensor(DType::F32)];
        let case = Case::new("ConvTranspose", 11, inputs, &[DType::F32])
            .attribute("strides", Attribute::Ints(vec![3, 2]))
            .attribute("output_shape", Attribute::Ints(shape.iter().map(|&extent| extent as i64).collect()));
        let pads = vec![front[0], front[1], 0, 0];
        let window = Window { strides: vec![3, 2], pads, ..Window::plain(2) };
        let wanted = transposed(&x, &w, None, &window, &shape);
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape);
        assert_close(&numbers(&found[0]), &wanted.values, 2e-5);
    }
}

#[test]
fn integer_convolutions_pad_with_the_zero_point() {
    let (x, w) = (Array::random(DType::U8, &[1, 2, 5, 5], 1), Array::random(DType::I8, &[3, 2, 3, 3], 2));
    let (x_zero, w_zero) = (tensor(DType::U8, &[], &[7.0]), Array::random(DType::I8, &[3], 3));
    let window = Window { pads: vec![1; 4], ..Window::plain(2) };
    let inputs = vec![x.tensor(DType::U8), w.tensor(DType::I8), x_zero, w_zero.tensor(DType::I8)];
    let found = window.on(Case::new("ConvInteger", 10, inputs, &[DType::I32])).run().unwrap();
    let x = Array::of(&x.shape, |index| x.at(index) - 7.0);
    let w = Array::of(&w.shape, |index| w.at(index) - w_zero.at(&index[..1]));
    assert_eq!(numbers(&found[0]), convolution(&x, &w, None, &window).values);
}

#[test]
fn quantised_convolutions_scale_each_channel_round_and_saturate() {
    let (x, w) = (Array::random(DType::U8, &[1, 2, 5, 5], 1), Array::random(DType::I8, &[3, 2, 3, 3], 2));
    let bias = Array::random(DType::I32, &[3], 4);
    let scales = [0.5, 0.25, 2.0];
    let one = |dtype: DType, value: f64| tensor(dtype, &[], &[value]);
    let inputs = vec![
        x.tensor(DType::U8),
        one(DType::F32, 0.125),
        one(DType::U8, 7.0),
        w.tensor(DType::I8),
        tensor(DType::F32, &[3], &scales),
        one(DType::I8, 1.0),
        one(DType::F32, 2.0),
        one(DType::U8, 100.0),
        bias.tensor(DType::I32),
    ];
    let window = Window { pads: vec![1; 4], ..Window::plain(2) };
    let found = window.on(Case::new("QLinearConv", 10, inputs, &[DType::U8])).run().unwrap();
    let x = Array::of(&x.shape, |index| x.at(index) - 7.0);
    let w = Array::of(&w.shape, |index| w.at(index) - 1.0);
    let sums = convolution(&x, &w, Some(&bias), &window);
    // The scales are powers of two, so that single precision loses nothing before rounding.
    let wanted = Array::of(&sums.shape, |index| {
        ((sums.at(index) * 0.125 * scales[index[1]] / 2.0).round_ties_even() + 100.0).clamp(0.0, 255.0)
    });
    assert_eq!(numbers(&found[0]), wanted.values);
}

/// Image, weights, strides and pads.
type Tiled = ([usize; 4], [usize; 4], [usize; 2], [i64; 4]);

/// Shapes for every tile of the kernel for channels-last images: whole and partial tiles, steps within a tap and across
/// taps, a split depth, and few channels.
const TILED: [Tiled; 12] = [
    ([1, 16, 9, 7], [24, 16, 3, 3], [1, 1], [1; 4]),
    ([2, 8, 12, 11], [72, 8, 3, 3], [2, 2], [1; 4]),
    ([3, 8, 10, 10], [136, 8, 3, 3], [1, 1], [1; 4]),
    ([4, 16, 10, 10], [64, 16, 3, 3], [1, 1], [1; 4]),
    ([1, 96, 5, 5], [40, 96, 3, 3], [1, 1], [1; 4]),
    ([2, 24, 9, 8], [16, 24, 1, 3], [2, 1], [0, 2, 1, 0]),
    ([2, 40, 7, 9], [48, 40, 1, 1], [1, 1], [0; 4]),
    ([1, 32, 9, 9], [16, 32, 1, 1], [2, 2], [0; 4]),
    ([2, 3, 17, 19], [16, 3, 7, 7], [2, 2], [3; 4]),
    ([1, 12, 8, 6], [72, 12, 3, 3], [1, 1], [1, 0, 0, 2]),
    ([5, 20, 10, 10], [32, 20, 3, 3], [1, 1], [1; 4]),
    ([2, 64, 6, 6], [64, 64, 3, 3], [1, 1], [-1, 1, 1, 1]),
];

/// A convolution of an image that another step makes, which devices may lay out as they like.
fn check_inside(x: &[usize], w: &[usize], window: &Window, dtype: DType, tolerance: f64) {
    let (x, w) = (Array::random(dtype, x, 1), Array::random(dtype, w, 2));
    let bias = Array::random(dtype, &w.shape[..1], 3);
    let negative = Array::of(&x.shape, |at| -x.at(at));
    let sums = convolution(&negative, &w, Some(&bias), window);
    let (residual, scale) = (Array::random(dtype, &sums.shape, 4), Array::random(dtype, &[w.shape[0], 1, 1], 5));
    for is_fused in [false, true] {
        let mut chain = Chain::default();
        let constants = [&w, &bias, &scale].map(|array| chain.constant(array.tensor(dtype)));
        let inputs = [&x, &residual].map(|array| chain.input(array.tensor(dtype)));
        let image = chain.node("Neg", &inputs[..1], dtype);
        let made = chain.node_with("Conv", &window.attributes(), &[image, constants[0], constants[1]], dtype);
        if !is_fused {
            let (_, found) = chain.run(&[made]);
            assert_close(&numbers(&found[0]), &sums.values, tolerance);
            continue;
        }
        let scaled = chain.node("Mul", &[made, constants[2]], dtype);
        let sum = chain.node("Add", &[scaled, inputs[1]], dtype);
        let out = chain.node("Relu", &[sum], dtype);
        let (_, found) = chain.run(&[out]);
        let wanted = Array::of(&sums.shape, |at| (sums.at(at) * scale.at(&at[1..]) + residual.at(at)).max(0.0));
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    }
}

#[test]
fn images_in_half_precision_are_multiplied_in_tiles() {
    for (x, w, strides, pads) in TILED {
        let window = Window { strides: strides.to_vec(), pads: pads.to_vec(), ..Window::plain(2) };
        check_inside(&x, &w, &window, DType::F16, 1e-2);
    }
    let dilated = Window { dilations: vec![2, 3], pads: vec![2, 3, 2, 3], ..Window::plain(2) };
    check_inside(&[1, 16, 8, 9], &[24, 16, 3, 3], &dilated, DType::F16, 1e-2);
}

#[test]
fn images_of_other_types_and_in_groups_are_multiplied_too() {
    let padded = Window { pads: vec![1; 4], ..Window::plain(2) };
    for channels in [5, 16] {
        check_inside(&[1, channels, 8, 9], &[24, channels, 3, 3], &padded, DType::Bf16, 5e-2);
        check_inside(&[1, channels, 8, 9], &[24, channels, 3, 3], &padded, DType::F32, 2e-5);
    }
    // Only convolutions of one group choose the layout; those with groups take what they get.
    for groups in [2, 24] {
        let dtype = DType::F32;
        let (x, w) = (Array::random(dtype, &[2, 8, 7, 6], 1), Array::random(dtype, &[24, 8, 1, 1], 2));
        let grouped = Window { groups, ..padded.clone() };
        let second = Array::random(dtype, &[48, 24 / groups, 3, 3], 3);
        let mut chain = Chain::default();
        let constants = [&w, &second].map(|array| chain.constant(array.tensor(dtype)));
        let input = chain.input(x.tensor(dtype));
        let first = chain.node_with("Conv", &Window::plain(2).attributes(), &[input, constants[0]], dtype);
        let out = chain.node_with("Conv", &grouped.attributes(), &[first, constants[1]], dtype);
        let (_, found) = chain.run(&[out]);
        let wanted = convolution(&convolution(&x, &w, None, &Window::plain(2)), &second, None, &grouped);
        // Terms of the second sums are up to 100 times as large as some of these.
        assert_close(&numbers(&found[0]), &wanted.values, 1e-4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn random_windows_agree_with_the_loops(
        extents in prop::collection::vec(4usize..10, 1..3), kernel in 1usize..4, stride in 1usize..4,
        dilation in 1usize..3, front in 0i64..3, back in 0i64..3, groups in 1usize..3, channels in 1usize..3,
    ) {
        let rank = extents.len();
        prop_assume!(extents.iter().all(|&extent| extent as i64 + front + back > ((kernel - 1) * dilation) as i64));
        let mut pads = vec![front; rank];
        pads.resize(2 * rank, back);
        let window = Window { strides: vec![stride; rank], dilations: vec![dilation; rank], pads, groups };
        let x = [&[2, channels * groups], &extents[..]].concat();
        let w = [&[2 * groups, channels], &vec![kernel; rank][..]].concat();
        check(&x, &w, &window, DType::F32, 2e-5);
    }
}
