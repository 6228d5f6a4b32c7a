//! Channels laid out so that every tap of a convolution reads neighbours.
//!
//! A channel's plane holds the padding and, where the convolution steps over elements, one sub-plane for each remainder
//! of the step. Moving along the output by one is then moving along the plane by one, for every tap.
use smallvec::SmallVec;

use crate::{operand::Source, product::read_row, scratch::Plain};

/// Spatial axes; inputs with fewer get axes of extent 1 in front.
pub(crate) const AXES: usize = 3;

/// One axis of a plane.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Input elements from one element of a sub-plane to the next.
    pub step: usize,
    /// The input index where each sub-plane starts; negative in the padding.
    pub first: SmallVec<[isize; 4]>,
    /// Elements of a sub-plane.
    pub extent: usize,
}

impl Axis {
    /// Elements of a sub-plane that lie within an input of that extent.
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

    /// Elements from one index to the next along an axis.
    pub(crate) fn stride(&self, axis: usize) -> usize {
        self.axes[axis + 1..].iter().map(|axis| axis.extent).product()
    }

    /// Elements from one sub-plane to the next along an axis.
    pub(crate) fn sub_stride(&self, axis: usize) -> usize {
        self.axes[axis + 1..].iter().map(|axis| axis.first.len()).product::<usize>() * self.sub_plane()
    }

    /// True if a plane is the channel itself.
    pub(crate) fn is_input(&self, input: [usize; AXES]) -> bool {
        self.axes.iter().zip(input).all(|(axis, input)| axis.step == 1 && axis.first[..] == [0] && axis.extent == input)
    }

    /// Lays one channel out, with `padding` around it.
    ///
    /// # Safety
    /// The channel is there for its extents.
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

/// A tap along one axis: the kernel's index and where the plane is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tap {
    pub kernel: usize,
    pub offset: usize,
}

/// The taps of each axis.
pub(crate) type Taps = [SmallVec<[Tap; 8]>; AXES];

/// A window that moves over the input.
pub(crate) struct Window<'a> {
    /// Its extents.
    pub kernel: &'a [usize],
    /// How far it moves.
    pub strides: &'a [usize],
    /// How far apart its elements are.
    pub dilations: &'a [usize],
    /// How far before the input it starts.
    pub pads: &'a [isize],
}

impl Window<'_> {
    /// The planes that make every tap a shift, and where each tap finds its elements.
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

/// A spatial shape with axes of extent 1 in front.
pub(crate) fn spatial<T: Copy>(values: &[T], missing: T) -> [T; AXES] {
    let mut all = [missing; AXES];
    all[AXES - values.len()..].copy_from_slice(values);
    all
}
