//! hipDNN's backend C ABI on the CPU.
//!
//! A graph of hipDNN's descriptors becomes a graph of the engine's operators (`lower`), which is planned once and runs in
//! stream order of the host driver. `table` says which attributes each kind of descriptor has; `registry` keeps
//! handles and descriptors by number, so that nothing a caller passes is trusted.
//!
//! Not offered, with `HIPDNN_STATUS_NOT_SUPPORTED` and a reason: serialised graphs and plans, block-scale quantisation,
//! custom operations, ragged tensors, the places of pooled maxima, attention backward, mixture-of-experts products.

pub mod abi;
mod descriptor;
mod engine;
mod fault;
mod lower;
mod program;
mod registry;
mod run;
mod table;
mod value;
