//! Rotary position embeddings, element by element.

use graph::prim::{Filled, Positions, Rotary};
use graph::{DType, Prim};

use super::{Sample, dense, ints, random, strided};

/// The number of positions with angles.
pub const COUNT: usize = 40;

/// A head at a position with these cosines and sines. Elements that have no angle stay as they are.
pub fn turned(head: &[f64], cosines: &[f64], sines: &[f64], interleaved: bool) -> Vec<f64> {
    let half = cosines.len();
    let element = |d: usize| {
        if d >= 2 * half {
            return head[d];
        }
        let (pair, is_first) = if interleaved { (d / 2, d.is_multiple_of(2)) } else { (d % half, d < half) };
        let distance = if interleaved { 1 } else { half };
        if is_first {
            head[d] * cosines[pair] - head[d + distance] * sines[pair]
        } else {
            head[d] * cosines[pair] + head[d - distance] * sines[pair]
        }
    };
    (0..head.len()).map(element).collect()
}

/// Heads to rotate.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The element type.
    pub dtype: DType,
    /// The number of sequences, of tokens in each, of heads, and the size of a head.
    pub extents: [usize; 4],
    /// The number of angles of a position.
    pub half: usize,
    /// Whether neighbours are rotated, instead of elements `half` apart.
    pub interleaved: bool,
    /// The number of heads next to the rotated ones in memory.
    pub beside: usize,
    /// Where the positions come from.
    pub positions: Positions,
    /// The operand with the positions or lengths.
    pub numbers: Vec<i64>,
}

impl Rotation {
    /// The step.
    pub fn sample(&self) -> Sample {
        let [batch, rows, heads, size] = self.extents;
        let all = heads + self.beside;
        let row = (all * size) as isize;
        let x = strided(0, self.dtype, &self.extents, &[rows as isize * row, row, size as isize, 1], 0);
        let angles = [(1, 2), (2, 3)].map(|(buffer, seed)| {
            (dense(buffer, self.dtype, &[COUNT, self.half]), random(self.dtype, COUNT * self.half, seed))
        });
        let (of, shape) = match self.positions {
            Positions::Given => (DType::I64, &[batch, rows][..]),
            Positions::Behind(_) => (DType::I32, &[batch][..]),
        };
        let operand = (dense(3, of, shape), ints(of, self.numbers.iter().copied()));
        let inputs = [(x, random(self.dtype, batch * rows * all * size, 1))].into_iter().chain(angles).chain([operand]);
        let prim = Prim::Rotary(Rotary { interleaved: self.interleaved, positions: self.positions });
        Sample::new(prim, inputs.collect(), vec![dense(4, self.dtype, &self.extents)])
    }

    /// The rotated heads, for the values of the sample's inputs.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<f64> {
        let [_, rows, heads, size] = self.extents;
        let tokens = values[0].chunks(heads * size).enumerate();
        let turned = tokens.flat_map(|(token, elements)| {
            let position = match self.positions {
                Positions::Given => values[3][token] as usize,
                Positions::Behind(filled) => filled.before(values[3][token / rows] as i64) + token % rows,
            };
            let [cosines, sines] = [1, 2].map(|at| &values[at][position * self.half..][..self.half]);
            elements.chunks(size).flat_map(|head| turned(head, cosines, sines, self.interleaved)).collect::<Vec<_>>()
        });
        turned.collect()
    }
}

/// Positions that are given and that follow from lengths, with all, some and an odd number of elements rotated.
pub fn rotations() -> Vec<Rotation> {
    let mut all = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for interleaved in [false, true] {
            for (size, half) in [(64, 32), (48, 16), (10, 3), (6, 3)] {
                let given = Rotation {
                    dtype,
                    extents: [2, 3, 5, size],
                    half,
                    interleaved,
                    beside: 2,
                    positions: Positions::Given,
                    numbers: vec![0, 39, 7, 8, 1, 0],
                };
                let positions = Positions::Behind(Filled { shift: -2 });
                all.push(Rotation { positions, numbers: vec![39, 1], ..given.clone() });
                all.push(given);
            }
        }
    }
    all
}

/// Positions without angles.
pub fn out_of_range() -> Vec<Rotation> {
    let behind = Positions::Behind(Filled { shift: -1 });
    let case = |(positions, numbers): (Positions, &[i64])| Rotation {
        dtype: DType::F32,
        extents: [1, 2, 1, 8],
        half: 4,
        interleaved: false,
        beside: 0,
        positions,
        numbers: numbers.to_vec(),
    };
    let far = i64::from(i32::MAX);
    [(Positions::Given, &[0, 40][..]), (Positions::Given, &[-1, 4]), (behind, &[40]), (behind, &[far])]
        .map(case)
        .to_vec()
}
