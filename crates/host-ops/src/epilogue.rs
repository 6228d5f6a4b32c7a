//! What is done to the elements of a product before they are stored.
//!
//! A finished tile and the same part of every further operand are laid out one element after the other, the expression
//! runs over them, and the result goes where the tile would have gone.
use std::mem::MaybeUninit;

use graph::prim::Fused;
use smallvec::SmallVec;

use crate::{Tensor, TensorMut, convolve::Place, map::Elementwise, matmul::Matrix, product::Tile, scratch::Plain};

/// Elements that are laid out at a time; no row of a tile is longer.
pub(crate) const BLOCK: usize = 1024;
/// Further operands that the planner gives at most.
const OPERANDS: usize = 4;

/// An epilogue and the memory that it reads and writes besides the product.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    pub fused: &'a Fused,
    pub operands: &'a [Tensor<'a>],
    pub out: TensorMut<'a>,
}

/// How the elements of a view lie, seen from a product.
#[derive(Clone, Copy)]
pub(crate) enum Region {
    /// As a matrix for each product.
    Matrix(Matrix<()>),
    /// As images whose channels are rows; that many rows for each product.
    Image(Place, usize),
}

impl Region {
    /// Elements from one column to the next, within a piece.
    fn step(&self) -> isize {
        match self {
            Self::Matrix(matrix) => matrix.column,
            Self::Image(place, _) => place.step(),
        }
    }

    /// Neighbouring columns of a row in pieces: how many elements came before, where the piece starts, how long it is.
    #[inline(always)]
    fn pieces(&self, [batch, row, column]: [usize; 3], count: usize, mut body: impl FnMut(usize, isize, usize)) {
        match self {
            Self::Matrix(matrix) => body(0, matrix.offset(batch, row, column), count),
            Self::Image(place, rows) => place.pieces(batch * rows + row, column, count, body),
        }
    }

    /// True if some columns show no element.
    fn has_gaps(&self) -> bool {
        matches!(self, Self::Image(place, _) if place.has_gaps())
    }
}

/// An epilogue that is ready to run.
pub(crate) struct Mapped<'a> {
    work: Elementwise,
    inputs: SmallVec<[(Tensor<'a>, Region); OPERANDS]>,
    output: (TensorMut<'a>, Region),
}

/// One operand of a block, aligned to cache lines.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Lines([MaybeUninit<u64>; BLOCK]);

impl Lines {
    /// # Safety
    /// The elements were written.
    unsafe fn slice<T: Plain>(&mut self, count: usize) -> &mut [T] {
        // SAFETY: 1024 words hold as many elements of any plain type; the caller's word for the contents.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), count) }
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

impl<'a> Mapped<'a> {
    /// An epilogue whose views have the regions that `region` gives for their strides.
    pub(crate) fn new(epilogue: &Epilogue<'a>, region: impl Fn(&[isize]) -> Region) -> Self {
        let Epilogue { fused, operands, out } = *epilogue;
        let dtypes = std::iter::once(fused.dtype.compute()).chain(operands.iter().map(Tensor::dtype));
        Self {
            work: Elementwise::new(&fused.epilogue, dtypes, out.dtype(), BLOCK),
            inputs: operands.iter().map(|operand| (*operand, region(operand.strides()))).collect(),
            output: (out, region(out.strides())),
        }
    }

    /// Stores a tile. `prepare` gets each row's number and values and where to put what the product would have stored.
    ///
    /// # Safety
    /// The tile lies within the output, and no one else stores its elements.
    pub(crate) unsafe fn store<C: Plain>(&self, tile: &Tile<'_, C>, prepare: impl Fn(usize, &[C], &mut [C])) {
        let columns = tile.columns.max(1);
        let step = (BLOCK / columns).max(1);
        for first in (0..tile.rows).step_by(step) {
            let rows = step.min(tile.rows - first);
            let start = first * tile.width;
            let part = Tile { row: tile.row + first, rows, values: &tile.values[start..], ..*tile };
            // SAFETY: the caller's.
            unsafe { self.store_block(&part, &prepare) };
        }
    }

    /// # Safety
    /// As for [`store`](Self::store); the tile has at most [`BLOCK`] elements.
    unsafe fn store_block<C: Plain>(&self, tile: &Tile<'_, C>, prepare: &impl Fn(usize, &[C], &mut [C])) {
        let (rows, columns) = (tile.rows, tile.columns);
        let count = rows * columns;
        let mut lines = [const { Lines([MaybeUninit::uninit(); BLOCK]) }; OPERANDS + 2];
        let [result, sums, operands @ ..] = &mut lines;
        // SAFETY: any bits are a plain element, and every row is written by `prepare` before it is read.
        let prepared = unsafe { sums.slice::<C>(count) };
        for (at, to) in prepared.chunks_exact_mut(columns.max(1)).enumerate() {
            prepare(tile.row + at, &tile.values[at * tile.width..][..columns], to);
        }
        let mut addresses: SmallVec<[*const u8; OPERANDS + 1]> = SmallVec::new();
        addresses.push(sums.start().cast_const());
        for ((tensor, region), to) in self.inputs.iter().zip(operands) {
            // SAFETY: the view is there for its extents, which are the output's.
            unsafe {
                match tensor.dtype().bytes() {
                    1 => gather::<u8, C>(tensor.start().cast(), region, tile, to),
                    2 => gather::<u16, C>(tensor.start().cast(), region, tile, to),
                    4 => gather::<u32, C>(tensor.start().cast(), region, tile, to),
                    _ => gather::<u64, C>(tensor.start().cast(), region, tile, to),
                }
            }
            addresses.push(to.start().cast_const());
        }
        let (out, region) = &self.output;
        // SAFETY: each address holds `count` elements of its type, and none is another's.
        unsafe {
            self.work.run(count, &addresses, result.start());
            match out.dtype().bytes() {
                1 => scatter::<u8, C>(out.start().cast(), region, tile, result),
                2 => scatter::<u16, C>(out.start().cast(), region, tile, result),
                4 => scatter::<u32, C>(out.start().cast(), region, tile, result),
                _ => scatter::<u64, C>(out.start().cast(), region, tile, result),
            }
        }
    }
}

/// Lays out a tile's part of a view.
///
/// # Safety
/// The view is there for all of the tile.
unsafe fn gather<T: Plain, C>(from: *const T, region: &Region, tile: &Tile<'_, C>, to: &mut Lines) {
    let (columns, step) = (tile.columns, region.step());
    // SAFETY: any bits are a plain element; columns that show no element are zeroed, all others written.
    let to = unsafe { to.slice::<T>(tile.rows * columns) };
    if region.has_gaps() {
        // SAFETY: zeros are an element of every plain type.
        to.fill(unsafe { std::mem::zeroed() });
    }
    for (at, to) in to.chunks_exact_mut(columns.max(1)).enumerate() {
        region.pieces([tile.batch, tile.row + at, tile.column], columns, |done, offset, count| {
            let (from, to) = (from.wrapping_offset(offset), &mut to[done..done + count]);
            // SAFETY: the caller's.
            unsafe {
                match step {
                    0 => to.fill(from.read()),
                    1 => to.copy_from_slice(std::slice::from_raw_parts(from, count)),
                    _ => to.iter_mut().enumerate().for_each(|(at, to)| *to = from.offset(at as isize * step).read()),
                }
            }
        });
    }
}

/// Puts a tile where its view is.
///
/// # Safety
/// As for [`gather`]; `from` holds the tile, and no one else stores its elements.
unsafe fn scatter<T: Plain, C>(to: *mut T, region: &Region, tile: &Tile<'_, C>, from: &mut Lines) {
    let (columns, step) = (tile.columns, region.step());
    // SAFETY: the caller's.
    let from = unsafe { from.slice::<T>(tile.rows * columns) };
    for (at, from) in from.chunks_exact(columns.max(1)).enumerate() {
        region.pieces([tile.batch, tile.row + at, tile.column], columns, |done, offset, count| {
            let (to, from) = (to.wrapping_offset(offset), &from[done..done + count]);
            // SAFETY: the caller's.
            unsafe {
                if step == 1 {
                    std::slice::from_raw_parts_mut(to, count).copy_from_slice(from);
                } else {
                    from.iter().enumerate().for_each(|(at, &value)| to.offset(at as isize * step).write(value));
                }
            }
        });
    }
}
