//! The tensors of a graph.

use half::{bf16, f16};

use crate::sys::DataType;
use crate::{Error, Result};

/// A tensor's index within its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(super) usize);

/// A scalar that is part of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// 32-bit float.
    F32(f32),
    /// 64-bit float.
    F64(f64),
    /// 16-bit float.
    F16(f16),
    /// bfloat16.
    Bf16(bf16),
    /// 32-bit integer.
    I32(i32),
    /// 64-bit integer.
    I64(i64),
    /// A Boolean.
    Bool(bool),
}

impl Scalar {
    /// The element type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::F32(_) => DataType::FLOAT,
            Self::F64(_) => DataType::DOUBLE,
            Self::F16(_) => DataType::HALF,
            Self::Bf16(_) => DataType::BFLOAT16,
            Self::I32(_) => DataType::INT32,
            Self::I64(_) => DataType::INT64,
            Self::Bool(_) => DataType::BOOLEAN,
        }
    }

    /// The bytes, little-endian.
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::F32(value) => value.to_le_bytes().to_vec(),
            Self::F64(value) => value.to_le_bytes().to_vec(),
            Self::F16(value) => value.to_le_bytes().to_vec(),
            Self::Bf16(value) => value.to_le_bytes().to_vec(),
            Self::I32(value) => value.to_le_bytes().to_vec(),
            Self::I64(value) => value.to_le_bytes().to_vec(),
            Self::Bool(value) => vec![u8::from(value)],
        }
    }
}

/// A tensor: extents in logical order (batch, channels, rows, ...), and strides that describe its memory layout.
///
/// Results of operations start out *virtual* (the caller provides no memory) and without extents, which are inferred.
#[derive(Clone, Debug, Default)]
pub struct Tensor {
    pub(super) uid: Option<i64>,
    pub(super) name: String,
    pub(super) data_type: Option<DataType>,
    pub(super) dims: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) is_virtual: bool,
    pub(super) value: Option<Scalar>,
    pub(super) by_value: bool,
    pub(super) alignment: Option<i64>,
}

impl Tensor {
    /// A tensor with these extents, packed with the last axis innermost.
    pub fn new(dims: &[i64]) -> Self {
        Self { strides: packed(dims), dims: dims.to_vec(), ..Self::default() }
    }

    /// A scalar that is part of the graph.
    pub fn scalar(value: Scalar) -> Self {
        let (dims, strides) = (vec![1], vec![1]);
        Self { data_type: Some(value.data_type()), value: Some(value), dims, strides, ..Self::default() }
    }

    /// Sets a name for messages.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the strides, in elements.
    #[must_use]
    pub fn strides(mut self, strides: &[i64]) -> Self {
        self.strides = strides.to_vec();
        self
    }

    /// Packed with the channels (axis 1) innermost.
    #[must_use]
    pub fn channels_last(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.dims.len()).collect();
        if order.len() > 2 {
            let channels = order.remove(1);
            order.push(channels);
        }
        self.strides = packed_in(&self.dims, &order);
        self
    }

    /// Sets the element type, instead of the graph's.
    #[must_use]
    pub fn typed(mut self, data_type: DataType) -> Self {
        self.data_type = Some(data_type);
        self
    }

    /// Sets the uid for [`Plan::execute`](crate::Plan::execute); otherwise the graph chooses one.
    #[must_use]
    pub fn uid(mut self, uid: i64) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Makes this a scalar that the caller passes at each execution, as the address of one value in host memory.
    #[must_use]
    pub fn by_value(mut self) -> Self {
        self.by_value = true;
        self
    }

    /// Sets the alignment of its addresses in bytes, instead of 16.
    #[must_use]
    pub fn aligned(mut self, bytes: i64) -> Self {
        self.alignment = Some(bytes);
        self
    }

    /// The name in messages.
    pub(super) fn label(&self, id: TensorId) -> String {
        if self.name.is_empty() { format!("tensor {}", id.0) } else { format!("tensor {:?}", self.name) }
    }

    pub(super) fn check(&self, id: TensorId) -> Result<()> {
        let refuse = |rule: String| Err(Error::invalid(self.label(id), rule));
        if self.dims.is_empty() {
            return refuse("it has no extents".into());
        }
        if let Some(extent) = self.dims.iter().find(|&&extent| extent <= 0) {
            return refuse(format!("extent {extent} of {:?} is not positive", self.dims));
        }
        if self.dims.len() != self.strides.len() {
            return refuse(format!("{} strides for {} extents", self.strides.len(), self.dims.len()));
        }
        if self.data_type.is_none() {
            return refuse("it has no element type".into());
        }
        if self.is_virtual && (self.by_value || self.value.is_some()) {
            return refuse("it cannot be both virtual and passed by value".into());
        }
        if let Some(value) = self.value
            && self.data_type != Some(value.data_type())
        {
            let found = self.data_type.unwrap_or(value.data_type());
            return refuse(format!("its value is {:?}, but its type is {found:?}", value.data_type()));
        }
        if self.by_value && self.dims.iter().any(|&extent| extent != 1) {
            return refuse(format!("only a scalar can be passed by value, but its extents are {:?}", self.dims));
        }
        if self.by_value && !self.data_type.is_some_and(|data_type| BY_VALUE.contains(&data_type)) {
            return refuse(format!("a {:?} cannot be passed by value", self.data_type.unwrap_or(DataType::FLOAT)));
        }
        if let Some(bytes) = self.alignment.filter(|&bytes| bytes < 1) {
            return refuse(format!("an alignment of {bytes} bytes is below 1"));
        }
        let last = self.dims.iter().zip(&self.strides).try_fold(0i64, |last, (extent, stride)| {
            (extent - 1).checked_mul(stride.checked_abs()?).and_then(|step| last.checked_add(step))
        });
        if last.is_none() {
            return refuse(format!("extents {:?} with strides {:?} overflow", self.dims, self.strides));
        }
        Ok(())
    }
}

/// The types that can be passed by value.
const BY_VALUE: [DataType; 7] = [
    DataType::FLOAT,
    DataType::DOUBLE,
    DataType::HALF,
    DataType::BFLOAT16,
    DataType::INT32,
    DataType::INT64,
    DataType::BOOLEAN,
];

/// Strides of a packed tensor with the last axis innermost.
pub(super) fn packed(dims: &[i64]) -> Vec<i64> {
    packed_in(dims, &(0..dims.len()).collect::<Vec<_>>())
}

/// Strides of a packed tensor with this axis order, the last innermost.
pub(super) fn packed_in(dims: &[i64], order: &[usize]) -> Vec<i64> {
    let (mut strides, mut step) = (vec![0; dims.len()], 1i64);
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step = step.saturating_mul(dims[axis].max(1));
    }
    strides
}

/// The axes of a tensor from outermost to innermost; for equal strides the earlier axis is the outer one.
pub(super) fn axis_order(strides: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..strides.len()).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        let dims = [2, 3, 4, 5];
        assert_eq!(Tensor::new(&dims).strides, [60, 20, 5, 1]);
        assert_eq!(Tensor::new(&dims).channels_last().strides, [60, 1, 15, 3]);
        assert_eq!(packed_in(&dims, &axis_order(&[60, 1, 15, 3])), [60, 1, 15, 3]);
    }

    #[test]
    fn broken_tensors_are_refused_by_name() {
        let float = |tensor: Tensor| tensor.typed(DataType::FLOAT).named("x");
        for (tensor, rule) in [
            (float(Tensor::new(&[])), "no extents"),
            (float(Tensor::new(&[2, 0])), "not positive"),
            (float(Tensor::new(&[2, 3]).strides(&[1])), "1 strides for 2 extents"),
            (Tensor::new(&[2]).named("x"), "no element type"),
            (float(Tensor::new(&[2]).by_value()), "only a scalar can be passed by value"),
            (Tensor::new(&[1]).by_value().typed(DataType::INT8).named("x"), "a INT8 cannot be passed by value"),
            (
                Tensor::scalar(Scalar::F32(1.0)).typed(DataType::HALF).named("x"),
                "its value is FLOAT, but its type is HALF",
            ),
            (float(Tensor { is_virtual: true, ..Tensor::new(&[1]).by_value() }), "virtual and passed by value"),
            (float(Tensor::new(&[2]).aligned(0)), "alignment of 0 bytes"),
            (float(Tensor::new(&[i64::MAX, 4]).strides(&[4, 1])), "overflow"),
        ] {
            let error = tensor.check(TensorId(0)).unwrap_err().to_string();
            assert!(error.contains("\"x\"") && error.contains(rule), "{error}");
        }
    }
}
