//! Convolutions and their transposes against loops over every tap in double precision.
use graph::DType;
use proptest::prelude::*;
use testkit::ops::conv::{self, Convolution};
use testkit::ops::{Arrangement, Sample, dense};

use crate::common::{self, arrangement, error, laid};

/// Runs a convolution, if it has an output that is not too large.
fn check(case: &Convolution, dtypes: [DType; 2], layouts: [Arrangement; 3], seed: u64) {
    let Some(output) = case.output().filter(|output| output[2..].iter().all(|&extent| extent < 60)) else { return };
    let sum = if dtypes[0].bytes() == 1 { DType::I32 } else { dtypes[0] };
    let dtypes = [dtypes[0], dtypes[1], sum];
    let operands = case.inputs().into_iter().zip(dtypes).zip([layouts[0], layouts[1], dense]);
    let inputs = (0..)
        .zip(operands)
        .map(|(number, ((shape, dtype), layout))| laid(layout(number, dtype, &shape), seed + u64::from(number)));
    let sample = Sample::new(case.prim(), inputs.collect(), vec![layouts[2](3, sum, &output)]);
    let terms = case.channels[0] / case.groups * case.kernel.iter().product::<usize>();
    common::check(&sample, &[case.expected(&sample.values())], error(sum) * 4.0 * (terms as f64).sqrt(), case);
}

fn case() -> impl Strategy<Value = Convolution> {
    let axis = (1usize..8, 1usize..4, 1usize..4, 1usize..3, -1isize..3, -1isize..3);
    let counts = (1usize..3, 1usize..4, 1usize..4, 1usize..5);
    (counts, prop::collection::vec(axis, 1..4), any::<bool>()).prop_map(|((images, groups, from, to), axes, bias)| {
        Convolution {
            transposed: false,
            images,
            channels: [from * groups, to * groups],
            groups,
            input: axes.iter().map(|axis| axis.0).collect(),
            kernel: axes.iter().map(|axis| axis.1).collect(),
            strides: axes.iter().map(|axis| axis.2).collect(),
            dilations: axes.iter().map(|axis| axis.3).collect(),
            pads: axes.iter().map(|axis| [axis.4, axis.5]).collect(),
            bias,
        }
    })
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F32, DType::F64, DType::F16, DType::I32])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_follow_the_definition(
        case in case(),
        dtype in dtype(),
        layouts in (arrangement(), arrangement(), arrangement()),
        seed in 0u64..1000,
    ) {
        check(&case, [dtype; 2], layouts.into(), seed);
    }

    #[test]
    fn transposed_convolutions_follow_the_definition(
        case in case(),
        dtype in dtype(),
        layouts in (arrangement(), arrangement(), arrangement()),
        seed in 0u64..1000,
    ) {
        check(&Convolution { transposed: true, ..case }, [dtype; 2], layouts.into(), seed);
    }
}

/// A single image with two equal axes.
fn plain(channels: [usize; 2], groups: usize, input: usize, kernel: usize, stride: usize, pad: isize) -> Convolution {
    Convolution {
        images: 1,
        groups,
        strides: vec![stride; 2],
        pads: vec![[pad; 2]; 2],
        ..Convolution::new(channels, &[input; 2], &[kernel; 2])
    }
}

fn check_dense(case: &Convolution) {
    check(case, [DType::F32; 2], [dense; 3], 1);
}

#[test]
fn deep_convolutions_are_split_into_blocks() {
    check_dense(&conv::deep());
    check_dense(&plain([40, 14], 1, 9, 3, 1, 1));
    check_dense(&Convolution { transposed: true, ..plain([40, 14], 1, 5, 3, 2, 1) });
}

#[test]
fn pointwise_convolutions_read_the_image_in_place() {
    conv::pointwise().iter().for_each(check_dense);
    check_dense(&plain([20, 30], 1, 9, 1, 1, 0));
    check_dense(&plain([10, 14], 2, 8, 1, 2, 0));
}

#[test]
fn depthwise_convolutions_process_each_channel_separately() {
    conv::grouped().iter().for_each(check_dense);
    for (stride, pad) in [(1, 1), (2, 1), (1, 0)] {
        check_dense(&plain([6, 6], 6, 13, 3, stride, pad));
        check_dense(&plain([3, 6], 3, 7, 5, stride, pad));
    }
}

#[test]
fn byte_products_are_summed_in_32_bits() {
    let case = Convolution { images: 1, bias: false, ..Convolution::new([2, 3], &[5, 5], &[2, 2]) };
    check(&case, [DType::U8, DType::I8], [dense; 3], 1);
}
