//! hipDNN's operation graphs in safe Rust.
//!
//! | step | here |
//! |---|---|
//! | find the backend library, or link it | [`backend()`], [`Loaded::open`], or `Linked` of crate `hipdnn-linked` |
//! | create a handle and set its stream | [`Handle::new`], [`Handle::set_stream`] |
//! | describe tensors and operations | [`Graph`], [`Tensor`], [`Graph::convolution`], ... |
//! | validate it, infer missing properties, pass it to the backend | [`Graph::build`] |
//! | choose an engine | [`OperationGraph::plan`], [`OperationGraph::candidates`], [`OperationGraph::autotune`] |
//! | run it | [`Plan::execute`] |
//! | save it | [`OperationGraph::to_bytes`], [`Plan::to_bytes`] |
//! | receive the library's log messages | [`log`] |
//!
//! The layers are [`sys`] (constants, handles and the trait of entry points), owned descriptors, and the graph. The
//! rules of operations are checked before the backend sees them, and every backend error includes the backend's own
//! message.

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
