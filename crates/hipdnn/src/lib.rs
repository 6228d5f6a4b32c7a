//! hipDNN's operation graphs in safe Rust.
//!
//! | step | here |
//! |---|---|
//! | find the backend library, or link it | [`backend()`], [`Loaded::open`], or `Linked` of crate `hipdnn-linked` |
//! | make a handle and give it a stream | [`Handle::new`], [`Handle::set_stream`] |
//! | describe tensors and operations | [`Graph`], [`Tensor`], [`Graph::convolution`], ... |
//! | check it, infer what was left open, hand it over | [`Graph::build`] |
//! | choose an engine | [`OperationGraph::plan`], [`OperationGraph::candidates`], [`OperationGraph::autotune`] |
//! | run it | [`Plan::execute`] |
//! | keep it | [`OperationGraph::to_bytes`], [`Plan::to_bytes`] |
//! | hear what the library says | [`log`] |
//!
//! The floors are [`sys`] (numbers, handles and the trait of entry points), owned descriptors, and the graph. Rules of
//! operations are checked before the backend sees them, and every error of the backend comes with its own words.

mod autotune;
mod backend;
mod deliveries;
mod descriptor;
mod error;
mod graph;
mod handle;
mod knob;
pub mod log;
mod operation_graph;
mod plan;
pub mod plugins;
mod serialized;
pub mod sys;

pub use autotune::{Autotune, Ranking, TimedPlan};
pub use backend::{KNOWN_MAJORS, Loaded, Search, backend, checked_version};
pub use descriptor::Descriptor;
pub use error::{Attempt, Error, LoadError, Result};
pub use graph::{
    Attention, BatchNormStatistics, Convolution, Dropout, Graph, MoeGroupedMatmul, Pointwise, Reduction, Resample,
    RunningStatistics, Scalar, Tensor, TensorId,
};
pub use handle::{EngineInfo, Handle, PolicyInfo, engine_id_of};
pub use knob::{KnobInfo, KnobValue};
pub use operation_graph::{Candidate, Choice, OperationGraph, Refusal};
pub use plan::Plan;
pub use serialized::Contents;
