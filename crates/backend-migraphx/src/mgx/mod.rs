//! Bindings to MIGraphX's C library, `libmigraphx_c`, loaded at run time.
//!
//! | MIGraphX | here |
//! |---|---|
//! | the C library | [`Library`], from [`Library::open`] |
//! | a target (`gpu`, `ref`) | [`Target`], from [`Library::target`] |
//! | a parsed ONNX model | [`Program`], from [`Library::parse`] |
//! | a saved program (`.mxr`) | [`Program`], from [`Library::load`]; its header is a [`SavedHeader`] |
//! | parameters and outputs | [`Parameter`], [`Shape`] |
//! | returned arguments | [`Results`], from [`Program::run`] |
//!
//! One function table covers releases 2.8 to 2.17. Functions that newer releases added are a [`Feature`] that may be
//! absent. The numbers of the element types changed under the same soname, so the library itself is asked for them.
//!
//! MIGraphX writes the reason of a failure only to stderr. The errors here name the call, its status and the step. They
//! do not capture stderr, because it belongs to the host process.

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
