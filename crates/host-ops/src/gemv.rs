//! A row times a matrix: every element of the matrix is read once, so memory sets the speed.
use crate::{Parallel, epilogue::BLOCK, microkernel::Compute, simd::vectorised};

/// Columns whose sums stay in the first cache; fewer would be short runs of memory from each row.
const COLUMNS: usize = 4096;
/// Elements of the matrix that are worth a task.
const GRAIN: usize = 1 << 15;

/// A matrix one of whose strides is 1.
#[derive(Clone, Copy)]
pub(crate) struct Operand<C> {
    /// The first element.
    pub start: *const C,
    /// Elements from one row to the next.
    pub row: isize,
    /// Elements from one column to the next.
    pub column: isize,
}

impl<C> Operand<C> {
    /// The matrix that starts some elements further on.
    pub(crate) fn offset(self, elems: isize) -> Self {
        Self { start: self.start.wrapping_offset(elems), ..self }
    }
}

// SAFETY: only read, and nobody writes it during a step (see `run`).
unsafe impl<C: Sync> Sync for Operand<C> {}

/// Hands `vector · matrix` to `store`, at most [`BLOCK`] neighbouring columns at a time, as the first column and their values.
///
/// # Safety
/// The matrix has a row for each element of the vector and that many columns; its rows or its columns are contiguous.
pub(crate) unsafe fn gemv<C: Compute>(
    vector: &[C],
    matrix: Operand<C>,
    columns: usize,
    parallel: &dyn Parallel,
    store: impl Fn(usize, &[C]) + Sync,
) {
    let grain = GRAIN.div_ceil(vector.len().max(1)).next_multiple_of(64);
    parallel.ranges(columns, grain, |range| {
        let matrix = &matrix;
        let mut sums = [C::ZERO; COLUMNS];
        for start in range.clone().step_by(COLUMNS) {
            let sums = &mut sums[..COLUMNS.min(range.end - start)];
            let from = matrix.start.wrapping_offset(start as isize * matrix.column);
            if matrix.column == 1 {
                sums.fill(C::ZERO);
                let mut rows = vector.chunks_exact(4);
                let mut at = 0;
                // SAFETY: the caller vouches for all rows.
                let row = |p: usize, count: usize| unsafe {
                    std::slice::from_raw_parts(from.wrapping_offset(p as isize * matrix.row), count)
                };
                for factors in &mut rows {
                    let [r0, r1, r2, r3] = std::array::from_fn(|i| row(at + i, sums.len()));
                    add_rows(sums, factors, r0, r1, r2, r3);
                    at += 4;
                }
                for &factor in rows.remainder() {
                    add_row(sums, factor, row(at, sums.len()));
                    at += 1;
                }
            } else {
                for (column, sum) in sums.iter_mut().enumerate() {
                    let from = from.wrapping_offset(column as isize * matrix.column);
                    // SAFETY: the caller vouches for all columns.
                    *sum = dot(vector, unsafe { std::slice::from_raw_parts(from, vector.len()) });
                }
            }
            for (at, sums) in sums.chunks(BLOCK).enumerate() {
                store(start + at * BLOCK, sums);
            }
        }
    });
}

vectorised! {
    fn add_rows<C: Compute>(sums: &mut [C], factors: &[C], r0: &[C], r1: &[C], r2: &[C], r3: &[C]) {
        let &[f0, f1, f2, f3] = factors else { return };
        for ((((sum, &a), &b), &c), &d) in sums.iter_mut().zip(r0).zip(r1).zip(r2).zip(r3) {
            *sum = f3.mul_add(d, f2.mul_add(c, f1.mul_add(b, f0.mul_add(a, *sum))));
        }
    }
}

vectorised! {
    fn add_row<C: Compute>(sums: &mut [C], factor: C, row: &[C]) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            *sum = factor.mul_add(value, *sum);
        }
    }
}

vectorised! {
    /// The dot product of slices of one length.
    pub(crate) fn dot<C: Compute>(a: &[C], b: &[C]) -> C {
        // As many chains as hide the latency of an addition.
        let mut sums = [C::ZERO; 32];
        let (mut a, mut b) = (a.chunks_exact(32), b.chunks_exact(32));
        for (a, b) in (&mut a).zip(&mut b) {
            for ((sum, &x), &y) in sums.iter_mut().zip(a).zip(b) {
                *sum = x.mul_add(y, *sum);
            }
        }
        let tail = a.remainder().iter().zip(b.remainder()).fold(C::ZERO, |sum, (&x, &y)| x.mul_add(y, sum));
        sums.into_iter().fold(tail, C::plus)
    }
}
