//! A dependency-free writer for ONNX models.
//!
//! ```
//! use testkit::onnx::{Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};
//!
//! let graph = Graph::new("scale")
//!     .input(ValueInfo::tensor("x", ElementType::Float, [Dim::from("rows"), Dim::from(3)]))
//!     .initializer(Tensor::floats("w", [3], &[1.0, 2.0, 3.0]))
//!     .node(Node::new("Mul", ["x", "w"], ["y"]))
//!     .output(ValueInfo::tensor("y", ElementType::Float, [Dim::from("rows"), Dim::from(3)]));
//! let bytes = Model::new(graph).opset("", 17).to_bytes();
//! assert!(!bytes.is_empty());
//! ```

mod graph;
mod tensor;
mod wire;

pub use graph::{Attribute, Dim, Graph, Model, Node, ValueInfo, ValueType};
pub use tensor::{ElementType, Tensor};
