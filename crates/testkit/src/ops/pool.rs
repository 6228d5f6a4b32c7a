//! Pools by loops over every window.

use graph::Prim;
use graph::prim::{Pool, PoolKind};

use super::view::{flat, indices};

/// Windows along one axis.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The number of elements in a window.
    pub kernel: usize,
    /// The distance between neighbouring windows.
    pub stride: usize,
    /// The distance between neighbouring elements of a window.
    pub dilation: usize,
    /// Padding before and after.
    pub pads: [isize; 2],
}

impl Window {
    /// A window without gaps.
    pub fn new(kernel: usize, stride: usize, pads: [isize; 2]) -> Self {
        Self { kernel, stride, dilation: 1, pads }
    }

    /// The elements from the first to the last one.
    fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }
}

/// A pool of images.
#[derive(Clone, Debug)]
pub struct Pooling {
    /// What is made of a window.
    pub kind: PoolKind,
    /// The shape of the input: images, channels, then the pooled axes.
    pub input: Vec<usize>,
    /// The windows along each pooled axis.
    pub windows: Vec<Window>,
    /// Whether the last window may extend beyond the padding.
    pub ceil: bool,
}

impl Pooling {
    /// A pool whose windows do not extend beyond the padding.
    pub fn new(kind: PoolKind, input: &[usize], windows: &[Window]) -> Self {
        Self { kind, input: input.to_vec(), windows: windows.to_vec(), ceil: false }
    }

    /// The primitive.
    pub fn prim(&self) -> Prim {
        Prim::Pool(Pool {
            kind: self.kind,
            kernel: self.windows.iter().map(|window| window.kernel).collect(),
            strides: self.windows.iter().map(|window| window.stride).collect(),
            dilations: self.windows.iter().map(|window| window.dilation).collect(),
            pads: self.windows.iter().map(|window| window.pads[0]).collect(),
            pads_end: self.windows.iter().map(|window| window.pads[1]).collect(),
        })
    }

    /// The shape of the output; none if a window is longer than its axis.
    pub fn output(&self) -> Option<Vec<usize>> {
        let spatial = self.input[2..].iter().zip(&self.windows).map(|(&extent, window)| {
            let room = extent as isize + window.pads[0] + window.pads[1] - window.reach() as isize;
            let room = usize::try_from(room).ok()?;
            Some(if self.ceil { room.div_ceil(window.stride) } else { room / window.stride } + 1)
        });
        self.input[..2].iter().map(|&extent| Some(extent)).chain(spatial).collect()
    }

    /// The output for a dense input, and the places of the largest elements. None if there is no output, or if a window
    /// has no element of the input: such a result is not defined.
    pub fn expected(&self, x: &[f64]) -> Option<[Vec<f64>; 2]> {
        let taps = indices(&self.windows.iter().map(|window| window.kernel).collect::<Vec<_>>());
        let (extents, rank) = (&self.input[2..], self.windows.len());
        let plane: usize = extents.iter().product();
        let (mut results, mut places) = (Vec::new(), Vec::new());
        for at in indices(&self.output()?) {
            let base = flat(&self.input[..2], &at[..2]) * plane;
            let (mut best, mut best_at, mut sum, mut inside_count, mut count) = (f64::NEG_INFINITY, 0, 0.0, 0, 0);
            for tap in &taps {
                let place = |axis: usize| {
                    let window = &self.windows[axis];
                    (at[2 + axis] * window.stride + tap[axis] * window.dilation) as isize - window.pads[0]
                };
                let is_inside = (0..rank).all(|axis| (0..extents[axis] as isize).contains(&place(axis)));
                let is_padded = (0..rank).all(|axis| place(axis) < extents[axis] as isize + self.windows[axis].pads[1]);
                if is_inside || is_padded && matches!(self.kind, PoolKind::Average { count_pad: true }) {
                    count += 1;
                }
                if !is_inside {
                    continue;
                }
                inside_count += 1;
                let along = |flat: usize, axis: usize| flat * extents[axis] + place(axis) as usize;
                let value = x[base + (0..rank).fold(0, along)];
                sum += if let PoolKind::Lp { p } = self.kind { value.abs().powf(f64::from(p)) } else { value };
                if value > best {
                    best = value;
                    best_at = base
                        + match self.kind {
                            PoolKind::Max { column_major: true } => (0..rank).rev().fold(0, along),
                            _ => (0..rank).fold(0, along),
                        };
                }
            }
            if inside_count == 0 {
                return None;
            }
            results.push(match self.kind {
                PoolKind::Max { .. } => best,
                PoolKind::Average { .. } => sum / f64::from(count),
                PoolKind::Lp { p } => sum.powf(1.0 / f64::from(p)),
            });
            places.push(best_at as f64);
        }
        Some([results, places])
    }
}
