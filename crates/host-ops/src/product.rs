//! Blocked matrix products over operands that are read through tables.
//!
//! The output is split into cells, which workers take one after the other. Within a cell the depth is split so that one
//! strip of the right operand stays in the L1 cache while all rows of the cell use it. Operands are packed only if that
//! pays off or if their type must change.
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Parallel;
use crate::microkernel::{Compute, Kernels, Strip};
use crate::operand::Source;
use crate::scratch::Plain;
use crate::simd::prefetch;

/// Maximum depth of a strip of the right operand.
const DEPTH: usize = 256;
/// Maximum number of row strips and column strips in a cell.
const CELL_ROWS: usize = 20;
const CELL_COLUMNS: usize = 8;
/// Depths of the left operand packed at a time.
const PACKED: usize = 64;
/// The size of a cache line.
const LINE: usize = 64;
/// From this many row strips per cell on, prefetching the next column strip costs little.
const FETCHED_ROWS: usize = 4;
/// Below this many multiplications, one thread is faster than several.
const SERIAL: usize = 1 << 16;

/// The extents of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Independent products.
    pub batch: usize,
    /// Rows of the left operand and of the output.
    pub rows: usize,
    /// Columns of the right operand and of the output.
    pub columns: usize,
    /// Columns of the left operand, rows of the right one.
    pub depth: usize,
}

/// The left operand, at `start + batch·b + row·r + depth[p]`.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a, S> {
    /// The first element.
    pub start: *const S,
    /// The stride between the operands of successive products.
    pub batch: isize,
    /// The stride between rows.
    pub row: isize,
    /// The offset of each depth.
    pub depth: &'a [isize],
}

/// The right operand, at `start + batch·b + depth[p] + column·c`.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a, S> {
    /// The first element.
    pub start: *const S,
    /// The stride between the operands of successive products.
    pub batch: isize,
    /// The offset of each depth.
    pub depth: &'a [isize],
    /// The stride between columns.
    pub column: isize,
    /// Columns are contiguous, and reading whole strips of them in place beats packing.
    pub in_place: bool,
    /// Columns are contiguous and do not fit in a cache: strips are prefetched.
    pub is_far: bool,
}

// SAFETY: operands are only read, and nothing writes them during a step (see `run`).
unsafe impl<S: Sync> Sync for Left<'_, S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Right<'_, S> {}

/// How a product is split and packed.
pub(crate) struct Schedule<C: 'static> {
    extents: Extents,
    kernels: &'static Kernels<C>,
    pack_left: bool,
    cell_rows: usize,
    cell_columns: usize,
    workers: usize,
}

impl<C: Compute> Schedule<C> {
    /// Chooses packing and cells.
    pub(crate) fn new(extents: Extents, parallel: &dyn Parallel, is_left_packed: bool) -> Self {
        let kernels = C::kernels();
        let strips = (extents.rows.div_ceil(kernels.rows), extents.columns.div_ceil(kernels.columns));
        let work = extents.batch * extents.rows * extents.columns * extents.depth;
        let threads = if work < SERIAL { 1 } else { parallel.threads() };
        let (mut rows, mut columns) = (CELL_ROWS.min(strips.0).max(1), CELL_COLUMNS.min(strips.1).max(1));
        let cells = |rows, columns| extents.batch * strips.0.div_ceil(rows) * strips.1.div_ceil(columns);
        // A few cells per thread even out differences in speed.
        while threads > 1 && cells(rows, columns) < threads * 3 && (rows > 1 || columns > 1) {
            if columns > 1 && (columns * 2 >= rows || rows == 1) {
                columns = columns.div_ceil(2);
            } else {
                rows = rows.div_ceil(2);
            }
        }
        let workers = threads.min(cells(rows, columns)).max(1);
        // Packing costs one more pass over the left operand, and pays off when many strips use it.
        let pack_left = is_left_packed || strips.1 >= 4;
        Self { extents, kernels, pack_left, cell_rows: rows, cell_columns: columns, workers }
    }

    /// The extents.
    pub(crate) fn extents(&self) -> Extents {
        self.extents
    }

    /// The scratch memory that [`product`] needs, in elements of `C`.
    pub(crate) fn scratch(&self) -> usize {
        self.packed_left() + self.workers * self.worker_scratch()
    }

    fn packed_left(&self) -> usize {
        if self.pack_left { self.extents.batch * self.left_stride() } else { 0 }
    }

    /// Elements of one product's packed left operand.
    fn left_stride(&self) -> usize {
        self.extents.rows.div_ceil(self.kernels.rows) * self.kernels.rows * self.extents.depth
    }

    fn tile(&self) -> usize {
        self.kernels.rows * self.kernels.columns
    }

    /// One strip of the right operand, and the tiles of a cell if the depth is split.
    fn worker_scratch(&self) -> usize {
        let tiles = if self.extents.depth > DEPTH { self.cell_rows * self.cell_columns } else { 1 };
        self.kernels.columns * self.extents.depth.min(DEPTH) + tiles * self.tile()
    }
}

/// A finished part of a product's output.
pub(crate) struct Tile<'a, C> {
    /// The index of the product.
    pub batch: usize,
    /// The first row.
    pub row: usize,
    /// The first column.
    pub column: usize,
    pub rows: usize,
    pub columns: usize,
    /// The rows, `width` elements apart.
    pub values: &'a [C],
    pub width: usize,
}

impl<'a, C> Tile<'a, C> {
    /// One row.
    pub(crate) fn of_row(row: usize, column: usize, values: &'a [C]) -> Self {
        Self { batch: 0, row, column, rows: 1, columns: values.len(), values, width: values.len() }
    }

    /// Calls `body` with each row's index and values.
    #[inline(always)]
    pub(crate) fn each_row(&self, mut body: impl FnMut(usize, &'a [C])) {
        for at in 0..self.rows {
            body(self.row + at, &self.values[at * self.width..][..self.columns]);
        }
    }
}

/// Receives finished tiles, on any thread.
pub(crate) type Store<'a, C> = dyn Fn(&Tile<'_, C>) + Sync + 'a;

/// Offsets of each depth in packed strips.
struct Steps {
    table: [isize; DEPTH],
}

impl Steps {
    fn new(step: usize) -> Self {
        Self { table: std::array::from_fn(|p| (p * step) as isize) }
    }
}

/// Memory split into one part per worker.
#[derive(Clone, Copy)]
struct Shared<C>(*mut C);

// SAFETY: each worker uses only its own part.
unsafe impl<C> Send for Shared<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for Shared<C> {}

impl<C: Plain> Shared<C> {
    /// # Safety
    /// No two live slices may overlap, and the memory is large enough.
    #[allow(clippy::mut_from_ref)]
    unsafe fn part<'a>(&self, start: usize, count: usize) -> &'a mut [C] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), count) }
    }
}

/// Computes all products and passes every finished tile to `store`, each element once. A depth of zero gives zeros.
///
/// # Safety
/// The operands' memory covers all extents.
pub(crate) unsafe fn product<C, A, B>(
    schedule: &Schedule<C>,
    left: &Left<'_, A>,
    right: &Right<'_, B>,
    scratch: &mut [C],
    parallel: &dyn Parallel,
    store: &Store<'_, C>,
) where
    C: Compute,
    A: Source<C>,
    B: Source<C>,
{
    let Schedule { extents, kernels, workers, .. } = *schedule;
    let (packed, private) = scratch.split_at_mut(schedule.packed_left());
    if schedule.pack_left {
        // SAFETY: guaranteed by the caller.
        unsafe { pack_left(schedule, left, packed, parallel) };
    }
    let packed: &[C] = packed;
    let row_strips = extents.rows.div_ceil(kernels.rows);
    let column_strips = extents.columns.div_ceil(kernels.columns);
    let row_cells = row_strips.div_ceil(schedule.cell_rows);
    let column_cells = column_strips.div_ceil(schedule.cell_columns);
    let cells = extents.batch * row_cells * column_cells;
    let steps = Steps::new(kernels.columns);
    let share = schedule.worker_scratch();
    let private = Shared(private.as_mut_ptr());
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        // SAFETY: `scratch()` includes one share for each worker, and each worker has a unique number.
        let memory = unsafe { private.part(worker * share, share) };
        loop {
            let cell = next.fetch_add(1, Ordering::Relaxed);
            if cell >= cells {
                return;
            }
            // Cells with adjacent numbers share columns, so that they find the right operand in the cache.
            let (rest, row_cell) = (cell / row_cells, cell % row_cells);
            let (batch, column_cell) = (rest / column_cells, rest % column_cells);
            let range = |cell: usize, size: usize, strips: usize| cell * size..((cell + 1) * size).min(strips);
            let cell = Cell {
                schedule,
                batch,
                rows: range(row_cell, schedule.cell_rows, row_strips),
                columns: range(column_cell, schedule.cell_columns, column_strips),
                packed: &packed[if schedule.pack_left { batch * schedule.left_stride() } else { 0 }..],
                steps: &steps,
            };
            // SAFETY: guaranteed by the caller.
            unsafe { cell.run(left, right, memory, store) };
        }
    };
    if workers == 1 { work(0) } else { parallel.run(workers, &work) }
}

/// Part of one product's output.
struct Cell<'a, C: 'static> {
    schedule: &'a Schedule<C>,
    batch: usize,
    /// In strips.
    rows: Range<usize>,
    /// In strips.
    columns: Range<usize>,
    packed: &'a [C],
    steps: &'a Steps,
}

impl<C: Compute> Cell<'_, C> {
    /// # Safety
    /// Same as for [`product`].
    unsafe fn run<A: Source<C>, B: Source<C>>(
        &self,
        left: &Left<'_, A>,
        right: &Right<'_, B>,
        memory: &mut [C],
        store: &Store<'_, C>,
    ) {
        let Schedule { extents, kernels, pack_left, .. } = *self.schedule;
        let tile_elems = self.schedule.tile();
        let blocks = extents.depth.div_ceil(DEPTH).max(1);
        let block = extents.depth.div_ceil(blocks);
        let (strip, tiles) = memory.split_at_mut(kernels.columns * extents.depth.min(DEPTH));
        for at in 0..blocks {
            let depth = at * block..((at + 1) * block).min(extents.depth);
            let (is_first, is_last) = (at == 0, at + 1 == blocks);
            for (column_at, column_strip) in self.columns.clone().enumerate() {
                let column = column_strip * kernels.columns;
                let columns = kernels.columns.min(extents.columns - column);
                // SAFETY: guaranteed by the caller.
                let (right_start, right_depth) = unsafe { self.right(right, column..column + columns, &depth, strip) };
                let next = if column_at + 1 < self.columns.len() {
                    self.ahead(right, column_strip + 1, &depth)
                } else if !is_last {
                    self.ahead(right, self.columns.start, &(depth.end..(depth.end + block).min(extents.depth)))
                } else {
                    self.ahead(right, self.columns.end, &(0..block))
                };
                for (row_at, row_strip) in self.rows.clone().enumerate() {
                    let row = row_strip * kernels.rows;
                    let rows = kernels.rows.min(extents.rows - row);
                    next.fetch(row_at, self.rows.len());
                    let place = if blocks > 1 { (column_at * self.rows.len() + row_at) * tile_elems } else { 0 };
                    let tile = &mut tiles[place..place + tile_elems];
                    let (left_start, left_depth, kernel) = if pack_left {
                        let start =
                            &self.packed[row_strip * kernels.rows * extents.depth + depth.start * kernels.rows..];
                        (start.as_ptr(), std::ptr::null(), kernels.packed[rows - 1])
                    } else {
                        let offset = self.batch as isize * left.batch + row as isize * left.row;
                        let start = left.start.wrapping_offset(offset).cast::<C>();
                        (start, left.depth[depth.start..].as_ptr(), kernels.direct[rows - 1])
                    };
                    let job = Strip {
                        depth: depth.len(),
                        left: left_start,
                        left_row: left.row,
                        left_depth,
                        right: right_start,
                        right_depth,
                        tile: tile.as_mut_ptr(),
                        first: is_first,
                    };
                    // SAFETY: both operands are valid for the whole strip: guaranteed by the caller, or because they
                    // are packed.
                    unsafe { kernel(&job) };
                    if is_last {
                        let (batch, width) = (self.batch, kernels.columns);
                        store(&Tile { batch, row, column, rows, columns, values: tile, width });
                    }
                }
            }
        }
    }

    /// The strip to prefetch, if there is one and it is worth it.
    fn ahead<'a, B: Source<C>>(&self, right: &Right<'a, B>, strip: usize, depth: &Range<usize>) -> Ahead<'a, B> {
        let Schedule { extents, kernels, .. } = *self.schedule;
        let column = strip * kernels.columns;
        let is_worth_it = right.is_far && column < extents.columns && self.rows.len() >= FETCHED_ROWS;
        let depth = if is_worth_it { &right.depth[depth.clone()] } else { &[] };
        let width = kernels.columns.min(extents.columns.saturating_sub(column));
        Ahead { start: self.strip_start(right, column), depth, width }
    }

    fn strip_start<B>(&self, right: &Right<'_, B>, column: usize) -> *const B {
        right.start.wrapping_offset(self.batch as isize * right.batch + column as isize * right.column)
    }

    /// The location of a strip of the right operand: in place, or packed into `strip`.
    ///
    /// # Safety
    /// Same as for [`product`].
    unsafe fn right<B: Source<C>>(
        &self,
        right: &Right<'_, B>,
        columns: Range<usize>,
        depth: &Range<usize>,
        strip: &mut [C],
    ) -> (*const C, *const isize) {
        let width = self.schedule.kernels.columns;
        let start = self.strip_start(right, columns.start);
        if B::SAME && right.in_place && columns.len() == width {
            return (start.cast(), right.depth[depth.clone()].as_ptr());
        }
        for (row, &offset) in strip.chunks_exact_mut(width).zip(&right.depth[depth.clone()]) {
            let from = start.wrapping_offset(offset);
            let (row, rest) = row.split_at_mut(columns.len());
            // SAFETY: the columns are within the operand.
            unsafe { read_row(from, right.column, row) };
            rest.fill(C::ZERO);
        }
        (strip.as_ptr(), self.steps.table.as_ptr())
    }
}

/// The next strip. Its rows are too far apart for the hardware prefetcher, so they are prefetched while kernels work on
/// the current strip.
struct Ahead<'a, B> {
    start: *const B,
    depth: &'a [isize],
    width: usize,
}

impl<B> Ahead<'_, B> {
    /// Prefetches one of `parts` parts.
    #[inline(always)]
    fn fetch(&self, part: usize, parts: usize) {
        let bound = |part: usize| self.depth.len() * part / parts;
        for &offset in &self.depth[bound(part)..bound(part + 1)] {
            let row = self.start.wrapping_offset(offset).cast::<u8>();
            (0..self.width * size_of::<B>()).step_by(LINE).for_each(|at| prefetch(row.wrapping_add(at)));
        }
    }
}

/// Reads elements with stride `step`.
///
/// # Safety
/// They are valid.
#[inline(always)]
pub(crate) unsafe fn read_row<C: Plain, S: Source<C>>(from: *const S, step: isize, row: &mut [C]) {
    if step == 1 {
        // SAFETY: guaranteed by the caller.
        let from = unsafe { std::slice::from_raw_parts(from, row.len()) };
        S::read_all(from, row);
    } else if step == 2 {
        // With a constant step, the compiler uses loads and shuffles.
        for (at, to) in row.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *to = unsafe { from.add(at * 2).read() }.read();
        }
    } else {
        for (at, to) in row.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *to = unsafe { from.offset(at as isize * step).read() }.read();
        }
    }
}

/// Packs the whole left operand into strips of rows, depth by depth; rows past the last are not written.
///
/// # Safety
/// Same as for [`product`].
unsafe fn pack_left<C: Compute, A: Source<C>>(
    schedule: &Schedule<C>,
    left: &Left<'_, A>,
    packed: &mut [C],
    parallel: &dyn Parallel,
) {
    let Schedule { extents, kernels, .. } = *schedule;
    let strips = extents.rows.div_ceil(kernels.rows);
    let strip_elems = kernels.rows * extents.depth;
    if strip_elems == 0 {
        return;
    }
    let packed = Shared(packed.as_mut_ptr());
    let grain = (1usize << 14).div_ceil(strip_elems);
    parallel.ranges(extents.batch * strips, grain, |range| {
        for at in range {
            // SAFETY: each strip is packed once.
            let strip = unsafe { packed.part(at * strip_elems, strip_elems) };
            let (batch, row) = (at / strips, at % strips * kernels.rows);
            let rows = kernels.rows.min(extents.rows - row);
            let start = left.start.wrapping_offset(batch as isize * left.batch + row as isize * left.row);
            // Blocks of depths keep the written cache lines in the cache while rows are read along their length.
            for (block, depths) in strip.chunks_mut(kernels.rows * PACKED).zip(left.depth.chunks(PACKED)) {
                let are_neighbours = !A::SAME && depths.windows(2).all(|pair| pair[1] == pair[0] + 1);
                for r in 0..rows {
                    let from = start.wrapping_offset(r as isize * left.row);
                    if are_neighbours {
                        let mut values = [C::ZERO; PACKED];
                        let values = &mut values[..depths.len()];
                        // SAFETY: guaranteed by the caller.
                        unsafe { read_row(from.wrapping_offset(depths[0]), 1, values) };
                        block[r..].iter_mut().step_by(kernels.rows).zip(values).for_each(|(to, value)| *to = *value);
                        continue;
                    }
                    for (to, &offset) in block[r..].iter_mut().step_by(kernels.rows).zip(depths) {
                        // SAFETY: guaranteed by the caller.
                        *to = unsafe { from.offset(offset).read() }.read();
                    }
                }
            }
        }
    });
}
