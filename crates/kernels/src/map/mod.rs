//! Elementwise work: `hip/map.hip`, with code generated for each expression.
mod operand;
mod text;

use graph::expr::{Expr, Node};
use graph::prim::Map;
use graph::{DType, Declined, Step, View};

use crate::layout::{Layout, grid_x};
use crate::walk::reciprocal;
use crate::{Arch, Args, Kernel, Launch, Launches};
use operand::{Operand, Walk};

/// Axes that kernels support, as in the source.
const AXES: usize = 6;
/// Maximum packs or tiles per launch; more work becomes several launches.
const MOST: usize = 1 << 29;
/// Up to this many operations, an expression's code may be unrolled for 64 elements per thread.
const SHORT: usize = 16;
/// Threads of a block.
const THREADS: u32 = 256;

pub(crate) fn work(map: &Map, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let views: Vec<&View> = step.inputs.iter().collect();
    elementwise(&map.expr, &views, &step.outputs[0], arch)
}

/// The launches that compute `y` from the inputs, which are the step's first ones.
pub(crate) fn elementwise(expr: &Expr, inputs: &[&View], y: &View, arch: &Arch) -> Result<Launches, Declined> {
    let mut parts = Vec::new();
    let mut inputs: Vec<View> = inputs.iter().map(|&view| view.clone()).collect();
    let mut y = y.clone();
    let mut copy = None;
    if let Some(number) = copied(expr, &inputs, &y) {
        // Plain memory: nothing is converted, and types of the same width share one source.
        let word = word_type(y.dtype);
        inputs[number].dtype = word;
        y.dtype = word;
        let mut expr = Expr::new();
        expr.input(number as u16, word);
        copy = Some(expr);
    }
    let expr = copy.as_ref().unwrap_or(expr);
    let start = vec![0; y.shape.len()];
    split(Part { inputs, y, start }, &mut parts);
    let launches = parts.iter().map(|part| launch(expr, part, arch)).collect::<Result<_, _>>()?;
    Ok(Launches { launches, scratch_bytes: 0 })
}

/// The input that an expression copies unchanged.
fn copied(expr: &Expr, inputs: &[View], y: &View) -> Option<usize> {
    let number = match expr.nodes() {
        [(Node::Input(number), _)] | [(Node::Input(number), _), (Node::Cast(0), _)] => usize::from(*number),
        _ => return None,
    };
    let same = inputs[number].dtype == y.dtype && (expr.result() == y.dtype || expr.result() == y.dtype.compute());
    same.then_some(number)
}

/// The unsigned type of the same width.
const fn word_type(dtype: DType) -> DType {
    match dtype.bytes() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// Part of a map's output, with the same part of its inputs.
#[derive(Clone)]
struct Part {
    inputs: Vec<View>,
    y: View,
    /// The index of the first element in the whole.
    start: Vec<usize>,
}

/// Splits a part in halves until each fits in one launch.
fn split(mut part: Part, parts: &mut Vec<Part>) {
    let axis = (0..part.start.len()).max_by_key(|&axis| part.y.shape[axis]).unwrap_or(0);
    match part.y.elems() {
        0 => return,
        1..=MOST => return parts.push(part),
        _ => {}
    }
    let half = part.y.shape[axis] / 2;
    let rest = part.y.shape[axis] - half;
    for (count, skip) in [(half, 0), (rest, half)] {
        for view in part.inputs.iter_mut().chain([&mut part.y]) {
            view.shape[axis] = count;
            view.offset += view.strides[axis] * skip as isize;
        }
        part.start[axis] += skip;
        split(part.clone(), parts);
    }
}

fn launch(expr: &Expr, part: &Part, arch: &Arch) -> Result<Launch, Declined> {
    let Part { inputs, y, start } = part;
    let operands = Operand::all(expr, inputs, y, start)?;
    // The output's innermost axis is walked first, whatever its number is.
    let mut order: Vec<usize> = (0..y.shape.len()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(y.strides[axis].unsigned_abs()));
    let turned: Vec<View> = operands.iter().map(|operand| &operand.view).chain([y]).map(|v| turn(v, &order)).collect();
    let layout = Layout::new(&turned.iter().collect::<Vec<_>>(), 0, AXES)?;
    let mut walk = Walk::new(&layout, &operands, y);
    let way = Way::choose(expr, &operands, y, &mut walk, arch);
    let mut args = Args::new();
    for operand in operands.iter().filter(|operand| !operand.is_index()) {
        args = args.input(operand.name(), operand.number, &inputs[operand.number]);
    }
    let by = way.by.iter().chain(&walk.extents[2..]).flat_map(|&divisor| {
        let (factor, shift) = reciprocal(divisor);
        [divisor, factor, shift]
    });
    let by: Vec<u32> = by.collect();
    args = args
        .output("y", 0, y)
        .u32("packs", way.packs)
        .u32("per_thread", way.per_thread)
        .u32("columns", way.columns)
        .u32("rows", walk.extents[1])
        .u32("axes", walk.axes)
        .u32s("by", &by);
    let strides: Vec<i64> = walk.strides.iter().flatten().copied().collect();
    let first: Vec<i64> = operands.iter().map(|operand| operand.first).collect();
    // C does not allow an array without elements.
    let first = if first.is_empty() { vec![0] } else { first };
    args = if walk.wide {
        args.i64s("strides", &strides).i64s("first", &first)
    } else {
        let narrow = |values: &[i64]| values.iter().map(|&value| value as i32 as u32).collect::<Vec<_>>();
        args.u32s("strides", &narrow(&strides)).u32s("first", &narrow(&first))
    };
    Ok(Launch { kernel: way.kernel, grid: [grid_x(way.blocks)?, 1, 1], threads: THREADS, lds_bytes: 0, args })
}

/// A kernel for a walk, and its arguments.
struct Way {
    kernel: Kernel,
    blocks: u64,
    packs: u32,
    per_thread: u32,
    columns: u32,
    /// The divisors along axes 0 and 1.
    by: [u32; 2],
}

impl Way {
    fn choose(expr: &Expr, operands: &[Operand], y: &View, walk: &mut Walk, arch: &Arch) -> Self {
        let is_long = expr.nodes().len() > SHORT;
        if let Some(across) = walk.across(operands, y, if is_long { 0 } else { 8 }) {
            let by = [0, 1].map(|axis| walk.extents[axis].div_ceil(across.side()));
            let blocks = by.iter().chain(&walk.extents[2..]).map(|&count| u64::from(count)).product();
            let kernel = text::across(expr, operands, y, walk, &across);
            return Self { kernel, blocks, packs: 0, per_thread: 0, columns: walk.extents[0], by };
        }
        let pack = walk.pack(operands, y);
        let [columns, rows] = [walk.extents[0], walk.extents[1]];
        if pack == 1
            && !is_long
            && let Some((pack, loose)) = walk.flat(operands, y)
        {
            let elems = walk.extents.iter().product::<u32>();
            let packs = elems.div_ceil(pack);
            let kernel = text::flat(expr, operands, y, walk, &loose, pack);
            let blocks = u64::from(packs.div_ceil(THREADS));
            return Self { kernel, blocks, packs, per_thread: 1, columns: elems, by: [columns, rows] };
        }
        let of_row = columns.div_ceil(pack);
        let packs = walk.extents[1..].iter().product::<u32>() * of_row;
        let most = text::packs_per_thread(expr, operands, pack);
        // Small work is spread over as many blocks as it fills.
        let fills = u64::from(packs) >= u64::from(THREADS * most) * u64::from(arch.compute_units) * 8;
        let per_thread = if fills { most } else { 1 };
        let kernel = text::rows(expr, operands, y, walk, pack);
        let blocks = u64::from(packs.div_ceil(THREADS * per_thread));
        Self { kernel, blocks, packs, per_thread, columns, by: [of_row, rows] }
    }
}

/// A view with its axes in another order.
fn turn(view: &View, order: &[usize]) -> View {
    let shape = order.iter().map(|&axis| view.shape[axis]).collect();
    let strides = order.iter().map(|&axis| view.strides[axis]).collect();
    View { shape, strides, ..view.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::prim::BufferId;
    use graph::shape;

    #[test]
    fn large_work_is_several_launches_with_their_own_offsets() {
        let shape: &[usize] = &[3, 1 << 30];
        let view = |buffer| View {
            buffer: BufferId(buffer),
            dtype: DType::U8,
            shape: shape.into(),
            strides: shape::dense_strides(shape),
            offset: 0,
        };
        let work =
            elementwise(&Expr::copy(DType::U8, DType::U8), &[&view(0)], &view(1), &Arch::new("gfx1100", 96)).unwrap();
        let mut starts: Vec<isize> = work
            .launches
            .iter()
            .filter_map(|launch| match launch.args.pointers()[0].1 {
                crate::Pointer::Input(_, bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        starts.sort_unstable();
        assert_eq!(starts.len(), work.launches.len());
        assert!(starts.len() >= 6 && starts.windows(2).all(|pair| pair[0] < pair[1]), "{starts:?}");
    }
}
