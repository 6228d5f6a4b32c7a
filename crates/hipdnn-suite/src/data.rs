//! Tensors of a case: numbers of one element type, with extents and strides.

use std::ops::Range;

use hipdnn::Tensor;

use crate::bench::{Answer, Failure};
use crate::draw::Draw;
use crate::element::Element;

/// An input tensor: extents, strides, and values in the order of the extents.
#[derive(Clone, Debug)]
pub struct Data {
    /// The element type.
    pub element: Element,
    /// The extents.
    pub dims: Vec<i64>,
    /// The strides in elements.
    pub strides: Vec<i64>,
    /// The values.
    pub values: Vec<f64>,
    /// True for a scalar that stays in host memory, wherever the library computes.
    pub is_by_value: bool,
}

impl Data {
    /// Numbers between -1 and 1, packed.
    pub fn random(element: Element, dims: &[i64], draw: &mut Draw) -> Self {
        let values = (0..dims.iter().product::<i64>()).map(|_| element.rounded(draw.number())).collect();
        Self::new(element, dims, values)
    }

    /// Packed numbers.
    pub fn new(element: Element, dims: &[i64], values: Vec<f64>) -> Self {
        Self {
            element,
            dims: dims.to_vec(),
            strides: packed(dims, &(0..dims.len()).collect::<Vec<_>>()),
            values,
            is_by_value: false,
        }
    }

    /// With other values.
    pub fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        self.values.iter_mut().for_each(|value| *value = self.element.rounded(change(*value)));
        self
    }

    /// Integers from a range.
    pub fn whole(element: Element, dims: &[i64], range: Range<i64>, draw: &mut Draw) -> Self {
        let values = (0..dims.iter().product::<i64>()).map(|_| draw.int(range.clone()) as f64).collect();
        Self::new(element, dims, values)
    }

    /// Packed, with channels innermost, or with axes in any order and gaps between them.
    pub fn arranged(mut self, draw: &mut Draw) -> Self {
        match draw.int(0..3) {
            0 => self,
            1 => self.channels_last(true),
            _ => {
                self.strides = odd_strides(&self.dims, self.element.bits() >= 8, draw);
                self
            }
        }
    }

    /// With channels innermost.
    pub fn channels_last(mut self, wanted: bool) -> Self {
        if wanted && self.dims.len() > 2 {
            let order: Vec<usize> = std::iter::once(0).chain(2..self.dims.len()).chain([1]).collect();
            self.strides = packed(&self.dims, &order);
        }
        self
    }

    /// Passed by value.
    pub fn by_value(self) -> Self {
        Self { is_by_value: true, ..self }
    }

    /// The frontend's description of it.
    pub fn tensor(&self) -> Tensor {
        let tensor = Tensor::new(&self.dims).strides(&self.strides).typed(self.element.code());
        if self.is_by_value { tensor.by_value() } else { tensor }
    }

    /// The value at an index.
    pub fn at(&self, index: &[i64]) -> f64 {
        self.values[flat(&self.dims, index)]
    }
}

/// Strides for axes in any order; with `gaps`, some are larger than necessary.
pub(crate) fn odd_strides(dims: &[i64], gaps: bool, draw: &mut Draw) -> Vec<i64> {
    let mut order: Vec<usize> = (0..dims.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, draw.int(0..at as i64 + 1) as usize);
    }
    let (mut strides, mut step) = (vec![0; dims.len()], 1);
    for &axis in &order {
        step += if gaps { draw.choose(&[0, 0, 1, 3]) } else { 0 };
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

fn packed(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut step) = (vec![0; dims.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

/// The position of an index in the order of the extents.
pub fn flat(dims: &[i64], index: &[i64]) -> usize {
    dims.iter().zip(index).fold(0, |at, (extent, index)| at * extent + index) as usize
}

/// Every index of a shape, in order.
pub fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &extent in dims {
        all = all.iter().flat_map(|index| (0..extent).map(|at| [&index[..], &[at]].concat())).collect();
    }
    all
}

/// The offset of each element, in elements from the first.
pub(crate) fn places(dims: &[i64], strides: &[i64]) -> Vec<usize> {
    let place = |index: &Vec<i64>| index.iter().zip(strides).map(|(at, stride)| at * stride).sum::<i64>() as usize;
    indices(dims).iter().map(place).collect()
}

/// Requires that a result differs from its reference by no more than the type allows.
///
/// # Errors
/// The first element that differs by more.
pub fn assert_close(found: &[f64], wanted: &[f64], element: Element) -> Answer {
    if found.len() != wanted.len() {
        return Err(Failure::Wrong(format!("got {} elements, expected {}", found.len(), wanted.len())));
    }
    for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let allowed = element.tolerance() * (1.0 + wanted.abs());
        let same = found == wanted || (found.is_nan() && wanted.is_nan()) || (found - wanted).abs() <= allowed;
        if !same {
            return Err(Failure::Wrong(format!("element {at} is {found}, expected {wanted} ({element:?})")));
        }
    }
    Ok(())
}
