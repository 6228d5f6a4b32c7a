//! Tensors of a case: numbers of one element type, with extents and strides.

use hipdnn::Tensor;
use hipdnn::sys::DataType;

use crate::bench::{Answer, Failure};
use crate::draw::Draw;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// `float`
    F32,
    /// `double`
    F64,
    /// IEEE half precision
    F16,
    /// bfloat16
    Bf16,
}

impl Element {
    /// Every element type, single precision twice as often as the others.
    pub fn draw(draw: &mut Draw) -> Self {
        draw.choose(&[Self::F32, Self::F32, Self::F64, Self::F16, Self::Bf16])
    }

    /// hipDNN's number of it.
    pub fn code(self) -> DataType {
        match self {
            Self::F32 => DataType::FLOAT,
            Self::F64 => DataType::DOUBLE,
            Self::F16 => DataType::HALF,
            Self::Bf16 => DataType::BFLOAT16,
        }
    }

    pub(crate) fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
            Self::Bf16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        }
    }

    pub(crate) fn number(self, bytes: &[u8]) -> f64 {
        let word = |at: usize| bytes.get(at).copied().unwrap_or(0);
        match self {
            Self::F32 => f32::from_le_bytes(std::array::from_fn(word)).into(),
            Self::F64 => f64::from_le_bytes(std::array::from_fn(word)),
            Self::F16 => half::f16::from_le_bytes(std::array::from_fn(word)).to_f64(),
            Self::Bf16 => half::bf16::from_le_bytes(std::array::from_fn(word)).to_f64(),
        }
    }

    pub(crate) fn size(self) -> usize {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// What results may differ by, for numbers around 1 and sums of a few hundred terms.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::F64 => 1e-9,
            Self::F32 => 2e-4,
            Self::F16 => 2e-2,
            Self::Bf16 => 1.2e-1,
        }
    }

    /// A number as this type holds it.
    pub fn rounded(self, value: f64) -> f64 {
        self.number(&self.bytes(value))
    }
}

/// A tensor of the caller's: extents, strides, and values in the order of the extents.
#[derive(Clone, Debug)]
pub struct Data {
    /// Its element type.
    pub element: Element,
    /// Its extents.
    pub dims: Vec<i64>,
    /// Its strides in elements.
    pub strides: Vec<i64>,
    /// Its values.
    pub values: Vec<f64>,
}

impl Data {
    /// Numbers between -1 and 1, packed.
    pub fn random(element: Element, dims: &[i64], draw: &mut Draw) -> Self {
        let values = (0..dims.iter().product::<i64>()).map(|_| element.rounded(draw.number())).collect();
        Self::new(element, dims, values)
    }

    /// Packed numbers.
    pub fn new(element: Element, dims: &[i64], values: Vec<f64>) -> Self {
        Self { element, dims: dims.to_vec(), strides: packed(dims, &(0..dims.len()).collect::<Vec<_>>()), values }
    }

    /// With other values.
    pub fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        self.values.iter_mut().for_each(|value| *value = self.element.rounded(change(*value)));
        self
    }

    /// With the channels innermost.
    pub fn channels_last(mut self, wanted: bool) -> Self {
        if wanted && self.dims.len() > 2 {
            let order: Vec<usize> = std::iter::once(0).chain(2..self.dims.len()).chain([1]).collect();
            self.strides = packed(&self.dims, &order);
        }
        self
    }

    /// As the frontend describes it.
    pub fn tensor(&self) -> Tensor {
        Tensor::new(&self.dims).strides(&self.strides).typed(self.element.code())
    }

    /// The value at an index.
    pub fn at(&self, index: &[i64]) -> f64 {
        self.values[flat(&self.dims, index)]
    }
}

fn packed(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut step) = (vec![0; dims.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step *= dims[axis];
    }
    strides
}

/// The place of an index in the order of the extents.
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

/// Where each element lies, in elements from the first.
pub(crate) fn places(dims: &[i64], strides: &[i64]) -> Vec<usize> {
    let place = |index: &Vec<i64>| index.iter().zip(strides).map(|(at, stride)| at * stride).sum::<i64>() as usize;
    indices(dims).iter().map(place).collect()
}

/// Demands that a result differs from its reference by no more than the type allows.
///
/// # Errors
/// The first element that does.
pub fn assert_close(found: &[f64], wanted: &[f64], element: Element) -> Answer {
    if found.len() != wanted.len() {
        return Err(Failure::Wrong(format!("{} elements instead of {}", found.len(), wanted.len())));
    }
    for (at, (&found, &wanted)) in found.iter().zip(wanted).enumerate() {
        let allowed = element.tolerance() * (1.0 + wanted.abs());
        let same = found == wanted || (found.is_nan() && wanted.is_nan()) || (found - wanted).abs() <= allowed;
        if !same {
            return Err(Failure::Wrong(format!("element {at}: {found} instead of {wanted} ({element:?})")));
        }
    }
    Ok(())
}
