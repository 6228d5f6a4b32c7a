//! A client of ONNX Runtime's C API: provider registration, sessions, tensors, and the placement of nodes.

pub mod array;
pub mod element;
#[allow(unsafe_code)]
mod ffi;
pub mod message;

pub use array::Array;
pub use element::Element;
pub use ffi::{Device, Environment, Provider, Runtime, Session, Value};

/// An input or output of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: PortKind,
}

/// The type of an input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum PortKind {
    /// A tensor of numbers.
    Tensor(Element, Vec<Dim>),
    /// A type that does not fit an [`Array`], as a description.
    Other(String),
}

/// One dimension of a tensor type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A fixed extent.
    Size(usize),
    /// A named extent: equal names mean equal extents.
    Named(String),
    /// Any extent.
    Any,
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Size(size) => size.fmt(f),
            Dim::Named(name) => name.fmt(f),
            Dim::Any => f.write_str("?"),
        }
    }
}

/// Dimensions as text: `[batch, 3, ?]`.
pub fn dims_text(dims: &[Dim]) -> String {
    format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", "))
}

/// Settings for creating a session.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings<'a> {
    /// The devices to use before the CPU provider; if empty, only the CPU provider is used.
    pub devices: &'a [Device],
    /// Options of the provider.
    pub options: &'a [(String, String)],
    /// Session-config entries.
    pub config: Vec<(String, String)>,
    /// Threads within an operator; `None` lets ONNX Runtime choose.
    pub threads: Option<u16>,
    /// Dynamic dimensions to fix, by name.
    pub dims: &'a [(String, usize)],
}

/// The nodes that a provider took as one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The provider.
    pub provider: String,
    /// Its nodes.
    pub nodes: Vec<AssignedNode>,
}

/// A node in an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignedNode {
    /// Its name, often empty.
    pub name: String,
    /// The operator's domain, empty for ONNX's own.
    pub domain: String,
    /// The operator.
    pub op: String,
}
