//! Text generation from GenAI model folders (`genai_config.json`, an ONNX decoder, `tokenizer.json`, a chat template)
//! with a stock ONNX Runtime.
//!
//! | concept | type |
//! |---|---|
//! | ONNX Runtime, loaded once per process | [`Runtime`] |
//! | the validated settings of a model folder | [`Config`] |
//! | a session and the meaning of its inputs and outputs | [`Model`] |
//! | one or more sequences with their key/value cache | [`Generator`] |
//! | how the next token is chosen | [`Sampling`] |
//! | text to token ids and back, piece by piece | [`Tokenizer`], [`TokenStream`] |
//! | messages of a conversation as one prompt | [`ChatTemplate`], [`Conversation`] |
//!
//! Requests that come and go while others run are in [`engine`].
//!
//! Encoder models that turn sentences into vectors are in [`embed`], and models that turn speech into text in [`speech`].
//!
//! With the feature `constrained`, answers follow a JSON schema, a regular expression or a grammar (`Constraint`).
//!
//! The provider is `amdgpu`. It is loaded from its plugin library, or by its older name inside ONNX Runtime
//! (`MIGraphX`). Without either, the model runs on the CPU, with a notice ([`ProviderRequest`]).
//!
//! ```no_run
//! use textgen::{Config, Generator, GeneratorOptions, Limits, Model, Runtime, TextStep};
//!
//! # fn main() -> textgen::Result<()> {
//! let runtime = Runtime::load("libonnxruntime.so".as_ref())?;
//! let mut config = Config::from_folder("models/llama".as_ref())?;
//! config.append_provider("amdgpu", [("device_id", "0")])?;
//! let model = Model::load(&runtime, &config)?;
//! let tokenizer = textgen::Tokenizer::from_folder(&config)?;
//! let mut generator = Generator::new(&model, GeneratorOptions::default())?;
//! generator.append(&tokenizer.encode("Once upon a time")?)?;
//! let limits = Limits { max_new_tokens: Some(64), ..Limits::default() };
//! let answer = textgen::generate_text(&mut generator, &tokenizer, &limits, |TextStep { text, .. }| print!("{text}"))?;
//! println!("\n{:?}", answer.finish);
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod cache;
mod cancel;
mod caught;
mod config;
#[cfg(feature = "constrained")]
mod constraint;
mod conversation;
mod cross;
pub mod embed;
mod embedding;
pub mod engine;
mod error;
mod feed;
#[allow(unsafe_code)]
mod ffi;
mod files;
mod generator;
mod growth;
mod mask_width;
mod model;
mod onnx_file;
mod paged;
mod provider;
mod runtime;
mod sampler;
mod sequence_feed;
pub mod speech;
mod states;
mod stop;
mod stream;
mod template;
mod text;
mod tokenizer;

pub use cancel::Canceller;
pub use config::{BlockSettings, Config, DeviceFilter, EncoderConfig, Names, ProviderRequest, Search, Windows};
#[cfg(feature = "constrained")]
pub use constraint::{Constraint, Form};
pub use conversation::{Conversation, Message};
pub use error::{Error, Result};
pub use ffi::with_trusted_options;
pub use files::open_regular;
pub use generator::{Finish, Generator, GeneratorOptions, PromptShape};
pub use model::Model;
pub use ort_client::HardwareKind;
pub use provider::{AMDGPU, Attached, Opened, normalise, open_session};
pub use runtime::Runtime;
pub use sampler::{Sampling, TokenFilter};
pub use stop::StopStrings;
pub use stream::TokenStream;
pub use template::ChatTemplate;
pub use text::{Answer, Limits, TextFinish, TextStep, generate_text};
pub use tokenizer::Tokenizer;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
