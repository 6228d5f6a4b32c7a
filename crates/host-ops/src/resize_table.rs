//! The input elements that contribute to an output element of a resize, along one axis.
use graph::prim::{Coordinates, Interpolation, Nearest, Resize};

/// For every output index, the same number of input indices with their weights.
pub(crate) struct Table<'a> {
    /// The number of input indices.
    pub taps: usize,
    indices: &'a [usize],
    weights: &'a [f32],
}

impl Table<'_> {
    /// Input indices and weights of one output index.
    #[inline(always)]
    pub(crate) fn entries(&self, at: usize) -> impl Iterator<Item = (usize, f32)> {
        let range = at * self.taps..(at + 1) * self.taps;
        self.indices[range.clone()].iter().copied().zip(self.weights[range].iter().copied())
    }
}

/// True if an axis is copied unchanged.
pub(crate) fn is_copied(prim: &Resize, axis: usize, input: usize, output: usize) -> bool {
    let crops = prim.coordinates == Coordinates::TfCropAndResize && region(prim, axis) != (0.0, 1.0);
    prim.scales[axis] == 1.0 && input == output && !crops
}

fn region(prim: &Resize, axis: usize) -> (f32, f32) {
    prim.roi.get(axis).copied().unwrap_or((0.0, 1.0))
}

/// The input coordinate of an output index.
pub(crate) fn coordinate(prim: &Resize, axis: usize, at: usize, input: usize, output: usize) -> f32 {
    let scale = prim.scales[axis];
    let (x, length) = (at as f32, input as f32);
    match prim.coordinates {
        Coordinates::HalfPixel => (x + 0.5) / scale - 0.5,
        Coordinates::HalfPixelSymmetric => {
            // The exact output extent is a fraction; the truncated part is taken from both ends.
            let adjustment = output as f32 / (scale * length);
            let offset = length / 2.0 * (1.0 - adjustment);
            offset + (x + 0.5) / scale - 0.5
        }
        Coordinates::PytorchHalfPixel if output > 1 => (x + 0.5) / scale - 0.5,
        Coordinates::PytorchHalfPixel => 0.0,
        Coordinates::AlignCorners => {
            // As in ONNX's reference and its node tests. ONNX Runtime uses the output's whole extent, which differs if
            // the scale gives a fraction.
            let last = scale * length - 1.0;
            if output == 1 || last == 0.0 { 0.0 } else { x * (length - 1.0) / last }
        }
        Coordinates::Asymmetric => x / scale,
        Coordinates::TfHalfPixelForNn => (x + 0.5) / scale,
        Coordinates::TfCropAndResize => {
            let (start, end) = region(prim, axis);
            if output > 1 {
                start * (length - 1.0) + x * (end - start) * (length - 1.0) / (output as f32 - 1.0)
            } else {
                0.5 * (start + end) * (length - 1.0)
            }
        }
    }
}

/// True if a coordinate gets the extrapolation value.
pub(crate) fn is_outside(prim: &Resize, coordinate: f32, input: usize) -> bool {
    prim.coordinates == Coordinates::TfCropAndResize && !(0.0..=input as f32 - 1.0).contains(&coordinate)
}

/// The element nearest to a coordinate, clamped to the border.
pub(crate) fn nearest(rounding: Nearest, coordinate: f32, input: usize) -> usize {
    let floor = coordinate.floor();
    let fraction = coordinate - floor;
    let up = match rounding {
        Nearest::RoundPreferFloor => fraction > 0.5,
        Nearest::RoundPreferCeil => fraction >= 0.5,
        Nearest::Floor => false,
        Nearest::Ceil => fraction > 0.0,
    };
    clamp(floor as isize + isize::from(up), input)
}

fn clamp(index: isize, input: usize) -> usize {
    index.clamp(0, input as isize - 1) as usize
}

/// The scale of an axis's filter, its first element, and its number of elements.
fn filter(prim: &Resize, axis: usize) -> (f32, isize, usize) {
    let scale = if prim.antialias { prim.scales[axis].min(1.0) } else { 1.0 };
    let reach = if matches!(prim.interpolation, Interpolation::Cubic { .. }) { 2.0 } else { 1.0 };
    // A filter stretched by the scale reaches further.
    let first = (-reach / scale).floor() as isize + 1;
    (scale, first, (2 - 2 * first) as usize)
}

/// How many entries the table of an axis has.
pub(crate) fn entries(prim: &Resize, axis: usize, output: usize) -> usize {
    filter(prim, axis).2 * output
}

/// The table of one axis, in memory for as many [`entries`].
pub(crate) fn table<'a>(
    prim: &Resize,
    axis: usize,
    input: usize,
    output: usize,
    indices: &'a mut [usize],
    weights: &'a mut [f32],
) -> Table<'a> {
    let exclude = matches!(prim.interpolation, Interpolation::Cubic { exclude_outside: true, .. });
    let (scale, first, taps) = filter(prim, axis);
    for (at, (indices, weights)) in indices.chunks_exact_mut(taps).zip(weights.chunks_exact_mut(taps)).enumerate() {
        let x = coordinate(prim, axis, at, input, output);
        let floor = x.floor();
        let fraction = x - floor;
        for ((tap, to), weight) in (first..).zip(indices).zip(&mut *weights) {
            let index = (floor as isize).saturating_add(tap);
            let dropped = exclude && !(0..input as isize).contains(&index);
            *weight = if dropped { 0.0 } else { distance_weight(prim.interpolation, (tap as f32 - fraction) * scale) };
            *to = clamp(index, input);
        }
        if exclude || prim.antialias {
            let sum: f32 = weights.iter().sum();
            if sum != 0.0 {
                weights.iter_mut().for_each(|weight| *weight /= sum);
            }
        }
    }
    Table { taps, indices, weights }
}

/// The weight of an element at this distance.
fn distance_weight(interpolation: Interpolation, distance: f32) -> f32 {
    let x = distance.abs();
    match interpolation {
        Interpolation::Cubic { a, .. } if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        Interpolation::Cubic { a, .. } if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        Interpolation::Cubic { .. } => 0.0,
        _ => (1.0 - x).max(0.0),
    }
}
