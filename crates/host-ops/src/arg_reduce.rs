//! The index of the largest or smallest element along the last axis.
use graph::DType;
use graph::prim::ArgReduce;

use crate::number::{Number, with_number};
use crate::rows::Rows;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
const GRAIN: usize = 16 * 1024;
/// Elements processed at a time.
const CHUNK: usize = 512;

pub(crate) fn run(
    search: &ArgReduce,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if x.elems() > 0 {
        with_number!(x.dtype(), N => search_as::<N>(search, &x, &y, cx));
    }
    Ok(())
}

fn search_as<N: Number>(search: &ArgReduce, x: &Tensor<'_>, y: &TensorMut<'_>, cx: &mut Context<'_>) {
    let kept = x.shape().len() - 1;
    // The output may keep the last axis with extent one.
    let mut strides: smallvec::SmallVec<[isize; 6]> = y.strides().iter().copied().take(kept).collect();
    strides.push(0);
    let rows = Rows::new(x.shape(), 1, &[x.strides(), &strides]);
    cx.parallel.ranges(rows.count(), (GRAIN / rows.length()).max(1), |range| {
        for row in range {
            let index = best(search, &rows, x, row, read_first::<N>(&rows, x, row));
            let to = y.as_ptr::<i64>().wrapping_offset(rows.offset(1, row));
            // SAFETY: the element is within the output, and each row belongs to one task.
            unsafe { to.write(index as i64) };
        }
    });
}

fn read_first<N: Number>(rows: &Rows, x: &Tensor<'_>, row: usize) -> [N; 1] {
    let mut first = [N::ZERO];
    rows.load(0, x, row, 0, &mut first);
    first
}

/// The index of the best element of a row. NaN beats any number, as in NumPy.
fn best<N: Number>(search: &ArgReduce, rows: &Rows, x: &Tensor<'_>, row: usize, [first]: [N; 1]) -> usize {
    let (mut best, mut index) = (first, 0);
    let mut memory = [first; CHUNK];
    for start in (0..rows.length()).step_by(CHUNK) {
        let chunk = &mut memory[..CHUNK.min(rows.length() - start)];
        rows.load(0, x, row, start, chunk);
        for (at, &value) in chunk.iter().enumerate() {
            if best.is_nan() && !(search.last && value.is_nan()) {
                continue;
            }
            let wins = if search.largest { value > best } else { value < best };
            if wins || value.is_nan() || (search.last && value == best) {
                (best, index) = (value, start + at);
            }
        }
    }
    index
}
