//! Convolutions and their transposes against loops over every tap in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::DType;
use graph::prim::{Conv, ProductKind};
use proptest::prelude::*;

use support::{Data, Layout, Out, assert_near, indices, run, tolerance};

/// The parameters of a case, with one entry per spatial axis in each list.
#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    images: usize,
    groups: usize,
    channels_in: usize,
    channels_out: usize,
    input: Vec<usize>,
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    pads: Vec<isize>,
    pads_end: Vec<isize>,
    bias: bool,
    layouts: [Layout; 3],
}

impl Case {
    fn prim(&self) -> Conv {
        Conv {
            strides: self.strides.iter().copied().collect(),
            pads: self.pads.iter().copied().collect(),
            dilations: self.dilations.iter().copied().collect(),
            groups: self.groups,
            bias: self.bias,
        }
    }

    /// The output's spatial extents, if all are positive.
    fn output(&self, transposed: bool) -> Option<Vec<usize>> {
        (0..self.input.len())
            .map(|axis| {
                let reach = ((self.kernel[axis] - 1) * self.dilations[axis] + 1) as isize;
                let pads = self.pads[axis] + self.pads_end[axis];
                let (input, stride) = (self.input[axis] as isize, self.strides[axis] as isize);
                let extent = if transposed {
                    (input - 1) * stride + reach - pads
                } else {
                    (input + pads - reach).div_euclid(stride) + 1
                };
                (extent > 0 && extent < 60).then_some(extent as usize)
            })
            .collect()
    }

    fn check(&self, transposed: bool, seed: u64) {
        let Some(output) = self.output(transposed) else { return };
        let (m, c) = (self.channels_out * self.groups, self.channels_in * self.groups);
        let join = |head: [usize; 2], tail: &[usize]| head.into_iter().chain(tail.iter().copied()).collect::<Vec<_>>();
        let x = Data::noise(self.dtype, &join([self.images, c], &self.input), seed).laid(self.layouts[0]);
        let w_head = if transposed { [c, self.channels_out] } else { [m, self.channels_in] };
        let w = Data::noise(self.dtype, &join(w_head, &self.kernel), seed + 1).laid(self.layouts[1]);
        let bias = Data::noise(self.dtype, &[m], seed + 2);
        let out_shape = join([self.images, m], &output);
        let mut inputs = vec![x.clone(), w.clone()];
        if self.bias {
            inputs.push(bias.clone());
        }
        let kind = if transposed { ProductKind::ConvTranspose } else { ProductKind::Conv };
        let prim = kind(self.prim()).into();
        let out = Out::new(self.dtype, &out_shape).laid(self.layouts[2]);
        let got = run(prim, &inputs, &[out]).unwrap();
        let mut want: Vec<f64> =
            indices(&out_shape).iter().map(|at| if self.bias { bias.values[at[1]] } else { 0.0 }).collect();
        let rows: Vec<usize> = graph::shape::dense_strides(&out_shape).iter().map(|&s| s as usize).collect();
        // Every pair of an input element and a tap, whichever output its product contributes to.
        let taps = indices(&self.kernel);
        for n in 0..self.images {
            for group in 0..self.groups {
                for channel_in in 0..self.channels_in {
                    for channel_out in 0..self.channels_out {
                        let (ci, co) = (group * self.channels_in + channel_in, group * self.channels_out + channel_out);
                        for tap in &taps {
                            let w_at = if transposed { [ci, channel_out] } else { [co, channel_in] };
                            let weight = w.at(&join(w_at, tap));
                            let place = |from: usize, to: usize, axis: usize| {
                                let reach = (to * self.strides[axis] + tap[axis] * self.dilations[axis]) as isize;
                                reach - self.pads[axis] == from as isize
                            };
                            for o in indices(&output) {
                                let i: Option<Vec<usize>> = (0..o.len())
                                    .map(|axis| {
                                        if transposed {
                                            (0..self.input[axis]).find(|&i| place(o[axis], i, axis))
                                        } else {
                                            (0..self.input[axis]).find(|&i| place(i, o[axis], axis))
                                        }
                                    })
                                    .collect();
                                if let Some(i) = i {
                                    let at = join([n, co], &o).iter().zip(&rows).map(|(a, b)| a * b).sum::<usize>();
                                    want[at] += weight * x.at(&join([n, ci], &i));
                                }
                            }
                        }
                    }
                }
            }
        }
        let scale = 4.0 * ((self.channels_in * self.kernel.iter().product::<usize>()) as f64).sqrt();
        assert_near(&got[0], &want, tolerance(self.dtype) * scale, self);
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    prop::sample::select(&Layout::ALL[..])
}

fn case() -> impl Strategy<Value = Case> {
    let axis = (1usize..8, 1usize..4, 1usize..4, 1usize..3, -1isize..3, -1isize..3);
    (
        (
            prop::sample::select(vec![DType::F32, DType::F32, DType::F64, DType::F16, DType::I32]),
            1usize..3,
            1usize..4,
            1usize..4,
            1usize..5,
        ),
        prop::collection::vec(axis, 1..4),
        any::<bool>(),
        (layout(), layout(), layout()),
    )
        .prop_map(|((dtype, images, groups, channels_in, channels_out), axes, bias, layouts)| Case {
            dtype,
            images,
            groups,
            channels_in,
            channels_out,
            input: axes.iter().map(|axis| axis.0).collect(),
            kernel: axes.iter().map(|axis| axis.1).collect(),
            strides: axes.iter().map(|axis| axis.2).collect(),
            dilations: axes.iter().map(|axis| axis.3).collect(),
            pads: axes.iter().map(|axis| axis.4).collect(),
            pads_end: axes.iter().map(|axis| axis.5).collect(),
            bias,
            layouts: layouts.into(),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn convolves_as_the_definition_says(case in case(), seed in 0u64..1000) {
        case.check(false, seed);
    }

    #[test]
    fn transposes_as_the_definition_says(case in case(), seed in 0u64..1000) {
        case.check(true, seed);
    }
}

/// A case with two equal axes, dense.
fn plain(groups: usize, channels: [usize; 2], input: usize, kernel: usize, stride: usize, pad: isize) -> Case {
    Case {
        dtype: DType::F32,
        images: 1,
        groups,
        channels_in: channels[0],
        channels_out: channels[1],
        input: vec![input; 2],
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        dilations: vec![1; 2],
        pads: vec![pad; 2],
        pads_end: vec![pad; 2],
        bias: true,
        layouts: [Layout::Dense; 3],
    }
}

#[test]
fn deep_convolutions_are_cut_into_blocks() {
    plain(1, [40, 14], 9, 3, 1, 1).check(false, 1);
    plain(1, [40, 14], 5, 3, 2, 1).check(true, 1);
}

#[test]
fn pointwise_convolutions_read_the_image_in_place() {
    plain(1, [20, 30], 9, 1, 1, 0).check(false, 1);
    plain(2, [5, 7], 8, 1, 2, 0).check(false, 1);
}

#[test]
fn depthwise_convolutions_take_each_channel_alone() {
    for (stride, pad) in [(1, 1), (2, 1), (1, 0)] {
        plain(6, [1, 1], 13, 3, stride, pad).check(false, 1);
        plain(3, [1, 2], 7, 5, stride, pad).check(false, 1);
    }
}

#[test]
fn bytes_are_added_up_in_32_bits() {
    let x = Data::noise(DType::U8, &[1, 2, 5, 5], 1);
    let w = Data::noise(DType::I8, &[3, 2, 2, 2], 2);
    let prim = Conv {
        strides: [1, 1].into_iter().collect(),
        pads: [0, 0].into_iter().collect(),
        dilations: [1, 1].into_iter().collect(),
        groups: 1,
        bias: false,
    };
    let got =
        run(ProductKind::Conv(prim).into(), &[x.clone(), w.clone()], &[Out::new(DType::I32, &[1, 3, 4, 4])]).unwrap();
    let want: Vec<f64> = indices(&[3, 4, 4])
        .iter()
        .map(|o| {
            let term = |t: &Vec<usize>| x.at(&[0, t[0], o[1] + t[1], o[2] + t[2]]) * w.at(&[o[0], t[0], t[1], t[2]]);
            indices(&[2, 2, 2]).iter().map(term).sum()
        })
        .collect();
    assert_near(&got[0], &want, 0.0, "");
}
