//! Channels laid out so that every tap of a convolution reads contiguous elements.
//!
//! A channel's plane includes the padding. If the convolution has a stride, there is one sub-plane for each remainder
//! of the stride. Moving along the output by one is then moving along the plane by one, for every tap.
use smallvec::SmallVec;

use crate::operand::Source;
use crate::product::read_row;
use crate::scratch::Plain;

/// Number of spatial axes; inputs with fewer get leading axes of extent 1.
pub(crate) const AXES: usize = 3;

/// An axis of a plane.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Input elements between adjacent elements of a sub-plane.
    pub step: usize,
    /// The input index of each sub-plane's first element; negative in the padding.
    pub first: SmallVec<[isize; 4]>,
    /// Elements of a sub-plane.
    pub extent: usize,
}

impl Axis {
    /// The elements of a sub-plane that are within an input of that extent.
    fn inside(&self, first: isize, input: usize) -> std::ops::Range<usize> {
        let step = self.step as isize;
        let ceil = |distance: isize| ((distance + step - 1).div_euclid(step)).clamp(0, self.extent as isize) as usize;
        let (start, end) = (ceil(-first), ceil(input as isize - first));
        start..end.max(start)
    }
}

/// The planes of all channels of an image.
#[derive(Clone, Debug)]
pub(crate) struct Planes {
    /// Outermost first.
    pub axes: [Axis; AXES],
}

impl Planes {
    /// Elements of a sub-plane.
    fn sub_plane(&self) -> usize {
        self.axes.iter().map(|axis| axis.extent).product()
    }

    /// Elements of a channel.
    pub(crate) fn elems(&self) -> usize {
        self.axes.iter().map(|axis| axis.first.len()).product::<usize>() * self.sub_plane()
    }

    /// The stride of an axis, in elements.
    pub(crate) fn stride(&self, axis: usize) -> usize {
        self.axes[axis + 1..].iter().map(|axis| axis.extent).product()
    }

    /// The distance between sub-planes along an axis, in elements.
    pub(crate) fn sub_stride(&self, axis: usize) -> usize {
        self.axes[axis + 1..].iter().map(|axis| axis.first.len()).product::<usize>() * self.sub_plane()
    }

    /// True if a plane has the same layout as the channel.
    pub(crate) fn is_input(&self, input: [usize; AXES]) -> bool {
        self.axes.iter().zip(input).all(|(axis, input)| axis.step == 1 && axis.first[..] == [0] && axis.extent == input)
    }

    /// Lays out one channel, with `padding` around it.
    ///
    /// # Safety
    /// The channel's memory covers its extents.
    pub(crate) unsafe fn fill<C: Plain, S: Source<C>>(
        &self,
        channel: *const S,
        input: [usize; AXES],
        strides: [isize; AXES],
        padding: C,
        plane: &mut [C],
    ) {
        let [outer, middle, inner] = &self.axes;
        let mut rows = plane.chunks_exact_mut(inner.extent.max(1));
        for &outer_first in &outer.first {
            for &middle_first in &middle.first {
                for &inner_first in &inner.first {
                    let inside = inner.inside(inner_first, input[2]);
                    for z in 0..outer.extent {
                        let z = outer_first + (z * outer.step) as isize;
                        for (y, row) in (0..middle.extent).zip(&mut rows) {
                            let y = middle_first + (y * middle.step) as isize;
                            let within = (0..input[0] as isize).contains(&z) && (0..input[1] as isize).contains(&y);
                            if !within {
                                row.fill(padding);
                                continue;
                            }
                            row[..inside.start].fill(padding);
                            row[inside.end..].fill(padding);
                            let x = inner_first + (inside.start * inner.step) as isize;
                            let from = channel.wrapping_offset(z * strides[0] + y * strides[1] + x * strides[2]);
                            // SAFETY: the indices are inside the channel.
                            unsafe { read_row(from, inner.step as isize * strides[2], &mut row[inside.clone()]) };
                        }
                    }
                }
            }
        }
    }
}

/// A tap along one axis: the kernel index and the offset in the plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    pub kernel: usize,
    pub offset: usize,
}

/// The taps of each axis.
pub(crate) type Taps = [SmallVec<[Tap; 8]>; AXES];

/// A sliding window over the input.
pub(crate) struct Window<'a> {
    /// The extents.
    pub kernel: &'a [usize],
    /// The stride.
    pub strides: &'a [usize],
    /// The distance between its elements.
    pub dilations: &'a [usize],
    /// The padding before the input.
    pub pads: &'a [isize],
}

impl Window<'_> {
    /// The planes that make every tap a shift, and the position of each tap in them.
    pub(crate) fn layout(&self, output: [usize; AXES]) -> (Planes, Taps) {
        let (kernel, pads) = (spatial(self.kernel, 1), spatial(self.pads, 0));
        let (strides, dilations) = (spatial(self.strides, 1), spatial(self.dilations, 1));
        let start = |axis: usize, tap: usize| (tap * dilations[axis] % strides[axis]) as isize - pads[axis];
        let axes = std::array::from_fn(|axis| {
            let mut first: SmallVec<[isize; 4]> = SmallVec::new();
            for tap in 0..kernel[axis] {
                if !first.contains(&start(axis, tap)) {
                    first.push(start(axis, tap));
                }
            }
            let reach = kernel[axis].saturating_sub(1) * dilations[axis] / strides[axis];
            Axis { step: strides[axis], first, extent: output[axis] + reach }
        });
        let planes = Planes { axes };
        let tap = |axis: usize, kernel: usize| {
            let first = start(axis, kernel);
            let sub = planes.axes[axis].first.iter().position(|&other| other == first).unwrap_or(0);
            let shift = kernel * dilations[axis] / strides[axis];
            Tap { kernel, offset: sub * planes.sub_stride(axis) + shift * planes.stride(axis) }
        };
        let taps = std::array::from_fn(|axis| (0..kernel[axis]).map(|kernel| tap(axis, kernel)).collect());
        (planes, taps)
    }
}

/// A spatial shape with leading axes of extent 1.
pub(crate) fn spatial<T: Copy>(values: &[T], missing: T) -> [T; AXES] {
    let mut all = [missing; AXES];
    all[AXES - values.len()..].copy_from_slice(values);
    all
}
