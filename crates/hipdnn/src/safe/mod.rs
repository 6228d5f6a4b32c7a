//! The top layer: owned handles, descriptors and plans. Each of them keeps alive what it needs.

mod autotune;
mod deliveries;
mod descriptor;
mod handle;
mod knob;
pub mod log;
mod operation_graph;
mod plan;
pub mod plugins;
mod serialized;

pub use autotune::{Autotune, Ranking, TimedPlan};
pub use descriptor::Descriptor;
pub use handle::{EngineInfo, Handle, PolicyInfo, engine_id_of};
pub use knob::{KnobInfo, KnobValue};
pub use operation_graph::{Candidate, Choice, OperationGraph, Refusal};
pub use plan::Plan;
pub use serialized::Contents;
