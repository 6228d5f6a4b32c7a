//! Tests rotary position embeddings in the simulator, against loops in double precision.

use graph::prim::{Filled, Positions, Rotary};
use graph::{DType, Prim, Scalar, Tensor};

use crate::common::{check_numbers, dense, random, simulate, step, strided};

const TARGETS: [&str; 2] = ["gfx1030", "gfx906"];
/// The number of positions with angles.
const COUNT: usize = 40;

struct Case {
    extents: [usize; 4],
    half: usize,
    interleaved: bool,
    /// The number of heads next to the rotated ones.
    beside: usize,
}

impl Case {
    fn check(&self, dtype: DType, positions: Positions, operand: (DType, &[i64])) {
        let [batch, rows, heads, size] = self.extents;
        let all = heads + self.beside;
        let row = (all * size) as isize;
        let x = strided(0, dtype, &self.extents, &[rows as isize * row, row, size as isize, 1], 0);
        let values = random(dtype, batch * rows * all * size, 1);
        let [cosines, sines] = [2, 3].map(|seed| random(dtype, COUNT * self.half, seed));
        let (of, numbers) = operand;
        let shape: &[usize] = if positions == Positions::Given { &[batch, rows] } else { &[batch] };
        let operand = Tensor::from_scalars(of, &[numbers.len()], numbers.iter().map(|&n| Scalar::Int(n))).unwrap();
        let angles = [1, 2].map(|buffer| dense(buffer, dtype, &[COUNT, self.half]));
        let [c_view, s_view] = angles;
        let prim = Prim::Rotary(Rotary { interleaved: self.interleaved, positions });
        let step = step(prim, vec![x, c_view, s_view, dense(3, of, shape)], vec![dense(4, dtype, &self.extents)]);

        let list = |tensor: &Tensor| tensor.scalars().map(Scalar::as_f64).collect::<Vec<f64>>();
        let (x, c, s) = (list(&values), list(&cosines), list(&sines));
        let mut wanted = Vec::new();
        for b in 0..batch {
            for t in 0..rows {
                let position = match positions {
                    Positions::Given => numbers[b * rows + t] as usize,
                    Positions::Behind(filled) => filled.before(numbers[b]) + t,
                };
                for h in 0..heads {
                    let at = |d: usize| x[((b * rows + t) * all + h) * size + d];
                    wanted.extend((0..size).map(|d| {
                        if d >= 2 * self.half {
                            return at(d);
                        }
                        let (pair, first) =
                            if self.interleaved { (d / 2, d % 2 == 0) } else { (d % self.half, d < self.half) };
                        let distance = if self.interleaved { 1 } else { self.half };
                        let angle = position * self.half + pair;
                        if first {
                            at(d) * c[angle] - at(d + distance) * s[angle]
                        } else {
                            at(d) * c[angle] + at(d - distance) * s[angle]
                        }
                    }));
                }
            }
        }
        let relative = if dtype == DType::F32 { 1e-6 } else { 8e-3 };
        check_numbers(&TARGETS, &step, &[values, cosines, sines, operand], &[wanted], relative);
    }
}

#[test]
fn positions_are_given_or_follow_from_lengths() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            for (size, half) in [(64, 32), (48, 16), (10, 3), (6, 3)] {
                let case = Case { extents: [2, 3, 5, size], half, interleaved, beside: 2 };
                case.check(dtype, Positions::Given, (DType::I64, &[0, 39, 7, 8, 1, 0]));
                let filled = Filled { shift: -2 };
                case.check(dtype, Positions::Behind(filled), (DType::I32, &[39, 1]));
            }
        }
    }
}

#[test]
fn a_position_without_angles_is_a_fault() {
    let views = |operand| {
        let angles = [1, 2].map(|buffer| dense(buffer, DType::F32, &[COUNT, 4]));
        let [c, s] = angles;
        vec![dense(0, DType::F32, &[1, 2, 1, 8]), c, s, operand]
    };
    let filled = Filled { shift: -1 };
    for (positions, operand, numbers) in [
        (Positions::Given, dense(3, DType::I64, &[1, 2]), vec![0, 40]),
        (Positions::Given, dense(3, DType::I64, &[1, 2]), vec![-1, 4]),
        (Positions::Behind(filled), dense(3, DType::I64, &[1]), vec![40]),
        (Positions::Behind(filled), dense(3, DType::I64, &[1]), vec![i64::MAX]),
    ] {
        let prim = Prim::Rotary(Rotary { interleaved: false, positions });
        let step = step(prim, views(operand), vec![dense(4, DType::F32, &[1, 2, 1, 8])]);
        let numbers = Tensor::from_scalars(DType::I64, &[numbers.len()], numbers.into_iter().map(Scalar::Int)).unwrap();
        let angles = random(DType::F32, COUNT * 4, 2);
        let inputs = [random(DType::F32, 16, 1), angles.clone(), angles, numbers];
        let (_, fault) = simulate(&step, &inputs, &[16], "gfx1100", 0).unwrap();
        assert_ne!(fault, 0);
    }
}
