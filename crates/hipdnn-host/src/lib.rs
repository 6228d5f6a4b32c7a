//! hipDNN's backend C ABI on the CPU.
//!
//! A graph of hipDNN's descriptors is lowered to a graph of the engine's operators (`lower`), which is planned once
//! (`host_graph`) and runs in stream order on the host driver (`library`). Crate `hipdnn-abi` implements the
//! descriptors themselves.
//!
//! Not supported, with `HIPDNN_STATUS_NOT_SUPPORTED` and a reason: custom operations (there are no plugins), ragged
//! tensors, six-bit floats, negative block scales, dropout, paged keys, scaled eight-bit attention, and experts with
//! gathered tokens.

mod format;
mod host_graph;
mod lacks;
mod library;
mod lower;
mod port;
mod run_error;

hipdnn_abi::export!(crate::library::HOST);
