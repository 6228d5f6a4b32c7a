//! Tests scatters in the simulator.

use graph::prim::{Scatter, ScatterKind};
use graph::{DType, Prim, Scalar, Tensor};
use testkit::ops::indexing::KINDS;

use crate::common::{SHIFT, check_on, dense, random, random_indices, random_ints, simulate, step, strided};

fn indices(count: usize, extent: i64, seed: u64) -> Tensor {
    random_indices(DType::I64, count, extent, seed)
}

/// Both wave widths; nothing here depends on other properties of a target.
const WAVES: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn element_updates_are_combined_in_order() {
    for kind in KINDS {
        for (dtype, data, updates, axis) in [
            (DType::F32, vec![6, 7], vec![6, 20], 1),
            (DType::F16, vec![6, 7], vec![30, 7], 0),
            (DType::I32, vec![3, 5, 4], vec![2, 9, 3], 1),
            (DType::F16, vec![40], vec![700], 0),
        ] {
            let [from, count] = [&data, &updates].map(|shape| shape.iter().product::<usize>());
            let views = vec![dense(0, dtype, &data), dense(1, DType::I64, &updates), dense(2, dtype, &updates)];
            let inputs = [random(dtype, from, 1), indices(count, data[axis] as i64, 2), random(dtype, count, 3)];
            let step = step(Prim::ScatterElements(Scatter { kind, axis }), views, vec![dense(3, dtype, &data)]);
            check_on(&WAVES, &step, &inputs, &[from], 0.0);
        }
    }
}

#[test]
fn slice_updates_are_combined_in_order() {
    for kind in KINDS {
        for (dtype, data, index, updates) in [
            (DType::F32, vec![5, 16], vec![12, 1], vec![12, 16]),
            (DType::Bf16, vec![5, 5, 3], vec![4, 3, 2], vec![4, 3, 3]),
            (DType::U8, vec![5, 5], vec![300, 2], vec![300]),
            (DType::F64, vec![5, 7], vec![130, 1], vec![130, 7]),
        ] {
            let [from, tuples, count] = [&data, &index, &updates].map(|shape| shape.iter().product::<usize>());
            let views = vec![dense(0, dtype, &data), dense(1, DType::I64, &index), dense(2, dtype, &updates)];
            let ints = dtype == DType::U8;
            let values =
                |count, seed| if ints { random_ints(dtype, count, 256, seed) } else { random(dtype, count, seed) };
            let inputs = [values(from, 1), indices(tuples, 5, 2), values(count, 3)];
            let step = step(Prim::ScatterNd(Scatter { kind, axis: 0 }), views, vec![dense(3, dtype, &data)]);
            check_on(&WAVES, &step, &inputs, &[from], 0.0);
        }
    }
}

#[test]
fn strided_operands() {
    for kind in [ScatterKind::Replace, ScatterKind::Add] {
        let dtype = DType::F32;
        let views = vec![
            strided(0, dtype, &[4, 6], &[1, 4], 0),
            strided(1, DType::I64, &[3, 1], &[2, 1], 1),
            strided(2, dtype, &[3, 6], &[-6, 1], 12),
        ];
        let y = strided(3, dtype, &[4, 6], &[8, 1], 0);
        let inputs = [random(dtype, 24, 1), indices(8, 4, 2), random(dtype, 18, 3)];
        check_on(&WAVES, &step(Prim::ScatterNd(Scatter { kind, axis: 0 }), views, vec![y]), &inputs, &[30], 0.0);
    }
}

#[test]
fn buffers_that_are_not_aligned_to_packs() {
    // Shifts every buffer by one element, so that none is aligned to a pack.
    SHIFT.set(1);
    slice_updates_are_combined_in_order();
    SHIFT.set(0);
}

#[test]
fn an_index_out_of_range_is_a_fault() {
    for kind in [ScatterKind::Replace, ScatterKind::Add] {
        let views = vec![dense(0, DType::F32, &[4, 3]), dense(1, DType::I64, &[2, 1]), dense(2, DType::F32, &[2, 3])];
        let step = step(Prim::ScatterNd(Scatter { kind, axis: 0 }), views, vec![dense(3, DType::F32, &[4, 3])]);
        for (index, faults) in [(-4, false), (4, true), (i64::MIN, true)] {
            let wanted = Tensor::from_scalars(DType::I64, &[2], [0, index].map(Scalar::Int)).unwrap();
            let inputs = [random(DType::F32, 12, 1), wanted, random(DType::F32, 6, 2)];
            let (_, fault) = simulate(&step, &inputs, &[12], "gfx906", 1).unwrap();
            assert_eq!(fault != 0, faults, "index {index}");
        }
    }
}
