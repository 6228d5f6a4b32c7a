//! Gathers and scatters against naive loops, and the handling of out-of-range indices.

use graph::prim::{Axis, BatchDims, Scatter, ScatterKind};
use graph::{DType, Prim, Scalar};
use host_ops::OpError;
use proptest::prelude::*;
use testkit::ops::indexing::{self, Elements, KINDS};

use crate::common::{Case, Layout, assert_close, indices, layout, noise, tolerance, values};

/// Indices for an axis, some of them negative.
fn some_indices(count: usize, extent: usize, seed: u64) -> Vec<Scalar> {
    let mut next = noise(seed);
    let extent = extent as i64;
    (0..count).map(|_| Scalar::Int((next() % (2 * extent as u64)) as i64 - extent)).collect()
}

fn of<'a>(layout: &'a Layout, values: &'a [Scalar]) -> Elements<'a> {
    Elements { shape: &layout.shape, values }
}

#[test]
fn an_index_out_of_range_is_an_error_and_nothing_outside_is_accessed() {
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
fn the_last_of_several_updates_of_one_element_wins() {
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
fn an_in_place_scatter_keeps_other_elements() {
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

/// Data, batch axes, shape of the indices, layout of the indexed slices.
fn tuple_cases() -> impl Strategy<Value = (Layout, usize, Layout, Layout)> {
    (prop::collection::vec(1usize..5, 1..5), prop::collection::vec(1usize..5, 0..3), 0usize..3, 0usize..5)
        .prop_flat_map(|(shape, outer, batch, depth)| {
            let batch = batch.min(shape.len());
            let depth = depth.min(shape.len() - batch);
            let mut tuples = shape[..batch].to_vec();
            tuples.extend(outer);
            let result: Vec<usize> = tuples.iter().chain(&shape[batch + depth..]).copied().collect();
            tuples.push(depth);
            (layout(shape, true), Just(batch), layout(tuples, false), layout(result, false))
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
        let case = Case::new(Prim::Gather)
            .threads(threads)
            .input(dtype, &data, &values(dtype, data.elems(), seed))
            .input(index, &list, &some_indices(list.shape[0], extent, seed));
        let (seen, picks) = (case.read(0), case.read(1));
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let want = indexing::gathered(of(&data, &seen), &picks);
        prop_assert_eq!(got, want);
    }

    #[test]
    fn elements_are_gathered_along_any_axis(
        (data, axis, list, output) in axis_cases(),
        dtype in 0usize..13,
        seed in any::<u64>(),
    ) {
        let (dtype, extent) = (DType::ALL[dtype], data.shape[axis]);
        let case = Case::new(Prim::GatherElements(Axis(axis)))
            .threads(2)
            .input(dtype, &data, &values(dtype, data.elems(), seed))
            .input(DType::I64, &list, &some_indices(list.elems(), extent, seed));
        let (seen, picks) = (case.read(0), case.read(1));
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let want = indexing::gathered_elements(of(&data, &seen), axis, of(&list, &picks));
        prop_assert_eq!(got, want);
    }

    #[test]
    fn slices_are_gathered_by_tuples(
        (data, batch, list, output) in tuple_cases(),
        dtype in 0usize..13,
        seed in any::<u64>(),
    ) {
        let dtype = DType::ALL[dtype];
        let tuples = some_tuples(&data.shape, batch, &list, seed);
        let case = Case::new(Prim::GatherNd(BatchDims(batch)))
            .threads(2)
            .input(dtype, &data, &values(dtype, data.elems(), seed))
            .input(DType::I64, &list, &tuples);
        let seen = case.read(0);
        let got = case.output(dtype, &output).run().unwrap().remove(0);
        let want = indexing::gathered_slices(of(&data, &seen), batch, of(&list, &tuples));
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
        let case = Case::new(Prim::ScatterElements(Scatter { kind, axis }))
            .input(dtype, &data, &values(dtype, data.elems(), seed))
            .input(DType::I32, &list, &some_indices(list.elems(), data.shape[axis], seed))
            .input(dtype, &updates, &values(dtype, updates.elems(), seed ^ 9));
        let (seen, picks, changes) = (case.read(0), case.read(1), case.read(2));
        let got = case.output(dtype, &Layout::dense(&data.shape)).run().unwrap().remove(0);
        let want =
            indexing::scattered_elements(kind, dtype, of(&data, &seen), axis, of(&list, &picks), &changes);
        assert_close(&got, &want, tolerance(dtype), &format!("{kind:?}"));
    }

    #[test]
    fn slices_are_scattered_by_tuples(
        (data, _, list, updates) in tuple_cases().prop_filter("no batch", |case| case.1 == 0),
        kind in 0usize..5,
        dtype in 0usize..4,
        seed in any::<u64>(),
    ) {
        let (dtype, kind) = ([DType::F32, DType::F64, DType::I64, DType::Bf16][dtype], KINDS[kind]);
        let tuples = some_tuples(&data.shape, 0, &list, seed);
        let case = Case::new(Prim::ScatterNd(Scatter { kind, axis: 0 }))
            .input(dtype, &data, &values(dtype, data.elems(), seed))
            .input(DType::I64, &list, &tuples)
            .input(dtype, &updates, &values(dtype, updates.elems(), seed ^ 9));
        let (seen, changes) = (case.read(0), case.read(2));
        let got = case.output(dtype, &Layout::dense(&data.shape)).run().unwrap().remove(0);
        let want = indexing::scattered_slices(kind, dtype, of(&data, &seen), of(&list, &tuples), &changes);
        assert_close(&got, &want, tolerance(dtype), &format!("{kind:?}"));
    }
}
