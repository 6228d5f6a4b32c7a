//! Vector times matrix: every element of the matrix is read once, so it is limited by memory bandwidth.
use std::ops::Range;

use crate::Parallel;
use crate::epilogue::BLOCK;
use crate::microkernel::Compute;
use crate::operand::{LANES, Source};
use crate::simd::{prefetch, vectorised};

/// Columns whose sums stay in the L1 cache; with fewer, each row would be read in short runs.
const COLUMNS: usize = 4096;
/// Rows added at a time: sums are loaded and stored once for all of them. More rows would evict each other from the L1
/// cache if they are a multiple of its size apart.
const ROWS: usize = 8;
/// Column count of matrices so small that buffers for larger ones would cost more than the product.
const FEW: usize = 64;
/// Minimum number of matrix elements per task.
const GRAIN: usize = 1 << 15;
/// Minimum number of columns per task: shorter runs of each row are slow to read.
const GRAIN_COLUMNS: usize = 128;

/// A matrix with one stride equal to 1.
#[derive(Clone, Copy)]
pub(crate) struct Operand<C> {
    /// The first element.
    pub start: *const C,
    /// The stride between rows.
    pub row: isize,
    /// The stride between columns.
    pub column: isize,
}

impl<C> Operand<C> {
    /// The matrix that starts `elems` elements further on.
    pub(crate) fn offset(self, elems: isize) -> Self {
        Self { start: self.start.wrapping_offset(elems), ..self }
    }
}

// SAFETY: only read, and nothing writes it during a step (see `run`).
unsafe impl<C: Sync> Sync for Operand<C> {}

/// Passes `vector · matrix` to `store`, at most [`BLOCK`] consecutive columns at a time, as the first column and the
/// values.
///
/// # Safety
/// The matrix has a row for each element of the vector and that many columns; its rows or its columns are contiguous.
pub(crate) unsafe fn gemv<C: Compute, B: Source<C>>(
    vector: &[C],
    matrix: Operand<B>,
    columns: usize,
    parallel: &dyn Parallel,
    store: impl Fn(usize, &[C]) + Sync,
) {
    let grain = GRAIN.div_ceil(vector.len().max(1)).next_multiple_of(GRAIN_COLUMNS);
    parallel.ranges(columns, grain, |range| {
        // SAFETY: the caller vouches for all rows and columns.
        unsafe {
            if range.len() <= FEW {
                some_columns::<FEW, C, B>(vector, &matrix, range, &store);
            } else {
                some_columns::<COLUMNS, C, B>(vector, &matrix, range, &store);
            }
        }
    });
}

/// Computes these columns, `MOST` at a time.
///
/// # Safety
/// Same as for [`gemv`], for these columns.
unsafe fn some_columns<const MOST: usize, C: Compute, B: Source<C>>(
    vector: &[C],
    matrix: &Operand<B>,
    range: Range<usize>,
    store: &impl Fn(usize, &[C]),
) {
    let mut sums = [C::ZERO; MOST];
    for start in range.clone().step_by(MOST) {
        let sums = &mut sums[..MOST.min(range.end - start)];
        let from = matrix.offset(start as isize * matrix.column);
        // SAFETY: the caller vouches for all rows and columns.
        unsafe {
            if matrix.column == 1 {
                sum_rows(vector, from, sums);
            } else {
                sum_columns(vector, from, sums);
            }
        }
        for (at, sums) in sums.chunks(BLOCK).enumerate() {
            store(start + at * BLOCK, sums);
        }
    }
}

/// The sum of all rows, each times an element of the vector.
///
/// # Safety
/// The matrix has that many rows, each with as many contiguous elements as there are sums.
unsafe fn sum_rows<C: Compute, B: Source<C>>(vector: &[C], matrix: Operand<B>, sums: &mut [C]) {
    sums.fill(C::ZERO);
    for (at, factors) in vector.chunks(ROWS).enumerate() {
        let mut rows: [&[B]; ROWS] = [&[]; ROWS];
        for (number, place) in rows.iter_mut().take(factors.len()).enumerate() {
            let start = matrix.offset((at * ROWS + number) as isize * matrix.row).start;
            // SAFETY: the caller vouches for the row.
            *place = unsafe { std::slice::from_raw_parts(start, sums.len()) };
        }
        add_rows(sums, factors, &rows, ROWS as isize * matrix.row);
    }
}

/// The dot product of the vector with each column.
///
/// # Safety
/// The matrix has a contiguous column for each sum, as long as the vector.
unsafe fn sum_columns<C: Compute, B: Source<C>>(vector: &[C], matrix: Operand<B>, sums: &mut [C]) {
    for (column, sum) in sums.iter_mut().enumerate() {
        let from = matrix.offset(column as isize * matrix.column).start;
        // SAFETY: the caller vouches for the column.
        *sum = dot(vector, unsafe { std::slice::from_raw_parts(from, vector.len()) });
    }
}

vectorised! {
    /// Adds rows times their factors to sums, up to the shortest row. The rows added next are `ahead` elements further
    /// on.
    fn add_rows<C: Compute, B: Source<C>>(sums: &mut [C], factors: &[C], rows: &[&[B]; ROWS], ahead: isize) {
        // A count known at compile time saves a fifth of the time.
        match factors.first_chunk::<ROWS>() {
            Some(all) => add_blocks::<WIDE, C, B>(sums, all, rows, ahead),
            None => add_blocks::<WIDE, C, B>(sums, factors, rows, ahead),
        }
    }
}

#[inline(always)]
fn add_blocks<const WIDE: bool, C: Compute, B: Source<C>>(
    sums: &mut [C],
    factors: &[C],
    rows: &[&[B]; ROWS],
    ahead: isize,
) {
    let reach = rows.iter().take(factors.len()).fold(sums.len(), |reach, row| reach.min(row.len()));
    let sums = &mut sums[..reach];
    let (blocks, rest) = sums.as_chunks_mut::<LANES>();
    let done = blocks.len() * LANES;
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut held = *block;
        for (&factor, row) in factors.iter().zip(rows) {
            // SAFETY: each of these rows has `reach` elements or more, and the block ends at `done` or before.
            let values = unsafe { &*row.as_ptr().add(at * LANES).cast::<[B; LANES]>() };
            prefetch(values.as_ptr().wrapping_offset(ahead).cast());
            let values = B::lanes::<WIDE>(values);
            for (sum, value) in held.iter_mut().zip(values) {
                *sum = factor.fused::<WIDE>(value, *sum);
            }
        }
        *block = held;
    }
    for (at, sum) in rest.iter_mut().enumerate() {
        for (&factor, row) in factors.iter().zip(rows) {
            // SAFETY: each of these rows has `reach` elements or more, and `done + at` is below that.
            *sum = factor.fused::<WIDE>(unsafe { *row.get_unchecked(done + at) }.read(), *sum);
        }
    }
}

vectorised! {
    /// The dot product of two slices of equal length.
    fn dot<C: Compute, B: Source<C>>(a: &[C], b: &[B]) -> C {
        // Enough independent chains to hide the latency of an addition.
        let mut sums = [[C::ZERO; LANES]; 2];
        let (a_blocks, a_rest) = a.as_chunks::<LANES>();
        let (b_blocks, b_rest) = b.as_chunks::<LANES>();
        for (a, b) in a_blocks.chunks(2).zip(b_blocks.chunks(2)) {
            for (sums, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
                for ((sum, &x), y) in sums.iter_mut().zip(a).zip(B::lanes::<WIDE>(b)) {
                    *sum = x.fused::<WIDE>(y, *sum);
                }
            }
        }
        let tail = a_rest.iter().zip(b_rest).fold(C::ZERO, |sum, (&x, &y)| x.fused::<WIDE>(y.read(), sum));
        sums.into_iter().flatten().fold(tail, C::plus)
    }
}
