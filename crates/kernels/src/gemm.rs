//! Chooses the kernels of a product: `hip/conv.hip`, `hip/gemm.hip`, `hip/direct.hip`, `hip/combine.hip`.
use graph::prim::ProductKind;
use graph::{DType, Declined, Step, View};

use crate::conv;
use crate::gemv::{self, FEW_ROWS, Few};
use crate::layout::Layout;
use crate::product::{Choice, Product, Side, Spatial};
use crate::{Arch, Launch, Launches, Matrix};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const GEMM: &str = text!("product.h", "gemm.hip");
const GEMM_MATRIX: &str = text!("product.h", "mma.h", "gemm.hip");
const DIRECT: &str = text!("product.h", "direct.hip");
const COMBINE: &str = text!("product.h", "combine.hip");

/// Maximum number of blocks along x that every driver supports; more continue along z.
pub(crate) const MAX_BLOCKS: u64 = (1 << 22) - 1;
/// Threads of every block here.
const THREADS: u32 = 256;

/// The launches of a product.
pub(crate) fn work(step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let product = Product::new(step)?;
    if product.rows * product.columns * product.batches() == 0 {
        return Ok(Launches::nothing());
    }
    if product.norm.is_some() || product.gate.is_some() {
        // Only this kernel supports a norm or a gate. The product is not transposed, because its rows would then be
        // those of the other operand.
        return match Few::of(&product) {
            Some(Few::Rows) if product.spatial.is_none() && product.batches() == 1 => gemv::work(&product, arch),
            _ => Err(Declined::new("a norm or a gate of many rows, or of several products")),
        };
    }
    if product.spatial.is_some() {
        let is_small = product.rows <= FEW_ROWS || product.depth() <= FEW_ROWS;
        return if is_small { direct(&product) } else { multiplied(&product, arch) };
    }
    if product.rows * product.columns <= 256 && product.channels <= 64 && product.batches() > 1 {
        return direct(&product);
    }
    // Adjacent output elements belong to adjacent lanes.
    let (column, row) = (product.out.1.at[2], product.out.1.row);
    let product = if column != 1 && row == 1 { product.turned() } else { product };
    match Few::of(&product) {
        Some(Few::Rows) => gemv::work(&product, arch),
        Some(Few::Columns) => gemv::work(&product.turned(), arch),
        None => multiplied(&product, arch),
    }
}

/// A product of many rows and columns.
fn multiplied(product: &Product<'_>, arch: &Arch) -> Result<Launches, Declined> {
    conv::work(product, arch).map_or_else(|| tiled(product, arch), Ok)
}

/// True for a product of two matrices that takes as long as reading the larger one, which our kernel reads once. With
/// more rows, matrix instructions matter more.
pub fn has_few_rows(step: &Step) -> bool {
    matches!(step.prim.product_and_epilogue(), Some((ProductKind::MatMul(_), _)))
        && Product::new(step).is_ok_and(|product| {
            product.batches() == 1 && product.rows.min(product.columns) <= 2 && Few::of(&product).is_some()
        })
}

/// This many blocks along x, continued along z if they do not fit, times `parts`.
pub(crate) fn grid(blocks: u64, parts: u32) -> [u32; 3] {
    [blocks.min(MAX_BLOCKS) as u32, parts, blocks.div_ceil(MAX_BLOCKS).max(1) as u32]
}

fn launch(kernel: crate::Kernel, blocks: u64, parts: u32, product: &Product<'_>, choice: &Choice) -> Launch {
    Launch { kernel, grid: grid(blocks, parts), threads: THREADS, lds_bytes: 0, args: product.args(choice) }
}

/// Adds the second pass, if it is needed.
pub(crate) fn finished(first: Launch, product: &Product<'_>, choice: &Choice) -> Result<Launches, Declined> {
    if choice.splits == 1 {
        return Ok(Launches::one(first));
    }
    let sums = product.rows * product.columns * product.batches();
    let kernel = product.kernel("combine", COMBINE, false);
    let second = launch(kernel, sums.div_ceil(u64::from(THREADS)), 1, product, choice);
    let scratch_bytes = (sums * u64::from(choice.splits)) as usize * product.sum_type().2;
    Ok(Launches { launches: vec![first, second], scratch_bytes })
}

fn phases(product: &Product<'_>) -> Result<u32, Declined> {
    let phases = product.spatial.as_ref().map_or(1, Spatial::phases);
    u32::try_from(phases)
        .ok()
        .filter(|&phases| phases <= 65535)
        .ok_or_else(|| Declined::new(format!("a transposed convolution with {phases} phases")))
}

/// True if the output's channels are innermost: adjacent lanes then have adjacent rows, or groups.
const fn has_adjacent_rows(product: &Product<'_>) -> bool {
    let place = &product.out.1;
    product.spatial.is_some() && place.row == 1 && place.at[2] != 1
}

fn direct(product: &Product<'_>) -> Result<Launches, Declined> {
    let columns = product.spatial.as_ref().map_or(product.columns, Spatial::columns);
    let sums = product.rows * columns * product.batches();
    let kernel = product.kernel("direct", DIRECT, false).set("ROWS_FIRST", u8::from(has_adjacent_rows(product)));
    let blocks = sums.div_ceil(u64::from(THREADS));
    Ok(Launches::one(launch(kernel, blocks, phases(product)?, product, &Choice::whole(product))))
}

/// Splits the depth into parts so that blocks fill the device, each a multiple of `unit` and at least `least`.
fn split(choice: &mut Choice, blocks: u64, depth: u64, unit: u64, least: u64, arch: &Arch) {
    let wanted = (2 * u64::from(arch.compute_units)).div_ceil(blocks.max(1)).min(64);
    if blocks >= u64::from(arch.compute_units) || wanted < 2 || depth < 2 * least {
        return;
    }
    let each = depth.div_ceil(wanted).max(least).next_multiple_of(unit);
    choice.splits = depth.div_ceil(each) as u32;
    choice.split_depth = each as u32;
}

/// How an operand's tiles are read: the modes of `hip/gemm.hip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AlongRows = 0,
    AlongK = 1,
    Chunks = 2,
    Words = 3,
}

/// How to read a matrix whose k stride is `step`.
fn matrix_mode(side: &Side<'_>, step: i64, rows: u64, depth: u64) -> Mode {
    let (elems, word) = (16 / side.bytes(), 4 / side.bytes().min(4));
    if step == 1 {
        let whole = depth.is_multiple_of(elems as u64) && side.is_aligned(elems, &[side.across]);
        return if whole { Mode::Chunks } else { Mode::AlongK };
    }
    let whole = side.across == 1 && word > 1 && rows.is_multiple_of(word as u64) && side.is_aligned(word, &[step]);
    if whole { Mode::Words } else { Mode::AlongRows }
}

/// How to read both operands of a convolution; sets the order of k.
fn window_modes(product: &Product<'_>, spatial: &Spatial, choice: &mut Choice) -> (Mode, Mode, bool) {
    let (left, right) = (&product.left, &product.right);
    let elems = 16 / right.bytes();
    let chunked = product.channels.is_multiple_of(elems as u64);
    choice.taps_inside = right.k != 1 || product.channels == 1;
    let right_mode = if choice.taps_inside {
        Mode::AlongRows
    } else {
        let [first, second, third] = spatial.right_at;
        let whole = chunked && right.is_aligned(elems, &[spatial.image, first, second, third]);
        if whole { Mode::Chunks } else { Mode::AlongK }
    };
    // The weights' axes in the order of k.
    let view = left.view;
    let taps = 2..view.shape.len();
    let order: Vec<usize> = if choice.taps_inside {
        std::iter::once(1).chain(taps).collect()
    } else {
        taps.chain(std::iter::once(1)).collect()
    };
    let depth_axes = View {
        shape: order.iter().map(|&axis| view.shape[axis]).collect(),
        strides: order.iter().map(|&axis| view.strides[axis]).collect(),
        ..view.clone()
    };
    let merged = if spatial.transposed { None } else { Layout::new(&[&depth_axes], 0, 1).ok() };
    if let Some(layout) = merged {
        choice.left_step = layout.strides::<1>(0)[0];
        return (matrix_mode(left, choice.left_step, product.rows, product.depth()), right_mode, false);
    }
    let [first, second, third] = spatial.left_tap;
    let whole =
        !choice.taps_inside && left.k == 1 && chunked && left.is_aligned(elems, &[left.across, first, second, third]);
    (if whole { Mode::Chunks } else { Mode::AlongK }, right_mode, true)
}

fn tiled(product: &Product<'_>, arch: &Arch) -> Result<Launches, Declined> {
    let dtype = product.left.view.dtype;
    let bytes = product.left.bytes();
    let matrix = matrix_of(dtype, arch);
    let phases = phases(product)?;
    let columns = product.spatial.as_ref().map_or(product.columns, Spatial::columns);
    let blocks = |tile: u64| product.rows.div_ceil(tile) * columns.div_ceil(tile) * product.batches();
    let is_large = bytes < 8 && product.rows > 64 && columns > 64;
    let tile = if is_large && blocks(128) * u64::from(phases) >= u64::from(arch.compute_units) { 128 } else { 64 };
    let mut choice = Choice::whole(product);
    choice.tiles = [product.rows.div_ceil(tile) as u32, columns.div_ceil(tile) as u32];
    let blocks = blocks(tile);
    let is_transposed = product.spatial.as_ref().is_some_and(|spatial| spatial.transposed);
    let unit = 64 / bytes as u64;
    if !is_transposed {
        split(&mut choice, blocks, product.depth(), unit, 4 * unit, arch);
    }
    let (left, right, table) = match &product.spatial {
        Some(spatial) => window_modes(product, spatial, &mut choice),
        None => {
            let mode = |side: &Side<'_>, rows| matrix_mode(side, side.k, rows, product.channels);
            (mode(&product.left, product.rows), mode(&product.right, product.columns), false)
        }
    };
    let text = if matrix == Matrix::None { GEMM } else { GEMM_MATRIX };
    let kernel = product
        .kernel("gemm", text, choice.splits > 1)
        .set("TILE_ROWS", tile)
        .set("TILE_COLUMNS", tile)
        .set("LEFT_MODE", left as u8)
        .set("RIGHT_MODE", right as u8)
        .set("LEFT_TABLE", u8::from(table))
        .set("DOT4", u8::from(bytes == 1))
        .set("MATRIX", matrix_number(matrix))
        .set("WAVE", arch.wave)
        .set("ROWS_ACROSS", u8::from(has_adjacent_rows(product)));
    let parts = if is_transposed { phases } else { choice.splits };
    finished(launch(kernel, blocks, parts, product, &choice), product, &choice)
}

/// The matrix instructions for operands of a type.
pub(crate) const fn matrix_of(dtype: DType, arch: &Arch) -> Matrix {
    let has_matrix = match dtype {
        DType::F16 => true,
        DType::Bf16 => arch.matrix_bf16,
        _ => false,
    };
    if has_matrix { arch.matrix } else { Matrix::None }
}

/// The family's number in `hip/mma.h`.
pub(crate) const fn matrix_number(matrix: Matrix) -> u8 {
    match matrix {
        Matrix::None => 0,
        Matrix::Mfma => 1,
        Matrix::Wmma11 => 2,
        Matrix::Wmma12 => 3,
        Matrix::Mma => 4,
    }
}
