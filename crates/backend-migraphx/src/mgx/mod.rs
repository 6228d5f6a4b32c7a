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
//! The binding has three layers: `sys` (function pointers, and loading), `result` (the same functions, returning a
//! `Result`) and `safe` (the owned types of this table).
//!
//! MIGraphX writes the reason of a failure only to stderr. The errors here name the call, its status and the step. They
//! do not capture stderr, because it belongs to the host process.

mod error;
mod result;
mod safe;
mod sys;
mod version;

pub use error::MgxError;
pub use safe::{
    CompileOptions, Library, Parameter, ParseOptions, Program, Quantize, Results, Role, Sample, SavedHeader, Shape,
    Target,
};
pub use version::{Feature, Version};
