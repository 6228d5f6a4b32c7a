//! Products with weights that stay packed in a few bits.
//!
//! | | |
//! |---|---|
//! | `panel` | weights of 16 columns, so that a vector holds a word of each |
//! | `activations` | the left operand as floats, or rounded to bytes block by block |
//! | `kernel` | a few rows times one or two panels |
//! | `wide` | many rows without rounding, with the kernels of plain products |
mod activations;
mod kernel;
mod panel;
mod wide;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::{AtomicUsize, Ordering};

use graph::DType;
use graph::prim::{QuantMatMul, WeightLayout};
use half::{bf16, f16};

use crate::epilogue::Epilogue;
use crate::matmul::Output;
use crate::operand::{Source, Target};
use crate::product::{Store, Tile};
use crate::{Context, OpError, Tensor, TensorMut};
use activations::{Activations, Layout};
use kernel::{Job, Kernels};
use panel::{COLUMNS, Panels};
use wide::Wide;

pub use panel::{INTERLEAVED, interleaved};

/// Maximum columns of a kernel: two panels.
const WIDTH: usize = 2 * COLUMNS;
/// Columns of a single row that are stored together.
const ROW_WIDTH: usize = 8 * WIDTH;
/// Below this many multiplications, one thread is faster than several.
const SERIAL: usize = 1 << 16;

/// `a [1, m, k]` times the transpose of weights `[n, k]`.
pub(crate) fn run(
    prim: &QuantMatMul,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let made = epilogue.map_or(out.dtype(), |epilogue| epilogue.dtype);
    let unsupported = OpError::Unsupported { prim: "quant_matmul", dtype: made };
    let known = [WeightLayout::Onnx, INTERLEAVED].contains(&prim.layout);
    if inputs[0].dtype() != made || !known {
        return Err(unsupported);
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let to = Output { out, epilogue, alpha: 1.0 };
    match made {
        DType::F32 => typed::<f32>(prim, inputs, &to, cx),
        DType::F16 => typed::<f16>(prim, inputs, &to, cx),
        DType::Bf16 => typed::<bf16>(prim, inputs, &to, cx),
        _ => return Err(unsupported),
    }
    Ok(())
}

fn typed<T: Source<f32> + Target<f32>>(
    prim: &QuantMatMul,
    inputs: &[Tensor<'_>],
    to: &Output<'_>,
    cx: &mut Context<'_>,
) {
    let (&[_, rows, depth], columns) = (inputs[0].shape(), to.out.shape()[2]) else { return };
    let kernels = kernel::best(prim.rounds_activations);
    let panels = Panels::new(prim, columns, depth, &inputs[1..]);
    let is_wide = rows >= wide::ROWS && !kernels.rounds;
    let width = match rows {
        1 => ROW_WIDTH,
        _ if is_wide => wide::WIDTH,
        _ => WIDTH,
    };
    let units = columns.div_ceil(width);
    let workers = if rows * columns * depth < SERIAL { 1 } else { cx.parallel.threads().min(units) };
    let layout = Layout::new(prim, rows, depth, kernels.rounds);
    let share = if is_wide { Wide::scratch_bytes(&panels, rows, layout.width()) } else { panels.scratch_bytes() };
    let (left, rest) = cx.scratch.get::<u8>(layout.bytes() + workers * share).split_at_mut(layout.bytes());
    // SAFETY: the view's memory covers its extents.
    let activations = unsafe { layout.fill::<T>(&inputs[0], left, cx.parallel) };
    let memory = Memory(rest.as_mut_ptr());
    let next = AtomicUsize::new(0);
    to.with_store::<f32, T, _>(false, |store| {
        let many = is_wide.then(|| Wide::new(&panels, &activations, rows, columns));
        let product = Product { kernels, panels: &panels, activations: &activations, rows, columns, width, store };
        let work = |worker: usize| {
            let memory = &memory;
            // SAFETY: each worker has its own share of the scratch memory.
            let own = unsafe { std::slice::from_raw_parts_mut(memory.0.add(worker * share), share) };
            loop {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= units {
                    return;
                }
                match &many {
                    Some(many) => many.run(unit * width, own, store),
                    None => product.columns(unit * width, own),
                }
            }
        };
        if workers == 1 { work(0) } else { cx.parallel.run(workers, &work) }
    });
}

/// Memory split between workers.
struct Memory(*mut u8);

// SAFETY: each worker uses only its own part.
unsafe impl Sync for Memory {}

/// A product whose left operand is ready.
struct Product<'a> {
    kernels: &'static Kernels,
    panels: &'a Panels<'a>,
    activations: &'a Activations<'a>,
    rows: usize,
    columns: usize,
    /// Columns that are stored together.
    width: usize,
    store: &'a Store<'a, f32>,
}

impl Product<'_> {
    /// Computes and stores all rows of the columns starting at `first`.
    fn columns(&self, first: usize, memory: &mut [u8]) {
        // One long row, or as many short ones as the kernel supports.
        let mut tile = [0f32; ROW_WIDTH];
        let end = self.columns.min(first + self.width);
        for row in (0..self.rows).step_by(self.kernels.rows) {
            let rows = self.kernels.rows.min(self.rows - row);
            for column in (first..end).step_by(WIDTH) {
                let count = (end - column).div_ceil(COLUMNS).min(2);
                let panels = if row == 0 || self.width > WIDTH || !self.panels.is_packed() {
                    self.panels.get(column / COLUMNS, count, memory)
                } else {
                    self.panels.packed(memory, count)
                };
                let out = tile[column - first..].as_mut_ptr();
                let job = Job { panels, left: self.activations.from(row), out, out_row: self.width };
                let kernel = self.kernels.get(self.panels.product().bits, count, rows);
                // SAFETY: panels and activations are valid for the whole depth; the tile has room for as many rows of
                // this width, in whole panels.
                unsafe { kernel(&job) };
            }
            let (columns, width) = (end - first, self.width);
            (self.store)(&Tile { batch: 0, row, column: first, rows, columns, values: &tile, width });
        }
    }
}

#[cfg(test)]
mod tests;
