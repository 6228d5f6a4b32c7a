//! Attention over caches: `hip/cached_rows.hip`, `hip/cached_few.hip`, `hip/cached_tiles.hip`.
use graph::prim::{CachedAttention, Filled, PagedAttention, Sinks};
use graph::{DType, Declined, Step, View};

use crate::gemm::matrix_number;
use crate::kernel::type_name;
use crate::layout::grid_x;
use crate::tiles::{Tile, keeps_order};
use crate::walk::pack;
use crate::{Arch, Args, Kernel, Launch, Launches, Matrix};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const MATH: &str = include_str!("../hip/math.h");
const ROWS: &str = text!("lengths.h", "cached.h", "cached_parts.h", "cached_rows.hip");
const FEW: &str = text!("lengths.h", "cached.h", "cached_parts.h", "mma.h", "cached_few.hip");
const NEWEST_ROWS: &str = text!("lengths.h", "turn.h", "cached.h", "newest.h", "cached_parts.h", "cached_rows.hip");
const NEWEST_FEW: &str =
    text!("lengths.h", "turn.h", "cached.h", "newest.h", "cached_parts.h", "mma.h", "cached_few.hip");
const TILES: &str = text!("lengths.h", "cached.h", "mma.h", "flight.h", "tiles.h", "cached_tiles.hip");

/// Maximum rows per block without tiles: keys and values are read once for all of them.
const MAX_ROWS: usize = 8;
/// Maximum elements of these rows.
const MAX_ROOM: usize = 1024;
/// Threads per block of the kernel without tiles.
const THREADS: u32 = 128;
/// Blocks of that kernel per compute unit.
const BLOCKS: usize = 4;
/// Maximum number of parts that the keys are split into.
const MAX_PARTS: usize = 64;
/// From this many rows on, a tile pays off.
const FEW_ROWS: usize = 16;
/// Keys that a block of fewer rows processes at a time.
const FEW_KEYS: usize = 64;
/// Maximum number of parts for tiles: the block that adds them up has as many numbers for each of its rows.
const MAX_TILE_PARTS: usize = 16;

pub(crate) fn work(attention: &CachedAttention, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let job = Job::new(attention, step)?;
    if step.outputs[0].elems() == 0 {
        return Ok(Launches::nothing());
    }
    let matrix = job.matrix(arch);
    if job.is_tiled(matrix) {
        return job.tiles(matrix, arch);
    }
    job.few_or_rows(matrix, arch)
}

/// The attention of one token over the keys before it, as one launch without the arguments for the newest key
/// (`hip/newest.h`).
///
/// # Errors
/// Another kernel handles it, or there is nothing to do.
pub(crate) fn of_newest(attention: &CachedAttention, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let job = Job { newest: true, ..Job::new(attention, step)? };
    let matrix = job.matrix(arch);
    if step.outputs[0].elems() == 0 || job.is_packed() == 0 || job.is_tiled(matrix) {
        return Err(Declined::new("attention that another kernel handles"));
    }
    job.few_or_rows(matrix, arch)
}

/// The attention of tokens over a cache in pages: each token is a batch of its own.
pub(crate) fn paged(prim: &PagedAttention, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let ([q, k, v, places, table, sinks @ ..], [out]) = (&step.inputs[..], &step.outputs[..]) else {
        return Err(Declined::new("attention without queries, pages and a table"));
    };
    let (&[tokens, ..], &[blocks, block, ..], &[_, most]) = (&q.shape[..], &k.shape[..], &table.shape[..]) else {
        return Err(Declined::new("attention with operands of the wrong rank"));
    };
    if out.elems() == 0 {
        return Ok(Launches::nothing());
    }
    if [places, table].iter().any(|view| view.dtype != DType::I32) || !places.is_dense() {
        return Err(Declined::new("places or a table that are not of i32"));
    }
    if !k.is_dense() || !v.is_dense() || blocks * block >= 1 << 31 || table.elems() == 0 {
        return Err(Declined::new("a paged cache that is not contiguous, is too large or is empty"));
    }
    // `[tokens, heads, 1, …]`, and `[1, heads, keys, …]`: the distances between heads and between rows of a block.
    let token = |view: &View| {
        let mut view = view.clone();
        view.shape.insert(2, 1);
        view.strides.insert(2, 0);
        view
    };
    let cache = |view: &View| {
        let mut by_head = view.clone();
        by_head.shape = [1, view.shape[2], most * block, view.shape[3]].into_iter().collect();
        by_head.strides = [0, view.strides[2], view.strides[1], view.strides[3]].into_iter().collect();
        by_head
    };
    let mut inputs = vec![token(q), cache(k), cache(v), places.clone()];
    inputs.extend(sinks.first().cloned());
    let attention = CachedAttention {
        alpha: prim.alpha,
        filled: Filled::default(),
        causal: true,
        window: prim.window,
        softcap: prim.softcap,
        bias: false,
        sinks: prim.sinks,
    };
    let plain = Step { node: step.node, prim: step.prim.clone(), inputs, outputs: vec![token(out)] };
    let mut job = Job::new(&attention, &plain)?;
    job.sinks = job.sinks.map(|(_, view)| (5, view));
    job.pages = Some(Pages { places, table, tokens, block, blocks });
    job.rows(arch)
}

/// A cache in pages.
struct Pages<'a> {
    places: &'a View,
    table: &'a View,
    tokens: usize,
    block: usize,
    blocks: usize,
}

/// A step's views and extents.
struct Job<'a> {
    attention: &'a CachedAttention,
    q: &'a View,
    k: &'a View,
    v: &'a View,
    lengths: &'a View,
    bias: Option<(usize, &'a View)>,
    sinks: Option<(usize, &'a View)>,
    out: &'a View,
    batches: usize,
    shared: usize,
    /// Query heads that share a key head.
    group: usize,
    /// Tokens.
    tokens: usize,
    total: usize,
    size: usize,
    width: usize,
    /// True if the newest key is not in the cache yet.
    newest: bool,
    pages: Option<Pages<'a>>,
}

/// How a launch splits the rows and the keys.
#[derive(Clone, Copy)]
struct Division {
    /// Rows per block.
    rows: usize,
    /// Blocks per key head.
    groups: usize,
    /// Parts that the keys are split into.
    parts: usize,
}

impl<'a> Job<'a> {
    fn new(attention: &'a CachedAttention, step: &'a Step) -> Result<Self, Declined> {
        let ([q, k, v, lengths, operands @ ..], [out]) = (&step.inputs[..], &step.outputs[..]) else {
            return Err(Declined::new("attention without queries, keys, values and lengths"));
        };
        let (&[batches, heads, tokens, size], &[_, shared, total, width]) = (&q.shape[..], &v.shape[..]) else {
            return Err(Declined::new("attention with operands of the wrong rank"));
        };
        let mut operands = (4..).zip(operands);
        let bias = if attention.bias { operands.next() } else { None };
        let sinks = if attention.sinks == Sinks::Given { operands.next() } else { None };
        let given = [bias, sinks].into_iter().flatten().map(|(_, view)| view);
        let one_type = [k, v, out].into_iter().chain(given).all(|view| view.dtype == q.dtype);
        if !one_type || !matches!(q.dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(Declined::new(format!("attention over a cache of {}", q.dtype)));
        }
        if [q, k, v, out].iter().any(|view| view.shape[3] > 1 && view.strides[3] != 1) {
            return Err(Declined::new("attention over rows that are not contiguous"));
        }
        if size.max(width) > 256 {
            return Err(Declined::new(format!("attention with heads of {size}")));
        }
        if total == 0 {
            return Err(Declined::new("attention over no keys"));
        }
        if tokens * heads >= 1 << 31 || total >= 1 << 31 {
            return Err(Declined::new("an axis of 2^31 elements or more"));
        }
        let group = heads / shared.max(1);
        Ok(Self {
            attention,
            q,
            k,
            v,
            lengths,
            bias,
            sinks,
            out,
            batches,
            shared,
            group,
            tokens,
            total,
            size,
            width,
            newest: false,
            pages: None,
        })
    }

    /// The matrix instructions for the element type.
    fn matrix(&self, arch: &Arch) -> Matrix {
        match self.q.dtype {
            DType::F16 => arch.matrix,
            DType::Bf16 if arch.matrix_bf16 => arch.matrix,
            _ => Matrix::None,
        }
    }

    fn is_tiled(&self, matrix: Matrix) -> bool {
        matrix != Matrix::None && self.all_rows() > FEW_ROWS
    }

    fn few_or_rows(&self, matrix: Matrix, arch: &Arch) -> Result<Launches, Declined> {
        if self.is_few(matrix) { self.few(matrix, arch) } else { self.rows(arch) }
    }

    /// Rows per key head.
    fn all_rows(&self) -> usize {
        self.tokens * self.group
    }

    /// Whether scores are capped, or have a bias.
    fn is_extra(&self) -> bool {
        self.attention.softcap.is_some() || self.bias.is_some()
    }

    fn kernel(&self, name: &'static str, family: &'static str) -> Kernel {
        let extra = self.is_extra();
        let headers = if extra { &[MATH][..] } else { &[] };
        Kernel::new(name, family)
            .with(headers.iter().copied())
            .set("T", type_name(self.q.dtype))
            .set("I", type_name(self.lengths.dtype))
            .set("EXTRA", u8::from(extra))
    }

    /// Whether rows of queries, keys and values can be read 16 bytes at a time, as a setting.
    fn is_packed(&self) -> u8 {
        let numbers = [self.q, self.k, self.v, self.out].into_iter().flat_map(|view| {
            let outer = (0..3).filter(|&axis| view.shape[axis] > 1).map(|axis| view.strides[axis] as i64);
            outer.chain([view.offset as i64, view.shape[3] as i64])
        });
        u8::from(pack(self.q.dtype, 16, numbers) as usize == 16 / self.q.dtype.bytes())
    }

    fn args(&self, division: Division) -> Args {
        let mut args = Args::new().input("q", 0, self.q).input("k", 1, self.k).input("v", 2, self.v);
        args = args.input("lengths", 3, self.lengths);
        for (name, operand) in [("bias", self.bias), ("sinks", self.sinks)] {
            args = match operand {
                Some((number, view)) => args.input(name, number, view),
                None => args.null(name),
            };
        }
        args = args.output("out", 0, self.out);
        args = match division.parts {
            1 => args.null("partial").null("counters"),
            _ => args.scratch("partial", 0).counters("counters", self.blocks(division)),
        };
        let strides = |view: &View, count: usize| -> Vec<i64> {
            view.strides.iter().take(count).map(|&stride| stride as i64).collect()
        };
        for (name, view) in [("q_batch", self.q), ("k_batch", self.k), ("v_batch", self.v), ("out_batch", self.out)] {
            args = args.i64s(name, &strides(view, 3));
        }
        args = args.i64s("bias_batch", &self.bias.map_or_else(|| vec![0; 4], |(_, view)| strides(view, 4)));
        let step = |view: &View| view.strides.first().map_or(0, |&stride| stride as i64);
        let window = self.attention.window.map_or(u32::MAX, |window| u32::try_from(window).unwrap_or(u32::MAX));
        let args = args
            .i64("lengths_step", step(self.lengths))
            .i64("sinks_step", self.sinks.map_or(0, |(_, view)| step(view)))
            .i64("shift", self.attention.filled.shift)
            .f32("alpha", self.attention.alpha)
            .f32("softcap", self.attention.softcap.unwrap_or(0.0))
            .u32("causal", u32::from(self.attention.causal))
            .u32("window", window)
            .u32("has_sink", u32::from(self.attention.sinks != Sinks::None))
            .u32s("shared", &[self.shared, self.group, self.tokens].map(|extent| extent as u32))
            .u32s("total", &[self.total, self.size, self.width].map(|extent| extent as u32))
            .u32s("groups", &[division.groups, division.parts].map(|count| count as u32));
        let Some(pages) = &self.pages else { return args };
        args.input("places", 3, pages.places)
            .input("table", 4, pages.table)
            .fault("fault")
            .i64s("table_row", &strides(pages.table, 2))
            .u32s("tokens", &[pages.tokens, pages.blocks].map(|count| count as u32))
    }

    /// Blocks per part.
    fn blocks(&self, division: Division) -> usize {
        self.batches * self.shared * division.groups
    }

    /// `room`: elements per row of a part's result, besides two numbers.
    fn launch(&self, kernel: Kernel, threads: u32, room: usize, division: Division) -> Result<Launches, Declined> {
        let blocks = self.blocks(division);
        let grid = [grid_x(blocks as u64)?, division.parts as u32, 1];
        let launch = Launch { kernel, grid, threads, lds_bytes: 0, args: self.args(division) };
        let partial = division.parts * blocks * division.rows * (room + 2) * 4;
        Ok(Launches { launches: vec![launch], scratch_bytes: if division.parts > 1 { partial } else { 0 } })
    }

    fn rows(&self, arch: &Arch) -> Result<Launches, Declined> {
        let chunk = 16 / self.q.dtype.bytes();
        let chunks = self.size.max(self.width).div_ceil(chunk).next_power_of_two();
        let (lanes, room) = (chunks.min(32), chunks * chunk);
        let rows = self.all_rows().next_power_of_two().min(MAX_ROWS).min(MAX_ROOM / room);
        let groups = self.all_rows().div_ceil(rows);
        let keys = if rows == MAX_ROWS { 2 } else { 4 };
        // The kernel determines how many of them a length needs.
        let least = THREADS as usize / lanes * keys;
        let blocks = self.batches * self.shared * groups;
        let wanted = BLOCKS * arch.compute_units as usize / blocks;
        let parts = wanted.min(MAX_PARTS).min(self.total.div_ceil(least)).max(1);
        let kernel = self
            .kernel("cached_rows", if self.newest { NEWEST_ROWS } else { ROWS })
            .set("ROWS", rows)
            .set("KEYS", keys)
            .set("LANES", lanes)
            .set("E", chunks / lanes * chunk)
            .set("PACKED", self.is_packed())
            .set("ONE", u8::from(self.tokens == 1))
            .set("BLOCK_ROWS", rows);
        let kernel = match &self.pages {
            Some(pages) => kernel.set("PAGED", 1).set("PAGE", pages.block),
            None => kernel,
        };
        self.launch(kernel, THREADS, room, Division { rows, groups, parts })
    }

    /// Whether a wave can load keys and values directly into fragments. With WMMA they would fill its registers.
    fn is_few(&self, matrix: Matrix) -> bool {
        let fits = |size| matches!(size, 64 | 128);
        let kind = matches!(matrix, Matrix::Mfma | Matrix::Mma);
        kind && self.all_rows() <= FEW_ROWS && fits(self.size) && fits(self.width) && self.is_packed() == 1
    }

    fn few(&self, matrix: Matrix, arch: &Arch) -> Result<Launches, Declined> {
        // A block with twice the elements has twice the registers.
        let share = BLOCKS * 64 / self.size.max(self.width);
        let wanted = share * arch.compute_units as usize / (self.batches * self.shared);
        let parts = wanted.min(MAX_PARTS).min(self.total.div_ceil(FEW_KEYS)).max(1);
        let rows = self.all_rows().next_power_of_two();
        let kernel = self
            .kernel("cached_few", if self.newest { NEWEST_FEW } else { FEW })
            .set("BLOCK_ROWS", rows)
            .set("ROWS", rows)
            .set("SIZE", self.size)
            .set("WIDTH", self.width)
            .set("ONE", u8::from(self.tokens == 1))
            .set("MATRIX", matrix_number(matrix))
            .set("WAVE", arch.wave);
        self.launch(kernel, 4 * arch.wave, self.width, Division { rows, groups: 1, parts })
    }

    fn tiles(&self, matrix: Matrix, arch: &Arch) -> Result<Launches, Declined> {
        let sizes = [self.size, self.width];
        let is_plain = !self.is_extra() && keeps_order(self.attention.alpha);
        let tile = Tile::new(matrix, arch, [self.batches * self.shared, self.all_rows(), self.total], sizes, is_plain);
        let groups = self.all_rows().div_ceil(tile.rows);
        let blocks = self.batches * self.shared * groups;
        let wanted = arch.compute_units as usize / blocks;
        let parts = wanted.min(MAX_TILE_PARTS).min(self.total.div_ceil(tile.keys)).max(1);
        let kernel =
            tile.set(self.kernel("cached_tiles", TILES), matrix, arch, sizes, is_plain).set("PACKED", self.is_packed());
        self.launch(kernel, tile.threads(arch), self.width, Division { rows: tile.rows, groups, parts })
    }
}
