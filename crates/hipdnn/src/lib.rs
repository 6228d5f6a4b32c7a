//! hipDNN's operation graphs in safe Rust.
//!
//! | step | here |
//! |---|---|
//! | find the backend library, or link it | [`Loaded::open`], or `Linked` with the feature `linked` |
//! | make a handle and give it a stream | [`Handle::new`], [`Handle::set_stream`] |
//! | describe tensors and operations | [`Graph`], [`Tensor`], [`Graph::convolution`], ... |
//! | check it, infer what was left open, hand it over | [`Graph::build`] |
//! | choose an engine | [`OperationGraph::plan`], or [`OperationGraph::candidates`] |
//! | run it | [`Plan::execute`] |
//!
//! The floors are [`sys`] (numbers, handles and the trait of entry points), owned descriptors, and the graph. Rules of
//! operations are checked before the backend sees them, and every error of the backend comes with its own words.

mod backend;
mod descriptor;
mod error;
mod graph;
mod handle;
mod plan;
pub mod sys;

#[cfg(feature = "linked")]
pub use backend::Linked;
pub use backend::{KNOWN_MAJORS, Loaded, Search};
pub use descriptor::Descriptor;
pub use error::{Attempt, Error, LoadError, Result};
pub use graph::{
    Attention, BatchNormStatistics, Convolution, Graph, Pointwise, Resample, RunningStatistics, Scalar, Tensor,
    TensorId,
};
pub use handle::{EngineInfo, Handle, engine_id_of};
pub use plan::{Candidate, OperationGraph, Plan};
