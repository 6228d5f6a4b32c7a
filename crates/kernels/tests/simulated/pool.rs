//! Tests pooling in the simulator.

use graph::prim::PoolKind;
use graph::{DType, Scalar, Tensor, View};
use testkit::ops::pool::{Pooling, Window};
use testkit::ops::{Sample, channels_last, room};

use crate::common::{TARGETS, check, check_numbers, dense, random, random_ints, step, strided};

const MAX: PoolKind = PoolKind::Max { column_major: false };
const KINDS: [PoolKind; 6] = [
    MAX,
    PoolKind::Average { count_pad: false },
    PoolKind::Average { count_pad: true },
    PoolKind::Lp { p: 1.0 },
    PoolKind::Lp { p: 2.0 },
    PoolKind::Lp { p: 3.0 },
];

/// A window: kernel, stride, dilation, padding before and after.
fn window((kernel, stride, dilation, before, behind): (usize, usize, usize, isize, isize)) -> Window {
    Window { kernel, stride, dilation, pads: [before, behind] }
}

/// Compares a pool with loops in double precision, or with the host where results are not defined.
fn check_pool(kind: PoolKind, x: View, windows: &[Window], y: impl Fn(&[usize]) -> View, with_index: bool) {
    let case = Pooling::new(kind, &x.shape, windows);
    let shape = case.output().unwrap();
    let dtype = x.dtype;
    let relative = match dtype {
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        DType::F64 => 1e-12,
        _ => 2e-6,
    };
    let count = room(&x);
    let buffer = if dtype.is_float() { random(dtype, count, 3) } else { random_ints(dtype, count, 100, 3) };
    let mut outputs = vec![y(&shape)];
    outputs.extend(with_index.then(|| dense(2, DType::I64, &shape)));
    let sample = Sample::new(case.prim(), vec![(x, buffer)], outputs);
    match case.expected(&sample.values()[0]) {
        Some(expected) => check_numbers(&TARGETS, &sample, &expected[..1 + usize::from(with_index)], relative),
        None => check(&sample.step, &sample.inputs, &sample.rooms(), relative),
    }
}

#[test]
fn every_kind_over_two_axes() {
    let windows = [(3, 2, 1, 1, 1), (2, 1, 2, 0, 2)].map(window);
    for kind in KINDS {
        check_pool(kind, dense(0, DType::F32, &[2, 3, 9, 8]), &windows, |y| dense(1, DType::F32, y), false);
    }
}

#[test]
fn every_type() {
    for dtype in [DType::F64, DType::F16, DType::Bf16, DType::I8, DType::U8, DType::I32, DType::I64] {
        let kinds: &[PoolKind] = if dtype.is_float() { &KINDS[..2] } else { &[MAX] };
        for &kind in kinds {
            check_pool(
                kind,
                dense(0, dtype, &[1, 3, 7, 7]),
                &[window((3, 2, 1, 1, 1)); 2],
                |y| dense(1, dtype, y),
                false,
            );
        }
    }
}

#[test]
fn one_and_three_axes() {
    for kind in KINDS {
        check_pool(
            kind,
            dense(0, DType::F32, &[2, 3, 11]),
            &[(4, 3, 1, 2, 1)].map(window),
            |y| dense(1, DType::F32, y),
            false,
        );
        let x = dense(0, DType::F32, &[1, 2, 5, 4, 6]);
        check_pool(
            kind,
            x,
            &[(2, 2, 1, 0, 1), (3, 1, 1, 1, 1), (2, 3, 2, 1, 0)].map(window),
            |y| dense(1, DType::F32, y),
            false,
        );
    }
}

#[test]
fn positions_of_maxima() {
    for column_major in [false, true] {
        let kind = PoolKind::Max { column_major };
        let windows = [(3, 2, 1, 1, 1), (2, 2, 2, 1, 1)].map(window);
        check_pool(kind, dense(0, DType::F32, &[2, 3, 7, 9]), &windows, |y| dense(1, DType::F32, y), true);
        let x = dense(0, DType::U8, &[1, 2, 4, 5, 6]);
        check_pool(kind, x, &[window((2, 2, 1, 0, 0)); 3], |y| dense(1, DType::U8, y), true);
    }
}

#[test]
fn channels_innermost() {
    for (dtype, channels) in [(DType::F16, 16), (DType::F32, 12), (DType::F32, 5), (DType::F16, 2)] {
        let shape = [2, channels, 9, 8];
        for kind in &KINDS[..2] {
            let x = channels_last(0, dtype, &shape);
            check_pool(*kind, x.clone(), &[window((3, 2, 1, 1, 1)); 2], |y| channels_last(1, dtype, y), false);
            check_pool(*kind, x, &[window((3, 2, 1, 1, 1)); 2], |y| dense(1, dtype, y), false);
        }
    }
}

/// Enough elements that each thread computes a run of rows; the runs do not end together.
#[test]
fn square_windows_of_many_elements() {
    let windows = [(3, 2, 1, 1, 1), (2, 2, 1, 0, 0), (3, 1, 1, 1, 1), (2, 1, 1, 1, 2)].map(window);
    for (number, window) in windows.into_iter().enumerate() {
        for (kind, dtype) in [(MAX, DType::F16), (KINDS[1 + number % 2], DType::F32), (MAX, DType::I8)] {
            let x = dense(0, dtype, &[2, 50, 27, 31]);
            check_pool(kind, x, &[window; 2], |y| dense(1, dtype, y), false);
        }
    }
    // Rows of complete pairs, with some windows that start between them.
    for (number, window) in windows.into_iter().enumerate() {
        for (kind, dtype) in [(MAX, DType::F16), (KINDS[1 + number % 2], DType::Bf16)] {
            let x = strided(0, dtype, &[2, 70, 27, 32], &[70 * 27 * 34, 27 * 34, 34, 1], 0);
            check_pool(kind, x, &[window; 2], |y| dense(1, dtype, y), false);
        }
    }
    // Rows of x are not contiguous, and the channels of y are innermost.
    let x = strided(0, DType::F32, &[3, 40, 27, 31], &[40 * 900, 900, 33, 1], 0);
    check_pool(MAX, x.clone(), &[window((3, 2, 1, 1, 1)); 2], |y| dense(1, DType::F32, y), false);
    check_pool(MAX, x, &[window((3, 2, 1, 1, 1)); 2], |y| channels_last(1, DType::F32, y), false);
}

#[test]
fn nan_never_wins() {
    let numbers = (0..81).map(|at| Scalar::Float(if at % 2 == 0 || at < 30 { f64::NAN } else { f64::from(at) - 60.0 }));
    let x = Tensor::from_scalars(DType::F32, &[81], numbers).unwrap();
    for window in [(3, 2, 1, 1, 1), (2, 1, 1, 0, 0)].map(window) {
        let case = Pooling::new(MAX, &[1, 1, 9, 9], &[window; 2]);
        let y = dense(1, DType::F32, &case.output().unwrap());
        let elems = y.elems();
        let step = step(case.prim(), vec![dense(0, DType::F32, &case.input)], vec![y]);
        check(&step, std::slice::from_ref(&x), &[elems], 0.0);
    }
}

#[test]
fn windows_in_the_padding() {
    for kind in &KINDS[..5] {
        check_pool(
            *kind,
            dense(0, DType::F32, &[1, 1, 3, 3]),
            &[window((2, 1, 1, 2, 3)); 2],
            |y| dense(1, DType::F32, y),
            false,
        );
    }
    check_pool(
        MAX,
        dense(0, DType::I32, &[1, 1, 3, 3]),
        &[window((2, 1, 1, 2, 3)); 2],
        |y| dense(1, DType::I32, y),
        true,
    );
}
