//! The outputs of a step by the definition of its primitive, so that no device is the reference for another.

use graph::prim::{Coordinates, Cumulative, Interpolation, Resize, TopK};
use graph::{DType, Prim, Scalar, Step, Tensor};

use super::indexing::{self, Elements};
use super::view::gather;
use super::{normalise, reduce, resize};

/// The elements of each output, row by row. `inputs` are complete buffers.
///
/// `None` if the primitive has a case of its own in this module's siblings, or if the definition leaves the result open:
/// searches and reductions of infinities and NaN, and coordinates whose rounding selects the element.
pub fn outputs(step: &Step, inputs: &[Tensor]) -> Option<Vec<Vec<f64>>> {
    let seen: Vec<Vec<Scalar>> =
        step.inputs.iter().zip(inputs).map(|(view, buffer)| gather(view, buffer).scalars().collect()).collect();
    let elements = |number: usize| Elements { shape: &step.inputs[number].shape, values: &seen[number] };
    let numbers = |number: usize| -> Vec<f64> { as_numbers(&seen[number]) };
    let (x, y) = (step.inputs.first()?, step.outputs.first()?);
    let length = *x.shape.last()?;
    let rows = |length: usize| seen[0].chunks(length.max(1)).map(as_numbers);
    let is_finite = seen[0].iter().all(|value| value.as_f64().is_finite());
    let scalars = match &step.prim {
        Prim::Softmax(softmax) => {
            return Some(vec![rows(length).flat_map(|row| normalise::softmax(softmax.log, &row)).collect()]);
        }
        Prim::Norm(norm) => {
            let length = x.shape[x.shape.len() - norm.axes..].iter().product();
            let scale = if norm.scale { numbers(1) } else { Vec::new() };
            let bias = if norm.bias { numbers(1 + usize::from(norm.scale)) } else { Vec::new() };
            let normalised = rows(length).flat_map(|row| normalise::norm(norm, x.dtype, &row, &scale, &bias));
            return Some(vec![normalised.collect()]);
        }
        Prim::Lrn(lrn) => return Some(vec![normalise::lrn(lrn, &x.shape, &numbers(0))]),
        Prim::Resize(prim) if x.dtype.is_float() && is_continuous(prim) => {
            return Some(vec![resize::expected(prim, &x.shape, &numbers(0), &y.shape)]);
        }
        Prim::TopK(search) if is_finite => {
            let found: Vec<(f64, usize)> = rows(length).flat_map(|row| best(search, &row)).collect();
            let (values, indices) = found.into_iter().map(|(value, at)| (value, at as f64)).unzip();
            return Some([values, indices].into_iter().take(step.outputs.len()).collect());
        }
        Prim::Reduce(prim) if is_finite => {
            let groups = reduce::groups(&x.shape, prim.axes, &seen[0]);
            groups.iter().map(|group| reduce::reduced(prim.kind, y.dtype, group)).collect()
        }
        Prim::ArgReduce(search) if is_finite => {
            let groups = reduce::groups(&x.shape, 1, &seen[0]);
            groups.iter().map(|group| Scalar::Int(reduce::found(search, group) as i64)).collect()
        }
        Prim::Cumulative(prim) => running(prim, x.dtype, elements(0)),
        Prim::Gather => indexing::gathered(elements(0), &seen[1]),
        Prim::GatherElements(axis) => indexing::gathered_elements(elements(0), axis.0, elements(1)),
        Prim::GatherNd(batch) => indexing::gathered_slices(elements(0), batch.0, elements(1)),
        Prim::ScatterElements(prim) => {
            indexing::scattered_elements(prim.kind, x.dtype, elements(0), prim.axis, elements(1), &seen[2])
        }
        Prim::ScatterNd(prim) => indexing::scattered_slices(prim.kind, x.dtype, elements(0), elements(1), &seen[2]),
        _ => return None,
    };
    Some(vec![as_numbers(&scalars)])
}

/// Whether a small error of a coordinate makes a small error of the result.
fn is_continuous(prim: &Resize) -> bool {
    !matches!(prim.interpolation, Interpolation::Nearest(_)) && prim.coordinates != Coordinates::TfCropAndResize
}

fn as_numbers(scalars: &[Scalar]) -> Vec<f64> {
    scalars.iter().map(|value| value.as_f64()).collect()
}

/// The best elements of a row with their indices, the best first. Of equal elements, the first comes first.
fn best(search: &TopK, row: &[f64]) -> Vec<(f64, usize)> {
    let mut all: Vec<(f64, usize)> = row.iter().copied().zip(0..).collect();
    all.sort_by(|(a, _), (b, _)| {
        let order = a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
        if search.largest { order.reverse() } else { order }
    });
    all.truncate(search.k);
    all
}

/// Running sums or products along the middle axis. Integers wrap.
fn running(prim: &Cumulative, dtype: DType, data: Elements<'_>) -> Vec<Scalar> {
    let (extent, inner) = (data.shape[1], data.shape[2]);
    let start = if prim.product { 1 } else { 0 };
    let combine = |total: Scalar, value: Scalar| match (dtype.is_float(), prim.product) {
        (true, false) => Scalar::Float(total.as_f64() + value.as_f64()),
        (true, true) => Scalar::Float(total.as_f64() * value.as_f64()),
        (false, false) => Scalar::Int(total.as_i64().wrapping_add(value.as_i64())),
        (false, true) => Scalar::Int(total.as_i64().wrapping_mul(value.as_i64())),
    };
    let mut result = data.values.to_vec();
    for line in 0..data.shape[0] * inner {
        let place = |at: usize| line / inner * extent * inner + at * inner + line % inner;
        let mut total = if dtype.is_float() { Scalar::Float(f64::from(start)) } else { Scalar::Int(start.into()) };
        for step in 0..extent {
            let at = place(if prim.reverse { extent - 1 - step } else { step });
            let next = combine(total, data.values[at]);
            result[at] = (if prim.exclusive { total } else { next }).cast(dtype);
            total = next;
        }
    }
    result
}
