//! Products of bytes minus their zero points, summed in 32 bits.
use graph::DType;
use graph::prim::Conv;
use smallvec::{SmallVec, smallvec};

use crate::carve::{carve, piece};
use crate::convolve::{Job, Lattice, Shared, columns};
use crate::depthwise::convolve_channels;
use crate::epilogue::Epilogue;
use crate::matmul::{self, Output};
use crate::operand::Source;
use crate::pairs::Pairs;
use crate::planes::{AXES, Window, spatial};
use crate::product::{Extents, Left, Right, Schedule, Store, Tile, product};
use crate::simd::vectorised;
use crate::{Context, OpError, Parallel, Tensor, TensorMut, conv};

/// Minimum number of elements per task.
const GRAIN: usize = 1 << 13;

/// Calls a function for the types of both operands.
macro_rules! typed {
    ($function:ident, $left:expr, $right:expr, $($argument:expr),*) => {
        match ($left, $right) {
            (DType::U8, DType::I8) => $function::<u8, i8>($($argument),*),
            (DType::U8, DType::U8) => $function::<u8, u8>($($argument),*),
            (DType::I8, DType::I8) => $function::<i8, i8>($($argument),*),
            (DType::I8, DType::U8) => $function::<i8, u8>($($argument),*),
            (dtype, _) => return Err(OpError::Unsupported { prim: "integer product", dtype }),
        }
    };
}

/// Checks that sums are stored in 32 bits.
fn check_sums(out: &TensorMut<'_>, epilogue: Option<&Epilogue<'_>>) -> Result<(), OpError> {
    let sums = epilogue.map_or(out.dtype(), |epilogue| epilogue.dtype);
    if sums == DType::I32 { Ok(()) } else { Err(OpError::Unsupported { prim: "integer product", dtype: sums }) }
}

/// `a [batch, m, k]` times `b [batch, k, n]`.
pub(crate) fn matmul(
    zeros: [i32; 2],
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (a, b) = (&inputs[0], &inputs[1]);
    check_sums(&out, epilogue.as_ref())?;
    if out.elems() == 0 {
        return Ok(());
    }
    let output = Output { out, epilogue, alpha: 1.0 };
    output.with_store::<i32, i32, _>(false, |store| {
        typed!(multiply, a.dtype(), b.dtype(), a, b, zeros, store, cx);
        Ok(())
    })
}

/// x `[n, c, spatial…]`, w `[m, c/groups, kernel…]`.
pub(crate) fn conv(
    prim: &Conv,
    zeros: [i32; 2],
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, w) = (&inputs[0], &inputs[1]);
    check_sums(&out, epilogue.as_ref())?;
    if out.elems() == 0 {
        return Ok(());
    }
    if out.shape().len() > 2 + AXES {
        return Err(OpError::Unsupported { prim: "conv over more than three axes", dtype: out.dtype() });
    }
    let output = spatial(&out.shape()[2..], 1);
    let window =
        Window { kernel: &w.shape()[2..], strides: &prim.strides, dilations: &prim.dilations, pads: &prim.pads };
    let (planes, taps) = window.layout(output);
    let job = Job {
        x,
        w,
        bias: None,
        out,
        epilogue,
        groups: prim.groups,
        planes,
        lattices: smallvec![Lattice { first: [0; AXES], step: [1; AXES], count: output, taps }],
        transposed: false,
        zeros,
    };
    if prim.groups == 1 {
        typed!(convolve_bytes, x.dtype(), w.dtype(), &job, cx);
    } else {
        conv::typed!("conv", convolve_channels, &job, cx);
    }
    Ok(())
}

/// Passes tiles of pairs on as sums.
fn as_sums<'a>(store: &'a Store<'a, i32>) -> impl Fn(&Tile<'_, Pairs>) + Sync + 'a {
    move |tile| {
        let Tile { batch, row, column, rows, columns, values, width } = *tile;
        store(&Tile { batch, row, column, rows, columns, values: Pairs::sums(values), width });
    }
}

/// `a [batch, m, k]` times `b [batch, k, n]`.
fn multiply<A: Source<i16>, B: Source<i16>>(
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    zeros: [i32; 2],
    store: &Store<'_, i32>,
    cx: &mut Context<'_>,
) {
    let (&[batch, rows, depth], columns) = (a.shape(), b.shape()[2]) else { return };
    let pairs = depth.div_ceil(2);
    // A right operand shared by all products is laid out only once.
    let right_batch = if b.strides()[0] == 0 { 1 } else { batch };
    let schedule = Schedule::<Pairs>::new(Extents { batch, rows, columns, depth: pairs }, cx.parallel, false);
    let (left_elems, right_elems) = (batch * rows * pairs, right_batch * pairs * columns);
    let mut rest = cx.scratch.get::<u8>(
        piece::<Pairs>(left_elems)
            + piece::<Pairs>(right_elems)
            + piece::<Pairs>(schedule.scratch())
            + 2 * piece::<isize>(pairs),
    );
    let left = carve::<Pairs>(&mut rest, left_elems);
    let right = carve::<Pairs>(&mut rest, right_elems);
    let scratch = carve::<Pairs>(&mut rest, schedule.scratch());
    let left_depth = matmul::table(carve(&mut rest, pairs), 1);
    let right_depth = matmul::table(carve(&mut rest, pairs), columns as isize);
    let [left_zero, right_zero] = zeros.map(|zero| zero as i16);
    let read_left = |at: usize, p: usize| {
        let offset = (at / rows) as isize * a.strides()[0] + (at % rows) as isize * a.strides()[1];
        let from = a.as_ptr::<A>().wrapping_offset(offset + p as isize * a.strides()[2]);
        // SAFETY: the view's memory covers its extents.
        if p < depth { unsafe { from.read() }.read() - left_zero } else { 0 }
    };
    let to = Shared(left.as_mut_ptr());
    cx.parallel.ranges(batch * rows, GRAIN.div_ceil(depth.max(1)), |range| {
        let to = &to;
        for at in range {
            for pair in 0..pairs {
                let value = Pairs::of(read_left(at, 2 * pair), read_left(at, 2 * pair + 1));
                // SAFETY: every pair is written once.
                unsafe { to.0.add(at * pairs + pair).write(value) };
            }
        }
    });
    let to = Shared(right.as_mut_ptr());
    let (down, across) = (b.strides()[1], b.strides()[2]);
    cx.parallel.ranges(right_batch * pairs, GRAIN.div_ceil(2 * columns.max(1)), |range| {
        let to = &to;
        for at in range {
            let (batch, pair) = (at / pairs, at % pairs);
            // SAFETY: every pair of rows has its own part.
            let to = unsafe { std::slice::from_raw_parts_mut(to.0.add(at * columns), columns) };
            let offset = batch as isize * b.strides()[0] + 2 * pair as isize * down;
            let from = b.as_ptr::<B>().wrapping_offset(offset);
            let is_whole = 2 * pair + 1 < depth;
            for (column, to) in to.iter_mut().enumerate() {
                let from = from.wrapping_offset(column as isize * across);
                // SAFETY: the view's memory covers its extents.
                let first = unsafe { from.read() }.read() - right_zero;
                let second = if is_whole {
                    // SAFETY: as above.
                    unsafe { from.wrapping_offset(down).read() }.read() - right_zero
                } else {
                    0
                };
                *to = Pairs::of(first, second);
            }
        }
    });
    let left = Left { start: left.as_ptr(), batch: (rows * pairs) as isize, row: pairs as isize, depth: left_depth };
    let right = Right {
        start: right.as_ptr(),
        batch: if right_batch == 1 { 0 } else { (pairs * columns) as isize },
        depth: right_depth,
        column: 1,
        in_place: true,
        is_far: false,
    };
    // SAFETY: both operands were laid out for these extents, and each sum is stored once.
    unsafe { product(&schedule, &left, &right, scratch, cx.parallel, &as_sums(store)) };
}

/// A convolution with one group: pairs are adjacent channels.
fn convolve_bytes<X: Source<i16>, W: Source<i16>>(job: &Job<'_>, cx: &mut Context<'_>) {
    let Job { x, out, planes, .. } = job;
    let [lattice] = &job.lattices[..] else { return };
    let (channels, maps) = (x.shape()[1], out.shape()[1]);
    let pairs = channels.div_ceil(2);
    let [outer, middle, inner] = &lattice.taps;
    let taps = outer.len() * middle.len() * inner.len();
    let depth = pairs * taps;
    let plane = planes.elems();
    let extents = Extents { batch: 1, rows: maps, columns: columns(planes, lattice), depth };
    let schedule = Schedule::<Pairs>::new(extents, cx.parallel, false);
    let tasks = cx.parallel.threads().min(pairs).max(1);
    let share = 2 * piece::<i16>(plane);
    let mut rest = cx.scratch.get::<u8>(
        piece::<Pairs>(pairs * plane)
            + piece::<Pairs>(maps * depth)
            + piece::<Pairs>(schedule.scratch())
            + 2 * piece::<isize>(depth)
            + tasks * share,
    );
    let image = carve::<Pairs>(&mut rest, pairs * plane);
    let weights = carve::<Pairs>(&mut rest, maps * depth);
    let scratch = carve::<Pairs>(&mut rest, schedule.scratch());
    let left_depth = matmul::table(carve(&mut rest, depth), 1);
    let right_depth = carve::<isize>(&mut rest, depth);
    lay_out_weights::<W>(job, lattice, weights, cx.parallel);
    let mut entries = right_depth.iter_mut();
    for pair in 0..pairs {
        for z in outer {
            for y in middle {
                for (x, entry) in inner.iter().zip(&mut entries) {
                    *entry = (pair * plane + z.offset + y.offset + x.offset) as isize;
                }
            }
        }
    }
    let right_depth: &[isize] = right_depth;
    let memory = Shared(rest.as_mut_ptr());
    for n in 0..x.shape()[0] {
        let to = Shared(image.as_mut_ptr());
        let fill = |task: usize| {
            let (memory, to) = (&memory, &to);
            // SAFETY: each task has its own share of the scratch memory.
            let mut rest = unsafe { std::slice::from_raw_parts_mut(memory.0.add(task * share), share) };
            let mut rows = [carve::<i16>(&mut rest, plane), carve::<i16>(&mut rest, plane)];
            for pair in pairs * task / tasks..pairs * (task + 1) / tasks {
                // SAFETY: each pair of channels has its own plane.
                let to = unsafe { std::slice::from_raw_parts_mut(to.0.add(pair * plane), plane) };
                fill_pair::<X>(job, n, pair, &mut rows, to);
            }
        };
        if tasks == 1 {
            fill(0)
        } else {
            cx.parallel.run(tasks, &fill)
        }
        let left = Left { start: weights.as_ptr(), batch: 0, row: depth as isize, depth: left_depth };
        let right =
            Right { start: image.as_ptr(), batch: 0, depth: right_depth, column: 1, in_place: true, is_far: false };
        job.with_store::<i32, i32>(
            n,
            lattice,
            |_| 0,
            |store| {
                // SAFETY: the planes hold every tap of every column, and each sum is stored once.
                unsafe { product(&schedule, &left, &right, scratch, cx.parallel, &as_sums(store)) };
            },
        );
    }
}

/// Lays out the weights `[m, c, kernel…]`: for each output channel, pair of input channels and tap.
fn lay_out_weights<W: Source<i16>>(job: &Job<'_>, lattice: &Lattice, to: &mut [Pairs], parallel: &dyn Parallel) {
    let w = job.w;
    let (maps, channels) = (w.shape()[0], w.shape()[1]);
    let strides = spatial(&w.strides()[2..], 0);
    let zero = job.zeros[1] as i16;
    let [outer, middle, inner] = &lattice.taps;
    let mut taps: SmallVec<[isize; 16]> = SmallVec::new();
    for z in outer {
        for y in middle {
            for x in inner {
                let tap = [z.kernel, y.kernel, x.kernel];
                taps.push(tap.iter().zip(strides).map(|(&tap, stride)| tap as isize * stride).sum());
            }
        }
    }
    let taps: &[isize] = &taps;
    let depth = to.len() / maps.max(1);
    let to = Shared(to.as_mut_ptr());
    parallel.ranges(maps, GRAIN.div_ceil(2 * depth.max(1)), |range| {
        let to = &to;
        for map in range {
            // SAFETY: each output channel has its own part.
            let to = unsafe { std::slice::from_raw_parts_mut(to.0.add(map * depth), depth) };
            let start = w.as_ptr::<W>().wrapping_offset(map as isize * w.strides()[0]);
            let channel = w.strides()[1];
            for (pair, to) in to.chunks_exact_mut(taps.len()).enumerate() {
                let from = start.wrapping_offset(2 * pair as isize * channel);
                let is_whole = 2 * pair + 1 < channels;
                for (to, &tap) in to.iter_mut().zip(taps) {
                    // SAFETY: the view's memory covers its extents.
                    let first = unsafe { from.wrapping_offset(tap).read() }.read() - zero;
                    let second = if is_whole {
                        // SAFETY: as above.
                        unsafe { from.wrapping_offset(tap + channel).read() }.read() - zero
                    } else {
                        0
                    };
                    *to = Pairs::of(first, second);
                }
            }
        }
    });
}

/// Lays out two channels of an image, interleaved; padding and a missing second channel are zeros.
fn fill_pair<X: Source<i16>>(job: &Job<'_>, image: usize, pair: usize, rows: &mut [&mut [i16]; 2], to: &mut [Pairs]) {
    let Job { x, planes, .. } = job;
    let zero = job.zeros[0] as i16;
    let input = spatial(&x.shape()[2..], 1);
    let strides = spatial(&x.strides()[2..], 0);
    for (channel, row) in (2 * pair..).zip(rows.iter_mut()) {
        if channel < x.shape()[1] {
            let offset = image as isize * x.strides()[0] + channel as isize * x.strides()[1];
            // SAFETY: the view's memory covers its extents.
            unsafe { planes.fill(x.as_ptr::<X>().wrapping_offset(offset), input, strides, zero, row) };
        } else {
            row.fill(zero);
        }
    }
    interleave(rows[0], rows[1], zero, to);
}

vectorised! {
    fn interleave(first: &[i16], second: &[i16], zero: i16, to: &mut [Pairs]) {
        for ((to, &first), &second) in to.iter_mut().zip(first).zip(second) {
            *to = Pairs::of(first - zero, second - zero);
        }
    }
}
