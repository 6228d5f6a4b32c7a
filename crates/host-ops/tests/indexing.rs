//! Gathers and scatters against naive loops, and the handling of out-of-range indices.
#![allow(clippy::unwrap_used)]
mod common;

use graph::prim::{Axis, BatchDims, Scatter, ScatterKind};
use graph::{DType, Prim, Scalar};
use host_ops::OpError;
use proptest::prelude::*;

use common::{Case, Layout, assert_close, flat, indices, layout, noise, tolerance, values};

const KINDS: [ScatterKind; 5] =
    [ScatterKind::Replace, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Max, ScatterKind::Min];

/// Indices for an axis, some of them negative.
fn some_indices(count: usize, extent: usize, seed: u64) -> Vec<Scalar> {
    let mut next = noise(seed);
    let extent = extent as i64;
    (0..count).map(|_| Scalar::Int((next() % (2 * extent as u64)) as i64 - extent)).collect()
}

fn position(index: Scalar, extent: usize) -> usize {
    usize::try_from(index.as_i64().rem_euclid(extent as i64)).unwrap()
}

fn combine(kind: ScatterKind, before: Scalar, update: Scalar, dtype: DType) -> Scalar {
    if !dtype.is_float() {
        // Integers are not converted to floats: products of several updates grow large and wrap.
        let (a, b) = (before.as_i64(), update.as_i64());
        return Scalar::Int(match kind {
            ScatterKind::Replace => b,
            ScatterKind::Add => a.wrapping_add(b),
            ScatterKind::Mul => a.wrapping_mul(b),
            ScatterKind::Max => a.max(b),
            ScatterKind::Min => a.min(b),
        });
    }
    let (a, b) = (before.as_f64(), update.as_f64());
    let result = match kind {
        ScatterKind::Replace => b,
        ScatterKind::Add => a + b,
        ScatterKind::Mul => a * b,
        ScatterKind::Max => a.max(b),
        ScatterKind::Min => a.min(b),
    };
    Scalar::Float(result).cast(dtype)
}

#[test]
fn an_index_out_of_range_is_an_error_and_nothing_outside_is_touched() {
    let data = values(DType::F32, 4, 1);
    for (index, extent) in [(4i64, 4usize), (-5, 4), (i64::MAX, 4), (i64::MIN, 4)] {
        let bad = [Scalar::Int(index)];
        let output = Layout::dense(&[1, 1, 1]);
        let gather = Case::new(Prim::Gather)
            .dense(DType::F32, &[1, 4, 1], &data)
            .dense(DType::I64, &[1], &bad)
            .output(DType::F32, &output);
        let elements = Case::new(Prim::GatherElements(Axis(0)))
            .dense(DType::F32, &[4], &data)
            .dense(DType::I64, &[1], &bad)
            .output(DType::F32, &Layout::dense(&[1]));
        let nd = Case::new(Prim::GatherNd(BatchDims(0)))
            .dense(DType::F32, &[4], &data)
            .dense(DType::I64, &[1, 1], &bad)
            .output(DType::F32, &Layout::dense(&[1]));
        let put = Case::new(Prim::ScatterElements(Scatter { kind: ScatterKind::Add, axis: 0 }))
            .dense(DType::F32, &[4], &data)
            .dense(DType::I64, &[1], &bad)
            .dense(DType::F32, &[1], &data[..1])
            .output(DType::F32, &Layout::dense(&[4]));
        let put_nd = Case::new(Prim::ScatterNd(Scatter { kind: ScatterKind::Replace, axis: 0 }))
            .dense(DType::F32, &[4], &data)
            .dense(DType::I64, &[1, 1], &bad)
            .dense(DType::F32, &[1], &data[..1])
            .output(DType::F32, &Layout::dense(&[4]));
        for case in [gather, elements, nd, put, put_nd] {
            assert_eq!(case.run(), Err(OpError::IndexOutOfRange { index, extent }));
        }
    }
}

#[test]
fn of_several_updates_of_one_place_the_last_one_stays() {
    let data = vec![Scalar::Float(0.0); 3];
    let places = [1, 1, -2].map(Scalar::Int);
    let updates = [5.0, 6.0, 7.0].map(Scalar::Float);
    let case = Case::new(Prim::ScatterNd(Scatter { kind: ScatterKind::Replace, axis: 0 }))
        .dense(DType::F32, &[3], &data)
        .dense(DType::I64, &[3, 1], &places)
        .dense(DType::F32, &[3], &updates);
    let got = case.output(DType::F32, &Layout::dense(&[3])).run().unwrap().remove(0);
    assert_eq!(got, [0.0, 7.0, 0.0].map(Scalar::Float));
}

#[test]
fn a_scatter_over_its_own_data_keeps_what_no_update_touches() {
    let data = values(DType::I32, 6, 3);
    let case = Case::new(Prim::ScatterElements(Scatter { kind: ScatterKind::Add, axis: 0 }))
        .dense(DType::I32, &[6], &data)
        .dense(DType::I32, &[2], &[Scalar::Int(4), Scalar::Int(4)])
        .dense(DType::I32, &[2], &[Scalar::Int(10), Scalar::Int(20)]);
    let got = case.output_in_place(DType::I32, 0).run().unwrap().remove(0);
    let mut want = data;
    want[4] = Scalar::Int(want[4].as_i64() + 30);
    assert_eq!(got, want);
}

/// A shape, one of its axes, and another shape that is not longer except along the axis.
fn axis_cases() -> impl Strategy<Value = (Layout, usize, Layout, Layout)> {
    prop::collection::vec(1usize..6, 1..4)
        .prop_flat_map(|shape| {
            let rank = shape.len();
            (Just(shape), 0..rank, prop::collection::vec(any::<prop::sample::Index>(), rank))
        })
        .prop_flat_map(|(shape, axis, cuts)| {
            let mut picked: Vec<usize> = shape.iter().zip(&cuts).map(|(&extent, cut)| 1 + cut.index(extent)).collect();
            picked[axis] = 1 + cuts[axis].index(9);
            (layout(shape, true), Just(axis), layout(picked.clone(), true), layout(picked, false))
        })
}

/// Data, batch axes, depth of the tuples, shape of the indices, layout of the indexed slices.
fn tuple_cases() -> impl Strategy<Value = (Layout, usize, usize, Layout, Layout)> {
    (prop::collection::vec(1usize..5, 1..5), prop::collection::vec(1usize..5, 0..3), 0usize..3, 0usize..5)
        .prop_flat_map(|(shape, outer, batch, depth)| {
            let batch = batch.min(shape.len());
            let depth = depth.min(shape.len() - batch);
            let mut tuples = shape[..batch].to_vec();
            tuples.extend(outer);
            let result: Vec<usize> = tuples.iter().chain(&shape[batch + depth..]).copied().collect();
            tuples.push(depth);
            (layout(shape, true), Just(batch), Just(depth), layout(tuples, false), layout(result, false))
        })
}

/// Index tuples that are all in range.
fn some_tuples(shape: &[usize], batch: usize, list: &Layout, seed: u64) -> Vec<Scalar> {
    let mut next = noise(seed);
    indices(&list.shape)
        .iter()
        .map(|index| {
            let extent = shape[batch + index[index.len() - 1]] as i64;
            Scalar::Int((next() % (2 * extent as u64)) as i64 - extent)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn slices_are_gathered_along_the_middle_axis(
        (data, (list, output)) in (1usize..5, 1usize..9, 1usize..70, 1usize..12).prop_flat_map(|(outer, extent, inner, count)| (
            layout(vec![outer, extent, inner], true),
            (layout(vec![count], true), layout(vec![outer, count, inner], false)),
        )),
        dtype in 0usize..13,
        wide in any::<bool>(),
        seed in any::<u64>(),
        threads in 1usize..4,
    ) {
        let (dtype, index) = (DType::ALL[dtype], if wide { DType::I64 } else { DType::I32 });
        let extent = data.shape[1];
        let mut case = Case::new(Prim::Gather)
            .threads(threads)
            .input(dtype, &data, &values(dtype, data.offsets().len(), seed))
            .input(index, &list, &some_indices(list.shape[0], extent, seed));
        let (seen, picks) = (case.read(0), case.read(1));
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let want: Vec<Scalar> = indices(&output.shape)
            .iter()
            .map(|at| seen[flat(&data.shape, &[at[0], position(picks[at[1]], extent), at[2]])])
            .collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn elements_are_gathered_along_any_axis(
        (data, axis, list, output) in axis_cases(),
        dtype in 0usize..13,
        seed in any::<u64>(),
    ) {
        let (dtype, extent) = (DType::ALL[dtype], data.shape[axis]);
        let mut case = Case::new(Prim::GatherElements(Axis(axis)))
            .threads(2)
            .input(dtype, &data, &values(dtype, data.offsets().len(), seed))
            .input(DType::I64, &list, &some_indices(list.offsets().len(), extent, seed));
        let (seen, picks) = (case.read(0), case.read(1));
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let want: Vec<Scalar> = indices(&output.shape)
            .into_iter()
            .enumerate()
            .map(|(number, mut at)| {
                at[axis] = position(picks[number], extent);
                seen[flat(&data.shape, &at)]
            })
            .collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn slices_are_gathered_by_tuples(
        (data, batch, depth, list, output) in tuple_cases(),
        dtype in 0usize..13,
        seed in any::<u64>(),
    ) {
        let dtype = DType::ALL[dtype];
        let tuples = some_tuples(&data.shape, batch, &list, seed);
        let mut case = Case::new(Prim::GatherNd(BatchDims(batch)))
            .threads(2)
            .input(dtype, &data, &values(dtype, data.offsets().len(), seed))
            .input(DType::I64, &list, &tuples);
        let seen = case.read(0);
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let outer = list.shape.len() - 1;
        let want: Vec<Scalar> = indices(&output.shape)
            .iter()
            .map(|at| {
                let tuple = flat(&list.shape[..outer], &at[..outer]) * depth;
                let mut place = at[..batch].to_vec();
                place.extend((0..depth).map(|k| position(tuples[tuple + k], data.shape[batch + k])));
                place.extend_from_slice(&at[outer..]);
                seen[flat(&data.shape, &place)]
            })
            .collect();
        prop_assert_eq!(got, want);
    }

    #[test]
    fn elements_are_scattered_along_any_axis(
        (data, axis, list, updates) in axis_cases(),
        kind in 0usize..5,
        dtype in 0usize..4,
        seed in any::<u64>(),
    ) {
        let (dtype, kind) = ([DType::F32, DType::F64, DType::I64, DType::F16][dtype], KINDS[kind]);
        let mut case = Case::new(Prim::ScatterElements(Scatter { kind, axis }))
            .input(dtype, &data, &values(dtype, data.offsets().len(), seed))
            .input(DType::I32, &list, &some_indices(list.offsets().len(), data.shape[axis], seed))
            .input(dtype, &updates, &values(dtype, updates.offsets().len(), seed ^ 9));
        let (mut want, picks, changes) = (case.read(0), case.read(1), case.read(2));
        let got = case.output(dtype, &Layout::dense(&data.shape)).run().unwrap().remove(0);
        for (number, mut at) in indices(&list.shape).into_iter().enumerate() {
            at[axis] = position(picks[number], data.shape[axis]);
            let place = flat(&data.shape, &at);
            want[place] = combine(kind, want[place], changes[number], dtype);
        }
        assert_close(&got, &want, tolerance(dtype), &format!("{kind:?}"));
    }

    #[test]
    fn slices_are_scattered_by_tuples(
        (data, _, depth, list, updates) in tuple_cases().prop_filter("no batch", |case| case.1 == 0),
        kind in 0usize..5,
        dtype in 0usize..4,
        seed in any::<u64>(),
    ) {
        let (dtype, kind) = ([DType::F32, DType::F64, DType::I64, DType::Bf16][dtype], KINDS[kind]);
        let tuples = some_tuples(&data.shape, 0, &list, seed);
        let mut case = Case::new(Prim::ScatterNd(Scatter { kind, axis: 0 }))
            .input(dtype, &data, &values(dtype, data.offsets().len(), seed))
            .input(DType::I64, &list, &tuples)
            .input(dtype, &updates, &values(dtype, updates.offsets().len(), seed ^ 9));
        let (mut want, changes) = (case.read(0), case.read(2));
        let got = case.output(dtype, &Layout::dense(&data.shape)).run().unwrap().remove(0);
        let outer = list.shape.len() - 1;
        for (number, at) in indices(&updates.shape).into_iter().enumerate() {
            let tuple = flat(&list.shape[..outer], &at[..outer]) * depth;
            let mut place: Vec<usize> = (0..depth).map(|k| position(tuples[tuple + k], data.shape[k])).collect();
            place.extend_from_slice(&at[outer..]);
            let place = flat(&data.shape, &place);
            want[place] = combine(kind, want[place], changes[number], dtype);
        }
        assert_close(&got, &want, tolerance(dtype), &format!("{kind:?}"));
    }
}
