//! hipDNN's backend C ABI on the CPU.
//!
//! A graph of hipDNN's descriptors becomes a graph of the engine's operators (`lower`), which is planned once (`program`)
//! and runs in stream order of the host driver (`library`). The descriptors themselves are those of `hipdnn-abi`.
//!
//! Not offered, with `HIPDNN_STATUS_NOT_SUPPORTED` and a reason: serialised graphs and plans, block-scale quantisation,
//! custom operations, ragged tensors, the places of pooled maxima, attention backward, mixture-of-experts products.

mod library;
mod lower;
mod program;

hipdnn_abi::export!(crate::library::HOST);
