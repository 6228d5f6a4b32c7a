//! Pooling: like a convolution, every element of the window is a shift of a padded plane.
use graph::DType;
use graph::prim::{Pool, PoolKind};
use half::{bf16, f16};

use crate::carve::{carve, piece};
use crate::convolve::{ImageColumns, Lattice, Shared, columns};
use crate::microkernel::Compute;
use crate::operand::{Source, Target};
use crate::planes::{AXES, Planes, Window, spatial};
use crate::real::Real;
use crate::simd::vectorised;
use crate::{Context, OpError, Tensor, TensorMut, pool_index};

/// Columns reduced in registers.
const BLOCK: usize = 32;
/// Below this many elements, one thread is faster than several.
const SERIAL: usize = 1 << 14;

/// Input `[n, c, spatial…]`; outputs are the values and, for a maximum, optionally its indices.
pub(crate) fn run(
    prim: &Pool,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, out) = (&inputs[0], outputs[0]);
    let unsupported = |prim| OpError::Unsupported { prim, dtype: out.dtype() };
    if out.shape().len() > 2 + AXES {
        return Err(unsupported("pool over more than three axes"));
    }
    if out.elems() == 0 {
        return Ok(());
    }
    let job = Job { prim, x, out };
    match (prim.kind, outputs.get(1)) {
        (PoolKind::Max { column_major }, Some(&index)) => match x.dtype() {
            DType::F32 => pool_index::run::<f32, f32>(&job, index, column_major, cx),
            DType::F64 => pool_index::run::<f64, f64>(&job, index, column_major, cx),
            DType::F16 => pool_index::run::<f32, f16>(&job, index, column_major, cx),
            DType::Bf16 => pool_index::run::<f32, bf16>(&job, index, column_major, cx),
            DType::I8 => pool_index::run::<i32, i8>(&job, index, column_major, cx),
            DType::U8 => pool_index::run::<i32, u8>(&job, index, column_major, cx),
            DType::I32 => pool_index::run::<i32, i32>(&job, index, column_major, cx),
            DType::I64 => pool_index::run::<i64, i64>(&job, index, column_major, cx),
            _ => return Err(unsupported("pool")),
        },
        (PoolKind::Max { .. }, None) => match x.dtype() {
            DType::F32 => typed::<f32, f32>(&job, &Max, cx),
            DType::F64 => typed::<f64, f64>(&job, &Max, cx),
            DType::F16 => typed::<f32, f16>(&job, &Max, cx),
            DType::Bf16 => typed::<f32, bf16>(&job, &Max, cx),
            DType::I8 => typed::<i32, i8>(&job, &Max, cx),
            DType::U8 => typed::<i32, u8>(&job, &Max, cx),
            DType::I32 => typed::<i32, i32>(&job, &Max, cx),
            DType::I64 => typed::<i64, i64>(&job, &Max, cx),
            _ => return Err(unsupported("pool")),
        },
        (PoolKind::Average { count_pad }, _) => match x.dtype() {
            DType::F32 => typed::<f32, f32>(&job, &job.average(count_pad), cx),
            DType::F64 => typed::<f64, f64>(&job, &job.average(count_pad), cx),
            DType::F16 => typed::<f32, f16>(&job, &job.average(count_pad), cx),
            DType::Bf16 => typed::<f32, bf16>(&job, &job.average(count_pad), cx),
            _ => return Err(unsupported("pool")),
        },
        (PoolKind::Lp { p }, _) => match x.dtype() {
            DType::F32 => typed::<f32, f32>(&job, &Lp(p), cx),
            DType::F64 => typed::<f64, f64>(&job, &Lp(p), cx),
            DType::F16 => typed::<f32, f16>(&job, &Lp(p), cx),
            DType::Bf16 => typed::<f32, bf16>(&job, &Lp(p), cx),
            _ => return Err(unsupported("pool")),
        },
    }
    Ok(())
}

/// The operands and parameters of a pooling step.
pub(crate) struct Job<'a> {
    pub prim: &'a Pool,
    pub x: &'a Tensor<'a>,
    pub out: TensorMut<'a>,
}

impl Job<'_> {
    fn average(&self, count_pad: bool) -> Average {
        let Pool { kernel, strides, dilations, pads, pads_end, .. } = self.prim;
        let (kernel, strides, dilations) = (spatial(kernel, 1), spatial(strides, 1), spatial(dilations, 1));
        let (pads, pads_end) = (spatial(pads, 0), spatial(pads_end, 0));
        let input = spatial(&self.x.shape()[2..], 1);
        Average {
            axes: std::array::from_fn(|axis| {
                let (before, behind) = if count_pad { (pads[axis], pads_end[axis]) } else { (0, 0) };
                Counted {
                    kernel: kernel[axis],
                    stride: strides[axis],
                    dilation: dilations[axis],
                    pad: pads[axis],
                    first: -before,
                    end: input[axis] as isize + behind,
                }
            }),
        }
    }
}

/// How a window is reduced to a value.
trait Kind<C>: Sync {
    /// The padding, and the initial value of the reduction.
    const PADDING: C;

    /// Transforms every element before the reduction.
    fn prepare(&self, plane: &mut [C]);

    /// Combines two elements.
    fn join(a: C, b: C) -> C;

    /// Finishes the values of one output row, which starts at this index.
    fn finish(&self, row: [usize; AXES], values: &mut [C]);
}

struct Max;

impl<C: Compute> Kind<C> for Max {
    const PADDING: C = C::LOWEST;

    fn prepare(&self, _: &mut [C]) {}

    #[inline(always)]
    fn join(a: C, b: C) -> C {
        a.larger(b)
    }

    fn finish(&self, _: [usize; AXES], _: &mut [C]) {}
}

/// Knows how many elements of a window count.
struct Average {
    axes: [Counted; AXES],
}

/// The elements that count along one axis: those of the window from `first` up to `end`.
struct Counted {
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: isize,
    first: isize,
    end: isize,
}

impl Counted {
    fn at(&self, output: usize) -> usize {
        let start = (output * self.stride) as isize - self.pad;
        let last = start + ((self.kernel - 1) * self.dilation) as isize;
        if start >= self.first && last < self.end {
            return self.kernel;
        }
        let dilation = self.dilation as isize;
        let before = |bound: isize| (bound - start + dilation - 1).div_euclid(dilation).clamp(0, self.kernel as isize);
        (before(self.end) - before(self.first)).max(0) as usize
    }
}

impl<C: Real> Kind<C> for Average {
    const PADDING: C = C::ZERO;

    fn prepare(&self, _: &mut [C]) {}

    #[inline(always)]
    fn join(a: C, b: C) -> C {
        a.plus(b)
    }

    fn finish(&self, row: [usize; AXES], values: &mut [C]) {
        let [outer, middle, inner] = &self.axes;
        let rows = outer.at(row[0]) * middle.at(row[1]);
        for (at, value) in values.iter_mut().enumerate() {
            // A window without any element has the sum zero.
            *value = value.over(C::count((rows * inner.at(row[2] + at)).max(1)));
        }
    }
}

struct Lp(f32);

impl<C: Real> Kind<C> for Lp {
    const PADDING: C = C::ZERO;

    fn prepare(&self, plane: &mut [C]) {
        match self.0 {
            1.0 => plane.iter_mut().for_each(|x| *x = x.absolute()),
            2.0 => plane.iter_mut().for_each(|x| *x = x.times(*x)),
            p => plane.iter_mut().for_each(|x| *x = x.absolute().power(C::of(p))),
        }
    }

    #[inline(always)]
    fn join(a: C, b: C) -> C {
        a.plus(b)
    }

    fn finish(&self, _: [usize; AXES], values: &mut [C]) {
        match self.0 {
            1.0 => {}
            2.0 => values.iter_mut().for_each(|x| *x = x.root()),
            p => values.iter_mut().for_each(|x| *x = x.power(C::of(1.0).over(C::of(p)))),
        }
    }
}

fn typed<C: Compute, T>(job: &Job<'_>, kind: &impl Kind<C>, cx: &mut Context<'_>)
where
    T: Source<C> + Target<C>,
{
    let Job { prim, x, out } = job;
    let output = spatial(&out.shape()[2..], 1);
    let window = Window { kernel: &prim.kernel, strides: &prim.strides, dilations: &prim.dilations, pads: &prim.pads };
    let (planes, taps) = window.layout(output);
    let lattice = Lattice { first: [0; AXES], step: [1; AXES], count: output, taps };
    let columns = columns(&planes, &lattice);
    // A single window that covers the plane is reduced along the plane, not across its shifts.
    let is_global = columns == 1 && planes.elems() == lattice.taps.iter().map(|taps| taps.len()).product::<usize>();
    let [outer, middle, inner] = &lattice.taps;
    let taps = if is_global { 0 } else { outer.len() * middle.len() * inner.len() };
    let (input, strides) = (spatial(&x.shape()[2..], 1), spatial(&x.strides()[2..], 0));
    let (images, channels) = (x.shape()[0], x.shape()[1]);
    let all = images * channels;
    // The last block of the last tap reads past the plane.
    let (plane_elems, blocks) = (planes.elems() + BLOCK, columns.next_multiple_of(BLOCK));
    let threads = if all * (plane_elems + columns * taps) < SERIAL { 1 } else { cx.parallel.threads() };
    let tasks = threads.min(all).max(1);
    let share = piece::<C>(plane_elems) + piece::<C>(blocks);
    let mut rest = cx.scratch.get::<u8>(piece::<usize>(taps) + tasks * share);
    let offsets = carve::<usize>(&mut rest, taps);
    let mut entries = offsets.iter_mut();
    for z in outer {
        for y in middle {
            for (x, offset) in inner.iter().zip(&mut entries) {
                *offset = z.offset + y.offset + x.offset;
            }
        }
    }
    let offsets: &[usize] = offsets;
    let memory = Shared(rest.as_mut_ptr());
    let body = |task: usize| {
        let memory = &memory;
        // SAFETY: each task has its own share of the scratch memory.
        let mut rest = unsafe { std::slice::from_raw_parts_mut(memory.0.add(task * share), share) };
        let plane = carve::<C>(&mut rest, plane_elems);
        let values = carve::<C>(&mut rest, blocks);
        plane[planes.elems()..].fill(C::ZERO);
        for at in all * task / tasks..all * (task + 1) / tasks {
            let (image, channel) = (at / channels, at % channels);
            let offset = image as isize * x.strides()[0] + channel as isize * x.strides()[1];
            let from = x.as_ptr::<T>().wrapping_offset(offset);
            let elems = &mut plane[..planes.elems()];
            // SAFETY: the view's memory covers its extents.
            unsafe { planes.fill(from, input, strides, padding(kind), elems) };
            kind.prepare(elems);
            if is_global {
                values[0] = gather_all(kind, elems);
            } else {
                gather(kind, values, plane, offsets);
            }
            finish_rows(kind, &planes, output, &mut values[..columns]);
            let place = ImageColumns::new(out.strides(), image, &planes, &lattice);
            // SAFETY: as above, and each channel is stored once.
            unsafe { place.store(out.as_ptr::<T>(), channel, 0, &values[..columns], C::ZERO) };
        }
    };
    if tasks == 1 { body(0) } else { cx.parallel.run(tasks, &body) }
}

fn padding<C, K: Kind<C>>(_: &K) -> C {
    K::PADDING
}

/// Finishes every output row in place.
fn finish_rows<C: Compute>(kind: &impl Kind<C>, planes: &Planes, output: [usize; AXES], values: &mut [C]) {
    for z in 0..output[0] {
        for y in 0..output[1] {
            let start = z * planes.stride(0) + y * planes.stride(1);
            kind.finish([z, y, 0], &mut values[start..start + output[2]]);
        }
    }
}

vectorised! {
    /// Reduces each value over all shifts of the plane.
    fn gather<C: Compute, K: Kind<C>>(kind: &K, values: &mut [C], plane: &[C], offsets: &[usize]) {
        for (block, values) in values.chunks_exact_mut(BLOCK).enumerate() {
            let mut local = [padding(kind); BLOCK];
            for &offset in offsets {
                let start = block * BLOCK + offset;
                for (value, &other) in local.iter_mut().zip(&plane[start..start + BLOCK]) {
                    *value = K::join(*value, other);
                }
            }
            values.copy_from_slice(&local);
        }
    }
}

vectorised! {
    /// Reduces the whole plane to one value.
    fn gather_all<C: Compute, K: Kind<C>>(kind: &K, plane: &[C]) -> C {
        let mut lanes = [padding(kind); BLOCK];
        let mut chunks = plane.chunks_exact(BLOCK);
        for chunk in &mut chunks {
            for (lane, &value) in lanes.iter_mut().zip(chunk) {
                *lane = K::join(*lane, value);
            }
        }
        let tail = chunks.remainder().iter().fold(padding(kind), |all, &value| K::join(all, value));
        lanes.into_iter().fold(tail, K::join)
    }
}
