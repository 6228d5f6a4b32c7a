//! The left operand, as kernels read it.
use graph::prim::{QuantMatMul, Zeros};

use crate::carve::{carve, piece};
use crate::operand::Source;
use crate::product::read_row;
use crate::scratch::Plain;
use crate::simd::vectorised;
use crate::{Parallel, Tensor};

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;

/// The memory layout of the left operand.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    rows: usize,
    depth: usize,
    blocks: usize,
    block: usize,
    bits: usize,
    /// Minus the zero point, if all weights share it.
    start: i32,
    rounds: bool,
}

/// Some rows of the left operand, padded with zeros to whole blocks.
#[derive(Clone, Copy)]
pub(super) struct Left {
    /// Blocks of a row.
    pub blocks: usize,
    /// Elements of a block.
    pub block: usize,
    /// The numbers, if they are not rounded.
    pub floats: *const f32,
    /// The rounded numbers, in the order in which weights are unpacked from their words.
    pub bytes: *const i8,
    /// The sum of each block's numbers.
    pub sums: *const f32,
    /// The scale of each block's bytes.
    pub scales: *const f32,
    /// The sum of each block's bytes times minus the shared zero point.
    pub starts: *const i32,
    /// The shared zero point of all weights.
    pub middle: f32,
}

/// The left operand in memory.
pub(super) struct Activations<'a> {
    layout: Layout,
    floats: &'a [f32],
    bytes: &'a [i8],
    sums: &'a [f32],
    scales: &'a [f32],
    starts: &'a [i32],
}

impl Activations<'_> {
    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.layout.width()
    }

    /// All rows, if they are not rounded.
    pub fn floats(&self) -> *const f32 {
        self.floats.as_ptr()
    }

    /// The rows starting at `row`.
    pub fn from(&self, row: usize) -> Left {
        let Layout { blocks, block, start, .. } = self.layout;
        let (elems, at) = (row * blocks * block, row * blocks);
        Left {
            blocks,
            block,
            floats: self.floats.as_ptr().wrapping_add(elems),
            bytes: self.bytes.as_ptr().wrapping_add(elems),
            sums: self.sums.as_ptr().wrapping_add(at),
            scales: self.scales.as_ptr().wrapping_add(at),
            starts: self.starts.as_ptr().wrapping_add(at),
            middle: -start as f32,
        }
    }
}

/// Memory that is split between tasks by rows.
struct Rows<T>(*mut T);

// SAFETY: each row is filled by one task.
unsafe impl<T> Sync for Rows<T> {}

impl<T: Plain> Rows<T> {
    /// # Safety
    /// The row is valid, and nothing else uses it.
    #[allow(clippy::mut_from_ref)]
    unsafe fn get(&self, row: usize, count: usize) -> &mut [T] {
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(row * count), count) }
    }
}

impl Layout {
    pub fn new(prim: &QuantMatMul, rows: usize, depth: usize, rounds: bool) -> Self {
        let start = if prim.zeros == Zeros::Middle { -(prim.middle() as i32) } else { 0 };
        let (bits, block) = (prim.bits, prim.block);
        Self { rows, depth, blocks: prim.blocks(depth), block, bits, start, rounds }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.blocks * self.block
    }

    /// The number of floats, of bytes, and of per-block values.
    fn counts(&self) -> [usize; 3] {
        let (elems, blocks) = (self.rows * self.width(), self.rows * self.blocks);
        [if self.rounds { 0 } else { elems }, if self.rounds { elems } else { 0 }, blocks]
    }

    /// Bytes that [`fill`](Self::fill) takes.
    pub fn bytes(&self) -> usize {
        let [floats, bytes, blocks] = self.counts();
        piece::<f32>(floats) + piece::<i8>(bytes) + 2 * piece::<f32>(blocks) + piece::<i32>(blocks)
    }

    /// Reads the left operand.
    ///
    /// # Safety
    /// The memory of `a [1, rows, depth]` covers its extents.
    pub unsafe fn fill<'m, T: Source<f32>>(
        self,
        a: &Tensor<'_>,
        memory: &'m mut [u8],
        parallel: &dyn Parallel,
    ) -> Activations<'m> {
        let [floats, bytes, blocks] = self.counts();
        let mut rest = memory;
        let floats = carve::<f32>(&mut rest, floats);
        let bytes = carve::<i8>(&mut rest, bytes);
        let sums = carve::<f32>(&mut rest, blocks);
        let scales = carve::<f32>(&mut rest, blocks);
        let starts = carve::<i32>(&mut rest, blocks);
        let to = (Rows(floats.as_mut_ptr()), Rows(bytes.as_mut_ptr()));
        let each = (Rows(sums.as_mut_ptr()), Rows(scales.as_mut_ptr()), Rows(starts.as_mut_ptr()));
        let start = a.as_ptr::<T>();
        let (down, across) = (a.strides()[1], a.strides()[2]);
        let from = From { start, down, across };
        parallel.ranges(self.rows, GRAIN.div_ceil(self.width().max(1)), |range| {
            let (to, each, from) = (&to, &each, &from);
            for row in range {
                // SAFETY: each row is filled once, and has room for all blocks.
                let (sums, scales, starts) = unsafe {
                    (each.0.get(row, self.blocks), each.1.get(row, self.blocks), each.2.get(row, self.blocks))
                };
                let read = |first: usize, to: &mut [f32]| {
                    let count = to.len().min(self.depth - first);
                    let offset = row as isize * from.down + first as isize * from.across;
                    // SAFETY: the caller vouches for the view.
                    unsafe { read_row(from.start.wrapping_offset(offset), from.across, &mut to[..count]) };
                    to[count..].fill(0.0);
                };
                if !self.rounds {
                    // SAFETY: as above.
                    let floats = unsafe { to.0.get(row, self.width()) };
                    read(0, floats);
                    sum_blocks(floats, self.block, sums);
                    continue;
                }
                // SAFETY: as above.
                let bytes = unsafe { to.1.get(row, self.width()) };
                let mut numbers = [0f32; MAX_BLOCK];
                for at in 0..self.blocks {
                    let numbers = &mut numbers[..self.block];
                    read(at * self.block, numbers);
                    let bytes = &mut bytes[at * self.block..][..self.block];
                    let (scale, sum) = round(numbers, bytes);
                    in_words(bytes, self.bits);
                    scales[at] = scale;
                    starts[at] = self.start * sum;
                    sums[at] = scale * sum as f32;
                }
            }
        });
        Activations { layout: self, floats, bytes, sums, scales, starts }
    }
}

/// The largest supported block.
const MAX_BLOCK: usize = 256;

/// A view to read from.
struct From<T> {
    start: *const T,
    down: isize,
    across: isize,
}

// SAFETY: only read, and nothing writes it during a step (see `run`).
unsafe impl<T> Sync for From<T> {}

vectorised! {
    fn sum_blocks(numbers: &[f32], block: usize, sums: &mut [f32]) {
        for (sum, numbers) in sums.iter_mut().zip(numbers.chunks_exact(block)) {
            let mut lanes = [0f32; 16];
            for numbers in numbers.chunks_exact(16) {
                lanes.iter_mut().zip(numbers).for_each(|(lane, number)| *lane += number);
            }
            *sum = lanes.iter().sum();
        }
    }
}

vectorised! {
    /// Rounds numbers to bytes and returns their scale and the sum of the bytes.
    fn round(numbers: &[f32], to: &mut [i8]) -> (f32, i32) {
        let (mut lanes, mut faults) = ([0f32; 16], [0f32; 16]);
        for numbers in numbers.chunks_exact(16) {
            for ((lane, fault), number) in lanes.iter_mut().zip(&mut faults).zip(numbers) {
                *lane = if number.abs() > *lane { number.abs() } else { *lane };
                *fault += number * 0.0;
            }
        }
        // NaN if any number is NaN or infinite: then the whole block is NaN.
        let fault: f32 = faults.into_iter().sum();
        let largest = lanes.into_iter().fold(0f32, f32::max);
        let factor = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut sums = [0i32; 16];
        for (numbers, to) in numbers.chunks_exact(16).zip(to.chunks_exact_mut(16)) {
            for ((sum, number), to) in sums.iter_mut().zip(numbers).zip(to) {
                // Adding and subtracting 1.5 · 2^23 rounds to the nearest integer, which fits a byte here.
                let whole = (number * factor + 12_582_912.0) - 12_582_912.0;
                // SAFETY: within ±127, or NaN, which is not converted.
                let whole = unsafe { if whole.is_nan() { 0 } else { whole.to_int_unchecked::<i32>() } };
                *sum += whole;
                *to = whole as i8;
            }
        }
        (largest / 127.0 + fault, sums.into_iter().sum())
    }
}

/// Reorders bytes to match the unpacking of weights from words: each shift yields one weight per byte.
fn in_words(bytes: &mut [i8], bits: usize) {
    for bytes in bytes.chunks_exact_mut(16) {
        let from: [i8; 16] = std::array::from_fn(|at| bytes[at]);
        let to: [i8; 16] = match bits {
            4 => std::array::from_fn(|at| from[at / 8 * 8 + at % 4 * 2 + at / 4 % 2]),
            2 => std::array::from_fn(|at| from[at % 4 * 4 + at / 4]),
            _ => return,
        };
        bytes.copy_from_slice(&to);
    }
}
