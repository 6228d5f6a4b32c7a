//! A row times a matrix: every element of the matrix is read once, so memory sets the speed.
use std::ops::Range;

use crate::{Parallel, epilogue::BLOCK, microkernel::Compute, operand::Source, simd::vectorised};

/// Columns whose sums stay in the first cache; fewer would be short runs of memory from each row.
const COLUMNS: usize = 4096;
/// Rows that are added at a time. Sums are loaded and stored once for all of them, and memory is read ahead in as many places.
const ROWS: usize = 16;
/// Columns that are summed up in registers.
const LANES: usize = 16;
/// Elements of a row that are converted at a time, where the matrix is of another type than the sums.
const CHUNK: usize = 256;
/// Columns of matrices that are so small that buffers for larger ones would cost more than the product.
const FEW: usize = 64;
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
pub(crate) unsafe fn gemv<C: Compute, B: Source<C>>(
    vector: &[C],
    matrix: Operand<B>,
    columns: usize,
    parallel: &dyn Parallel,
    store: impl Fn(usize, &[C]) + Sync,
) {
    let grain = GRAIN.div_ceil(vector.len().max(1)).next_multiple_of(64);
    parallel.ranges(columns, grain, |range| {
        // SAFETY: the caller vouches for all rows and columns.
        unsafe {
            if range.len() <= FEW {
                some_columns::<FEW, FEW, C, B>(vector, &matrix, range, &store);
            } else {
                some_columns::<COLUMNS, CHUNK, C, B>(vector, &matrix, range, &store);
            }
        }
    });
}

/// These columns, `MOST` at a time.
///
/// # Safety
/// As for [`gemv`], of these columns.
unsafe fn some_columns<const MOST: usize, const CHUNK: usize, C: Compute, B: Source<C>>(
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
                sum_rows::<CHUNK, C, B>(vector, from, sums);
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
/// The matrix has that many rows, each of as many neighbours as there are sums.
unsafe fn sum_rows<const CHUNK: usize, C: Compute, B: Source<C>>(vector: &[C], matrix: Operand<B>, sums: &mut [C]) {
    sums.fill(C::ZERO);
    let mut converted = [[C::ZERO; CHUNK]; ROWS];
    for (at, factors) in vector.chunks(ROWS).enumerate() {
        let row = |number: usize| matrix.offset((at * ROWS + number) as isize * matrix.row).start;
        if B::SAME {
            let mut rows: [&[C]; ROWS] = [&[]; ROWS];
            for (number, place) in rows.iter_mut().take(factors.len()).enumerate() {
                // SAFETY: the caller vouches for the row, whose elements are stored as `C` is.
                *place = unsafe { std::slice::from_raw_parts(row(number).cast(), sums.len()) };
            }
            add_rows(sums, factors, &rows);
            continue;
        }
        for (at, sums) in sums.chunks_mut(CHUNK).enumerate() {
            for (number, to) in converted.iter_mut().take(factors.len()).enumerate() {
                // SAFETY: the caller vouches for the row, of which this is a part.
                let from = unsafe { std::slice::from_raw_parts(row(number).wrapping_add(at * CHUNK), sums.len()) };
                B::read_all(from, &mut to[..sums.len()]);
            }
            add_rows(sums, factors, &converted.each_ref().map(|row| &row[..sums.len()]));
        }
    }
}

/// The dot product of the vector with each column.
///
/// # Safety
/// The matrix has a column of as many neighbours as the vector has elements for each sum.
unsafe fn sum_columns<C: Compute, B: Source<C>>(vector: &[C], matrix: Operand<B>, sums: &mut [C]) {
    let mut converted = [C::ZERO; CHUNK];
    for (column, sum) in sums.iter_mut().enumerate() {
        let from = matrix.offset(column as isize * matrix.column).start;
        if B::SAME {
            // SAFETY: the caller vouches for the column, whose elements are stored as `C` is.
            *sum = dot(vector, unsafe { std::slice::from_raw_parts(from.cast(), vector.len()) });
            continue;
        }
        *sum = C::ZERO;
        for (at, factors) in vector.chunks(CHUNK).enumerate() {
            let converted = &mut converted[..factors.len()];
            // SAFETY: as above.
            B::read_all(unsafe { std::slice::from_raw_parts(from.wrapping_add(at * CHUNK), factors.len()) }, converted);
            *sum = sum.plus(dot(factors, converted));
        }
    }
}

vectorised! {
    /// Adds rows times their factors to sums, as far as all of these rows reach.
    fn add_rows<C: Compute>(sums: &mut [C], factors: &[C], rows: &[&[C]; ROWS]) {
        // A count that the compiler knows is worth a fifth of the time.
        match factors.first_chunk::<ROWS>() {
            Some(all) => add_blocks::<WIDE, C>(sums, all, rows),
            None => add_blocks::<WIDE, C>(sums, factors, rows),
        }
    }
}

#[inline(always)]
fn add_blocks<const WIDE: bool, C: Compute>(sums: &mut [C], factors: &[C], rows: &[&[C]; ROWS]) {
    let reach = rows.iter().take(factors.len()).fold(sums.len(), |reach, row| reach.min(row.len()));
    let sums = &mut sums[..reach];
    let (blocks, rest) = sums.as_chunks_mut::<LANES>();
    let done = blocks.len() * LANES;
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut held = *block;
        for (&factor, row) in factors.iter().zip(rows) {
            // SAFETY: each of these rows has `reach` elements or more, and the block ends at `done` or before.
            let values = unsafe { row.as_ptr().add(at * LANES).cast::<[C; LANES]>().read_unaligned() };
            for (sum, value) in held.iter_mut().zip(values) {
                *sum = factor.fused::<WIDE>(value, *sum);
            }
        }
        *block = held;
    }
    for (at, sum) in rest.iter_mut().enumerate() {
        for (&factor, row) in factors.iter().zip(rows) {
            // SAFETY: each of these rows has `reach` elements or more, and `done + at` is below that.
            *sum = factor.fused::<WIDE>(unsafe { *row.get_unchecked(done + at) }, *sum);
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
