//! Products of many rows without rounding: weights are unpacked to floats, some columns at a time, for the kernels of
//! plain products.
use graph::prim::QuantMatMul;

use super::activations::Activations;
use super::panel::{COLUMNS, Panel, Panels};
use crate::Serial;
use crate::carve::{carve, piece};
use crate::matmul::table;
use crate::product::{Extents, Left, Right, Schedule, Store, Tile, product};
use crate::simd::vectorised;

/// Columns unpacked to floats at a time: a few strips of a kernel, whose depths all fit in the L2 cache.
pub(super) const WIDTH: usize = 4 * COLUMNS;
/// Minimum number of rows for which unpacking a weight to a float pays off.
pub(super) const ROWS: usize = 48;

/// A product of many rows whose left operand is ready.
pub(super) struct Wide<'a> {
    schedule: Schedule<f32>,
    panels: &'a Panels<'a>,
    activations: &'a Activations<'a>,
    columns: usize,
}

impl<'a> Wide<'a> {
    pub fn new(panels: &'a Panels<'a>, activations: &'a Activations<'a>, rows: usize, columns: usize) -> Self {
        let depth = activations.width();
        let extents = Extents { batch: 1, rows, columns: WIDTH, depth };
        Self { schedule: Schedule::new(extents, &Serial, false), panels, activations, columns }
    }

    /// Bytes that [`run`](Self::run) needs.
    pub fn scratch_bytes(panels: &Panels<'_>, rows: usize, depth: usize) -> usize {
        let extents = Extents { batch: 1, rows, columns: WIDTH, depth };
        let schedule = Schedule::<f32>::new(extents, &Serial, false);
        panels.scratch_bytes()
            + piece::<f32>(depth * WIDTH)
            + piece::<f32>(schedule.scratch())
            + 2 * piece::<isize>(depth)
    }

    /// Computes and stores all rows of the columns starting at `first`.
    pub fn run(&self, first: usize, memory: &mut [u8], store: &Store<'_, f32>) {
        let depth = self.activations.width();
        let (own, mut rest) = memory.split_at_mut(self.panels.scratch_bytes());
        let weights = carve::<f32>(&mut rest, depth * WIDTH);
        let scratch = carve::<f32>(&mut rest, self.schedule.scratch());
        let left_depth = table(carve(&mut rest, depth), 1);
        let right_depth = table(carve(&mut rest, depth), WIDTH as isize);
        let end = self.columns.min(first + WIDTH);
        for column in (first..end).step_by(COLUMNS) {
            let [panel, _] = self.panels.get(column / COLUMNS, 1, own);
            let product = self.panels.product();
            let to = &mut weights[column - first..];
            match product.bits {
                2 => unpack_2(&panel, product, depth, to),
                4 => unpack_4(&panel, product, depth, to),
                _ => unpack_8(&panel, product, depth, to),
            }
        }
        let rows = self.activations.floats();
        let left = Left { start: rows, batch: 0, row: depth as isize, depth: left_depth };
        let right =
            Right { start: weights.as_ptr(), batch: 0, depth: right_depth, column: 1, in_place: true, is_far: false };
        let shifted = |tile: &Tile<'_, f32>| {
            let columns = tile.columns.min(end.saturating_sub(first + tile.column));
            if columns > 0 {
                store(&Tile { column: first + tile.column, columns, ..*tile });
            }
        };
        // SAFETY: all rows and depths are valid on both sides; columns past the last one hold arbitrary numbers and are
        // not stored.
        unsafe { product(&self.schedule, &left, &right, scratch, &Serial, &shifted) };
    }
}

/// Unpacks a panel's weights to floats, one depth in each row of `WIDTH`.
macro_rules! unpack {
    ($name:ident, $bits:literal) => {
        vectorised! {
            fn $name(panel: &Panel, product: &QuantMatMul, depth: usize, to: &mut [f32]) {
                const PER_WORD: usize = 32 / $bits;
                let mask = u32::MAX >> (32 - $bits);
                let words = product.block / PER_WORD;
                for (at, to) in to.chunks_mut(PER_WORD * WIDTH).take(depth / PER_WORD).enumerate() {
                    let block = at / words;
                    // SAFETY: the panel is valid for all blocks.
                    let (mut word, scales) = unsafe {
                        (
                            panel.weights.cast::<[u32; COLUMNS]>().add(at).read_unaligned(),
                            panel.scales.cast::<[f32; COLUMNS]>().add(block).read_unaligned(),
                        )
                    };
                    let zeros = if panel.zeros.is_null() {
                        scales.map(|scale| scale * product.middle() as f32)
                    } else {
                        // SAFETY: as above.
                        unsafe { panel.zeros.cast::<[f32; COLUMNS]>().add(block).read_unaligned() }
                    };
                    for row in to.chunks_mut(WIDTH) {
                        for (column, to) in row[..COLUMNS].iter_mut().enumerate() {
                            *to = (word[column] & mask) as i32 as f32 * scales[column] - zeros[column];
                        }
                        word = word.map(|word| word.unbounded_shr($bits));
                    }
                }
            }
        }
    };
}

unpack!(unpack_2, 2);
unpack!(unpack_4, 4);
unpack!(unpack_8, 8);
