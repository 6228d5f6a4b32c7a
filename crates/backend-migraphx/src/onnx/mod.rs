//! Partitions as ONNX models, the form in which MIGraphX takes them.
mod build;
pub mod proto;
mod weights;

pub(crate) use build::{Boundary, Stop, build};

use std::path::PathBuf;

use ort_ep::{
    ElementType,
    view::{Dim, TensorType},
};

/// A partition as an ONNX model.
///
/// The same partition always gives the same bytes: inputs and outputs are sorted by name, nodes stay in the graph's
/// order, and nothing of the session (paths, generated graph names) is written.
pub(crate) struct Model {
    /// The serialised `ModelProto`.
    pub bytes: Vec<u8>,
    /// Stands for the model and all its weights, external ones included.
    pub digest: blake3::Hash,
    /// The folder that external weights are relative to, if there are any.
    pub folder: Option<PathBuf>,
    /// Inputs without constants, sorted by name.
    pub inputs: Vec<Value>,
    /// Outputs, sorted by name.
    pub outputs: Vec<Value>,
}

/// An input or output of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// Its name in the graph.
    pub name: String,
    /// What one element is.
    pub element: ElementType,
    /// Its extents as the model declares them; none if not even the rank is known.
    pub shape: Option<Vec<Dim>>,
}

impl Value {
    pub fn new(name: &str, tensor: TensorType) -> Self {
        Self { name: name.to_owned(), element: tensor.element, shape: tensor.shape }
    }

    /// All extents, if the model declares each as a number.
    pub fn fixed(&self) -> Option<Vec<usize>> {
        self.shape.as_ref()?.iter().map(|dim| dim.fixed().and_then(|extent| usize::try_from(extent).ok())).collect()
    }

    /// True if lengths that MIGraphX gives are among those declared; a scalar has one length for it.
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
        // Up to the types that MIGraphX knows, ONNX Runtime numbers element types as ONNX does.
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
