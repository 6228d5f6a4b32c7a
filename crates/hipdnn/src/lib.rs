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
//! ```no_run
//! use std::sync::Arc;
//!
//! use hipdnn::sys::DataType;
//! use hipdnn::{Graph, Handle, Loaded, Search, Tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let handle = Handle::new(Arc::new(Loaded::open(&Search::default())?))?;
//! let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
//! let a = graph.tensor(Tensor::new(&[1, 64, 32]).uid(1));
//! let b = graph.tensor(Tensor::new(&[1, 32, 16]).uid(2));
//! let product = graph.matmul(a, b);
//! graph.output(product, Tensor::default().uid(3));
//! let plan = graph.build(&handle)?.plan()?;
//! println!("engine {}, {} bytes of workspace", handle.engine_name(plan.engine())?, plan.workspace_bytes());
//! # Ok(())
//! # }
//! ```
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

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
