//! The planner of the graph engine: turns ONNX graphs into plans made of a few primitives.
//!
//! | stage | module | what comes out |
//! |---|---|---|
//! | parse | [`ops`] | [`Op`]: an ONNX node with its attributes read and checked, or a [`Declined`] with the reason |
//! | graph | [`ir`] | [`Graph`]: nodes and values of one partition, shapes unknown or symbolic |
//! | passes | [`pass`] | a simpler [`Graph`]: no duplicates, no dead code, several nodes fused into one |
//! | lower | [`lower`] | for *concrete* input shapes: [`Step`]s, each one primitive ([`prim`]) on views of buffers |
//! | fuse | [`plan`] | fewer steps: elementwise chains become one [`Map`](prim::Map) |
//! | place | [`plan`] | [`Plan`]: every buffer is an input, an output, a weight or a place in one arena |
//!
//! Lowering runs again for every new set of input shapes. That keeps it simple: all shapes are numbers, views
//! (transposes, slices, broadcasts) cost nothing, and whatever can be computed from shapes and small constants is
//! computed right there, on the host, by the same code that would emit the step.
//!
//! This crate does not depend on ONNX Runtime, a driver or a kernel.
#![forbid(unsafe_code)]

pub mod cache;
pub mod cost;
pub mod dtype;
pub mod experts;
pub mod expr;
pub mod ir;
pub mod lower;
pub mod memory;
pub mod ops;
pub mod paged;
pub mod pass;
pub mod plan;
pub mod pointwise;
pub mod prim;
pub mod product;
pub mod quant;
pub mod recurrent;
pub mod shape;
pub mod state;
pub mod tensor;

mod causal;
mod error;
mod float8;
mod fragments;
mod spec;

pub use dtype::{DType, Scalar};
pub use error::{Declined, LowerError};
pub use ir::{Graph, Node, NodeId, Unread, Value, ValueId};
pub use lower::{Lower, Val};
pub use ops::Op;
pub use plan::Plan;
pub use prim::{Prim, Step, View};
pub use shape::Shape;
pub use tensor::{Tensor, WeakTensor};
