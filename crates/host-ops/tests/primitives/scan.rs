//! Running totals, top-k and local response normalisation against naive loops.

use graph::prim::{Cumulative, Lrn, TopK};
use graph::{DType, Prim, Scalar};
use proptest::prelude::*;
use testkit::ops::normalise;

use crate::common::{Case, Layout, assert_close, layout, numbers, stored, tolerance, values};

#[test]
fn running_sums_follow_all_four_flags() {
    let list = [1.0, 2.0, 3.0].map(Scalar::Float);
    for (exclusive, reverse, want) in [
        (false, false, [1.0, 3.0, 6.0]),
        (true, false, [0.0, 1.0, 3.0]),
        (false, true, [6.0, 5.0, 3.0]),
        (true, true, [5.0, 3.0, 0.0]),
    ] {
        let prim = Prim::Cumulative(Cumulative { product: false, exclusive, reverse });
        let case = Case::new(prim).dense(DType::F32, &[1, 3, 1], &list);
        let got = case.output(DType::F32, &Layout::dense(&[1, 3, 1])).run().unwrap().remove(0);
        assert_eq!(got, want.map(Scalar::Float));
    }
}

#[test]
fn the_first_of_equal_elements_wins_and_nan_is_the_largest() {
    let list = [2.0, f64::NAN, 7.0, 2.0, 7.0, -0.0, 0.0].map(Scalar::Float);
    for (largest, want) in [(true, [1, 2, 4, 0]), (false, [5, 6, 0, 3])] {
        let prim = Prim::TopK(TopK { k: 4, largest, sorted: true });
        let case = Case::new(prim).dense(DType::F32, &[7], &list).output(DType::F32, &Layout::dense(&[4]));
        let got = case.output(DType::I64, &Layout::dense(&[4])).run().unwrap();
        assert_eq!(got[1], want.map(Scalar::Int), "largest {largest}");
    }
}

fn three_axes() -> impl Strategy<Value = (Layout, Layout)> {
    let shape = prop_oneof![
        (1usize..4, 1usize..40, 1usize..6),
        (1usize..3, 1usize..8, 200usize..600),
        (1usize..3, 200usize..900, Just(1usize)),
    ];
    shape.prop_flat_map(|(outer, extent, inner)| {
        (layout(vec![outer, extent, inner], true), layout(vec![outer, extent, inner], false))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 150 } else { 1500 }))]

    #[test]
    fn running_totals_are_along_the_middle_axis(
        (from, to) in three_axes(),
        (product, exclusive, reverse) in any::<(bool, bool, bool)>(),
        dtype in 0usize..5,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtype = [DType::F32, DType::F64, DType::F16, DType::I32, DType::U64][dtype];
        let list: Vec<Scalar> = values(dtype, from.elems(), seed)
            .into_iter()
            // Products that neither underflow nor overflow; positive sums that do not cancel or exceed half precision.
            .map(|value| match (dtype.is_float(), product) {
                (true, true) => Scalar::Float(1.0 + value.as_f64() / 4000.0).cast(dtype),
                (true, false) => Scalar::Float(value.as_f64().abs()).cast(dtype),
                _ => value,
            })
            .collect();
        let prim = Cumulative { product, exclusive, reverse };
        let case = Case::new(Prim::Cumulative(prim.clone())).threads(threads).input(dtype, &from, &list);
        let seen = case.read(0);
        let got = case.output(dtype, &to).run().unwrap().remove(0);
        let [outer, extent, inner] = from.shape[..] else { unreachable!() };
        let mut want = seen.clone();
        for line in 0..outer * inner {
            let mut float = if product { 1.0 } else { 0.0 };
            let mut int = i64::from(product);
            for step in 0..extent {
                let step = if reverse { extent - 1 - step } else { step };
                let at = (line / inner * extent + step) * inner + line % inner;
                let before = if dtype.is_float() { Scalar::Float(float) } else { Scalar::Int(int) };
                if product {
                    float *= seen[at].as_f64();
                    int = int.wrapping_mul(seen[at].as_i64());
                } else {
                    float += seen[at].as_f64();
                    int = int.wrapping_add(seen[at].as_i64());
                }
                let after = if dtype.is_float() { Scalar::Float(float) } else { Scalar::Int(int) };
                want[at] = if exclusive { before } else { after }.cast(dtype);
            }
        }
        // A running total accumulates a rounding error at every step.
        assert_close(&got, &want, tolerance(dtype) * 20.0, &format!("{prim:?} of {dtype} {from:?}"));
    }

    #[test]
    fn top_k_agrees_with_a_stable_sort(
        (from, k) in prop_oneof![
            prop::collection::vec(1usize..9, 1..4),
            (1usize..4, 200usize..700).prop_map(|(a, b)| vec![a, b]),
        ]
        .prop_flat_map(|shape| {
            let length = shape[shape.len() - 1];
            (layout(shape, true), 1..=length)
        }),
        (largest, sorted) in any::<(bool, bool)>(),
        dtype in 0usize..13,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtype = DType::ALL[dtype];
        let list = values(dtype, from.elems(), seed);
        let case = Case::new(Prim::TopK(TopK { k, largest, sorted })).threads(threads).input(dtype, &from, &list);
        let seen = case.read(0);
        let mut to = from.shape.clone();
        let length = std::mem::replace(to.last_mut().unwrap(), k);
        let got = case.output(dtype, &Layout::dense(&to)).output(DType::I64, &Layout::dense(&to)).run().unwrap();
        for (number, row) in seen.chunks(length).enumerate() {
            let mut order: Vec<usize> = (0..length).collect();
            let key = |at: usize| if largest { -row[at].as_f64() } else { row[at].as_f64() };
            order.sort_by(|&a, &b| key(a).total_cmp(&key(b)));
            let part = number * k..(number + 1) * k;
            let want: Vec<Scalar> = order[..k].iter().map(|&at| Scalar::Int(at as i64)).collect();
            prop_assert_eq!(&got[1][part.clone()], &want[..]);
            let want: Vec<Scalar> = order[..k].iter().map(|&at| row[at]).collect();
            prop_assert_eq!(&got[0][part], &want[..]);
        }
    }

    #[test]
    fn channels_are_normalised_by_those_around_them(
        (from, to) in prop_oneof![
            prop::collection::vec(1usize..7, 2..5),
            (1usize..3, 1usize..12, 100usize..300).prop_map(|(a, b, c)| vec![a, b, c]),
        ]
        .prop_flat_map(|shape| (layout(shape.clone(), true), layout(shape, false))),
        size in 1usize..8,
        dtype in 0usize..4,
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let dtype = [DType::F32, DType::F64, DType::F16, DType::Bf16][dtype];
        let prim = Lrn { alpha: 0.3, beta: 0.75, bias: 1.5, size };
        let list = values(dtype, from.elems(), seed);
        let case = Case::new(Prim::Lrn(prim.clone())).threads(threads).input(dtype, &from, &list);
        let seen = case.read(0);
        let got = case.output(dtype, &to).run().unwrap().remove(0);
        let want = stored(dtype, normalise::lrn(&prim, &from.shape, &numbers(&seen)));
        assert_close(&got, &want, tolerance(dtype), &format!("{prim:?} of {dtype} {from:?}"));
    }
}
