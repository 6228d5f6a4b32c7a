//! The largest element of every window and its index.
use crate::convolve::Shared;
use crate::microkernel::Compute;
use crate::operand::{Source, Target};
use crate::planes::{AXES, spatial};
use crate::pool::Job;
use crate::{Context, TensorMut};

/// Stores maxima and their flat indices in the input; the spatial axes can be counted in column-major order.
///
/// A window entirely in the padding gets the lowest value and the index of its channel's start.
pub(crate) fn run<C: Compute, T: Source<C> + Target<C>>(
    job: &Job<'_>,
    index: TensorMut<'_>,
    column_major: bool,
    cx: &mut Context<'_>,
) {
    let Job { prim, x, out } = job;
    let (input, output) = (spatial(&x.shape()[2..], 1), spatial(&out.shape()[2..], 1));
    let (kernel, pads) = (spatial(&prim.kernel, 1), spatial(&prim.pads, 0));
    let (steps, dilations) = (spatial(&prim.strides, 1), spatial(&prim.dilations, 1));
    let x_strides = spatial(&x.strides()[2..], 0);
    let (out_strides, index_strides) = (spatial(&out.strides()[2..], 0), spatial(&index.strides()[2..], 0));
    let counts: [usize; AXES] = std::array::from_fn(|axis| {
        let others = if column_major { &input[..axis] } else { &input[axis + 1..] };
        others.iter().product()
    });
    let (channels, plane) = (x.shape()[1], input.iter().product::<usize>());
    let taps: usize = kernel.iter().product();
    let all = x.shape()[0] * channels;
    let grain = (1usize << 14).div_ceil((output.iter().product::<usize>() * taps).max(1));
    let from = Shared(x.as_ptr::<T>().cast_mut());
    let (to, to_index) = (Shared(out.as_ptr::<T>()), Shared(index.as_ptr::<i64>()));
    cx.parallel.ranges(all, grain, |range| {
        let (from, to, to_index) = (&from, &to, &to_index);
        for at in range {
            let (image, channel) = ((at / channels) as isize, (at % channels) as isize);
            let start = |strides: &[isize]| image * strides[0] + channel * strides[1];
            let from = from.0.wrapping_offset(start(x.strides())).cast_const();
            let (to, to_index) =
                (to.0.wrapping_offset(start(out.strides())), to_index.0.wrapping_offset(start(index.strides())));
            for o in positions(output) {
                let mut best = C::LOWEST;
                let mut best_at = None;
                for tap in positions(kernel) {
                    let i: [isize; AXES] = std::array::from_fn(|axis| {
                        (o[axis] * steps[axis] + tap[axis] * dilations[axis]) as isize - pads[axis]
                    });
                    if (0..AXES).any(|axis| !(0..input[axis] as isize).contains(&i[axis])) {
                        continue;
                    }
                    let offset: isize = (0..AXES).map(|axis| i[axis] * x_strides[axis]).sum();
                    // SAFETY: the index is inside the view.
                    let value = unsafe { from.offset(offset).read() }.read();
                    if best_at.is_none() || value > best {
                        best = value;
                        best_at = Some((0..AXES).map(|axis| i[axis] as usize * counts[axis]).sum::<usize>());
                    }
                }
                let place =
                    |strides: [isize; AXES]| (0..AXES).map(|axis| o[axis] as isize * strides[axis]).sum::<isize>();
                // SAFETY: the views' memory covers their extents, and each element is stored once.
                unsafe {
                    to.offset(place(out_strides)).write(T::write(best));
                    to_index.offset(place(index_strides)).write((at * plane + best_at.unwrap_or(0)) as i64);
                }
            }
        }
    });
}

/// All indices of a box, row by row.
fn positions([depth, height, width]: [usize; AXES]) -> impl Iterator<Item = [usize; AXES]> {
    (0..depth).flat_map(move |z| (0..height).flat_map(move |y| (0..width).map(move |x| [z, y, x])))
}
