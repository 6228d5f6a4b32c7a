//! Tests growing caches in the simulator.

use graph::prim::{Append, Filled};
use graph::{DType, Prim, Scalar, Step, Tensor, View};

use crate::common::{check_numbers, dense, random, simulate, step, strided};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];

#[derive(Clone, Copy)]
struct Case {
    dtype: DType,
    heads: usize,
    rows: usize,
    held: Option<usize>,
    total: usize,
    sizes: [usize; 2],
}

impl Case {
    /// The step with the lengths of two batches, and its inputs. With `in_place`, the outputs are the pasts.
    fn step(&self, lengths: [i64; 2], in_place: bool) -> (Step, Vec<Tensor>) {
        let Self { dtype, heads, rows, held, total, sizes } = *self;
        // Lengths are those of the cache after the step.
        let filled = Filled { shift: -(rows as i64) };
        let length = Tensor::from_scalars(DType::I64, &[2], lengths.into_iter().map(Scalar::Int)).unwrap();
        let mut views = vec![dense(0, DType::I64, &[2])];
        let mut inputs = vec![length];
        for (at, size) in sizes.into_iter().enumerate() {
            // Each token has all its heads side by side.
            let (size, row) = (size as isize, (heads * size) as isize);
            let shape = [2, heads, rows, sizes[at]];
            views.push(strided(1 + at as u32, dtype, &shape, &[rows as isize * row, size, row, 1], 0));
            inputs.push(random(dtype, shape.iter().product(), 5 + at as u64));
        }
        for (at, size) in sizes.into_iter().enumerate().filter(|_| held.is_some()) {
            let shape = [2, heads, held.unwrap(), size];
            views.push(dense(3 + at as u32, dtype, &shape));
            inputs.push(random(dtype, shape.iter().product(), 7 + at as u64));
        }
        let outputs: Vec<View> = sizes
            .into_iter()
            .enumerate()
            .map(|(at, size)| dense(if in_place { 3 } else { 8 } + at as u32, dtype, &[2, heads, total, size]))
            .collect();
        (step(Prim::Append(Append { filled, past: held.is_some(), rotary: None }), views, outputs), inputs)
    }

    fn wanted(&self, inputs: &[Tensor], lengths: [i64; 2], in_place: bool) -> Vec<Vec<f64>> {
        let list = |tensor: &Tensor| tensor.scalars().map(Scalar::as_f64).collect::<Vec<f64>>();
        let parts = self.sizes.into_iter().enumerate().map(|(part, size)| {
            let fresh = list(&inputs[1 + part]);
            let past = self.held.map(|held| (held, list(&inputs[3 + part])));
            let mut out = Vec::new();
            for (b, length) in lengths.into_iter().enumerate() {
                let before = (length - self.rows as i64).max(0) as usize;
                for h in 0..self.heads {
                    for row in 0..self.total {
                        out.extend((0..size).map(|d| match &past {
                            Some((held, past)) if row < before || in_place && row >= before + self.rows => {
                                past[((b * self.heads + h) * held + row) * size + d]
                            }
                            _ if row >= before && row < before + self.rows => {
                                fresh[((b * self.rows + row - before) * self.heads + h) * size + d]
                            }
                            _ => 0.0,
                        }));
                    }
                }
            }
            out
        });
        parts.collect()
    }
}

#[test]
fn new_rows_come_behind_the_past() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let plain = Case { dtype, heads: 3, rows: 2, held: Some(9), total: 11, sizes: [16, 16] };
        for case in [
            plain,
            Case { held: None, rows: 4, total: 6, ..plain },
            Case { sizes: [7, 10], ..plain },
            Case { held: Some(11), ..plain },
            Case { held: Some(0), rows: 5, ..plain },
        ] {
            let lengths = if case.held.is_some_and(|held| held > 0) { [11, 1] } else { [2, 1] };
            let (step, inputs) = case.step(lengths, false);
            check_numbers(&TARGETS, &step, &inputs, &case.wanted(&inputs, lengths, false), 0.0);
        }
    }
}

#[test]
fn only_new_rows_of_a_cache_in_place_are_written() {
    let plain = Case { dtype: DType::F16, heads: 2, rows: 3, held: Some(40), total: 40, sizes: [64, 64] };
    for case in [plain, Case { sizes: [5, 12], ..plain }, Case { rows: 1, ..plain }] {
        for lengths in [[40, 3], [20, 1]] {
            let (step, inputs) = case.step(lengths, true);
            check_numbers(&TARGETS, &step, &inputs, &case.wanted(&inputs, lengths, true), 0.0);
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_a_fault_and_leave_the_batch_as_it_was() {
    let case = Case { dtype: DType::F32, heads: 2, rows: 3, held: Some(10), total: 10, sizes: [4, 4] };
    for length in [11, i64::MAX] {
        let (step, inputs) = case.step([length, 7], true);
        let (found, fault) = simulate(&step, &inputs, &[160, 160], "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
        let list = |tensor: &Tensor| tensor.scalars().map(Scalar::as_f64).collect::<Vec<f64>>();
        assert_eq!(list(&found[0])[..80], list(&inputs[3])[..80]);
        assert_ne!(list(&found[0])[80..], list(&inputs[3])[80..]);
    }
    // More than the past holds, although it would fit.
    let short = Case { held: Some(4), ..case };
    let (step, inputs) = short.step([8, 4], false);
    assert_ne!(simulate(&step, &inputs, &[160, 160], "gfx1100", 0).unwrap().1, 0);
}
