//! Code shared by the tests. Development only: no shipped crate depends on it.
//!
//! * [`generated`] checks the generated parts of the documents.
//! * [`llm`] writes a model folder of ONNX Runtime GenAI, and computes the expected output.
//! * [`onnx`] writes ONNX models, so that a Rust test needs neither Python nor a model file.
//! * [`ops`] has cases of operators and their results in 64-bit floats.
//! * [`part`] selects the part of a long suite that is due.
//! * [`place`] finds the outputs of `cargo xtask setup` and `cargo xtask stage`.

pub mod generated;
pub mod llm;
pub mod onnx;
pub mod ops;
pub mod part;
pub mod place;
