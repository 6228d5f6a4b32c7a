//! Running sums and products along the middle axis of `[outer, axis, inner]`.
use graph::DType;
use graph::prim::Cumulative;

use crate::number::{Number, with_number};
use crate::simd::vectorised;
use crate::{Context, OpError, Tensor, TensorMut};

/// Minimum number of elements per task.
const GRAIN: usize = 16 * 1024;
/// Elements processed at a time.
const BLOCK: usize = 256;

pub(crate) fn run(
    cumulative: &Cumulative,
    inputs: &[Tensor<'_>],
    outputs: &[TensorMut<'_>],
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (x, y) = (inputs[0], outputs[0]);
    if y.elems() > 0 {
        with_number!(x.dtype(), N => run_as::<N>(cumulative, &x, &y, cx));
    }
    Ok(())
}

fn run_as<N: Running>(cumulative: &Cumulative, x: &Tensor<'_>, y: &TensorMut<'_>, cx: &mut Context<'_>) {
    let &[outer, extent, inner] = x.shape() else { return };
    let blocks = inner.div_ceil(BLOCK);
    let scan = Scan { cumulative, x, y, extent };
    cx.parallel.ranges(outer * blocks, (GRAIN / (extent * inner.min(BLOCK))).max(1), |range| {
        for task in range {
            let (at, start) = ((task / blocks) as isize, task % blocks * BLOCK);
            let count = BLOCK.min(inner - start);
            let from = at * x.strides()[0] + start as isize * x.strides()[2];
            let to = at * y.strides()[0] + start as isize * y.strides()[2];
            if count == 1 { scan.line::<N>(from, to) } else { scan.block::<N>(from, to, count) }
        }
    });
}

struct Scan<'a> {
    cumulative: &'a Cumulative,
    x: &'a Tensor<'a>,
    y: &'a TensorMut<'a>,
    extent: usize,
}

impl Scan<'_> {
    /// The start and the steps of the scan, in elements of the input and of the output.
    fn way(&self, from: isize, to: isize) -> (isize, isize, isize, isize) {
        let (step, out_step) = (self.x.strides()[1], self.y.strides()[1]);
        if self.cumulative.reverse {
            let last = self.extent as isize - 1;
            return (from + last * step, to + last * out_step, -step, -out_step);
        }
        (from, to, step, out_step)
    }

    fn source(&self, offset: isize) -> *const u8 {
        self.x.start().wrapping_offset(offset * self.x.dtype().bytes() as isize)
    }

    fn target(&self, offset: isize) -> *mut u8 {
        self.y.start().wrapping_offset(offset * self.y.dtype().bytes() as isize)
    }

    /// One line along the axis.
    fn line<N: Running>(&self, from: isize, to: isize) {
        let (from, to, step, out_step) = self.way(from, to);
        let mut total = N::start(self.cumulative.product);
        let mut memory = [N::ZERO; BLOCK];
        for start in (0..self.extent).step_by(BLOCK) {
            let values = &mut memory[..BLOCK.min(self.extent - start)];
            // SAFETY: the line is within the input, and the same line of the output belongs to this task.
            unsafe { N::load(self.x.dtype(), self.source(from + start as isize * step), step, values) };
            for value in values.iter_mut() {
                let next = N::join(self.cumulative.product, total, *value);
                *value = if self.cumulative.exclusive { total } else { next };
                total = next;
            }
            // SAFETY: as above.
            unsafe { N::store(self.y.dtype(), self.target(to + start as isize * out_step), out_step, values) };
        }
    }

    /// Several adjacent lines at once.
    fn block<N: Running>(&self, from: isize, to: isize, count: usize) {
        let (from, to, step, out_step) = self.way(from, to);
        let (stride, out_stride) = (self.x.strides()[2], self.y.strides()[2]);
        let (mut totals, mut memory) = ([N::start(self.cumulative.product); BLOCK], [N::ZERO; BLOCK]);
        let (totals, values) = (&mut totals[..count], &mut memory[..count]);
        for at in 0..self.extent as isize {
            // SAFETY: the lines are within the input, and the same lines of the output belong to this task.
            unsafe {
                if self.cumulative.exclusive {
                    N::store(self.y.dtype(), self.target(to + at * out_step), out_stride, totals);
                }
                N::load(self.x.dtype(), self.source(from + at * step), stride, values);
                join(self.cumulative.product, totals, values);
                if !self.cumulative.exclusive {
                    N::store(self.y.dtype(), self.target(to + at * out_step), out_stride, totals);
                }
            }
        }
    }
}

vectorised! {
    fn join<N: Running>(product: bool, totals: &mut [N], values: &[N]) {
        for (total, &value) in totals.iter_mut().zip(values) {
            *total = N::join(product, *total, value);
        }
    }
}

/// Running totals. Integers wrap.
trait Running: Number {
    fn start(product: bool) -> Self;
    fn join(product: bool, total: Self, value: Self) -> Self;
}

macro_rules! running {
    ($($number:ty: $one:expr, $add:expr, $multiply:expr;)*) => { $(
        impl Running for $number {
            fn start(product: bool) -> Self {
                if product { $one } else { Self::ZERO }
            }

            #[inline(always)]
            fn join(product: bool, total: Self, value: Self) -> Self {
                if product { $multiply(total, value) } else { $add(total, value) }
            }
        }
    )* };
}

running! {
    f32: 1.0, |a, b| a + b, |a, b| a * b;
    f64: 1.0, |a, b| a + b, |a, b| a * b;
    i64: 1, i64::wrapping_add, i64::wrapping_mul;
    u64: 1, u64::wrapping_add, u64::wrapping_mul;
}
