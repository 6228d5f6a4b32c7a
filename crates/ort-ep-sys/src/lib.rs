//! The execution-provider side of ONNX Runtime's C API, versions 24 to 31, written by hand.
//!
//! | type | what it is |
//! |---|---|
//! | [`OrtApiBase`] | the entry point that the runtime passes to a plugin |
//! | [`Api`], from [`Api::negotiate`] | the runtime's main table, at a version that both sides support |
//! | [`EpApi`], from [`Api::ep_api`] | the runtime's functions for plugins |
//! | [`ModelEditorApi`] | the runtime's functions that create nodes and graphs |
//! | [`OrtEpFactory`], [`OrtEp`], [`OrtNodeComputeInfo`] | tables a plugin fills: library, session, compiled nodes |
//! | [`OrtAllocator`], [`OrtDataTransferImpl`], [`OrtSyncStreamImpl`] | tables a plugin fills: memory, copies, streams |
//!
//! ```
//! use ort_ep_sys::{Api, NegotiationError};
//!
//! // SAFETY: null is allowed. A plugin passes on the pointer that it got from the runtime.
//! match unsafe { Api::negotiate(std::ptr::null()) } {
//!     Ok(api) => println!("API version {}", api.version()),
//!     Err(error) => assert_eq!(error, NegotiationError::NoEntry),
//! }
//! ```
//!
//! Two kinds of tables live here, and both are gated by version:
//!
//! * **Tables the runtime owns** ([`Api`], [`EpApi`], [`ModelEditorApi`]): each function knows the API version it
//!   appeared in. Functions of version 24 and older are plain methods, because [`Api::negotiate`] refuses older
//!   runtimes. Newer ones are methods that return `Some(function)` only if the negotiated version has them: a slot past
//!   the end of an older table holds unrelated data, so it cannot be reached at all.
//! * **Tables a plugin fills** ([`OrtEpFactory`], [`OrtEp`], [`OrtAllocator`], …): `#[repr(C)]` structs of
//!   `Option<fn>`, always allocated in full size. To read a table that another library filled, use the associated
//!   functions of the same names (`OrtEp::Sync(pointer)`): they check the writer's version stamp before they read the
//!   slot.
//!
//! Enums are 32-bit integers with named constants, because runtimes add values. Nothing here links ONNX Runtime: the
//! runtime passes its [`OrtApiBase`] to the plugin.
//!
//! Field order and signatures follow the public headers of ONNX Runtime 1.22 to 1.30; what 1.31 added was determined
//! from its binary and tested. `tests/layout.rs` compares every position with the independent `ort-sys` crate.
#![allow(non_snake_case, non_camel_case_types, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

#[macro_use]
mod macros;

mod api;
mod ep_api;
mod model_editor;
mod negotiate;
mod plain;
mod plugin;
mod types;

pub use api::Api;
pub use ep_api::EpApi;
pub use model_editor::ModelEditorApi;
pub use negotiate::{MAX_API_VERSION, MIN_API_VERSION, NegotiationError, OrtApiBase};
pub use plain::*;
pub use plugin::*;
pub use types::*;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
