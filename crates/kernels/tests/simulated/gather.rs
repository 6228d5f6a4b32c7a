//! Tests gathers in the simulator.

use graph::prim::{Axis, BatchDims};
use graph::{DType, Prim, Scalar, Tensor};

use crate::common::{SHIFT, check_on, dense, random, random_indices as indices, simulate, step, strided};

/// Both wave widths; nothing here depends on other properties of a target.
const WAVES: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn slices_of_all_widths() {
    for (dtype, index) in
        [(DType::F32, DType::I64), (DType::F16, DType::I32), (DType::U8, DType::I64), (DType::I64, DType::I32)]
    {
        for [outer, extent, inner, count] in [[1, 10, 64, 5], [3, 4, 7, 6], [2, 5, 1, 300], [1, 600, 1, 700]] {
            let views = vec![dense(0, dtype, &[outer, extent, inner]), dense(1, index, &[count])];
            let y = dense(2, dtype, &[outer, count, inner]);
            let inputs = [random(dtype, outer * extent * inner, 3), indices(index, count, extent as i64, 4)];
            check_on(&WAVES, &step(Prim::Gather, views, vec![y]), &inputs, &[outer * count * inner], 0.0);
        }
    }
}

#[test]
fn slices_of_strided_data_into_a_strided_output() {
    let views = vec![strided(0, DType::F32, &[2, 5, 8], &[1, 16, 2], 0), strided(1, DType::I64, &[4], &[-2], 7)];
    let y = strided(2, DType::F32, &[2, 4, 8], &[8, 20, 1], 1);
    let inputs = [random(DType::F32, 90, 3), indices(DType::I64, 8, 5, 4)];
    check_on(&WAVES, &step(Prim::Gather, views, vec![y]), &inputs, &[78], 0.0);
}

#[test]
fn elements_along_each_axis() {
    for axis in 0..3 {
        let (data, mut shape) = ([4, 5, 6], [3, 4, 5]);
        shape[axis] = 9;
        let elems: usize = shape.iter().product();
        let views = vec![dense(0, DType::F16, &data), dense(1, DType::I64, &shape)];
        let inputs = [random(DType::F16, 120, 1), indices(DType::I64, elems, data[axis] as i64, 2)];
        let step = step(Prim::GatherElements(Axis(axis)), views, vec![dense(2, DType::F16, &shape)]);
        check_on(&WAVES, &step, &inputs, &[elems], 0.0);
    }
}

#[test]
fn tuples_with_batches_and_slices() {
    for (batch, data, index, y) in [
        (0, vec![4, 4, 16], vec![5, 2], vec![5, 16]),
        (0, vec![4, 4], vec![3, 2, 2], vec![3, 2]),
        (1, vec![2, 4, 3, 5], vec![2, 6, 1], vec![2, 6, 3, 5]),
        (1, vec![2, 4, 4], vec![2, 3, 2], vec![2, 3]),
        (2, vec![2, 3, 4, 8], vec![2, 3, 1], vec![2, 3, 8]),
    ] {
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let views = vec![dense(0, DType::F32, &data), dense(1, DType::I32, &index)];
        // All indexed axes have extent 4; batch axes are not indexed.
        let inputs = [random(DType::F32, count(&data), 1), indices(DType::I32, count(&index), 4, 2)];
        let step = step(Prim::GatherNd(BatchDims(batch)), views, vec![dense(2, DType::F32, &y)]);
        check_on(&WAVES, &step, &inputs, &[count(&y)], 0.0);
    }
}

#[test]
fn buffers_that_are_not_aligned_to_packs() {
    // Shifts every buffer by one element, so that none is aligned to a pack.
    SHIFT.set(1);
    slices_of_all_widths();
    SHIFT.set(0);
}

#[test]
fn an_index_out_of_range_is_a_fault() {
    let views = vec![dense(0, DType::F32, &[1, 4, 3]), dense(1, DType::I64, &[2])];
    let step = step(Prim::Gather, views, vec![dense(2, DType::F32, &[1, 2, 3])]);
    for (index, faults) in [(3, false), (-4, false), (4, true), (-5, true), (i64::MAX, true), (i64::MIN, true)] {
        let wanted = Tensor::from_scalars(DType::I64, &[2], [0, index].map(Scalar::Int)).unwrap();
        let (_, fault) = simulate(&step, &[random(DType::F32, 12, 1), wanted], &[6], "gfx1100", 0).unwrap();
        assert_eq!(fault != 0, faults, "index {index}");
    }
}
