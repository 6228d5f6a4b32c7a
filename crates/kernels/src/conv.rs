//! Convolutions of channels-last images, and products of matrices that are both contiguous along k, by matrix
//! instructions: `hip/conv.hip`.
use std::fmt::Write;

use graph::{DType, View};

use crate::gemm::{MAX_BLOCKS, matrix_number, matrix_of};
use crate::kernel::type_name;
use crate::layout::Layout;
use crate::product::{Product, Spatial};
use crate::{Arch, Args, Kernel, Launch, Launches, Matrix, expr};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const CONV: &str = text!("mma.h", "conv.h", "conv.hip");
const CONV_TWIN: &str = text!("mma.h", "ahead.h", "conv.h", "conv.hip");
const JOIN: &str = text!("conv.h", "conv_join.hip");

/// Elements of k, and columns, that are moved at once.
const CHUNK: u64 = 8;
/// Operands end before this many elements: the kernel counts bytes in 31 bits.
const MAX_ELEMS: i64 = 1 << 29;
/// The most k whose elements are gathered one by one: the table of their positions is in LDS.
const MAX_GATHERED: u64 = 512;
const TAP_BYTES: u64 = 8;
/// Threads of a block of the second pass.
const JOIN_THREADS: u32 = 256;
/// Sums of fewer steps than this are not split: the second pass takes about as long as this many steps.
const SPLIT_FROM: u64 = 12;
/// Steps of a part, at least.
const PART_STEPS: u64 = 4;

/// The sums of a block, and the k of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: u64,
    columns: u64,
    depth: u64,
    threads: u32,
    /// Steps in LDS at a time, on the twin.
    stages: u32,
}

/// The tiles to choose from. With each of them, a wave issues at least 16 matrix instructions in a step.
const TILES: [Tile; 3] = [
    Tile { rows: 128, columns: 128, depth: 32, threads: 256, stages: 4 },
    Tile { rows: 128, columns: 64, depth: 64, threads: 256, stages: 3 },
    Tile { rows: 64, columns: 64, depth: 64, threads: 128, stages: 4 },
];

impl Tile {
    /// The largest tile that gives every compute unit a block and is not mostly empty; else the smallest.
    fn of(rows: u64, columns: u64, arch: &Arch) -> Self {
        let suits = |tile: &&Self| {
            let is_filled = (rows > 64 || tile.rows == 64) && (columns > 64 || tile.columns == 64);
            is_filled && tile.blocks(rows, columns) >= u64::from(arch.compute_units)
        };
        TILES.iter().find(suits).copied().unwrap_or(TILES[2])
    }

    const fn blocks(&self, rows: u64, columns: u64) -> u64 {
        rows.div_ceil(self.rows) * columns.div_ceil(self.columns)
    }

    /// Waves along columns.
    const fn waves_across(&self, wave: u32) -> u32 {
        match (wave, self.rows, self.columns) {
            (32, _, 128) => 4,
            (64, 64, _) => 1,
            _ => 2,
        }
    }

    /// Bytes of a step in LDS.
    const fn stage_bytes(&self) -> u32 {
        (self.rows + self.columns) as u32 * (self.depth + CHUNK) as u32 * 2
    }

    /// Steps in LDS at a time: one, unless the twin copies ahead and has room for several.
    fn stages_on(&self, arch: &Arch, matrix: Matrix) -> u32 {
        let room = self.stages.min(arch.lds_bytes / self.stage_bytes());
        if matrix == Matrix::Mma && room > 1 { room } else { 1 }
    }

    /// Bytes of LDS for this many steps, and later for the sums.
    fn lds_bytes(&self, stages: u32, arch: &Arch) -> u32 {
        let across = self.columns as u32 / self.waves_across(arch.wave);
        let sums = self.threads / arch.wave * 16 * (across + 4) * 4;
        (stages * self.stage_bytes()).max(sums)
    }
}

/// An epilogue's operand: which input it is, and its strides along rows and columns.
struct Operand<'a> {
    number: usize,
    view: &'a View,
    row: i64,
    column: i64,
}

/// What the kernel needs to know about a product.
struct Work<'a> {
    product: &'a Product<'a>,
    /// The operands with rows and with columns: which inputs they are.
    x: (usize, &'a View),
    w: (usize, &'a View),
    rows: u64,
    columns: u64,
    /// Elements between images, or the rows of a matrix; between columns of w.
    x_row: i64,
    w_column: i64,
    out_row: i64,
    operands: Vec<Operand<'a>>,
    spatial: Option<&'a Spatial>,
    /// Whether elements of k are read one by one.
    gathers: bool,
}

impl<'a> Work<'a> {
    /// `None` if the kernel does not support the product.
    fn new(product: &'a Product<'a>) -> Option<Self> {
        let plain = product.batches() == 1 && product.norm.is_none() && product.gate.is_none();
        let stored = std::iter::once(product.out.0.dtype)
            .chain(product.bias.map(|(_, view)| view.dtype))
            .chain(product.operands.iter().map(|(_, view, _)| view.dtype));
        let mut narrow = stored.map(|dtype| matches!(dtype, DType::F16 | DType::Bf16));
        if !plain || !narrow.all(|is_narrow| is_narrow) {
            return None;
        }
        let mut work = match &product.spatial {
            Some(spatial) => Self::of_windows(product, spatial)?,
            None => Self::of_matrices(product)?,
        };
        work.gathers = !work.has_chunks();
        let can_gather = work.spatial.is_some() && product.depth() <= MAX_GATHERED;
        (work.has_packs() && (can_gather || !work.gathers)).then_some(work)
    }

    fn of_matrices(product: &'a Product<'a>) -> Option<Self> {
        let (left, right, place) = (&product.left, &product.right, &product.out.1);
        let operands = product.operands.iter().map(|(number, view, place)| Operand {
            number: *number,
            view,
            row: place.row,
            column: place.at[2],
        });
        let along_k = left.k == 1 && right.k == 1 && place.at[2] == 1;
        let bias = product.bias.is_none() || product.bias_strides[1..] == [0, 1];
        let last = |across: i64, count: u64| across >= 0 && across < MAX_ELEMS / count.max(1) as i64;
        let fits = last(left.across, product.rows) && last(right.across, product.columns);
        (along_k && bias && fits).then(|| Self {
            product,
            x: (left.number, left.view),
            w: (right.number, right.view),
            rows: product.rows,
            columns: product.columns,
            x_row: left.across,
            w_column: right.across,
            out_row: place.row,
            operands: operands.collect(),
            spatial: None,
            gathers: false,
        })
    }

    fn of_windows(product: &'a Product<'a>, spatial: &'a Spatial) -> Option<Self> {
        let (weights, image) = (&product.left, &product.right);
        let is_flat = !spatial.transposed && spatial.taps[0] == 1 && spatial.out[0] == 1 && spatial.right[0] == 1;
        let bias = product.bias.is_none() || product.bias_strides[1] == 1;
        if !is_flat || !bias || product.out.1.row != 1 || along_taps(weights.view) != Some(1) {
            return None;
        }
        // The offsets must fit even for the rows of a block that lie after the last position.
        let [_, height, width] = spatial.right.map(i64::from);
        let [_, y, x] = spatial.right_at;
        let images = i64::from(spatial.images) + TILES[0].rows as i64;
        let channels = (product.channels as i64, image.k);
        let ends = [(images, spatial.image), (height, y), (width, x), channels, (product.rows as i64, weights.across)];
        let small = |&(count, stride): &(i64, i64)| (0..MAX_ELEMS / 4 / count.max(1)).contains(&stride);
        let reach = |axis: usize| i64::from(spatial.taps[axis]) * i64::from(spatial.dilation[axis]) < 1 << 15;
        let near = spatial.pad[1..].iter().all(|pad| pad.abs() < 1 << 15) && reach(1) && reach(2);
        if !ends.iter().all(small) || !near || height >= 1 << 15 || width >= 1 << 15 {
            return None;
        }
        // Positions are one axis in the output and in every operand.
        let positions = |view: &View| {
            let axes = std::iter::once(0).chain(2..view.shape.len());
            let (shape, strides) = axes.map(|axis| (view.shape[axis], view.strides[axis])).unzip();
            View { shape, strides, ..view.clone() }
        };
        let views: Vec<View> = std::iter::once(product.out.0)
            .chain(product.operands.iter().map(|(_, view, _)| *view))
            .map(positions)
            .collect();
        let layout = Layout::new(&views.iter().collect::<Vec<_>>(), 0, 1).ok()?;
        let row = |view: usize| layout.strides::<1>(view)[0];
        let operands = product.operands.iter().enumerate().map(|(at, (number, view, place))| Operand {
            number: *number,
            view,
            row: row(at + 1),
            column: place.row,
        });
        Some(Self {
            product,
            x: (image.number, image.view),
            w: (weights.number, weights.view),
            rows: u64::from(layout.extents::<1>()[0]),
            columns: product.rows,
            x_row: spatial.image,
            w_column: weights.across,
            out_row: row(0),
            operands: operands.collect(),
            spatial: Some(spatial),
            gathers: false,
        })
    }

    /// True if both operands consist of chunks that can be read at once.
    fn has_chunks(&self) -> bool {
        let lines = self.spatial.is_none_or(|spatial| {
            self.product.right.k == 1 && spatial.right_at[1..].iter().all(|&stride| fits(stride))
        });
        let strides = [self.x_row, self.w_column, self.product.channels as i64];
        lines && [self.x.1, self.w.1].into_iter().all(starts) && strides.into_iter().all(fits)
    }

    /// True if the output, the bias and the operands consist of packs that can be moved at once.
    fn has_packs(&self) -> bool {
        let operands = self.operands.iter().all(|operand| match operand.column {
            0 => true,
            1 => fits(operand.row) && starts(operand.view),
            _ => false,
        });
        let bias = self.product.bias.is_none_or(|(_, view)| starts(view));
        operands && bias && starts(self.product.out.0) && fits(self.out_row) && fits(self.columns as i64)
    }

    /// The kernel's source without the tile; `partial` if it stores sums for the second pass.
    fn kernel(&self, name: &'static str, family: &'static str, partial: bool) -> Kernel {
        let product = self.product;
        let bias = product.bias.filter(|_| !partial).map(|(_, view)| view.dtype);
        let epilogue = product.epilogue.filter(|_| !partial);
        let mut kernel = Kernel::new(name, family)
            .set("T", type_name(product.left.view.dtype))
            .set("BIAS_T", type_name(bias.unwrap_or(product.out.0.dtype)))
            .set("OUT_T", type_name(product.out.0.dtype))
            .set("BIAS", u8::from(bias.is_some()))
            .set("OPERANDS", self.operands.len())
            .set("FUSED", u8::from(epilogue.is_some()));
        let mut text = self.operands_text(bias.is_some(), epilogue.is_some());
        if let Some(epilogue) = epilogue {
            kernel = kernel.with(expr::headers([&epilogue.expr]));
            text.push_str(&expr::function("stored_of", &epilogue.expr, product.out.0.dtype));
            let value = |(number, _): (u16, DType)| match usize::from(number).checked_sub(1) {
                None => "sum".to_owned(),
                Some(at) => format!("get(o.at{at}.at[i])"),
            };
            let values: Vec<String> = expr::inputs(&epilogue.expr).into_iter().map(value).collect();
            let _ = writeln!(
                text,
                "DEV OUT_T epilogue(f32 sum, const Operands& o, int i) {{\n  return put<OUT_T>(stored_of({}));\n}}",
                values.join(", ")
            );
        }
        kernel.generated = text;
        kernel
    }

    /// The type `Operands`, and the function `operands_at` that reads those of 8 columns.
    fn operands_text(&self, has_bias: bool, is_fused: bool) -> String {
        let (mut fields, mut reads) = (String::new(), String::new());
        if has_bias {
            fields.push_str("  Pack<BIAS_T, 8> bias;\n");
            reads.push_str("  o.bias = *(const Pack<BIAS_T, 8>*)(a.bias + column);\n");
        }
        for (at, operand) in self.operands.iter().enumerate().filter(|_| is_fused) {
            let dtype = type_name(operand.view.dtype);
            let start = format!("(const {dtype}*)a.operand[{at}] + (i64)row * a.operand_row[{at}]");
            let _ = writeln!(fields, "  Pack<{dtype}, 8> at{at};");
            let _ = if operand.column == 1 {
                writeln!(reads, "  o.at{at} = *(const Pack<{dtype}, 8>*)({start} + column);")
            } else {
                writeln!(
                    reads,
                    "  {dtype} one{at} = *({start});\n  for (int i = 0; i < 8; i++) o.at{at}.at[i] = one{at};"
                )
            };
        }
        format!(
            "struct Operands {{\n{fields}}};\ntemplate <class A> DEV Operands operands_at(const A& a, u32 row, u32 column) \
             {{\n  Operands o;\n{reads}  return o;\n}}\n"
        )
    }

    fn args(&self, cut: &Cut) -> Args {
        let product = self.product;
        let mut args = Args::new().input("x", self.x.0, self.x.1).input("w", self.w.0, self.w.1);
        args = match product.bias {
            Some((number, view)) => args.input("bias", number, view),
            None => args.null("bias"),
        };
        args = args.output("out", 0, product.out.0);
        args = if cut.splits > 1 { args.scratch("partial", 0) } else { args.null("partial") };
        for operand in &self.operands {
            args = args.input("operand", operand.number, operand.view);
        }
        for operand in &self.operands {
            args = args.i64("operand_row", operand.row);
        }
        let one = Spatial::ONE;
        let spatial = self.spatial.unwrap_or(&one);
        let pair = |of: [i32; 3]| [of[1] as u32, of[2] as u32];
        args.i64("out_row", self.out_row)
            .f32("alpha", product.alpha)
            .u32s("rows", &[self.rows as u32, self.columns as u32, product.depth() as u32])
            .u32s("splits", &[cut.splits as u32, cut.split_depth as u32])
            .u32("tiles_across", self.columns.div_ceil(cut.tile.columns) as u32)
            .u32s(
                "x_row",
                &[self.x_row, spatial.right_at[1], spatial.right_at[2], self.w_column].map(|stride| stride as u32),
            )
            .u32s("channels", &[product.channels as u32, spatial.taps[2]])
            .u32s("plane", &[spatial.out[1] * spatial.out[2], spatial.out[2], spatial.right[1], spatial.right[2]])
            .u32s("stride_y", &pair(spatial.stride))
            .u32s("pad_y", &pair(spatial.pad))
            .u32s("dilation_y", &pair(spatial.dilation))
            .u32("x_channel", product.right.k as u32)
    }
}

/// How a product is split into blocks.
struct Cut {
    tile: Tile,
    splits: u64,
    split_depth: u64,
}

impl Cut {
    fn new(work: &Work<'_>, arch: &Arch) -> Self {
        let tile = Tile::of(work.rows, work.columns, arch);
        let (blocks, steps) = (tile.blocks(work.rows, work.columns), work.product.depth().div_ceil(tile.depth));
        let wanted = u64::from(arch.compute_units).div_ceil(blocks.max(1)).min(steps / PART_STEPS);
        let each = if steps > SPLIT_FROM && wanted > 1 { steps.div_ceil(wanted) } else { steps.max(1) };
        Self { tile, splits: steps.div_ceil(each).max(1), split_depth: each * tile.depth }
    }
}

/// True for a multiple of a chunk.
const fn fits(elems: i64) -> bool {
    elems % CHUNK as i64 == 0
}

/// True if the first element is at such a multiple.
const fn starts(view: &View) -> bool {
    fits(view.offset as i64)
}

/// The stride of weights along k, in the order of taps and then channels, if there is a single one.
fn along_taps(view: &View) -> Option<i64> {
    let order = (2..view.shape.len()).chain(std::iter::once(1));
    let (shape, strides) = order.map(|axis| (view.shape[axis], view.strides[axis])).unzip();
    let depth = View { shape, strides, ..view.clone() };
    Layout::new(&[&depth], 0, 1).ok().map(|layout| layout.strides::<1>(0)[0])
}

/// The launches of a product, if the kernel supports it. The rows of a matrix product are contiguous in the output.
pub(crate) fn work(product: &Product<'_>, arch: &Arch) -> Option<Launches> {
    let matrix = matrix_of(product.left.view.dtype, arch);
    if matrix == Matrix::None {
        return None;
    }
    let work = Work::new(product)?;
    let cut = Cut::new(&work, arch);
    let tile = &cut.tile;
    let blocks = tile.blocks(work.rows, work.columns);
    let sums = work.rows * work.columns;
    let join_blocks = (sums / CHUNK).div_ceil(u64::from(JOIN_THREADS));
    if blocks > MAX_BLOCKS || join_blocks > MAX_BLOCKS {
        return None;
    }
    let stages = if work.gathers { 1 } else { tile.stages_on(arch, matrix) };
    let is_direct = stages > 1;
    let taps_at = tile.lds_bytes(stages, arch);
    let mut lds_bytes = taps_at;
    if work.gathers {
        lds_bytes += (product.depth().next_multiple_of(tile.depth) * TAP_BYTES) as u32;
    }
    let is_split = cut.splits > 1;
    let kernel = work
        .kernel("conv", if is_direct { CONV_TWIN } else { CONV }, is_split)
        .set("CONV", u8::from(work.spatial.is_some()))
        .set("PARTIAL", u8::from(is_split))
        .set("TILE_ROWS", tile.rows)
        .set("TILE_COLUMNS", tile.columns)
        .set("DEPTH", tile.depth)
        .set("THREADS", tile.threads)
        .set("WAVE", arch.wave)
        .set("WAVES_ACROSS", tile.waves_across(arch.wave))
        .set("IS_DIRECT", u8::from(is_direct))
        .set("STAGES", stages)
        .set("GATHER", u8::from(work.gathers))
        .set("TAPS_AT", taps_at)
        .set("MATRIX", matrix_number(matrix));
    let grid = [blocks as u32, cut.splits as u32, 1];
    let first = Launch { kernel, grid, threads: tile.threads, lds_bytes, args: work.args(&cut) };
    if !is_split {
        return Some(Launches::one(first));
    }
    let second = Launch {
        kernel: work.kernel("conv_join", JOIN, false),
        grid: [join_blocks as u32, 1, 1],
        threads: JOIN_THREADS,
        lds_bytes: 0,
        args: work.args(&cut),
    };
    Some(Launches { launches: vec![first, second], scratch_bytes: (sums * cut.splits) as usize * 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_get_smaller_until_every_compute_unit_has_one() {
        let arch = Arch::new("gfx1100", 96);
        let tile = |rows, columns| {
            let tile = Tile::of(rows, columns, &arch);
            (tile.rows, tile.columns)
        };
        assert_eq!(tile(50176, 128), (128, 128));
        assert_eq!(tile(200_704, 64), (128, 64));
        assert_eq!(tile(3136, 256), (128, 64));
        assert_eq!(tile(784, 128), (64, 64));
        assert_eq!(tile(49, 512), (64, 64));
    }

    #[test]
    fn a_wave_issues_at_least_16_matrix_instructions_in_a_step() {
        for (tile, wave) in TILES.iter().flat_map(|tile| [(tile, 32), (tile, 64)]) {
            let waves = u64::from(tile.threads / wave);
            let sums = tile.rows * tile.columns / 256 / waves;
            assert!(sums * tile.depth / 16 >= 16, "{tile:?} {wave}");
            // Whole fragments, and whole packs of 16 rows for every lane.
            let across = u64::from(tile.waves_across(wave));
            assert!(waves.is_multiple_of(across));
            let columns = tile.columns / across;
            assert!((16 * columns / CHUNK).is_multiple_of(u64::from(wave)), "{tile:?} {wave}");
            assert!(tile.rows.is_multiple_of(16 * waves / across) && columns.is_multiple_of(16), "{tile:?} {wave}");
        }
    }

    #[test]
    fn tiles_fit_in_lds() {
        for (target, matrix, stages) in [
            ("gfx1100", Matrix::Wmma11, [1, 1, 1]),
            ("gfx942", Matrix::Mfma, [1, 1, 1]),
            ("sm_90", Matrix::Mma, [4, 3, 4]),
            ("sm_80", Matrix::Mma, [2, 1, 2]),
        ] {
            let arch = Arch::new(target, 1);
            for (tile, wanted) in TILES.iter().zip(stages) {
                assert_eq!(tile.stages_on(&arch, matrix), wanted, "{target} {tile:?}");
                assert!(tile.lds_bytes(wanted, &arch) <= arch.lds_bytes, "{target} {tile:?}");
                assert!(
                    tile.lds_bytes(1, &arch) + (MAX_GATHERED * TAP_BYTES) as u32 <= arch.lds_bytes,
                    "{target} {tile:?}"
                );
            }
        }
    }
}
