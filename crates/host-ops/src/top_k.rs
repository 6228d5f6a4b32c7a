//! The largest or smallest elements along the last axis.
use graph::DType;
use graph::prim::TopK;

use crate::index::with_width;
use crate::number::{Number, with_number};
use crate::rows::{Rows, ranges_with};
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
const GRAIN: usize = 4 * 1024;

pub(crate) fn run(
    search: &TopK,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let x = inputs[0];
    if x.elems() > 0 && search.k > 0 {
        with_number!(x.dtype(), N => search_as::<N>(search, &x, outputs, cx));
    }
    Ok(())
}

fn search_as<N: Ranked>(search: &TopK, x: &Tensor<'_>, outputs: &[TensorMut<'_>], cx: &mut Context<'_>) {
    let (values, numbers) = (outputs[0], outputs.get(1).copied());
    let number_strides = numbers.map_or(values.strides(), |numbers| numbers.strides());
    let rows = Rows::new(x.shape(), 1, &[x.strides(), values.strides(), number_strides]);
    let length = rows.length();
    let k = search.k.min(length);
    let [from, to, number_to] =
        [x.strides(), values.strides(), number_strides].map(|strides| strides[strides.len() - 1]);
    ranges_with::<u64>(cx, rows.count(), (GRAIN / length).max(1), 2 * length, |range, memory| {
        let (keys, order) = memory.split_at_mut(length);
        for row in range {
            rank_row::<N>(&rows, x, row, search.largest, keys);
            order.iter_mut().enumerate().for_each(|(at, place)| *place = at as u64);
            // Of equal elements, the first one wins.
            let rank = |at: &u64| (keys[*at as usize], *at);
            if k < length {
                order.select_nth_unstable_by_key(k - 1, rank);
            }
            order[..k].sort_unstable_by_key(rank);
            let offsets = [0, 1, 2].map(|view| rows.offset(view, row));
            for (at, &place) in order[..k].iter().enumerate() {
                let at = at as isize;
                let source = offsets[0] + place as isize * from;
                // SAFETY: the places are those of the row, each row belongs to one task, and the outputs have `k`
                // elements along the axis.
                unsafe {
                    with_width!(x.dtype(), T => {
                        let value = x.start().cast::<T>().wrapping_offset(source).read();
                        values.start().cast::<T>().wrapping_offset(offsets[1] + at * to).write(value);
                    });
                    if let Some(numbers) = numbers {
                        numbers.as_ptr::<i64>().wrapping_offset(offsets[2] + at * number_to).write(place as i64);
                    }
                }
            }
        }
    });
}

/// The rank of every element of a row: the best has the smallest.
fn rank_row<N: Ranked>(rows: &Rows, x: &Tensor<'_>, row: usize, largest: bool, keys: &mut [u64]) {
    const CHUNK: usize = 256;
    let mut memory = [N::ZERO; CHUNK];
    for (number, keys) in keys.chunks_mut(CHUNK).enumerate() {
        let values = &mut memory[..keys.len()];
        rows.load(0, x, row, number * CHUNK, values);
        for (key, value) in keys.iter_mut().zip(values) {
            *key = if largest { !value.rank() } else { value.rank() };
        }
    }
}

/// Numbers as integers with the same order. NaN is the largest.
trait Ranked: Number {
    fn rank(self) -> u64;
}

const SIGN: u64 = 1 << 63;

impl Ranked for f64 {
    fn rank(self) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        // Adding zero turns -0.0 into +0.0.
        let bits = (self + 0.0).to_bits();
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }
}

impl Ranked for f32 {
    fn rank(self) -> u64 {
        f64::from(self).rank()
    }
}

impl Ranked for i64 {
    fn rank(self) -> u64 {
        self as u64 ^ SIGN
    }
}

impl Ranked for u64 {
    fn rank(self) -> u64 {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_keep_the_order_of_numbers() {
        let numbers = [f64::NEG_INFINITY, -3.5, -1e-300, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
        assert!(numbers.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        assert_eq!((-0.0f64).rank(), 0.0f64.rank());
        assert!((-1i64).rank() < 0i64.rank() && i64::MIN.rank() == 0);
    }
}
