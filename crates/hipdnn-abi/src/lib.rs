//! hipDNN's backend C ABI for libraries with their own engines.
//!
//! A library implements three traits: [`Implementation`] (handles and graphs), [`CompiledGraph`] (a graph and the
//! engines that run it) and [`Plan`] (a graph on one engine); [`export!`] exports the 38 symbols for it. This crate
//! implements descriptors, statuses, attribute rules and error messages: `table` lists the attributes of each kind of
//! descriptor, `registry` keeps handles and descriptors by number, so that nothing a caller passes is trusted, and
//! `saved` serialises graphs and plans.

mod descriptor;
mod engine;
#[doc(hidden)]
pub mod entry;
mod entry_saved;
mod export;
mod fault;
mod implementation;
mod log;
mod registry;
mod saved;
mod table;
mod table_attention;
mod value;

pub use descriptor::Descriptor;
pub use engine::uid_of;
pub use fault::{Fault, Outcome};
pub use implementation::{Arguments, CompiledGraph, Engine, Identity, Implementation, Plan};
pub use registry::Handle;
pub use table::{Count, Kind, Row};
pub use value::Value;

#[doc(hidden)]
pub use hipdnn::{sys, with_entry_points};
