//! Appends rows to a cache, optionally rotating keys and queries: `hip/append.hip`.
use graph::prim::{Append, Positions, Rotary};
use graph::{DType, Declined, Step, View};

use crate::kernel::{type_name, word_name};
use crate::rotary::strides;
use crate::walk::pack;
use crate::{Arch, Args, Kernel, Launch, Launches};

const TEXT: &str = concat!(include_str!("../hip/lengths.h"), include_str!("../hip/append.hip"));
const TURNING: &str =
    concat!(include_str!("../hip/lengths.h"), include_str!("../hip/turn.h"), include_str!("../hip/append.hip"));
pub(crate) const THREADS: usize = 256;
/// Blocks per compute unit that keep its memory busy.
pub(crate) const BLOCKS: usize = 4;
/// The maximum grid size along y.
pub(crate) const MAX_HEADS: usize = 65_535;

pub(crate) fn work(append: &Append, step: &Step, arch: &Arch) -> Result<Launches, Declined> {
    let ([lengths, keys, values, past @ ..], [present_keys, present_values, ..]) =
        (&step.inputs[..], &step.outputs[..])
    else {
        return Err(Declined::new("append without keys and values"));
    };
    let (&[batches, heads, rows, _], &[_, _, total, _]) = (&keys.shape[..], &present_keys.shape[..]) else {
        return Err(Declined::new("append with operands of the wrong rank"));
    };
    let past = if append.past { &past[..2] } else { &[] };
    let turn = append.rotary.as_ref().map(|rotary| Turn::new(rotary, append, step)).transpose()?;
    let (fresh, out) = ([keys, values], [present_keys, present_values]);
    let moved: Vec<&View> = fresh.into_iter().chain(past).chain(out).collect();
    if moved.iter().any(|view| view.dtype != keys.dtype) || !out.iter().all(|view| view.is_dense()) {
        return Err(Declined::new("append with mixed types, or with outputs that are not contiguous"));
    }
    let sizes = out.map(|view| view.shape[3]);
    if batches * heads >= 1 << 31 || total * sizes[0].max(sizes[1]) >= 1 << 31 {
        return Err(Declined::new("a head of 2^31 elements or more"));
    }
    if batches * heads * total == 0 {
        return Ok(Launches::nothing());
    }
    let turning = turn.iter().flat_map(|turn| [turn.queries, turn.turned, turn.cosines, turn.sines]);
    let halves = turn.as_ref().map(|turn| turn.cosines.shape[1] as i64);
    let elems = pack_of(&moved.into_iter().chain(turning).collect::<Vec<_>>(), halves) as usize;
    let held = past.first().map_or(total, |past| past.shape[2]);
    let mut args = Args::new().input("lengths", 0, lengths).input("fresh", 1, keys).input("fresh", 2, values);
    args = match past {
        [keys, values] => args.input("past", 3, keys).input("past", 4, values),
        _ => args.null("past").null("past"),
    };
    let axes = |of: Option<&View>| of.map_or([0; 4], strides::<4>);
    let args = args
        .output("out", 0, present_keys)
        .output("out", 1, present_values)
        .fault("fault")
        .i64("lengths_step", lengths.strides.first().map_or(0, |&stride| stride as i64))
        .i64("shift", append.filled.shift)
        .i64s("fresh_axis", fresh.map(|view| axes(Some(view))).as_flattened())
        .i64s("past_axis", [axes(past.first()), axes(past.get(1))].as_flattened())
        .u32s("packs", &sizes.map(|size| (size / elems) as u32))
        .u32s("batches", &[batches, heads, rows, held, total].map(|extent| extent as u32))
        .u32("same_shape", u32::from(append.past && held == total));
    let text = if turn.is_some() { TURNING } else { TEXT };
    let kernel = Kernel::new("append", text).set("I", type_name(lengths.dtype)).set("V", elems);
    let (kernel, args, parts) = match &turn {
        Some(turn) => (turn.set(kernel), turn.args(args, elems), 3),
        None => (kernel.set("T", word_name(keys.dtype)).set("TURN", 0), args, 2),
    };
    // Enough for a copy of all rows; if only new rows are written, most blocks exit at once.
    let tasks = total * sizes[0].max(sizes[1]) / elems;
    let wanted = (BLOCKS * arch.compute_units as usize).div_ceil(2 * batches * heads);
    let x = tasks.div_ceil(THREADS).min(wanted).max(1);
    let grid = [x as u32, (batches * heads).min(MAX_HEADS) as u32, parts];
    Ok(Launches::one(Launch { kernel, grid, threads: THREADS as u32, lds_bytes: 0, args }))
}

/// Elements moved at once; with a rotation, at most `half` of a head.
pub(crate) fn pack_of(views: &[&View], half: Option<i64>) -> u32 {
    if views.iter().any(|view| view.strides.last() != Some(&1)) {
        return 1;
    }
    let numbers = views.iter().flat_map(|view| {
        let outer = (0..view.shape.len() - 1).filter(|&axis| view.shape[axis] > 1);
        let size = view.shape.last().map(|&size| size as i64);
        outer.map(|axis| view.strides[axis] as i64).chain([view.offset as i64]).chain(size)
    });
    pack(views[0].dtype, 16, numbers.chain(half))
}

/// The rotation of keys and queries.
pub(crate) struct Turn<'a> {
    rotary: &'a Rotary,
    /// The index of the first input.
    pub first: usize,
    pub queries: &'a View,
    pub cosines: &'a View,
    pub sines: &'a View,
    pub positions: &'a View,
    turned: &'a View,
}

impl<'a> Turn<'a> {
    pub fn new(rotary: &'a Rotary, append: &Append, step: &'a Step) -> Result<Self, Declined> {
        let first = append.turned_at();
        let (Some([queries, cosines, sines, positions]), Some(turned)) =
            (step.inputs.get(first..), step.outputs.get(2))
        else {
            return Err(Declined::new("rotary without angles and positions"));
        };
        let dtype = step.inputs[1].dtype;
        let one_type = [queries, cosines, sines, turned].iter().all(|view| view.dtype == dtype);
        if !one_type || !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
            return Err(Declined::new(format!("rotary of {dtype}")));
        }
        if queries.elems() >= 1 << 31 {
            return Err(Declined::new("rotary of 2^31 elements or more"));
        }
        Ok(Self { rotary, first, queries, cosines, sines, positions, turned })
    }

    fn set(&self, kernel: Kernel) -> Kernel {
        self.set_angles(kernel.set("T", type_name(self.queries.dtype)).set("TURN", 1))
    }

    /// Adds the settings of `hip/turn.h` to a kernel.
    pub fn set_angles(&self, kernel: Kernel) -> Kernel {
        kernel
            .set("P", type_name(self.positions.dtype))
            .set("BEHIND", u8::from(self.rotary.positions != Positions::Given))
            .set("INTERLEAVED", u8::from(self.rotary.interleaved))
    }

    /// The offset added to lengths.
    pub fn shift(&self) -> i64 {
        match self.rotary.positions {
            Positions::Given => 0,
            Positions::Behind(filled) => filled.shift,
        }
    }

    fn args(&self, args: Args, elems: usize) -> Args {
        let (count, half) = (self.cosines.shape[0], self.cosines.shape[1]);
        args.input("queries", self.first, self.queries)
            .input("cosines", self.first + 1, self.cosines)
            .input("sines", self.first + 2, self.sines)
            .input("positions", self.first + 3, self.positions)
            .output("turned", 2, self.turned)
            .i64s("query_axis", &strides::<4>(self.queries))
            .i64s("turned_axis", &strides::<4>(self.turned))
            .i64s("cosine_axis", &strides::<2>(self.cosines))
            .i64s("sine_axis", &strides::<2>(self.sines))
            .i64s("position_axis", &strides::<2>(self.positions))
            .i64("position_shift", self.shift())
            .i64("count", count as i64)
            .u32s("query_packs", &[self.queries.shape[3] / elems, self.queries.shape[1], half].map(|it| it as u32))
    }
}
