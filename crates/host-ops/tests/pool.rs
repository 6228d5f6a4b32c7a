//! Pools against loops over every window.
#![allow(clippy::unwrap_used, clippy::panic)]
mod support;

use graph::prim::{Pool, PoolKind};
use graph::{DType, Prim};
use proptest::prelude::*;

use support::{Data, Layout, Out, assert_near, indices, run, tolerance};

/// Input, kernel, stride, dilation, padding before and after, of one axis.
type Axis = (usize, usize, usize, usize, isize, isize);

fn output(axes: &[Axis], ceil: bool) -> Option<Vec<usize>> {
    axes.iter()
        .map(|&(input, kernel, stride, dilation, before, behind)| {
            let room = input as isize + before + behind - ((kernel - 1) * dilation + 1) as isize;
            let stride = stride as isize;
            let steps = if ceil { (room + stride - 1).div_euclid(stride) } else { room.div_euclid(stride) };
            usize::try_from(room).ok().map(|_| steps as usize + 1)
        })
        .collect()
}

fn prim(kind: PoolKind, axes: &[Axis]) -> Pool {
    Pool {
        kind,
        kernel: axes.iter().map(|axis| axis.1).collect(),
        strides: axes.iter().map(|axis| axis.2).collect(),
        pads: axes.iter().map(|axis| axis.4).collect(),
        pads_end: axes.iter().map(|axis| axis.5).collect(),
        dilations: axes.iter().map(|axis| axis.3).collect(),
    }
}

fn check(kind: PoolKind, with_index: bool, dtype: DType, axes: &[Axis], ceil: bool, layouts: [Layout; 2], seed: u64) {
    let Some(output) = output(axes, ceil) else { return };
    let head = [2usize, 3];
    let join = |tail: &[usize]| head.iter().chain(tail).copied().collect::<Vec<_>>();
    let input: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
    let x = Data::noise(dtype, &join(&input), seed).laid(layouts[0]);
    let mut outs = vec![Out::new(dtype, &join(&output)).laid(layouts[1])];
    if with_index {
        outs.push(Out::new(DType::I64, &join(&output)).laid(layouts[1]));
    }
    let got = run(Prim::Pool(prim(kind, axes)), std::slice::from_ref(&x), &outs).unwrap();
    let (mut want, mut want_index) = (Vec::new(), Vec::new());
    for at in indices(&join(&output)) {
        let (mut best, mut best_at, mut sum, mut count) = (f64::NEG_INFINITY, 0, 0.0, 0);
        let (mut any, p) = (false, if let PoolKind::Lp { p } = kind { f64::from(p) } else { 1.0 });
        let kernel: Vec<usize> = axes.iter().map(|axis| axis.1).collect();
        for tap in indices(&kernel) {
            let place: Vec<isize> =
                (0..axes.len()).map(|a| (at[2 + a] * axes[a].2 + tap[a] * axes[a].3) as isize - axes[a].4).collect();
            let inside = place.iter().zip(&input).all(|(&i, &extent)| i >= 0 && i < extent as isize);
            let padded = (0..axes.len()).all(|a| place[a] < input[a] as isize + axes[a].5);
            if inside || padded && matches!(kind, PoolKind::Average { count_pad: true }) {
                count += 1;
            }
            if !inside {
                continue;
            }
            any = true;
            let place: Vec<usize> = place.iter().map(|&i| i as usize).collect();
            let full: Vec<usize> = at[..2].iter().chain(&place).copied().collect();
            let value = x.at(&full);
            sum += if matches!(kind, PoolKind::Lp { .. }) { value.abs().powf(p) } else { value };
            if value > best {
                best = value;
                let flat = |order: Vec<usize>| order.into_iter().fold(0, |flat, a| flat * input[a] + place[a]);
                let rank = axes.len();
                let column_major = matches!(kind, PoolKind::Max { column_major: true });
                let within = if column_major { flat((0..rank).rev().collect()) } else { flat((0..rank).collect()) };
                best_at = (at[0] * 3 + at[1]) * input.iter().product::<usize>() + within;
            }
        }
        // The result of a window outside the input is undefined.
        if !any {
            return;
        }
        want.push(match kind {
            PoolKind::Max { .. } => best,
            PoolKind::Average { .. } => sum / f64::from(count),
            PoolKind::Lp { p } => sum.powf(1.0 / f64::from(p)),
        });
        want_index.push(best_at as f64);
    }
    assert_near(&got[0], &want, tolerance(dtype) * 4.0, (kind, axes, ceil));
    if with_index {
        assert_near(&got[1], &want_index, 0.0, (kind, axes, ceil));
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    prop::sample::select(&Layout::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn pools_as_the_definition_says(
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
        layouts in (layout(), layout()),
        seed in 0u64..1000,
    ) {
        check(kind.0, kind.1, dtype, &axes, ceil, layouts.into(), seed);
    }
}

#[test]
fn bytes_have_a_largest_one() {
    for dtype in [DType::I8, DType::U8] {
        let axes = [(7, 3, 2, 1, 1, 1), (6, 2, 1, 1, 0, 0)];
        check(PoolKind::Max { column_major: false }, false, dtype, &axes, false, [Layout::Dense; 2], 3);
        check(PoolKind::Max { column_major: false }, true, dtype, &axes, false, [Layout::Dense; 2], 3);
    }
}

#[test]
fn whole_planes_become_one_value() {
    let axes = [(9, 9, 1, 1, 0, 0), (11, 11, 1, 1, 0, 0)];
    for kind in [PoolKind::Max { column_major: false }, PoolKind::Average { count_pad: false }, PoolKind::Lp { p: 2.0 }]
    {
        check(kind, false, DType::F32, &axes, false, [Layout::Dense; 2], 5);
        check(kind, false, DType::F32, &axes, false, [Layout::Reversed; 2], 5);
    }
}
