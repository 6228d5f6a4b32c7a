//! Partitions as ONNX models, the input format of MIGraphX.
mod build;
pub mod proto;
mod weights;

pub(crate) use build::{Boundary, Stop, build};

use std::path::PathBuf;

use ort_ep::ElementType;
use ort_ep::view::{Dim, TensorType};

/// A partition as an ONNX model.
///
/// The same partition always produces the same bytes: inputs and outputs are sorted by name, nodes keep the graph's
/// order, and nothing specific to the session (paths, generated graph names) is written.
pub(crate) struct Model {
    /// The serialised `ModelProto`.
    pub bytes: Vec<u8>,
    /// Identifies the model and all its weights, including external ones.
    pub digest: blake3::Hash,
    /// The folder that external weights are relative to, if there are any.
    pub folder: Option<PathBuf>,
    /// Inputs, excluding constants, sorted by name.
    pub inputs: Vec<Value>,
    /// Outputs, sorted by name.
    pub outputs: Vec<Value>,
}

/// An input or output of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// The name in the graph.
    pub name: String,
    /// The element type.
    pub element: ElementType,
    /// The declared shape; `None` if not even the rank is known.
    pub shape: Option<Vec<Dim>>,
}

impl Value {
    pub fn new(name: &str, tensor: TensorType) -> Self {
        Self { name: name.to_owned(), element: tensor.element, shape: tensor.shape }
    }

    /// The shape, if the model declares every extent as a number.
    pub fn fixed(&self) -> Option<Vec<usize>> {
        self.shape.as_ref()?.iter().map(|dim| dim.fixed().and_then(|extent| usize::try_from(extent).ok())).collect()
    }

    /// True if the lengths reported by MIGraphX match the declared shape. MIGraphX gives a scalar one axis of length 1.
    pub fn fits(&self, lengths: &[usize]) -> bool {
        let Some(dims) = &self.shape else { return true };
        let fits =
            |(dim, length): (&Dim, &usize)| dim.fixed().is_none_or(|fixed| usize::try_from(fixed) == Ok(*length));
        (dims.is_empty() && lengths == [1]) || (dims.len() == lengths.len() && dims.iter().zip(lengths).all(fits))
    }

    fn to_proto(&self) -> proto::ValueInfo {
        let dimension = |dim: &Dim| proto::Dimension {
            value: match dim {
                Dim::Fixed(length) => Some(proto::DimensionValue::Length(*length)),
                Dim::Symbol(name) => Some(proto::DimensionValue::Symbol(name.clone())),
                Dim::Unknown => None,
            },
        };
        let shape = self.shape.as_ref().map(|dims| proto::Shape { dim: dims.iter().map(dimension).collect() });
        // ONNX Runtime uses ONNX's numbers for all element types that MIGraphX supports.
        let tensor = proto::TensorType { elem_type: self.element.to_raw(), shape };
        proto::ValueInfo { name: self.name.clone(), r#type: Some(proto::Type { tensor_type: Some(tensor) }) }
    }
}

impl Model {
    /// The declared shapes of all inputs, if every extent is a number.
    pub fn fixed_shapes(&self) -> Option<Vec<Vec<usize>>> {
        self.inputs.iter().map(Value::fixed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_compared_where_they_are_declared() {
        let value = |shape| Value { name: "x".to_owned(), element: ElementType::F32, shape };
        let open = value(Some(vec![Dim::Symbol("n".to_owned()), Dim::Fixed(3)]));
        assert!(open.fits(&[7, 3]) && !open.fits(&[7, 4]) && !open.fits(&[7]));
        assert!(value(None).fits(&[1, 2]));
        assert!(value(Some(vec![])).fits(&[1]) && value(Some(vec![])).fits(&[]) && !value(Some(vec![])).fits(&[2]));
    }
}
