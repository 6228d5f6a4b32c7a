//! Arrays of numbers, for reference implementations written as plain loops.
#![allow(dead_code)]
use graph::{DType, Tensor};

use crate::common::{numbers, random, tensor};

/// A dense array in double precision.
#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Array {
    /// Computes every element from its index.
    pub fn of(shape: &[usize], value: impl Fn(&[usize]) -> f64) -> Self {
        Self { shape: shape.to_vec(), values: indices(shape).iter().map(|index| value(index)).collect() }
    }

    /// Deterministic numbers that the type holds exactly.
    pub fn random(dtype: DType, shape: &[usize], seed: u64) -> Self {
        let values = random(shape.iter().product(), seed);
        let values = match dtype {
            DType::U8 | DType::U32 | DType::U64 => values.iter().map(|value| (value * 20.0).abs().round()).collect(),
            dtype if dtype.is_int() => values.iter().map(|value| (value * 20.0).round()).collect(),
            _ => values,
        };
        let rounded = tensor(dtype, shape, &values);
        Self::from(&rounded)
    }

    /// The element at an index. Axes of extent 1 are broadcast, and leading axes may be missing.
    pub fn at(&self, index: &[usize]) -> f64 {
        let index = &index[index.len() - self.shape.len()..];
        let place = index.iter().zip(&self.shape).fold(0, |place, (&at, &extent)| {
            let at = if extent == 1 { 0 } else { at };
            assert!(at < extent, "{index:?} of {:?}", self.shape);
            place * extent + at
        });
        self.values[place]
    }

    /// Converts it to a tensor.
    pub fn tensor(&self, dtype: DType) -> Tensor {
        tensor(dtype, &self.shape, &self.values)
    }
}

impl From<&Tensor> for Array {
    fn from(tensor: &Tensor) -> Self {
        Self { shape: tensor.shape().to_vec(), values: numbers(tensor) }
    }
}

/// All indices of a shape in row-major order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in shape {
        all = all.iter().flat_map(|index| (0..extent).map(move |at| [&index[..], &[at]].concat())).collect();
    }
    all
}
