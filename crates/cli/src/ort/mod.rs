//! A client of ONNX Runtime's C API: a registered provider, sessions, tensors, and where each node was placed.

pub mod array;
pub mod element;
#[allow(unsafe_code)]
mod ffi;
pub mod message;

pub use array::Array;
pub use element::Element;
pub use ffi::{Device, Environment, Provider, Runtime, Session, Value};

/// The type of a session's input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it takes or gives.
    pub kind: PortKind,
}

/// What an input takes or an output gives.
#[derive(Clone, Debug, PartialEq)]
pub enum PortKind {
    /// A tensor of numbers.
    Tensor(Element, Vec<Dim>),
    /// Something that has no place in an [`Array`], in words.
    Other(String),
}

/// One dimension of a tensor type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A fixed extent.
    Size(usize),
    /// An extent with a name: equal names are equal extents.
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

/// How a session is to be made.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings<'a> {
    /// The devices in front of the CPU provider; without any, the CPU provider is alone.
    pub devices: &'a [Device],
    /// Options of the provider.
    pub options: &'a [(String, String)],
    /// Session-config entries.
    pub config: Vec<(String, String)>,
    /// Threads inside an operator; ONNX Runtime chooses when absent.
    pub threads: Option<u16>,
    /// Dynamic dimensions that the session fixes, by their names.
    pub dims: &'a [(String, usize)],
}

/// The nodes that a provider took in one piece.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The provider.
    pub provider: String,
    /// Its nodes.
    pub nodes: Vec<AssignedNode>,
}

/// A node as ONNX Runtime assigned it.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignedNode {
    /// Its name, often empty.
    pub name: String,
    /// The operator's domain, empty for ONNX's own.
    pub domain: String,
    /// The operator.
    pub op: String,
}
