//! What the tests share. Development only: no shipped crate depends on it.
//!
//! * [`held`] keeps generated parts of the documents true.
//! * [`llm`] writes a model folder of ONNX Runtime GenAI, and says what the model should say.
//! * [`onnx`] writes ONNX models, so that a Rust test needs neither Python nor a model file.
//! * [`ort`] is a small client of ONNX Runtime's C API: register, session, run, copy, unregister.
//! * [`place`] finds what `cargo xtask setup` and `cargo xtask stage` made.

pub mod held;
pub mod llm;
pub mod onnx;
pub mod ort;
pub mod place;
