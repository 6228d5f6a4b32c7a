//! Attention in one step: `hip/attention.hip`, `hip/attend_rows.hip`, `hip/attend_merge.hip`.
use std::fmt::Write;

use graph::expr::{Node, Ref};
use graph::prim::Attention;
use graph::{DType, Declined, Step, View};

use crate::kernel::type_name;
use crate::layout::grid_x;
use crate::tiles::{Tile, keeps_order};
use crate::{Arch, Args, Kernel, Launch, Launches, Matrix, expr};

macro_rules! text {
    ($($file:literal),*) => { concat!($(include_str!(concat!("../hip/", $file)), "\n"),*) };
}

const TILES: &str = text!("attention.h", "mma.h", "flight.h", "tiles.h", "attention.hip");
const ROWS: &str = text!("attention.h", "attend_rows.hip");
const MERGE: &str = text!("attention.h", "attend_merge.hip");

/// Leading axes of scores in the kernels.
const AXES: usize = 3;
/// From this many rows on, a tile of queries pays off.
const FEW_ROWS: usize = 16;
/// Threads per block of the kernels without tiles.
const THREADS: usize = 256;

pub(crate) fn work(attention: &Attention, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let job = Job::new(attention, step)?;
    if step.outputs[0].elems() == 0 {
        return Ok(Launches { launches: Vec::new(), scratch_bytes: 0 });
    }
    let matrix = match job.q.dtype {
        DType::F16 => arch.matrix,
        DType::Bf16 if arch.matrix_bf16 => arch.matrix,
        _ => Matrix::None,
    };
    if matrix != Matrix::None && job.rows > FEW_ROWS {
        return job.tiles(matrix, arch);
    }
    job.rows(arch)
}

/// Whether scores are the plain products, of keys up to the row's own. Kernels support one such bound; a second one
/// stays part of the expression.
fn is_product(attention: &Attention) -> bool {
    let (scores, causal) = (&attention.scores, attention.causal());
    let Some(mut at) = scores.nodes().len().checked_sub(1) else { return false };
    loop {
        let rest = match scores.nodes()[at] {
            (Node::Input(number), _) => return number == 0,
            (Node::Cast(from), DType::F32) => Some(from),
            _ => attention.hides_ahead(at as Ref).filter(|&(past, _)| Some(past) == causal).map(|(_, rest)| rest),
        };
        let Some(rest) = rest else { return false };
        at = usize::from(rest);
    }
}

/// A step's views and extents.
struct Job<'a> {
    attention: &'a Attention,
    /// Queries, keys and values, whose batches are two axes.
    q: View,
    k: View,
    v: View,
    operands: &'a [View],
    out: &'a View,
    batches: usize,
    rows: usize,
    total: usize,
    size: usize,
    width: usize,
}

impl<'a> Job<'a> {
    fn new(attention: &'a Attention, step: &'a Step) -> Result<Self, Declined> {
        let ([q, k, v, operands @ ..], [out]) = (&step.inputs[..], &step.outputs[..]) else {
            return Err(Declined::new("attention without queries, keys and values"));
        };
        if ![q, k, v].iter().all(|view| matches!(view.shape.len(), 3 | 4)) {
            return Err(Declined::new("attention with operands of the wrong rank"));
        }
        let [q, k, v] = attention.batches([q, k, v]);
        let (rows, size, total, width) = (q.shape[2], q.shape[3], v.shape[2], v.shape[3]);
        let batches = q.shape[0] * q.shape[1];
        let one_type = [&k, &v, out].iter().all(|view| view.dtype == q.dtype);
        if !one_type || !matches!(q.dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(Declined::new(format!("attention of {}", q.dtype)));
        }
        if size.max(width) > 256 || attention.shape.len() > AXES + 1 {
            return Err(Declined::new(format!("attention with heads of {size} over {:?}", attention.shape)));
        }
        if batches * rows >= 1 << 31 || total >= 1 << 31 {
            return Err(Declined::new("an axis of 2^31 elements or more"));
        }
        Ok(Self { attention, q, k, v, operands, out, batches, rows, total, size, width })
    }

    /// The leading axes' extents or strides, padded in front with `missing`.
    fn axes<V: Copy>(&self, of: &[V], missing: V) -> [V; AXES] {
        let leading = self.attention.shape.len() - 1;
        std::array::from_fn(|at| (at + leading).checked_sub(AXES).map_or(missing, |at| of[at]))
    }

    fn kernel(&self, name: &'static str, family: &'static str) -> Kernel {
        let scores = &self.attention.scores;
        let mut kernel = Kernel::new(name, family)
            .with(expr::headers([scores]))
            .set("T", type_name(self.q.dtype))
            .set("OPERANDS", self.operands.len());
        kernel.generated = self.score();
        kernel
    }

    /// The function that turns a product into a score.
    fn score(&self) -> String {
        let scores = &self.attention.scores;
        let mut text = expr::function("score_of", scores, DType::F32);
        let inputs = expr::inputs(scores).into_iter().map(|(number, _)| {
            let Some(at) = usize::from(number).checked_sub(1) else { return "product".to_owned() };
            let dtype = type_name(self.operands[at].dtype);
            format!("get(((const {dtype}*)a.operand[{at}])[s.operand[{at}] + (i64)key * a.operand_axis[{at}][3]])")
        });
        let leading = self.attention.shape.len() - 1;
        let indices = expr::axes(scores).into_iter().map(|axis| match usize::from(axis) {
            axis if axis == leading => "(i64)key".to_owned(),
            axis => format!("(i64)s.index[{}]", axis + AXES - leading),
        });
        let values: Vec<String> = inputs.chain(indices).collect();
        text.push_str("template <class A, class S> DEV f32 score(const A& a, f32 product, const S& s, u32 key) {\n");
        let _ = writeln!(text, "  return score_of({});\n}}", values.join(", "));
        text
    }

    fn args(&self, groups: usize, splits: usize, split_keys: usize) -> Args {
        let mut args = Args::new().input("q", 0, &self.q).input("k", 1, &self.k).input("v", 2, &self.v);
        args = args.output("out", 0, self.out);
        args = if splits > 1 { args.scratch("partial", 0) } else { args.null("partial") };
        for (at, view) in self.operands.iter().enumerate() {
            args = args.input("operand", 3 + at, view);
        }
        let strides = |view: &View| -> Vec<i64> { view.strides.iter().map(|&stride| stride as i64).collect() };
        let parts = [&self.q, &self.k, &self.v];
        for (name, view) in ["q_batch", "k_batch", "v_batch"].into_iter().zip(parts) {
            args = args.i64s(name, &strides(view)[1..]);
        }
        args = args.i64s("q_outer", &parts.map(|view| view.strides[0] as i64));
        let last = |view: &View| view.strides.last().map_or(0, |&stride| stride as i64);
        args = args.i64s("out_axis", &self.axes(&strides(self.out), 0)).i64("out_at", last(self.out));
        for view in self.operands {
            args = args.i64s("operand_axis", &self.axes(&strides(view), 0)).i64("operand_key", last(view));
        }
        args.i64("past", self.past())
            .f32("alpha", self.attention.alpha)
            .u32("zero_if_hidden", u32::from(self.attention.zero_if_hidden))
            .u32s("batches", &[self.batches, self.rows, self.total, self.size, self.width].map(|extent| extent as u32))
            .u32s("axis", &self.axes(&self.attention.shape, 1).map(|extent| extent as u32))
            .u32s("groups", &[groups, splits, split_keys, self.q.shape[1]].map(|count| count as u32))
    }

    /// Number of keys before the first row's own; all of them if rows may look ahead.
    fn past(&self) -> i64 {
        let (rows, total) = (self.rows as i64, self.total as i64);
        self.attention.causal().map_or(total, |past| past.clamp(-rows, total))
    }

    /// True if rows of a view with stride `step` can be read `elems` elements at a time.
    fn is_packed(view: &View, step: usize, extent: usize, elems: usize) -> bool {
        let fits = |stride: isize| stride % elems as isize == 0;
        let others = (0..view.shape.len()).filter(|&axis| axis != step && view.shape[axis] > 1);
        view.strides[step] == 1
            && extent.is_multiple_of(elems)
            && fits(view.offset)
            && others.map(|axis| view.strides[axis]).all(fits)
    }

    /// Whether scores are computed in the same way for all rows of a batch, whatever they read besides products.
    fn is_by_key(&self) -> bool {
        let leading = self.attention.shape.len() - 1;
        let Some(row) = leading.checked_sub(1) else { return false };
        let same = |view: &View| view.strides[row] == 0;
        self.attention.shape[row] == self.rows
            && self.operands.iter().all(same)
            && !expr::axes(&self.attention.scores).contains(&(row as u16))
    }

    fn tiles(&self, matrix: Matrix, arch: &Arch) -> Result<Launches, Declined> {
        let sizes = [self.size, self.width];
        let is_plain = is_product(self.attention) && keeps_order(self.attention.alpha);
        let tile = Tile::new(matrix, arch, [self.batches, self.rows, self.total], sizes, is_plain);
        let groups = self.rows.div_ceil(tile.rows);
        let packed = |view, step, extent| u8::from(Self::is_packed(view, step, extent, 8));
        let kernel = tile
            .set(self.kernel("attention", TILES), matrix, arch, sizes, is_plain)
            .set("Q_PACKED", packed(&self.q, 3, self.size))
            .set("K_PACKED", packed(&self.k, 2, self.size))
            .set("V_PACKED", packed(&self.v, 3, self.width))
            .set("BY_KEY", u8::from(self.is_by_key()))
            .set("OUT_PACKED", packed(self.out, self.out.shape.len() - 1, self.width));
        let grid = [grid_x((self.batches * groups) as u64)?, 1, 1];
        let args = self.args(groups, 1, self.total);
        Ok(Launches::one(Launch { kernel, grid, threads: tile.threads(arch), lds_bytes: 0, args }))
    }

    fn rows(&self, arch: &Arch) -> Result<Launches, Declined> {
        let rows = self.rows.next_power_of_two().min(4);
        let groups = self.rows.div_ceil(rows);
        let blocks = self.batches * groups;
        // A part should be worth a few iterations of each wave.
        let wanted = (2 * arch.compute_units as usize).div_ceil(blocks).min(64);
        let split_keys = self.total.div_ceil(wanted).next_multiple_of(THREADS).max(2 * THREADS);
        let splits = self.total.div_ceil(split_keys);
        let pack = 16 / self.k.dtype.bytes();
        let pack = if Self::is_packed(&self.k, 2, self.size, pack) { pack } else { 1 };
        let kernel = self
            .kernel("attend_rows", ROWS)
            .set("ROWS", rows)
            .set("SIZE", self.size.next_multiple_of(64))
            .set("WIDTH", self.width.next_multiple_of(64))
            .set("PACK", pack);
        let args = self.args(groups, splits, split_keys);
        let launch = |kernel, grid, args| Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args };
        let first = launch(kernel, [grid_x(blocks as u64)?, splits as u32, 1], args.clone());
        if splits == 1 {
            return Ok(Launches::one(first));
        }
        let all = self.batches * self.rows;
        let kernel =
            Kernel::new("attend_merge", MERGE).set("T", type_name(self.q.dtype)).set("OPERANDS", self.operands.len());
        let merge = launch(kernel, [grid_x((all * self.width).div_ceil(THREADS) as u64)?, 1, 1], args);
        Ok(Launches { launches: vec![first, merge], scratch_bytes: splits * all * (self.width + 2) * 4 })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use graph::expr::{Binary, Expr};
    use graph::prim::BufferId;
    use graph::shape::dense_strides;
    use graph::{Prim, Scalar};

    use super::*;

    /// Attention of two heads of 40 rows over 70 keys, with these scores on gfx1100.
    fn launch(scores: Expr) -> Launch {
        let view = |extents: &[usize]| View {
            buffer: BufferId(0),
            dtype: DType::F16,
            shape: extents.into(),
            strides: dense_strides(extents),
            offset: 0,
        };
        let shape = [1, 2, 40, 70].into_iter().collect();
        let attention = Attention { alpha: 0.25, shape, scores, zero_if_hidden: false };
        let inputs = vec![view(&[2, 40, 64]), view(&[2, 64, 70]), view(&[2, 70, 64])];
        let outputs = vec![view(&[1, 2, 40, 64])];
        let step = Step { node: 0, prim: Prim::Attention(attention.clone()), inputs, outputs };
        work(&attention, &step, &Arch::new("gfx1100", 96)).unwrap().launches.remove(0)
    }

    /// Scores of keys up to `row + past`, for each `past`, the innermost first; others are `low`.
    fn up_to(pasts: &[i64], low: f64) -> Expr {
        let mut expr = Expr::new();
        let mut value = expr.input(0, DType::F16);
        for &past in pasts {
            let (row, key) = (expr.index(2), expr.index(3));
            let past = expr.constant(Scalar::Int(past), DType::I64);
            let own = expr.binary(Binary::Add, row, past);
            let is_ahead = expr.binary(Binary::Gt, key, own);
            let low = expr.constant(Scalar::Float(low), DType::F16);
            value = expr.select(is_ahead, low, value);
        }
        expr.finish(value);
        expr
    }

    /// The kernel's settings: the number of keys before the first row's own, and whether scores are plain.
    fn told(scores: Expr) -> (i64, String) {
        let launch = launch(scores);
        let at = launch.args.fields().iter().find(|field| field.name == "past").unwrap().offset;
        let past = i64::from_le_bytes(launch.args.bytes()[at..at + 8].try_into().unwrap());
        let is_plain = launch.kernel.settings.iter().find(|(name, _)| *name == "PLAIN").unwrap();
        (past, is_plain.1.clone())
    }

    #[test]
    fn kernels_get_the_end_of_the_visible_keys() {
        for (past, wanted) in [(0, 0), (30, 30), (-7, -7), (1 << 40, 70), (-(1 << 40), -40)] {
            assert_eq!(told(up_to(&[past], f64::NEG_INFINITY)), (wanted, "1".to_owned()), "{past}");
        }
        assert_eq!(told(up_to(&[0], -1e4)), (70, "0".to_owned()), "nothing is hidden");
        assert_eq!(told(up_to(&[0, 10], f64::NEG_INFINITY)), (10, "0".to_owned()), "more is hidden than that");
        assert_eq!(told(Expr::copy(DType::F16, DType::F32)), (70, "1".to_owned()));
    }
}
