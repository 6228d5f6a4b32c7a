//! MIGraphX through its C library, `libmigraphx_c`, loaded at run time.
//!
//! | MIGraphX | here |
//! |---|---|
//! | the C library | [`Library`], from [`Library::open`] |
//! | a target (`gpu`, `ref`) | [`Target`], from [`Library::target`] |
//! | an ONNX model, parsed | [`Program`], from [`Library::parse`] |
//! | a saved program (`.mxr`) | [`Program`], from [`Library::load`]; its head is a [`SavedHeader`] |
//! | parameters and outputs | [`Parameter`], [`Shape`] |
//! | returned arguments | [`Results`], from [`Program::run`] |
//!
//! Releases 2.8 to 2.17 are read through one table: what newer ones added is a [`Feature`] that may be absent, and
//! the numbers of the element types, which moved under the same soname, are asked of the library itself.
//!
//! MIGraphX tells the reason of a failure to stderr only. The errors here name the call, its status and what was being
//! done, and do not redirect the stderr of a process that is not ours.

mod error;
mod handle;
mod library;
mod loader;
mod operators;
mod options;
mod program;
mod results;
mod saved;
mod shape;
mod sys;
mod types;

pub use error::MgxError;
pub use library::{Feature, Library, Target, Version};
pub use options::{CompileOptions, ParseOptions, Quantize, Sample};
pub use program::{Parameter, Program, Role};
pub use results::Results;
pub use saved::SavedHeader;
pub use shape::Shape;
