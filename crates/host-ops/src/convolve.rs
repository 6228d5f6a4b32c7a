//! Convolutions as matrix products over planes: weights times shifted planes, without im2col.
use graph::DType;
use smallvec::SmallVec;

use crate::affine::{Single, bounded};
use crate::carve::{carve, piece};
use crate::epilogue::{BLOCK, Epilogue, Mapped, Region};
use crate::microkernel::Compute;
use crate::operand::{Source, Target};
use crate::planes::{AXES, Planes, Taps, spatial};
use crate::product::{Extents, Left, Right, Schedule, Store, Tile, product};
use crate::{Context, Parallel, Tensor, TensorMut};

/// Output elements that use the same taps: `first, first + step, …`.
#[derive(Clone, Debug)]
pub(crate) struct Lattice {
    pub first: [usize; AXES],
    pub step: [usize; AXES],
    pub count: [usize; AXES],
    pub taps: Taps,
}

/// The operands and parameters of a convolution.
pub(crate) struct Job<'a> {
    pub x: &'a Tensor<'a>,
    pub w: &'a Tensor<'a>,
    pub bias: Option<&'a Tensor<'a>>,
    pub out: TensorMut<'a>,
    pub epilogue: Option<Epilogue<'a>>,
    pub groups: usize,
    pub planes: Planes,
    pub lattices: SmallVec<[Lattice; 4]>,
    /// Weights are `[c, m/groups, …]` instead of `[m, c/groups, …]`.
    pub transposed: bool,
    /// The zero points of input and weights, if those are bytes.
    pub zeros: [i32; 2],
}

impl Job<'_> {
    /// Channels in and out of one group.
    fn group(&self) -> (usize, usize) {
        (self.x.shape()[1] / self.groups, self.out.shape()[1] / self.groups)
    }

    /// The type that sums are rounded to.
    pub(crate) fn sum_dtype(&self) -> DType {
        self.epilogue.map_or(self.out.dtype(), |epilogue| epilogue.dtype)
    }

    /// Calls `body` with a function that stores tiles of one image, adding each channel's bias.
    pub(crate) fn with_store<C, O>(
        &self,
        image: usize,
        lattice: &Lattice,
        bias: impl Fn(usize) -> C + Sync,
        body: impl FnOnce(&Store<'_, C>),
    ) where
        C: Compute + Single,
        O: Target<C>,
    {
        let rows = self.out.shape()[1] / self.groups;
        if let Some(epilogue) = &self.epilogue {
            let region =
                |strides: &[isize]| Region::Image(ImageColumns::new(strides, image, &self.planes, lattice), rows);
            let mapped = Mapped::new(epilogue, region);
            if let Some((low, high)) = mapped.bounds() {
                let place = ImageColumns::new(self.out.strides(), image, &self.planes, lattice);
                let start = Shared(self.out.as_ptr::<f32>());
                return body(&|tile| {
                    let start = &start;
                    tile.each_row(|row, values| {
                        let channel = tile.batch * rows + row;
                        let bias = bias(channel);
                        place.pieces(channel, tile.column, values.len(), |done, offset, count| {
                            // SAFETY: tiles are within the output, whose rows have contiguous columns, and each tile is
                            // stored once.
                            let to = unsafe { std::slice::from_raw_parts_mut(start.0.wrapping_offset(offset), count) };
                            for (to, value) in to.iter_mut().zip(&values[done..]) {
                                *to = bounded(value.plus(bias).single(), low, high);
                            }
                        });
                    });
                });
            }
            return body(&|tile| {
                for start in (0..tile.columns).step_by(BLOCK) {
                    let (columns, column) = (BLOCK.min(tile.columns - start), tile.column + start);
                    let part = Tile { column, columns, values: &tile.values[start..], ..*tile };
                    // SAFETY: tiles are within the output, and each tile is stored once.
                    unsafe { mapped.store(&part, |row| (1.0, bias(tile.batch * rows + row))) };
                }
            });
        }
        let place = ImageColumns::new(self.out.strides(), image, &self.planes, lattice);
        let start = Shared(self.out.as_ptr::<O>());
        body(&|tile| {
            let start = &start;
            tile.each_row(|row, values| {
                let channel = tile.batch * rows + row;
                // SAFETY: as above.
                unsafe { place.store(start.0, channel, tile.column, values, bias(channel)) };
            });
        });
    }
}

/// Convolves all images.
///
/// The primitive's contract guarantees that all shapes match.
pub(crate) fn convolve<C, X, W, O>(job: &Job<'_>, cx: &mut Context<'_>)
where
    C: Compute + Source<C> + Single,
    X: Source<C>,
    W: Source<C>,
    O: Target<C> + Source<C>,
{
    let Job { x, w, out, planes, .. } = job;
    let (channels_in, channels_out) = job.group();
    let plane = planes.elems();
    let input = spatial(&x.shape()[2..], 1);
    let strides = spatial(&x.strides()[2..], 0);
    // Without padding and with stride one, the image already has the layout of the planes.
    let is_input = X::SAME && planes.is_input(input) && is_dense(input, strides);
    let schedules: SmallVec<[Schedule<C>; 4]> = job
        .lattices
        .iter()
        .map(|lattice| {
            let extents = Extents {
                batch: job.groups,
                rows: channels_out,
                columns: columns(planes, lattice),
                depth: channels_in * lattice.taps.iter().map(|taps| taps.len()).product::<usize>(),
            };
            Schedule::new(extents, cx.parallel, !W::SAME)
        })
        .collect();
    let depth = schedules.iter().map(|schedule| schedule.extents().depth).max().unwrap_or(0);
    let scratch_elems = schedules.iter().map(Schedule::scratch).max().unwrap_or(0);
    let channels = x.shape()[1];
    let plane_elems = if is_input { 0 } else { channels * plane };
    let mut rest = cx.scratch.get::<u8>(
        piece::<C>(plane_elems) + piece::<C>(scratch_elems) + piece::<C>(out.shape()[1]) + 2 * piece::<isize>(depth),
    );
    let image = carve::<C>(&mut rest, plane_elems);
    let scratch = carve::<C>(&mut rest, scratch_elems);
    let bias = carve::<C>(&mut rest, out.shape()[1]);
    let left_depth = carve::<isize>(&mut rest, depth);
    let right_depth = carve::<isize>(&mut rest, depth);
    bias.fill(C::ZERO);
    if let Some(tensor) = job.bias {
        for (at, value) in bias.iter_mut().enumerate() {
            // SAFETY: the view's memory covers its extents.
            *value = unsafe { tensor.as_ptr::<O>().offset(at as isize * tensor.strides()[0]).read() }.read();
        }
    }
    let bias: &[C] = bias;
    for n in 0..x.shape()[0] {
        let from = x.as_ptr::<X>().wrapping_offset(n as isize * x.strides()[0]);
        let (start, channel_stride) = if is_input {
            (from.cast::<C>(), x.strides()[1])
        } else {
            fill_planes::<C, X>(planes, from, x, image, cx.parallel);
            (image.as_ptr(), plane as isize)
        };
        for (lattice, schedule) in job.lattices.iter().zip(&schedules) {
            let depth = schedule.extents().depth;
            tables(job, lattice, channel_stride, &mut left_depth[..depth], &mut right_depth[..depth]);
            let (rows, per_group) = if job.transposed { (1, channels_in) } else { (0, channels_out) };
            let left = Left {
                start: w.as_ptr::<W>(),
                batch: per_group as isize * w.strides()[0],
                row: w.strides()[rows],
                depth: &left_depth[..depth],
            };
            let right = Right {
                start,
                batch: channels_in as isize * channel_stride,
                depth: &right_depth[..depth],
                column: 1,
                in_place: true,
                is_far: false,
            };
            job.with_store::<C, O>(
                n,
                lattice,
                |channel| bias[channel],
                |store| {
                    // SAFETY: the planes hold every tap of every column, the views' memory covers their extents, and
                    // each element is stored once.
                    unsafe { product(schedule, &left, &right, scratch, cx.parallel, store) };
                },
            );
        }
    }
}

/// The columns from the first output element to the last, including those between rows that are not elements.
pub(crate) fn columns(planes: &Planes, lattice: &Lattice) -> usize {
    if lattice.count.contains(&0) {
        return 0;
    }
    (0..AXES).map(|axis| (lattice.count[axis] - 1) * planes.stride(axis)).sum::<usize>() + 1
}

fn is_dense(extents: [usize; AXES], strides: [isize; AXES]) -> bool {
    let mut step = 1;
    extents.iter().zip(strides).rev().all(|(&extent, stride)| {
        let fits = extent == 1 || stride == step;
        step *= extent as isize;
        fits
    })
}

fn fill_planes<C: Compute, X: Source<C>>(
    planes: &Planes,
    from: *const X,
    x: &Tensor<'_>,
    image: &mut [C],
    parallel: &dyn Parallel,
) {
    let plane = planes.elems();
    let input = spatial(&x.shape()[2..], 1);
    let strides = spatial(&x.strides()[2..], 0);
    let image = Shared(image.as_mut_ptr());
    let from = Shared(from.cast_mut());
    let grain = (1usize << 13).div_ceil(plane.max(1));
    parallel.ranges(x.shape()[1], grain, |range| {
        let (image, from) = (&image, &from);
        for channel in range {
            let at = from.0.wrapping_offset(channel as isize * x.strides()[1]);
            // SAFETY: every channel has its own plane, and its view's memory covers its extents.
            unsafe {
                let plane = std::slice::from_raw_parts_mut(image.0.add(channel * plane), plane);
                planes.fill(at.cast_const(), input, strides, C::ZERO, plane);
            }
        }
    });
}

/// Offsets of each depth (a channel and a tap) in the weights and in the planes.
fn tables(job: &Job<'_>, lattice: &Lattice, channel_stride: isize, left: &mut [isize], right: &mut [isize]) {
    let strides = spatial(&job.w.strides()[2..], 0);
    let channel_weights = job.w.strides()[if job.transposed { 0 } else { 1 }];
    let [outer, middle, inner] = &lattice.taps;
    let mut entries = left.iter_mut().zip(right);
    for channel in 0..job.group().0 as isize {
        for z in outer {
            for y in middle {
                for (x, (left, right)) in inner.iter().zip(&mut entries) {
                    let kernel = [z.kernel, y.kernel, x.kernel];
                    let weight: isize = kernel.iter().zip(strides).map(|(&k, stride)| k as isize * stride).sum();
                    *left = channel * channel_weights + weight;
                    *right = channel * channel_stride + (z.offset + y.offset + x.offset) as isize;
                }
            }
        }
    }
}

/// Memory of which tasks touch disjoint parts.
pub(crate) struct Shared<T>(pub *mut T);

// SAFETY: each task uses only its own part.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// The columns of one image in a view of `[n, c, spatial…]`.
#[derive(Clone, Copy)]
pub(crate) struct ImageColumns {
    first: isize,
    channel: isize,
    strides: [isize; AXES],
    count: [usize; AXES],
    /// Columns of a row and of a slice of the planes.
    row: usize,
    rows: usize,
    /// True if every column is an element.
    no_gaps: bool,
    /// True if they are also contiguous.
    is_dense: bool,
}

impl ImageColumns {
    pub(crate) fn new(strides: &[isize], image: usize, planes: &Planes, lattice: &Lattice) -> Self {
        let all = spatial(&strides[2..], 0);
        let offset: isize = (0..AXES).map(|axis| lattice.first[axis] as isize * all[axis]).sum();
        let first = image as isize * strides[0] + offset;
        let channel = strides[1];
        let strides: [isize; AXES] = std::array::from_fn(|axis| all[axis] * lattice.step[axis] as isize);
        let rows = planes.axes[1].extent;
        let row = planes.axes[2].extent;
        let fits = |axis: usize| planes.axes[axis].extent == lattice.count[axis];
        let no_gaps = fits(2) && fits(1) || (fits(2) || lattice.count[1] == 1) && lattice.count[0] == 1;
        let is_dense = no_gaps && is_dense(lattice.count, strides);
        Self { first, channel, strides, count: lattice.count, row, rows, no_gaps, is_dense }
    }

    /// The stride between columns, within a piece.
    pub(crate) fn step(&self) -> isize {
        if self.is_dense { 1 } else { self.strides[2] }
    }

    /// The offset of a channel's columns from `column` on, if every column is an element and they are evenly spaced.
    pub(crate) fn start(&self, channel: usize, column: usize) -> isize {
        self.first + channel as isize * self.channel + column as isize * self.step()
    }

    /// True if some columns are not elements, or are not evenly spaced.
    pub(crate) fn has_gaps(&self) -> bool {
        !(self.is_dense || self.no_gaps && self.strides == [0; AXES])
    }

    /// True if every piece of the other is also a piece of this one.
    pub(crate) fn has_pieces_of(&self, other: &Self) -> bool {
        self.strides == other.strides || self.strides == [0; AXES]
    }

    /// Splits consecutive columns of a channel into pieces: how many columns came before, the first one's offset, the
    /// count.
    #[inline(always)]
    pub(crate) fn pieces(
        &self,
        channel: usize,
        column: usize,
        count: usize,
        mut body: impl FnMut(usize, isize, usize),
    ) {
        let start = self.first + channel as isize * self.channel;
        if self.is_dense {
            return body(0, start + column as isize, count);
        }
        if self.strides == [0; AXES] {
            return body(0, start, count);
        }
        let (mut row, mut x) = (column / self.row, column % self.row);
        let mut done = 0;
        while done < count {
            let here = (count - done).min(self.row - x);
            let (y, z) = (row % self.rows, row / self.rows);
            if y < self.count[1] && z < self.count[0] && x < self.count[2] {
                let offset = z as isize * self.strides[0] + y as isize * self.strides[1] + x as isize * self.strides[2];
                body(done, start + offset, here.min(self.count[2] - x));
            }
            done += here;
            (row, x) = (row + 1, 0);
        }
    }

    /// Stores consecutive columns of a channel, each plus the bias.
    ///
    /// # Safety
    /// The view's memory covers its extents, and nothing else stores these elements.
    #[inline(always)]
    pub(crate) unsafe fn store<C: Compute, O: Target<C>>(
        &self,
        start: *mut O,
        channel: usize,
        column: usize,
        values: &[C],
        bias: C,
    ) {
        let step = self.step();
        self.pieces(channel, column, values.len(), |done, offset, count| {
            // SAFETY: guaranteed by the caller.
            unsafe { write_row(start.wrapping_offset(offset), step, &values[done..done + count], bias) };
        });
    }
}

#[inline(always)]
unsafe fn write_row<C: Compute, O: Target<C>>(to: *mut O, step: isize, values: &[C], bias: C) {
    if step == 1 {
        // SAFETY: guaranteed by the caller.
        let to = unsafe { std::slice::from_raw_parts_mut(to, values.len()) };
        O::write_sums(values, bias, to);
    } else {
        for (at, value) in values.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { to.offset(at as isize * step).write(O::write(value.plus(bias))) };
        }
    }
}
