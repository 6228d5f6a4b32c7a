//! Products with packed weights: `hip/quant_row.hip`, `hip/quant_mma.hip`, `hip/quant_gemv.hip`, and
//! `hip/quant_unpack.hip` before a product of many rows.
//!
//! Weights are read in the model's layout: along k, so that adjacent lanes read adjacent bytes, 16 each. Another layout
//! would not save a byte, and would cost every session a pass over all weights.
use graph::prim::{self, BufferId, Gate, MatMul, Norm, ProductKind, QuantMatMul, WeightLayout, Zeros};
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::layout::grid_x;
use crate::product::{Choice, OutputStrides, Product};
use crate::{Arch, Args, Kernel, Launch, Launches, Matrix, expr, gemm};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const GEMV: &str = text!("quant.h", "quant_product.h", "quant_gemv.hip");
const MMA: &str = text!("quant.h", "quant_product.h", "mma.h", "quant_mma.hip");
const ROW: &str = text!("quant.h", "quant_product.h", "mma.h", "ahead.h", "quant_row.hip");
const UNPACK: &str = text!("quant.h", "quant_unpack.hip");

/// The buffer id of weights unpacked into scratch memory; offsets count from its start.
pub const UNPACKED: BufferId = BufferId(u32::MAX - 1);

/// The maximum number of rows for packed reads with matrix instructions: the weights are read once for 16 rows, which
/// costs less than reading them, writing them unpacked and reading them again.
const FEW_ROWS: u64 = 64;
/// The same without matrix instructions.
const FEW_ROWS_PLAIN: u64 = 16;
/// Limit on unpacked weights: larger ones are read packed, however many rows there are.
const MAX_UNPACKED: usize = 512 << 20;
/// The alignment of unpacked weights.
const ALIGNMENT: usize = 256;
/// Threads per block, by default.
const THREADS: u32 = 256;
/// Maximum bytes of rows in LDS: the block's sums are in LDS as well.
const MAX_STAGED: u32 = 36 << 10;
/// Waves per compute unit that keep enough memory reads in flight, and those that read one round ahead.
const BUSY_WAVES: u64 = 16;
const BUSY_AHEAD: u64 = 12;
/// The maximum number of rounds that counts as few.
const SHORT: u64 = 4;
/// Of `hip/quant_row.hip`: the numbers that a round reads of a column, the columns of a wave, the bytes of a round in
/// LDS.
const ROW_ROUND: u64 = 256;
const ROW_COLUMNS: u64 = 16;
const ROW_SLOT: u64 = 2304;

/// The weights of a product as kernels read them.
struct Weights<'a> {
    prim: &'a QuantMatMul,
    scales: &'a View,
    zeros: Option<&'a View>,
    blocks: usize,
    row_bytes: usize,
    zero_row: usize,
}

impl<'a> Weights<'a> {
    fn new(prim: &'a QuantMatMul, step: &'a Step) -> Result<Self, Declined> {
        if prim.layout != WeightLayout::Onnx {
            return Err(Declined::new("weights in another device's layout"));
        }
        let count = if prim.zeros == Zeros::Middle { 2 } else { 3 };
        if !step.inputs[1..1 + count].iter().all(View::is_dense) {
            return Err(Declined::new("weights that are not contiguous"));
        }
        let blocks = prim.blocks(step.inputs[0].shape[2]);
        let row_bytes = blocks * prim.block_bytes();
        if row_bytes >= 1 << 31 {
            return Err(Declined::new("columns of 2^31 bytes or more"));
        }
        let zeros = (count == 3).then(|| &step.inputs[3]);
        let zero_row = zeros.map_or(0, |zeros| zeros.shape[1]);
        Ok(Self { prim, scales: &step.inputs[2], zeros, blocks, row_bytes, zero_row })
    }

    /// Bytes that a lane may read at a time: a divisor of all columns and of the first one's offset.
    fn unit_bytes(&self, weights: &View) -> usize {
        let places = 16 | self.row_bytes | weights.offset.unsigned_abs();
        1 << places.trailing_zeros()
    }

    /// Whether matrix instructions can be used: they need the activations' type, and room for an exponent above each
    /// number.
    fn suit_matrix(&self, product: &Product<'_>, arch: &Arch) -> bool {
        let dtype = product.left.view.dtype;
        let fits = match dtype {
            DType::F16 => true,
            DType::Bf16 => arch.matrix_bf16 && self.prim.bits < 8,
            _ => false,
        };
        fits && arch.matrix != Matrix::None
            && self.scales.dtype == dtype
            && self.prim.zeros != Zeros::Floats
            && self.unit_bytes(product.right.view) == 16
            && reads_packs(product, 32 / self.prim.bits as u64)
    }

    /// Elements between unpacked columns.
    fn pitch(&self, product: &Product<'_>) -> usize {
        (product.channels as usize).next_multiple_of(8)
    }

    fn unpacked_bytes(&self, product: &Product<'_>) -> usize {
        let elems = (product.columns as usize).saturating_mul(self.pitch(product));
        elems.saturating_mul(product.left.bytes())
    }

    fn set(&self, kernel: Kernel) -> Kernel {
        let zeros = match self.prim.zeros {
            Zeros::Middle => 0,
            Zeros::Packed => 1,
            Zeros::Floats => 2,
        };
        kernel
            .set("BITS", self.prim.bits)
            .set("ZEROS", zeros)
            .set("SCALE_T", type_name(self.scales.dtype))
            .set("ZERO_T", type_name(self.zeros.map_or(DType::U8, |zeros| zeros.dtype)))
    }

    fn args(&self, args: Args) -> Args {
        let args = args.constant("scales", 2, self.scales);
        let args = match self.zeros {
            Some(zeros) => args.constant("zeros", 3, zeros),
            None => args.null("zeros"),
        };
        args.u32("blocks", self.blocks as u32)
            .u32("zero_row", self.zero_row as u32)
            .u32("row_bytes", self.row_bytes as u32)
            .u32("block_shift", self.prim.block.trailing_zeros())
    }
}

/// A norm of the left operand, which every block computes for itself.
struct Prologue<'a> {
    norm: &'a Norm,
    /// The index of the scale among the inputs.
    number: usize,
    scale: &'a View,
    /// Elements read at once.
    pack: usize,
}

impl<'a> Prologue<'a> {
    fn new(norm: &'a Norm, step: &'a Step, product: &Product<'_>) -> Result<Self, Declined> {
        let number = step.own_inputs() - 1;
        let (scale, pack) = (&step.inputs[number], 16 / product.left.bytes());
        let plain = !norm.centre && norm.scale && !norm.bias && norm.axes == 1;
        if !plain || product.left.k != 1 || scale.dtype != product.left.view.dtype || !scale.is_dense() {
            return Err(Declined::new("an unsupported kind of norm as part of a product"));
        }
        let packs = reads_packs(product, pack as u64) && (scale.offset as usize).is_multiple_of(pack);
        Ok(Self { norm, number, scale, pack: if packs { pack } else { 1 } })
    }

    fn args(&self, args: Args) -> Args {
        args.constant("scale", self.number, self.scale)
            .f32("epsilon", self.norm.epsilon)
            .u32("round", u32::from(self.norm.round_before_scale))
    }
}

/// A product of many rows in two steps: unpack the weights, then a float product.
pub struct Unpacked {
    /// Unpacks them into scratch memory.
    pub launch: Launch,
    /// The product, whose right operand is in [`UNPACKED`]; its other operands keep their numbers.
    pub step: Step,
    /// The end of the unpacked weights in scratch memory.
    pub end: usize,
}

/// Splits a product of many rows with packed weights, which are unpacked at an offset in scratch memory; `None` for any
/// other step.
pub fn unpacked(step: &Step, arch: &Arch, at: usize) -> Option<Unpacked> {
    let Some((ProductKind::QuantMatMul(prim), epilogue)) = step.prim.product_and_epilogue() else { return None };
    let weights = Weights::new(prim, step).ok()?;
    let product = Product::packed(step, weights.row_bytes).ok()?;
    let bytes = weights.unpacked_bytes(&product);
    let few = if weights.suit_matrix(&product, arch) { FEW_ROWS } else { FEW_ROWS_PLAIN };
    let is_aligned = step.inputs[1].offset % 8 == 0;
    if product.rows <= few || product.columns == 0 || bytes > MAX_UNPACKED || !is_aligned {
        return None;
    }
    let (dtype, columns, pitch) = (product.left.view.dtype, product.columns as usize, weights.pitch(&product));
    let at = at.next_multiple_of(ALIGNMENT);
    let kernel = weights.set(Kernel::new("quant_unpack", UNPACK).set("T", type_name(dtype)));
    let args = weights.args(Args::new().input("packed", 1, &step.inputs[1]).scratch("out", at));
    let args = args.u32("columns", columns as u32).u32("eights", (pitch / 8) as u32);
    let blocks = grid_x((columns * pitch / 8).div_ceil(THREADS as usize) as u64).ok()?;
    let launch = Launch { kernel, grid: [blocks, 1, 1], threads: THREADS, lds_bytes: 0, args };
    let matmul = prim::Product::from(ProductKind::MatMul(MatMul { alpha: 1.0 }));
    let fused = prim::Product { epilogue: epilogue.cloned(), ..matmul };
    let mut step = Step { prim: fused.into(), ..step.clone() };
    step.inputs[1] = View {
        buffer: UNPACKED,
        dtype,
        shape: [1, product.channels as usize, columns].as_slice().into(),
        strides: [0, 1, pitch as isize].into_iter().collect(),
        offset: (at / dtype.bytes()) as isize,
    };
    Some(Unpacked { launch, step, end: at + bytes })
}

/// The launches of a product, with everything fused into it.
pub(crate) fn work(prim: &QuantMatMul, fused: &prim::Product, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let weights = Weights::new(prim, step)?;
    let product = Product::packed(step, weights.row_bytes)?;
    let prologue = fused.prologue.as_ref().map(|norm| Prologue::new(norm, step, &product)).transpose()?;
    if product.rows * product.columns == 0 {
        return Ok(Launches::nothing());
    }
    if let Some(first) = unpacked(step, arch, 0) {
        // The unpacked weights follow the scratch memory that the product itself needs.
        let own = gemm::work(&first.step, arch)?.scratch_bytes;
        if let Some(made) = unpacked(step, arch, own) {
            let mut work = gemm::work(&made.step, arch)?;
            work.launches.insert(0, made.launch);
            work.scratch_bytes = made.end;
            return Ok(work);
        }
    }
    // Conversions that other GPUs do almost for free are slow on the twin, so matrix instructions pay off there even
    // for one row.
    let suits = weights.suit_matrix(&product, arch) && (product.rows > 1 || arch.matrix == Matrix::Mma);
    let task = Task { weights: &weights, product: &product, prologue: prologue.as_ref(), gate: fused.gate.as_ref() };
    if !suits {
        return task.gemv(arch);
    }
    task.row(arch)?.map_or_else(|| task.mma(arch), Ok)
}

/// How the waves of a launch split the work.
struct Cut {
    /// Threads of a block.
    threads: u32,
    /// Blocks of columns.
    blocks: u32,
    /// Waves of a block that share k.
    parts: u32,
    /// Blocks that share k.
    splits: u32,
}

impl Cut {
    /// Splits `groups` of columns, each of which a wave processes in `rounds`, among as many waves as keep the device
    /// busy: `busy` per compute unit. `made_of` groups belong to the same block.
    fn new(groups: u64, made_of: u64, rounds: u64, busy: u64, threads: u32, arch: &Arch) -> Result<Self, Declined> {
        let (waves, units) = (u64::from(threads / arch.wave), u64::from(arch.compute_units));
        let mut parts = 1;
        while parts < waves / made_of && 2 * parts <= rounds && groups * parts < busy * units {
            parts *= 2;
        }
        let blocks = (groups * parts).div_ceil(waves);
        // Adding up sums of several blocks costs another launch, so each of them needs enough work.
        let splits = if made_of == 1 && 2 * blocks <= units { (units / blocks).min(rounds / parts / 2) } else { 1 };
        Ok(Self { threads, blocks: grid_x(blocks)?, parts: parts as u32, splits: splits.clamp(1, 64) as u32 })
    }
}

/// How waves read weights for matrix instructions.
struct Form {
    /// Packs of 16 bytes that a lane reads of a column at a time.
    packs: u64,
    /// Lanes that share a column: `GROUPS` of `hip/quant_mma.hip`.
    groups: u64,
    /// Padding between normalised rows, in elements: `ROW_PAD`.
    row_pad: u64,
}

impl Form {
    fn new(arch: &Arch) -> Self {
        let (packs, groups, row_pad) = match arch.matrix {
            Matrix::Mma => (2, 4, 32),
            Matrix::Mfma => (1, 4, 8),
            Matrix::Wmma12 => (2, 2, 8),
            Matrix::Wmma11 | Matrix::None => (2, 1, 8),
        };
        Self { packs, groups, row_pad }
    }
}

/// Blocks along z, each with its rows.
fn row_groups(product: &Product<'_>, rows: u64) -> Result<u32, Declined> {
    let groups = u32::try_from(product.rows.div_ceil(rows)).ok().filter(|&groups| groups <= 65535);
    groups.ok_or_else(|| Declined::new(format!("{} rows", product.rows)))
}

/// A product in one launch, and its sums in another if blocks share k.
struct Task<'a> {
    weights: &'a Weights<'a>,
    product: &'a Product<'a>,
    prologue: Option<&'a Prologue<'a>>,
    gate: Option<&'a Gate>,
}

impl Task<'_> {
    /// Columns of the weights per output column.
    fn made_of(&self) -> u64 {
        1 + u64::from(self.gate.is_some())
    }

    /// The number of groups of this many columns.
    fn groups(&self, columns: u64) -> u64 {
        self.product.columns.div_ceil(columns) * self.made_of()
    }

    fn args(&self, cut: &Cut, units: usize) -> Args {
        let Self { weights, product, prologue, .. } = *self;
        let args = Args::new().input("left", product.left.number, product.left.view);
        let args = args.constant("right", product.right.number, product.right.view).output("out", 0, product.out.0);
        let args = if cut.splits > 1 { args.scratch("partial", 0) } else { args.null("partial") };
        let args = product
            .operands
            .iter()
            .fold(weights.args(args), |args, (number, view, _)| args.input("operand", *number, view));
        let place = |args: Args, name, place: &OutputStrides| args.i64s(name, &[place.row, place.at[2]]);
        let args = product.operands.iter().fold(args, |args, (_, _, of)| place(args, "operand_place", of));
        let args = place(args, "out_place", &product.out.1)
            .i64s("left_row", &[product.left.across, product.left.k])
            .u32s("rows", &[product.rows as u32, product.columns as u32, product.channels as u32])
            .u32("units", units as u32)
            .u32("parts", cut.parts)
            .u32("splits", cut.splits);
        prologue.iter().fold(args, |args, prologue| prologue.args(args))
    }

    fn kernel(&self, name: &'static str, family: &'static str, cut: &Cut) -> Kernel {
        let Self { weights, product, prologue, gate } = *self;
        let mut kernel = weights.set(product.kernel(name, family, cut.splits > 1));
        if let Some(gate) = gate {
            kernel = kernel.with(expr::headers([&gate.expr]));
            kernel.generated = gate_text(gate, product.out.0.dtype);
        }
        kernel
            .set("NORM", prologue.map_or(0, |prologue| prologue.pack))
            .set("GATED", u8::from(gate.is_some()))
            .set("THREADS", cut.threads)
    }

    fn launch(&self, kernel: Kernel, cut: &Cut, units: usize, rows: u64, lds_bytes: u32) -> Result<Launches, Declined> {
        let mut choice = Choice::whole(self.product);
        choice.splits = cut.splits;
        let grid = [cut.blocks, cut.splits, row_groups(self.product, rows)?];
        let first = Launch { kernel, grid, threads: cut.threads, lds_bytes, args: self.args(cut, units) };
        gemm::finished(first, self.product, &choice)
    }

    /// Bytes of LDS for a block's rows with this pitch in elements, if they fit.
    fn lds_bytes(&self, rows: u64, pitch: u64) -> Result<u32, Declined> {
        let bytes = self.product.rows.min(rows) * pitch * self.product.left.bytes() as u64;
        let room = u32::try_from(bytes).ok().filter(|&bytes| bytes <= MAX_STAGED);
        room.ok_or_else(|| Declined::new(format!("{bytes} bytes of rows to normalise, more than {MAX_STAGED}")))
    }

    fn gemv(&self, arch: &Arch) -> Result<Launches, Declined> {
        let Self { weights, product, .. } = *self;
        let bytes = weights.unit_bytes(product.right.view);
        if bytes < 4 {
            return Err(Declined::new("weights that are not aligned to a word"));
        }
        let unit = bytes * 8 / weights.prim.bits;
        let units = weights.row_bytes / bytes;
        let rows = product.rows.next_power_of_two().min(4);
        let columns = if rows <= 2 { 4 } else { 2 };
        let rounds = (units as u64).div_ceil(u64::from(arch.wave));
        let cut = Cut::new(self.groups(columns), self.made_of(), rounds, BUSY_WAVES, THREADS, arch)?;
        let kernel = self
            .kernel("quant_gemv", GEMV, &cut)
            .set("ROWS", rows)
            .set("COLUMNS", columns)
            .set("BYTES", bytes)
            .set("SPLIT", (unit / weights.prim.block).max(1))
            .set("LEFT_PACK", u8::from(reads_packs(product, 8)));
        let lds_bytes = if self.prologue.is_some() { self.lds_bytes(rows, product.channels)? } else { 0 };
        self.launch(kernel, &cut, units, rows, lds_bytes)
    }

    /// One row, with `hip/quant_row.hip`, if there is room for what it reads ahead.
    fn row(&self, arch: &Arch) -> Result<Option<Launches>, Declined> {
        let Self { weights, product, prologue, .. } = *self;
        let (prim, depth) = (weights.prim, product.channels);
        let is_plain = prim.bits == 4 && prim.block == 32 && prim.zeros == Zeros::Middle;
        let is_even = depth.is_multiple_of(ROW_ROUND)
            && weights.scales.offset % 8 == 0
            && prologue.is_none_or(|prologue| prologue.pack == 8);
        if arch.matrix != Matrix::Mma || product.rows != 1 || !is_plain || !is_even {
            return Ok(None);
        }
        let rounds = depth / ROW_ROUND;
        let cut = Cut::new(self.groups(ROW_COLUMNS), self.made_of(), rounds, BUSY_AHEAD, THREADS, arch)?;
        let (waves, own) = (u64::from(cut.threads / arch.wave), rounds.div_ceil(u64::from(cut.parts)));
        // If there are few rounds, all are loaded at once.
        let wanted = if own <= SHORT { own } else { 2 };
        let bytes = |ahead| depth * 2 + depth / 32 * 4 + waves * (ROW_COLUMNS * 4 + ahead * ROW_SLOT);
        let ahead = (wanted.min(2)..=wanted).rev().find(|&ahead| bytes(ahead) <= u64::from(arch.lds_bytes));
        let Some(ahead) = ahead.filter(|_| cut.splits == 1) else { return Ok(None) };
        let kernel = self
            .kernel("quant_row", ROW, &cut)
            .set("PARTS", cut.parts)
            .set("DEPTH", ahead)
            .set("MATRIX", gemm::matrix_number(arch.matrix));
        self.launch(kernel, &cut, weights.row_bytes / 16, 1, bytes(ahead) as u32).map(Some)
    }

    fn mma(&self, arch: &Arch) -> Result<Launches, Declined> {
        let Self { weights, product, .. } = *self;
        let form = Form::new(arch);
        let (units, unit) = (weights.row_bytes / 16, 128 / weights.prim.bits);
        let rounds = (units as u64).div_ceil(form.packs * form.groups);
        let is_few = product.rows <= 8;
        let cut = |threads| Cut::new(self.groups(16), self.made_of(), rounds, BUSY_AHEAD, threads, arch);
        let mut cut_up = cut(THREADS)?;
        // If a block has one tile and much to read for it, more waves read more at a time.
        if is_few && cut_up.parts * arch.wave == THREADS && rounds >= SHORT * u64::from(cut_up.parts) {
            cut_up = cut(2 * THREADS)?;
        }
        let cut = cut_up;
        let shared = u64::from(cut.parts * cut.splits);
        // Staging a row in LDS pays off if many waves read it.
        let lds_bytes = self.lds_bytes(16, rounds * form.packs * form.groups * unit as u64 + form.row_pad);
        let lds_bytes = match (lds_bytes, self.prologue) {
            (lds_bytes, Some(_)) => lds_bytes?,
            (Ok(lds_bytes), None) if product.rows == 1 || shared == 1 => lds_bytes,
            _ => 0,
        };
        let is_short = self.prologue.is_some() || rounds.div_ceil(shared) <= SHORT;
        let kernel = self
            .kernel("quant_mma", MMA, &cut)
            .set("SPLIT", (unit / weights.prim.block).max(1))
            .set("FEW", u8::from(is_few))
            .set("SHORT", u8::from(is_short))
            .set("PACKS", form.packs)
            .set("STAGED", u8::from(lds_bytes > 0))
            .set("MATRIX", gemm::matrix_number(arch.matrix));
        self.launch(kernel, &cut, units, 16, lds_bytes)
    }
}

/// The function that combines two sums into an element.
pub(crate) fn gate_text(gate: &Gate, dtype: DType) -> String {
    let mut text = expr::function("stored_of", &gate.expr, dtype);
    let names = expr::inputs(&gate.expr).into_iter().map(|(number, _)| if number == 0 { "first" } else { "second" });
    let values: Vec<&str> = names.collect();
    text.push_str("template <class V> DEV OUT_T gated(V first, V second) {\n");
    text.push_str(&format!("  return put<OUT_T>(stored_of({}));\n}}\n", values.join(", ")));
    text
}

/// Whether rows of activations can be read 16 bytes at a time, and have a multiple of `elems` elements.
fn reads_packs(product: &Product<'_>, elems: u64) -> bool {
    let (left, pack) = (&product.left, 16 / product.left.bytes());
    left.k == 1 && left.is_aligned(pack, &[left.across]) && product.channels.is_multiple_of(elems)
}
