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
//! The crate has three layers: [`sys`] (constants, handles, the trait of entry points, and loading), `result` (the same
//! calls, returning a `Result` with the backend's own message) and the owned handles and descriptors re-exported here.
//! [`Graph`] builds on them: it checks the rules of operations before the backend sees them.

mod error;
mod graph;
mod result;
mod safe;
pub mod sys;

pub use error::{Attempt, Error, LoadError, Result};
pub use graph::{
    Attention, BatchNormStatistics, Convolution, Dropout, Graph, MoeGroupedMatmul, Pointwise, Reduction, Resample,
    RunningStatistics, Scalar, Tensor, TensorId,
};
pub use safe::{
    Autotune, Candidate, Choice, Contents, Descriptor, EngineInfo, Handle, KnobInfo, KnobValue, OperationGraph, Plan,
    PolicyInfo, Ranking, Refusal, TimedPlan, engine_id_of, log, plugins,
};
pub use sys::loaded::{Loaded, backend};
pub use sys::search::Search;
pub use sys::version::{KNOWN_MAJORS, checked_version};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
