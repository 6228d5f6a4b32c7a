//! Epilogues: expressions applied to the elements of a product before they are stored.
//!
//! A finished tile and the same part of every other operand are gathered into contiguous memory, the expression runs
//! over them, and the result goes where the tile would have gone.
use std::mem::MaybeUninit;

use graph::DType;
use graph::expr::Expr;
use smallvec::SmallVec;

use crate::affine::{Affine, Along, Segment, Single};
use crate::convolve::ImageColumns;
use crate::map::Elementwise;
use crate::matmul::Matrix;
use crate::microkernel::Compute;
use crate::product::Tile;
use crate::scratch::Plain;
use crate::{Tensor, TensorMut};

/// Elements gathered at a time; no row of a tile is longer.
pub(crate) const BLOCK: usize = 1024;
/// The maximum number of other operands that the planner uses.
const OPERANDS: usize = 4;

/// Row segments computed at a time.
const SEGMENTS: usize = 16;

/// An epilogue and the memory that it reads and writes in addition to the product's.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// The expression: input 0 is the product's element, the operands follow.
    pub expr: &'a Expr,
    /// The type that the product's result would be stored in.
    pub dtype: DType,
    pub operands: &'a [Tensor<'a>],
    pub out: TensorMut<'a>,
}

/// The layout of a view, from a product's point of view.
#[derive(Clone, Copy)]
pub(crate) enum Region {
    /// A matrix for each product.
    Matrix(Matrix<()>),
    /// Images whose channels are rows; that many rows for each product.
    Image(ImageColumns, usize),
}

impl Region {
    /// The stride between columns, within a piece.
    fn step(&self) -> isize {
        match self {
            Self::Matrix(matrix) => matrix.column,
            Self::Image(place, _) => place.step(),
        }
    }

    /// Splits consecutive columns of a row into pieces: how many elements came before, the offset of the piece, its
    /// length.
    #[inline(always)]
    fn pieces(&self, [batch, row, column]: [usize; 3], count: usize, mut body: impl FnMut(usize, isize, usize)) {
        match self {
            Self::Matrix(matrix) => body(0, matrix.offset(batch, row, column), count),
            Self::Image(place, rows) => place.pieces(batch * rows + row, column, count, body),
        }
    }

    /// The offset of a row's columns, if it has no gaps.
    fn start(&self, batch: usize, row: usize, column: usize) -> isize {
        match self {
            Self::Matrix(matrix) => matrix.offset(batch, row, column),
            Self::Image(place, rows) => place.start(batch * rows + row, column),
        }
    }

    /// True if every piece of the other is also a piece of this one.
    fn has_pieces_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Image(place, _), Self::Image(other, _)) => place.has_pieces_of(other),
            _ => true,
        }
    }

    /// True if some columns are not elements.
    fn has_gaps(&self) -> bool {
        matches!(self, Self::Image(place, _) if place.has_gaps())
    }
}

/// An epilogue that is ready to run.
pub(crate) struct Mapped<'a> {
    work: Evaluator,
    inputs: SmallVec<[(Tensor<'a>, Region); OPERANDS]>,
    output: (TensorMut<'a>, Region),
}

/// How the expression is computed. It is on the stack for each step, because a box would allocate in every run.
#[allow(clippy::large_enum_variant)]
enum Evaluator {
    /// In the affine form, with operands in suitable layouts.
    Affine(Affine),
    /// Operation by operation.
    Elementwise(Elementwise),
}

/// An operand of a block, aligned to a cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Lines([MaybeUninit<u64>; BLOCK]);

impl Lines {
    /// # Safety
    /// The elements were written.
    unsafe fn slice<T: Plain>(&mut self, count: usize) -> &mut [T] {
        // SAFETY: 1024 words hold as many elements of any plain type; the caller guarantees the contents.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), count) }
    }

    fn start(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }
}

impl<'a> Mapped<'a> {
    /// An epilogue; `region` maps the strides of its views to regions.
    pub(crate) fn new(epilogue: &Epilogue<'a>, region: impl Fn(&[isize]) -> Region) -> Self {
        let Epilogue { expr, dtype, operands, out } = *epilogue;
        let dtypes = std::iter::once(dtype.compute()).chain(operands.iter().map(Tensor::dtype));
        let inputs: SmallVec<[(Tensor<'a>, Region); OPERANDS]> =
            operands.iter().map(|operand| (*operand, region(operand.strides()))).collect();
        let output = (out, region(out.strides()));
        let suits = |(tensor, operand): &(Tensor<'a>, Region)| {
            let lies_well = operand.step() == 0 || operand.step() == 1;
            tensor.dtype() == DType::F32 && lies_well && operand.has_pieces_of(&output.1)
        };
        let affine = (output.1.step() == 1 && inputs.iter().all(suits)).then(|| Affine::new(expr, dtype, out.dtype()));
        let is_uniform = |operand: usize| inputs.get(operand).is_some_and(|(_, region)| region.step() == 0);
        let work = match affine.flatten() {
            Some(affine) if affine.factor().is_none_or(is_uniform) => Evaluator::Affine(affine),
            _ => Evaluator::Elementwise(Elementwise::new(expr, dtypes, out.dtype(), BLOCK)),
        };
        Self { work, inputs, output }
    }

    /// The f32 bounds, if the epilogue only clamps.
    pub(crate) fn bounds(&self) -> Option<(f32, f32)> {
        if let Evaluator::Affine(affine) = &self.work { affine.bounds() } else { None }
    }

    /// Stores a tile. `first` returns the factor and the summand of each row's elements, which give what the product
    /// would have stored.
    ///
    /// # Safety
    /// The tile is within the output, and nothing else stores its elements.
    pub(crate) unsafe fn store<C: Compute + Single>(&self, tile: &Tile<'_, C>, first: impl Fn(usize) -> (f32, C)) {
        let work = match &self.work {
            // SAFETY: guaranteed by the caller.
            Evaluator::Affine(affine) => return unsafe { self.store_affine(affine, tile, first) },
            Evaluator::Elementwise(work) => work,
        };
        let columns = tile.columns.max(1);
        let step = (BLOCK / columns).max(1);
        for start in (0..tile.rows).step_by(step) {
            let rows = step.min(tile.rows - start);
            let part = Tile { row: tile.row + start, rows, values: &tile.values[start * tile.width..], ..*tile };
            // SAFETY: guaranteed by the caller.
            unsafe { self.store_block(work, &part, &first) };
        }
    }

    /// # Safety
    /// Same as for [`store`](Self::store).
    unsafe fn store_affine<C: Compute + Single>(
        &self,
        affine: &Affine,
        tile: &Tile<'_, C>,
        first: impl Fn(usize) -> (f32, C),
    ) {
        let (out, region) = &self.output;
        let width = out.dtype().bytes();
        if !region.has_gaps() {
            let start = out.start();
            let place = |row: usize| start.wrapping_offset(region.start(tile.batch, row, tile.column) * width as isize);
            let along = |operand: usize, row: usize| self.along(operand, tile, row);
            // SAFETY: the views' memory covers their extents, and the caller vouches for the output.
            return unsafe { affine_rows(affine, tile, first, along, place) };
        }
        // Computing whole rows with their gaps is faster than pieces of any length, so the pieces are extracted
        // afterwards.
        let step = (BLOCK / tile.columns.max(1)).max(1);
        for first_row in (0..tile.rows).step_by(step) {
            let rows = step.min(tile.rows - first_row);
            let values = &tile.values[first_row * tile.width..];
            let tile = Tile { row: tile.row + first_row, rows, values, ..*tile };
            let mut lines = MaybeUninit::<[Lines; OPERANDS + 1]>::uninit();
            // SAFETY: lines consist of `MaybeUninit` only.
            let [result, operands @ ..] = unsafe { lines.assume_init_mut() };
            let mut gathered: SmallVec<[*const f32; OPERANDS]> = SmallVec::new();
            for ((tensor, region), to) in self.inputs.iter().zip(operands) {
                if region.step() != 0 {
                    // SAFETY: the view's memory covers its extents, which are the output's.
                    unsafe { gather::<f32, C>(tensor.start().cast(), region, &tile, to) };
                }
                gathered.push(to.start().cast_const().cast());
            }
            let along = |operand: usize, row: usize| match self.inputs[operand].1.step() {
                0 => self.along(operand, &tile, row),
                _ => Along::Row(gathered[operand].wrapping_add((row - tile.row) * tile.columns)),
            };
            let start = result.start();
            let place = |row: usize| start.wrapping_add((row - tile.row) * tile.columns * width);
            // SAFETY: the lines hold as many elements, and the caller vouches for the output.
            unsafe {
                affine_rows(affine, &tile, &first, along, place);
                match width {
                    1 => scatter::<u8, C>(out.start().cast(), region, &tile, result),
                    _ => scatter::<f32, C>(out.start().cast(), region, &tile, result),
                }
            }
        }
    }

    /// An operand along a row of a tile.
    fn along<C>(&self, operand: usize, tile: &Tile<'_, C>, row: usize) -> Along {
        let (tensor, region) = &self.inputs[operand];
        let start = tensor.start().cast::<f32>().wrapping_offset(region.start(tile.batch, row, tile.column));
        // SAFETY: the view's memory covers its extents, which are the output's.
        if region.step() == 0 { Along::Uniform(unsafe { start.read() }) } else { Along::Row(start) }
    }

    /// # Safety
    /// Same as for [`store`](Self::store); the tile has at most [`BLOCK`] elements.
    unsafe fn store_block<C: Compute>(
        &self,
        work: &Elementwise,
        tile: &Tile<'_, C>,
        first: &impl Fn(usize) -> (f32, C),
    ) {
        let (rows, columns) = (tile.rows, tile.columns);
        let count = rows * columns;
        let mut lines = MaybeUninit::<[Lines; OPERANDS + 2]>::uninit();
        // SAFETY: lines consist of `MaybeUninit` only.
        let [result, sums, operands @ ..] = unsafe { lines.assume_init_mut() };
        // SAFETY: any bit pattern is a plain element, and every row is written before it is read.
        let prepared = unsafe { sums.slice::<C>(count) };
        for (at, to) in prepared.chunks_exact_mut(columns.max(1)).enumerate() {
            let (alpha, bias) = first(tile.row + at);
            for (to, value) in to.iter_mut().zip(&tile.values[at * tile.width..]) {
                *to = value.scaled(alpha).plus(bias);
            }
        }
        let mut addresses: SmallVec<[*const u8; OPERANDS + 1]> = SmallVec::new();
        addresses.push(sums.start().cast_const());
        for ((tensor, region), to) in self.inputs.iter().zip(operands) {
            // SAFETY: the view's memory covers its extents, which are the output's.
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
        // SAFETY: each address holds `count` elements of its type, and they do not overlap.
        unsafe {
            work.run(count, &addresses, result.start());
            match out.dtype().bytes() {
                1 => scatter::<u8, C>(out.start().cast(), region, tile, result),
                2 => scatter::<u16, C>(out.start().cast(), region, tile, result),
                4 => scatter::<u32, C>(out.start().cast(), region, tile, result),
                _ => scatter::<u64, C>(out.start().cast(), region, tile, result),
            }
        }
    }
}

/// Computes whole rows of a tile; `place` returns where each one goes.
///
/// # Safety
/// Operands along a row and places have as many elements as the tile has columns.
unsafe fn affine_rows<C: Compute + Single>(
    affine: &Affine,
    tile: &Tile<'_, C>,
    first: impl Fn(usize) -> (f32, C),
    along: impl Fn(usize, usize) -> Along,
    place: impl Fn(usize) -> *mut u8,
) {
    let mut segments: SmallVec<[Segment<C>; SEGMENTS]> = SmallVec::new();
    for at in 0..tile.rows {
        let row = tile.row + at;
        let values = &tile.values[at * tile.width..][..tile.columns];
        segments.push(affine.segment(values, first(row), |operand| along(operand, row), place(row)));
        if segments.len() == SEGMENTS || at + 1 == tile.rows {
            // SAFETY: guaranteed by the caller.
            unsafe { affine.run(&segments) };
            segments.clear();
        }
    }
}

/// Gathers a tile's part of a view.
///
/// # Safety
/// The view's memory covers the whole tile.
unsafe fn gather<T: Plain, C>(from: *const T, region: &Region, tile: &Tile<'_, C>, to: &mut Lines) {
    let (columns, step) = (tile.columns, region.step());
    // SAFETY: any bit pattern is a plain element; columns that are not elements are zeroed, all others written.
    let to = unsafe { to.slice::<T>(tile.rows * columns) };
    if region.has_gaps() {
        // SAFETY: zeros are an element of every plain type.
        to.fill(unsafe { std::mem::zeroed() });
    }
    for (at, to) in to.chunks_exact_mut(columns.max(1)).enumerate() {
        region.pieces([tile.batch, tile.row + at, tile.column], columns, |done, offset, count| {
            let (from, to) = (from.wrapping_offset(offset), &mut to[done..done + count]);
            // SAFETY: guaranteed by the caller.
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

/// Scatters a tile to its view.
///
/// # Safety
/// Same as for [`gather`]; `from` holds the tile, and nothing else stores its elements.
unsafe fn scatter<T: Plain, C>(to: *mut T, region: &Region, tile: &Tile<'_, C>, from: &mut Lines) {
    let (columns, step) = (tile.columns, region.step());
    // SAFETY: guaranteed by the caller.
    let from = unsafe { from.slice::<T>(tile.rows * columns) };
    for (at, from) in from.chunks_exact(columns.max(1)).enumerate() {
        region.pieces([tile.batch, tile.row + at, tile.column], columns, |done, offset, count| {
            let (to, from) = (to.wrapping_offset(offset), &from[done..done + count]);
            // SAFETY: guaranteed by the caller.
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
