//! An HTTP server for model folders, compatible with OpenAI's API, and for plain ONNX models.
//!
//! | concept | type |
//! |---|---|
//! | the settings, from a TOML file and the command line | [`Settings`] |
//! | how a model folder is loaded | [`Loader`] |
//! | a server that listens, and drains when it is told to stop | [`Server`] |
//!
//! Requests of all clients share the slots of one [`textgen::engine::Engine`] per model. A client that disconnects drops
//! its ticket, which frees its slot at the next step.

#![forbid(unsafe_code)]

mod access_log;
mod anthropic;
mod app;
mod body;
mod bytes;
mod chat;
mod error;
mod failure;
mod fields;
mod files;
mod footprint;
mod generation;
mod guard;
mod inference;
mod keys;
mod messages;
mod metrics;
mod models;
mod multipart;
mod openai;
mod openapi;
mod page;
mod pool;
mod queue;
mod rates;
mod served;
mod server;
mod settings;
mod signals;
mod slow_reader;
mod sse;
mod status;
mod tls;
mod tools;

pub use bytes::Bytes;
pub use error::Error;
pub use keys::{Keys, hashed_line};
pub use models::Loader;
pub use served::Loaded;
pub use server::{Server, Stopped};
pub use settings::{Load, LogFormat, ModelSettings, Settings};
