//! Tests running sums and products in the simulator.

use graph::prim::Cumulative;
use graph::{DType, Prim};

use crate::common::{SHIFT, check_on, dense, random, random_ints, step, strided};

/// Both wave widths; nothing here depends on other properties of a target.
const WAVES: [&str; 2] = ["gfx1030", "gfx906"];

#[test]
fn lines_of_all_lengths_and_directions() {
    for (dtype, relative) in [(DType::F32, 1e-4), (DType::I64, 0.0)] {
        for [outer, extent, inner] in [[3, 5, 4], [1, 64, 1], [2, 1025, 1], [1, 2100, 1], [1, 1500, 2]] {
            for bits in 0..4 {
                let prim = Cumulative { product: false, exclusive: bits & 1 != 0, reverse: bits & 2 != 0 };
                let shape = [outer, extent, inner];
                let count: usize = shape.iter().product();
                let step = step(Prim::Cumulative(prim), vec![dense(0, dtype, &shape)], vec![dense(1, dtype, &shape)]);
                let x = if dtype.is_float() { random(dtype, count, 1) } else { random_ints(dtype, count, 1 << 40, 1) };
                check_on(&WAVES, &step, &[x], &[count], relative);
            }
        }
    }
}

#[test]
fn products_and_halves() {
    for product in [false, true] {
        for (dtype, extent, relative) in [(DType::F16, 40, 2e-3), (DType::Bf16, 100, 1.6e-2), (DType::I8, 90, 0.0)] {
            let shape = [2, extent, 3];
            let prim = Cumulative { product, exclusive: false, reverse: true };
            let x = strided(0, dtype, &shape, &[1, 6, 2], 0);
            let step = step(Prim::Cumulative(prim), vec![x], vec![dense(1, dtype, &shape)]);
            check_on(&WAVES, &step, &[random(dtype, 6 * extent, 1)], &[6 * extent], relative);
        }
    }
}

#[test]
fn long_lines_of_halves_and_bytes() {
    for (dtype, relative) in [(DType::F16, 4e-3), (DType::U8, 0.0)] {
        for reverse in [false, true] {
            let shape = [1, 4160, 1];
            let prim = Cumulative { product: false, exclusive: true, reverse };
            let step = step(Prim::Cumulative(prim), vec![dense(0, dtype, &shape)], vec![dense(1, dtype, &shape)]);
            let x = if dtype.is_float() { random(dtype, 4160, 1) } else { random_ints(dtype, 4160, 256, 1) };
            check_on(&WAVES, &step, &[x], &[4160], relative);
        }
    }
}

#[test]
fn buffers_that_are_not_aligned_to_packs() {
    // Shifts every buffer by one element, so that none is aligned to a pack.
    SHIFT.set(1);
    long_lines_of_halves_and_bytes();
    SHIFT.set(0);
}
