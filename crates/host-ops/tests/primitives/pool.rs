//! Pools against loops over every window.
use graph::DType;
use graph::prim::PoolKind;
use proptest::prelude::*;
use testkit::ops::pool::{Pooling, Window};
use testkit::ops::{Arrangement, Sample, dense, reversed};

use crate::common::{self, arrangement, error, laid};

/// Runs a pool, if its results are defined.
fn check(case: &Pooling, with_index: bool, dtype: DType, layouts: [Arrangement; 2], seed: u64) {
    let Some(output) = case.output() else { return };
    let mut outputs = vec![layouts[1](1, dtype, &output)];
    outputs.extend(with_index.then(|| layouts[1](2, DType::I64, &output)));
    let sample = Sample::new(case.prim(), vec![laid(layouts[0](0, dtype, &case.input), seed)], outputs);
    let Some(mut expected) = case.expected(&sample.values()[0]).map(Vec::from) else { return };
    expected.truncate(sample.step.outputs.len());
    common::check(&sample, &expected, error(dtype) * 4.0, case);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn pools_follow_the_definition(
        kind in prop::sample::select(vec![
            (PoolKind::Max { column_major: false }, false),
            (PoolKind::Max { column_major: false }, true),
            (PoolKind::Max { column_major: true }, true),
            (PoolKind::Average { count_pad: false }, false),
            (PoolKind::Average { count_pad: true }, false),
            (PoolKind::Lp { p: 1.0 }, false),
            (PoolKind::Lp { p: 2.0 }, false),
            (PoolKind::Lp { p: 3.0 }, false),
        ]),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16]),
        axes in prop::collection::vec((1usize..9, 1usize..4, 1usize..4, 1usize..3, 0isize..3, 0isize..3), 1..4),
        ceil in any::<bool>(),
        layouts in (arrangement(), arrangement()),
        seed in 0u64..1000,
    ) {
        let input: Vec<usize> = [2, 3].into_iter().chain(axes.iter().map(|axis| axis.0)).collect();
        let window = |axis: &(usize, usize, usize, usize, isize, isize)| {
            Window { kernel: axis.1, stride: axis.2, dilation: axis.3, pads: [axis.4, axis.5] }
        };
        let windows = axes.iter().map(window).collect();
        check(&Pooling { kind: kind.0, input, windows, ceil }, kind.1, dtype, layouts.into(), seed);
    }
}

#[test]
fn bytes_have_a_maximum() {
    let windows = [Window::new(3, 2, [1, 1]), Window::new(2, 1, [0, 0])];
    let case = Pooling::new(PoolKind::Max { column_major: false }, &[2, 3, 7, 6], &windows);
    for dtype in [DType::I8, DType::U8] {
        for with_index in [false, true] {
            check(&case, with_index, dtype, [dense; 2], 3);
        }
    }
}

#[test]
fn whole_planes_become_one_value() {
    let windows = [9, 11].map(|extent| Window::new(extent, 1, [0, 0]));
    for kind in [PoolKind::Max { column_major: false }, PoolKind::Average { count_pad: false }, PoolKind::Lp { p: 2.0 }]
    {
        let case = Pooling::new(kind, &[2, 3, 9, 11], &windows);
        check(&case, false, DType::F32, [dense; 2], 5);
        check(&case, false, DType::F32, [reversed; 2], 5);
    }
}
