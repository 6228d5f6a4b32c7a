//! Gathers and scatters, element by element.

use graph::prim::ScatterKind;
use graph::{DType, Scalar};

use super::view::{flat, indices};

/// Every way to combine an update with what is there.
pub const KINDS: [ScatterKind; 5] =
    [ScatterKind::Replace, ScatterKind::Add, ScatterKind::Mul, ScatterKind::Max, ScatterKind::Min];

fn position(index: Scalar, extent: usize) -> usize {
    index.as_i64().rem_euclid(extent as i64) as usize
}

/// An update of an element.
fn combined(kind: ScatterKind, before: Scalar, update: Scalar, dtype: DType) -> Scalar {
    if !dtype.is_float() {
        // Integers are not converted to floats: products of several updates grow large and wrap.
        let (a, b) = (before.as_i64(), update.as_i64());
        let result = match kind {
            ScatterKind::Replace => b,
            ScatterKind::Add => a.wrapping_add(b),
            ScatterKind::Mul => a.wrapping_mul(b),
            ScatterKind::Max => a.max(b),
            ScatterKind::Min => a.min(b),
        };
        return Scalar::Int(result).cast(dtype);
    }
    let (a, b) = (before.as_f64(), update.as_f64());
    let result = match kind {
        ScatterKind::Replace => b,
        ScatterKind::Add => a + b,
        ScatterKind::Mul => a * b,
        ScatterKind::Max => a.max(b),
        ScatterKind::Min => a.min(b),
    };
    Scalar::Float(result).cast(dtype)
}

/// The elements of a dense tensor, with its shape.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// The shape.
    pub shape: &'a [usize],
    /// The elements, row by row.
    pub values: &'a [Scalar],
}

/// Slices of `[outer, extent, inner]` along the middle axis.
pub fn gathered(data: Elements<'_>, list: &[Scalar]) -> Vec<Scalar> {
    let shape = [data.shape[0], list.len(), data.shape[2]];
    let from = |at: &Vec<usize>| [at[0], position(list[at[1]], data.shape[1]), at[2]];
    indices(&shape).iter().map(|at| data.values[flat(data.shape, &from(at))]).collect()
}

/// One element for each index, along an axis.
pub fn gathered_elements(data: Elements<'_>, axis: usize, list: Elements<'_>) -> Vec<Scalar> {
    let places = indices(list.shape).into_iter().zip(list.values).map(|(at, &index)| moved(data, axis, at, index));
    places.map(|at| data.values[at]).collect()
}

/// The flat place of an index after its position along an axis is replaced.
fn moved(data: Elements<'_>, axis: usize, mut at: Vec<usize>, index: Scalar) -> usize {
    at[axis] = position(index, data.shape[axis]);
    flat(data.shape, &at)
}

/// The place of each element of the slices that tuples select, with `batch` axes that data and tuples share.
fn selected(data: Elements<'_>, batch: usize, tuples: Elements<'_>) -> Vec<usize> {
    let outer = tuples.shape.len() - 1;
    let depth = tuples.shape[outer];
    let shape = [&tuples.shape[..outer], &data.shape[batch + depth..]].concat();
    let place = |at: &Vec<usize>| {
        let tuple = flat(&tuples.shape[..outer], &at[..outer]) * depth;
        let mut place = at[..batch].to_vec();
        place.extend((0..depth).map(|k| position(tuples.values[tuple + k], data.shape[batch + k])));
        place.extend_from_slice(&at[outer..]);
        flat(data.shape, &place)
    };
    indices(&shape).iter().map(place).collect()
}

/// The slices that tuples select.
pub fn gathered_slices(data: Elements<'_>, batch: usize, tuples: Elements<'_>) -> Vec<Scalar> {
    selected(data, batch, tuples).into_iter().map(|at| data.values[at]).collect()
}

/// Updates along an axis, in order.
pub fn scattered_elements(
    kind: ScatterKind,
    dtype: DType,
    data: Elements<'_>,
    axis: usize,
    list: Elements<'_>,
    updates: &[Scalar],
) -> Vec<Scalar> {
    let places = indices(list.shape).into_iter().zip(list.values).map(|(at, &index)| moved(data, axis, at, index));
    scattered(kind, dtype, data, places, updates)
}

/// Updates of the slices that tuples select, in order.
pub fn scattered_slices(
    kind: ScatterKind,
    dtype: DType,
    data: Elements<'_>,
    tuples: Elements<'_>,
    updates: &[Scalar],
) -> Vec<Scalar> {
    scattered(kind, dtype, data, selected(data, 0, tuples).into_iter(), updates)
}

fn scattered(
    kind: ScatterKind,
    dtype: DType,
    data: Elements<'_>,
    places: impl Iterator<Item = usize>,
    updates: &[Scalar],
) -> Vec<Scalar> {
    let mut result = data.values.to_vec();
    for (at, &update) in places.zip(updates) {
        result[at] = combined(kind, result[at], update, dtype);
    }
    result
}
