//! Products with packed weights: `hip/quant_gemv.hip`.
use graph::{
    DType, Declined, Step, View,
    prim::{QuantMatMul, WeightLayout, Zeros},
};

use crate::{
    Arch, Args, Kernel, Launch, Work, gemm,
    kernel::type_name,
    layout::grid_x,
    product::{Choice, Product},
};

const GEMV: &str =
    concat!(include_str!("../hip/product.h"), include_str!("../hip/quant.h"), include_str!("../hip/quant_gemv.hip"));

/// Threads of every block here.
const THREADS: u32 = 256;
/// Waves that a compute unit keeps enough reads of memory in flight with.
const BUSY_WAVES: u64 = 16;

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
            return Err(Declined::new("weights that were laid out for another device"));
        }
        let count = if prim.zeros == Zeros::Middle { 2 } else { 3 };
        if !step.inputs[1..1 + count].iter().all(View::is_dense) {
            return Err(Declined::new("weights that do not lie one behind the other"));
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

    /// Bytes that a lane may read at a time: as many as divide all columns and the place of the first.
    fn unit_bytes(&self, weights: &View) -> usize {
        let places = 16 | self.row_bytes | weights.offset.unsigned_abs();
        1 << places.trailing_zeros()
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

    fn args(&self, args: Args, units: usize, parts: u32) -> Args {
        let args = args.input("scales", 2, self.scales);
        let args = match self.zeros {
            Some(zeros) => args.input("zeros", 3, zeros),
            None => args.null("zeros"),
        };
        args.u32("blocks", self.blocks as u32)
            .u32("zero_row", self.zero_row as u32)
            .u32("row_bytes", self.row_bytes as u32)
            .u32("block_shift", self.prim.block.trailing_zeros())
            .u32("units", units as u32)
            .u32("parts", parts)
    }
}

/// The launches of a product.
pub(crate) fn work(prim: &QuantMatMul, step: &Step, arch: &Arch) -> Result<Work, Declined> {
    let weights = Weights::new(prim, step)?;
    let product = Product::packed(step, weights.row_bytes)?;
    if product.rows * product.columns == 0 {
        return Ok(Work::nothing());
    }
    gemv(&weights, &product, arch)
}

/// How the waves of a launch share the work.
struct Cut {
    /// Blocks of columns.
    blocks: u32,
    /// Waves of a block that share k.
    parts: u32,
    /// Blocks that share k.
    splits: u32,
}

impl Cut {
    /// For waves that make `columns` columns each and walk a column in `rounds`: as many waves as keep the device busy.
    fn new(product: &Product<'_>, columns: u64, rounds: u64, arch: &Arch) -> Result<Self, Declined> {
        let waves = u64::from(THREADS / arch.wave);
        let (groups, units) = (product.columns.div_ceil(columns), u64::from(arch.compute_units));
        let mut parts = 1;
        while parts < waves && 2 * parts <= rounds && groups * parts < BUSY_WAVES * units {
            parts *= 2;
        }
        let blocks = (groups * parts).div_ceil(waves);
        let splits = if blocks < units { (2 * units / blocks).min(rounds / parts).clamp(1, 64) } else { 1 };
        Ok(Self { blocks: grid_x(blocks)?, parts: parts as u32, splits: splits as u32 })
    }
}

fn gemv(weights: &Weights<'_>, product: &Product<'_>, arch: &Arch) -> Result<Work, Declined> {
    let bytes = weights.unit_bytes(product.right.view);
    if bytes < 4 {
        return Err(Declined::new("weights that do not begin at a word"));
    }
    let unit = bytes * 8 / weights.prim.bits;
    let units = weights.row_bytes / bytes;
    let rows = product.rows.next_power_of_two().min(8);
    let columns = if rows <= 2 { 4 } else { 2 };
    let cut = Cut::new(product, columns, (units as u64).div_ceil(u64::from(arch.wave)), arch)?;
    let mut choice = Choice::whole(product);
    choice.splits = cut.splits;
    let pack = 16 / product.left.bytes();
    let packs = product.left.k == 1 && product.left.is_aligned(pack, &[product.left.across]);
    let kernel = product
        .kernel("quant_gemv", GEMV, cut.splits > 1)
        .set("ROWS", rows)
        .set("COLUMNS", columns)
        .set("BYTES", bytes)
        .set("SPLIT", (unit / weights.prim.block).max(1))
        .set("LEFT_PACK", u8::from(packs));
    let groups = u32::try_from(product.rows.div_ceil(rows)).ok().filter(|&groups| groups <= 65535);
    let groups = groups.ok_or_else(|| Declined::new(format!("{} rows", product.rows)))?;
    let args = weights.args(product.args(&choice), units, cut.parts);
    let grid = [cut.blocks, cut.splits, groups];
    let first = Launch { kernel: weights.set(kernel), grid, threads: THREADS, lds_bytes: 0, args };
    gemm::finished(first, product, &choice)
}
