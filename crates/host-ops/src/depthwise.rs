//! Depthwise convolutions.
use crate::Context;
use crate::affine::Single;
use crate::carve::{carve, piece};
use crate::convolve::{Job, Shared, columns};
use crate::microkernel::Compute;
use crate::operand::{Source, Target};
use crate::planes::spatial;
use crate::product::Tile;
use crate::simd::vectorised;

/// Columns summed in registers.
const BLOCK: usize = 32;
/// Below this many multiplications, one thread is faster than several.
const SERIAL: usize = 1 << 14;

/// Convolves with one input channel in each group.
///
/// The primitive's contract guarantees that all shapes match.
pub(crate) fn convolve_channels<C, X, W, O>(job: &Job<'_>, cx: &mut Context<'_>)
where
    C: Compute + Single,
    X: Source<C>,
    W: Source<C>,
    O: Target<C> + Source<C>,
{
    let Job { x, w, out, planes, lattices, .. } = job;
    let [lattice] = &lattices[..] else { return };
    let (images, channels) = (x.shape()[0], x.shape()[1]);
    let multiplier = out.shape()[1] / channels;
    let input = spatial(&x.shape()[2..], 1);
    let strides = spatial(&x.strides()[2..], 0);
    let weight_strides = spatial(&w.strides()[2..], 0);
    let [outer, middle, inner] = &lattice.taps;
    let taps = outer.len() * middle.len() * inner.len();
    let columns = columns(planes, lattice);
    let blocks = columns.next_multiple_of(BLOCK);
    // The last block of the last tap reads past the plane.
    let plane = planes.elems() + BLOCK;
    let channels_all = images * channels;
    let threads = if channels_all * columns * taps < SERIAL { 1 } else { cx.parallel.threads() };
    let tasks = threads.min(channels_all).max(1);
    let share = piece::<C>(plane) + piece::<C>(blocks) + piece::<C>(taps);
    let mut rest = cx.scratch.get::<u8>(piece::<usize>(taps) + piece::<isize>(taps) + tasks * share);
    let offsets = carve::<usize>(&mut rest, taps);
    let weights_at = carve::<isize>(&mut rest, taps);
    let mut entries = offsets.iter_mut().zip(weights_at.iter_mut());
    for z in outer {
        for y in middle {
            for (x, (offset, weight)) in inner.iter().zip(&mut entries) {
                *offset = z.offset + y.offset + x.offset;
                let kernel = [z.kernel, y.kernel, x.kernel];
                *weight = kernel.iter().zip(weight_strides).map(|(&k, stride)| k as isize * stride).sum();
            }
        }
    }
    let (offsets, weights_at): (&[usize], &[isize]) = (offsets, weights_at);
    let memory = Shared(rest.as_mut_ptr());
    let body = |task: usize| {
        let memory = &memory;
        // SAFETY: each task has its own share of the scratch memory.
        let mut rest = unsafe { std::slice::from_raw_parts_mut(memory.0.add(task * share), share) };
        let plane = carve::<C>(&mut rest, plane);
        let sums = carve::<C>(&mut rest, blocks);
        let weights = carve::<C>(&mut rest, taps);
        plane[planes.elems()..].fill(C::ZERO);
        let weight_zero = if job.zeros[1] == 0 { C::NOTHING } else { C::whole(-job.zeros[1]) };
        let range = channels_all * task / tasks..channels_all * (task + 1) / tasks;
        let bias = |output: usize| {
            job.bias.map_or(C::ZERO, |bias| {
                // SAFETY: the view's memory covers its extents.
                unsafe { bias.as_ptr::<O>().offset(output as isize * bias.strides()[0]).read() }.read()
            })
        };
        for image in range.start / channels..range.end.div_ceil(channels) {
            let first = image * channels;
            job.with_store::<C, O>(image, lattice, bias, |store| {
                for channel in range.start.max(first) - first..range.end.min(first + channels) - first {
                    let offset = image as isize * x.strides()[0] + channel as isize * x.strides()[1];
                    let from = x.as_ptr::<X>().wrapping_offset(offset);
                    // SAFETY: as above.
                    unsafe { planes.fill(from, input, strides, C::whole(job.zeros[0]), &mut plane[..planes.elems()]) };
                    if job.zeros[0] != 0 {
                        let zero = C::whole(-job.zeros[0]);
                        plane[..planes.elems()].iter_mut().for_each(|value| *value = value.plus(zero));
                    }
                    for output in channel * multiplier..(channel + 1) * multiplier {
                        for (weight, &place) in weights.iter_mut().zip(weights_at) {
                            let place = output as isize * w.strides()[0] + place;
                            // SAFETY: as above.
                            *weight = unsafe { w.as_ptr::<W>().offset(place).read() }.read().plus(weight_zero);
                        }
                        sum_taps(sums, plane, offsets, weights);
                        // Output channels are counted over all groups, each of which has one input channel.
                        store(&Tile::of_row(output, 0, &sums[..columns]));
                    }
                }
            });
        }
    };
    if tasks == 1 { body(0) } else { cx.parallel.run(tasks, &body) }
}

vectorised! {
    /// Sums all taps over the plane, for every column.
    fn sum_taps<C: Compute>(sums: &mut [C], plane: &[C], offsets: &[usize], weights: &[C]) {
        for (block, sums) in sums.chunks_exact_mut(BLOCK).enumerate() {
            let mut local = [C::ZERO; BLOCK];
            for (&offset, &weight) in offsets.iter().zip(weights) {
                let start = block * BLOCK + offset;
                for (sum, &value) in local.iter_mut().zip(&plane[start..start + BLOCK]) {
                    *sum = weight.mul_add(value, *sum);
                }
            }
            sums.copy_from_slice(&local);
        }
    }
}
