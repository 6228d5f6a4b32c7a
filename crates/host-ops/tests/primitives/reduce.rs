//! Reductions and searches against naive loops in double precision.

use graph::prim::{ArgReduce, Reduce, ReduceKind};
use graph::{DType, Prim, Scalar};
use proptest::prelude::*;
use testkit::ops::reduce::{KINDS, found, groups, reduced};

use crate::common::{Case, Layout, assert_close, indices, layout, tolerance, values};

fn check(kind: ReduceKind, axes: usize, dtype: DType, from: &Layout, to: &Layout, seed: u64, threads: usize) {
    let list = values(dtype, from.elems(), seed);
    // Logarithms of sums need positive sums; products must not vanish or overflow.
    let list: Vec<Scalar> = list
        .into_iter()
        .map(|value| match kind {
            ReduceKind::LogSum if dtype.is_signed() => Scalar::Float(value.as_f64().abs() + 1.0).cast(dtype),
            ReduceKind::LogSum => Scalar::Int(value.as_i64() / 2 + 1).cast(dtype),
            ReduceKind::Prod if dtype.is_float() => Scalar::Float(1.0 + value.as_f64() / 100.0).cast(dtype),
            _ => value,
        })
        .collect();
    let case = Case::new(Prim::Reduce(Reduce { kind, axes })).threads(threads).input(dtype, from, &list);
    let seen = case.read(0);
    let got = case.output(dtype, to).run().unwrap().remove(0);
    for (group, got) in groups(&from.shape, axes, &seen).iter().zip(&got) {
        let want = reduced(kind, dtype, group);
        // Terms may cancel: the rounding error depends on their size, not on that of the sum.
        let size: f64 = group.iter().map(|value| value.as_f64().abs()).sum();
        let allowed = if kind == ReduceKind::Sum { tolerance(dtype) * size.max(1.0) } else { tolerance(dtype) };
        assert_close(&[*got], &[want], allowed, &format!("{kind:?} of {dtype} {from:?} over {axes}"));
    }
}

#[test]
fn every_kind_reduces_every_type() {
    for dtype in DType::ALL {
        for kind in KINDS.into_iter().filter(|&kind| dtype.is_float() || kind != ReduceKind::LogSumExp) {
            if dtype == DType::Bool && !matches!(kind, ReduceKind::Max | ReduceKind::Min) {
                continue;
            }
            // Few enough that no sum of small integers wraps.
            check(
                kind,
                1,
                dtype,
                &Layout::dense(&[3, if dtype.bytes() == 1 { 1 } else { 40 }]),
                &Layout::dense(&[3]),
                5,
                1,
            );
        }
    }
}

#[test]
fn integer_sums_wrap_to_their_width() {
    let list = vec![Scalar::Int(100); 5];
    let case = Case::new(Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 })).dense(DType::I8, &[5], &list);
    assert_eq!(case.output(DType::I8, &Layout::dense(&[])).run().unwrap()[0], [Scalar::Int(i64::from(500i64 as i8))]);
}

#[test]
fn long_sums_keep_precision_in_either_memory_order() {
    let count = 200_000;
    for from in [Layout::dense(&[2, count]), Layout::arranged(&[2, count], &[1, 0], &[1; 2], &[false; 2], &[false; 2])]
    {
        let list = vec![Scalar::Float(0.1).cast(DType::F32); 2 * count];
        let case = Case::new(Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 })).input(DType::F32, &from, &list);
        let got = case.output(DType::F32, &Layout::dense(&[2])).run().unwrap().remove(0);
        let want = f64::from(0.1f32) * count as f64;
        assert!(got.iter().all(|sum| (sum.as_f64() - want).abs() < 1e-6 * want), "{got:?}, not {want}");
    }
}

#[test]
fn empty_reductions_give_the_values_that_onnx_defines() {
    for (kind, want) in [
        (ReduceKind::Sum, 0.0),
        (ReduceKind::Prod, 1.0),
        (ReduceKind::Max, f64::NEG_INFINITY),
        (ReduceKind::Min, f64::INFINITY),
        (ReduceKind::LogSumExp, f64::NEG_INFINITY),
        (ReduceKind::Mean, f64::NAN),
    ] {
        let case = Case::new(Prim::Reduce(Reduce { kind, axes: 1 })).dense(DType::F32, &[2, 0], &[]);
        let got = case.output(DType::F32, &Layout::dense(&[2])).run().unwrap().remove(0);
        assert_close(&got, &[Scalar::Float(want); 2], 0.0, &format!("{kind:?}"));
    }
}

#[test]
fn infinities_and_nan_propagate() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (kind, list, want) in [
        (ReduceKind::LogSumExp, [-inf, -inf], -inf),
        (ReduceKind::LogSumExp, [inf, 1.0], inf),
        (ReduceKind::LogSumExp, [1000.0, 1000.0], 1000.0 + 2f64.ln()),
        (ReduceKind::Max, [nan, 1.0], nan),
        (ReduceKind::Max, [1.0, nan], nan),
        (ReduceKind::Min, [nan, 1.0], nan),
        (ReduceKind::Sum, [inf, -inf], nan),
    ] {
        let list = list.map(Scalar::Float);
        let case = Case::new(Prim::Reduce(Reduce { kind, axes: 1 })).dense(DType::F32, &[2], &list);
        let got = case.output(DType::F32, &Layout::dense(&[])).run().unwrap().remove(0);
        assert_close(&got, &[Scalar::Float(want)], 1e-6, &format!("{kind:?} of {list:?}"));
    }
}

#[test]
fn the_first_or_last_of_equal_elements_is_found_on_request() {
    let list = [3, 7, 7, 1, 1, 7].map(Scalar::Int);
    for (largest, last, want) in [(true, false, 1), (true, true, 5), (false, false, 3), (false, true, 4)] {
        let case = Case::new(Prim::ArgReduce(ArgReduce { largest, last })).dense(DType::I32, &[6], &list);
        assert_eq!(case.output(DType::I64, &Layout::dense(&[])).run().unwrap()[0], [Scalar::Int(want)]);
    }
}

fn cases() -> impl Strategy<Value = (Layout, Layout, usize)> {
    let shape = prop_oneof![
        3 => prop::collection::vec(1usize..6, 1..5),
        1 => (1usize..4, 500usize..2100).prop_map(|(a, b)| vec![a, b]),
        1 => (500usize..2100, 1usize..4).prop_map(|(a, b)| vec![a, b]),
        1 => (1usize..3, 60usize..140, 60usize..140).prop_map(|(a, b, c)| vec![a, b, c]),
    ];
    shape
        .prop_flat_map(|shape| {
            let rank = shape.len();
            (Just(shape), 0..=rank)
        })
        .prop_flat_map(|(shape, axes)| {
            let kept = shape[..shape.len() - axes].to_vec();
            (layout(shape, true), layout(kept, false), Just(axes))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn random_views_reduce_as_naive_loops_do(
        (from, to, axes) in cases(),
        kind in 0usize..10,
        dtype in 0usize..6,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtype = [DType::F32, DType::F32, DType::F64, DType::F16, DType::I64, DType::U64][dtype];
        let count: usize = from.shape[from.shape.len() - axes..].iter().product();
        let kind = KINDS[kind];
        // Large sums overflow in half precision, and products of many numbers overflow every type.
        prop_assume!(count < 100 || !(dtype == DType::F16 || kind == ReduceKind::Prod));
        prop_assume!(dtype.is_float() || kind != ReduceKind::LogSumExp);
        check(kind, axes, dtype, &from, &to, seed, threads);
    }

    #[test]
    fn random_views_are_searched_as_naive_loops_do(
        (from, to, _) in cases().prop_filter("one axis", |(_, _, axes)| *axes == 1),
        (largest, last) in any::<(bool, bool)>(),
        dtype in 0usize..13,
        seed in any::<u64>(),
    ) {
        let (dtype, search) = (DType::ALL[dtype], ArgReduce { largest, last });
        let list = values(dtype, indices(&from.shape).len(), seed);
        let case = Case::new(Prim::ArgReduce(search.clone())).threads(2).input(dtype, &from, &list);
        let seen = case.read(0);
        let got = case.output(DType::I64, &to).run().unwrap().remove(0);
        let want: Vec<Scalar> = groups(&from.shape, 1, &seen).iter().map(|group| Scalar::Int(found(&search, group) as i64)).collect();
        prop_assert_eq!(got, want);
    }
}
