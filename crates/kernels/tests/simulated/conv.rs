//! Tests convolutions in the simulator.

use graph::prim::{Conv, ProductKind};
use graph::shape::dense_strides;
use graph::{DType, Prim, Tensor, View};

use crate::common::{check_on, dense, random, random_ints, step, strided};

const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];

/// A convolution to test.
#[derive(Clone, Debug)]
struct Case {
    transposed: bool,
    images: usize,
    /// The channels of the input and the output.
    channels: [usize; 2],
    groups: usize,
    input: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    /// Padding before and after each axis.
    pads: Vec<[isize; 2]>,
    bias: bool,
    /// Channels are innermost.
    turned: bool,
}

impl Case {
    fn new(channels: [usize; 2], input: &[usize], kernel: &[usize]) -> Self {
        let axes = input.len();
        Self {
            transposed: false,
            images: 2,
            channels,
            groups: 1,
            input: input.to_vec(),
            kernel: kernel.to_vec(),
            strides: vec![1; axes],
            dilations: vec![1; axes],
            pads: vec![[0, 0]; axes],
            bias: true,
            turned: false,
        }
    }

    fn output(&self) -> Vec<usize> {
        (0..self.input.len())
            .map(|axis| {
                let reach = (self.dilations[axis] * (self.kernel[axis] - 1)) as isize;
                let pads = self.pads[axis][0] + self.pads[axis][1];
                let (input, stride) = (self.input[axis] as isize, self.strides[axis] as isize);
                let extent = if self.transposed {
                    (input - 1) * stride + reach + 1 - pads
                } else {
                    (input + pads - reach - 1) / stride + 1
                };
                extent as usize
            })
            .collect()
    }

    fn conv(&self) -> Conv {
        Conv {
            strides: self.strides.iter().copied().collect(),
            pads: self.pads.iter().map(|pad| pad[0]).collect(),
            dilations: self.dilations.iter().copied().collect(),
            groups: self.groups,
            bias: self.bias,
        }
    }

    fn prim(&self) -> Prim {
        let kind = if self.transposed { ProductKind::ConvTranspose } else { ProductKind::Conv };
        kind(self.conv()).into()
    }

    /// The views of input, weights, bias and output.
    fn views(&self, dtype: DType, sum: DType) -> (Vec<View>, View) {
        let [from, to] = self.channels;
        let w = if self.transposed { [from, to / self.groups] } else { [to, from / self.groups] };
        let image = |buffer, dtype, channels: usize, spatial: &[usize]| {
            let shape: Vec<usize> = [self.images, channels].into_iter().chain(spatial.iter().copied()).collect();
            if !self.turned {
                return dense(buffer, dtype, &shape);
            }
            let last: Vec<usize> =
                std::iter::once(self.images).chain(spatial.iter().copied()).chain(std::iter::once(channels)).collect();
            let mut strides = dense_strides(&last).to_vec();
            let channel = strides.pop().unwrap_or(1);
            strides.insert(1, channel);
            strided(buffer, dtype, &shape, &strides, 0)
        };
        let kernel: Vec<usize> = w.into_iter().chain(self.kernel.iter().copied()).collect();
        let mut inputs = vec![image(0, dtype, from, &self.input), dense(1, dtype, &kernel)];
        if self.bias {
            inputs.push(dense(2, sum, &[to]));
        }
        (inputs, image(3, sum, to, &self.output()))
    }

    fn check(&self, dtype: DType, relative: f64) {
        let sum = if dtype.bytes() == 1 { DType::I32 } else { dtype };
        let (inputs, output) = self.views(dtype, sum);
        let values = |view: &View, seed: u64| -> Tensor {
            if dtype.is_float() {
                random(view.dtype, view.elems(), seed)
            } else {
                random_ints(view.dtype, view.elems(), 50, seed)
            }
        };
        let data: Vec<Tensor> = inputs.iter().zip(3..).map(|(view, seed)| values(view, seed)).collect();
        let elems = output.elems();
        check_on(&TARGETS, &step(self.prim(), inputs, vec![output]), &data, &[elems], relative);
    }
}

#[test]
fn one_two_and_three_axes() {
    for turned in [false, true] {
        for (dtype, relative) in [(DType::F32, 3e-5), (DType::F16, 4e-3), (DType::Bf16, 4e-2)] {
            let line = Case { pads: vec![[2, 1]], strides: vec![2], turned, ..Case::new([5, 20], &[23], &[4]) };
            line.check(dtype, relative);
            let plane = Case {
                pads: vec![[1, 1], [0, 2]],
                dilations: vec![1, 2],
                turned,
                ..Case::new([8, 17], &[9, 10], &[3, 3])
            };
            plane.check(dtype, relative);
        }
        let room = Case { pads: vec![[1, 1]; 3], turned, bias: false, ..Case::new([4, 12], &[4, 5, 6], &[2, 3, 2]) };
        room.check(DType::F32, 3e-5);
    }
}

#[test]
fn pads_crop_and_strides_skip() {
    let case = Case { pads: vec![[-1, 2], [3, -2]], strides: vec![2, 3], ..Case::new([6, 16], &[11, 13], &[3, 2]) };
    case.check(DType::F32, 3e-5);
    case.check(DType::F16, 4e-3);
}

#[test]
fn groups_and_depthwise() {
    for turned in [false, true] {
        for (channels, groups) in [([32, 48], 2), ([12, 12], 12), ([6, 12], 6), ([8, 8], 2)] {
            let case = Case {
                groups,
                pads: vec![[1, 1]; 2],
                strides: vec![1, 2],
                turned,
                ..Case::new(channels, &[7, 9], &[3, 3])
            };
            case.check(DType::F32, 3e-5);
            case.check(DType::F16, 4e-3);
        }
    }
}

#[test]
fn one_tap_is_a_product_of_matrices() {
    for turned in [false, true] {
        for groups in [1, 2] {
            let case = Case { groups, turned, ..Case::new([40, 36], &[5, 8], &[1, 1]) };
            case.check(DType::F32, 3e-5);
            case.check(DType::F16, 4e-3);
        }
    }
}

#[test]
fn a_deep_convolution_is_split() {
    let case = Case { pads: vec![[1, 1]; 2], images: 1, ..Case::new([64, 24], &[4, 4], &[3, 3]) };
    case.check(DType::F32, 5e-5);
    case.check(DType::F16, 1e-2);
}

#[test]
fn transposed_by_phases() {
    for turned in [false, true] {
        for (strides, dilations, kernel) in
            [([1, 1], [1, 1], [3, 3]), ([2, 3], [1, 1], [4, 2]), ([2, 2], [2, 3], [3, 3]), ([4, 1], [6, 1], [3, 1])]
        {
            for (channels, groups) in [([8, 20], 1), ([6, 6], 6)] {
                let case = Case {
                    transposed: true,
                    groups,
                    strides: strides.to_vec(),
                    dilations: dilations.to_vec(),
                    pads: vec![[1, 0], [0, 1]],
                    turned,
                    ..Case::new(channels, &[5, 4], &kernel)
                };
                case.check(DType::F32, 3e-5);
            }
        }
    }
    let case = Case { transposed: true, strides: vec![2, 2], ..Case::new([16, 24], &[5, 4], &[4, 4]) };
    case.check(DType::F16, 4e-3);
}

#[test]
fn bytes_less_their_zero_points() {
    for (groups, channels) in [(1, [7, 18]), (9, [9, 9])] {
        for (x_type, w_type) in [(DType::U8, DType::I8), (DType::I8, DType::U8), (DType::U8, DType::U8)] {
            let case = Case { groups, bias: false, pads: vec![[1, 1]; 2], ..Case::new(channels, &[6, 7], &[3, 3]) };
            let (mut inputs, output) = case.views(x_type, DType::I32);
            inputs[1].dtype = w_type;
            let data = [random_ints(x_type, inputs[0].elems(), 128, 3), random_ints(w_type, inputs[1].elems(), 128, 4)];
            let zeros = [if x_type == DType::U8 { 200 } else { -7 }, if w_type == DType::U8 { 130 } else { 5 }];
            let prim = ProductKind::IntegerConv { conv: case.conv(), zeros }.into();
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
