//! hipDNN's backend C ABI on the CPU.
//!
//! A graph of hipDNN's descriptors becomes a graph of the engine's operators (`lower`), which is planned once (`program`)
//! and runs in stream order of the host driver (`library`). The descriptors themselves are those of `hipdnn-abi`.
//!
//! Not offered, with `HIPDNN_STATUS_NOT_SUPPORTED` and a reason: custom operations (there are no plugins), ragged tensors,
//! six-bit floats, negative block scales, dropout, paged keys and scaled eight-bit attention, experts with gathered tokens.

mod format;
mod lacks;
mod library;
mod lower;
mod port;
mod program;
mod trouble;

hipdnn_abi::export!(crate::library::HOST);
