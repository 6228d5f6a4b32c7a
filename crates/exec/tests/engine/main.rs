//! Tests passes, plans, runs and both devices, as one program: linking takes longer than most of its tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#[path = "../common/build.rs"]
mod build;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/dnn.rs"]
mod dnn;
#[path = "../common/fickle.rs"]
mod fickle;
#[path = "../common/lookup.rs"]
mod lookup;

mod channels_last;
mod decoder_steps;
mod dnn_graphs;
mod dnn_streams;
mod folding;
mod fused_attention;
mod gated_products;
mod gpu_decoder;
mod gpu_dnn;
mod gpu_lacking;
mod gpu_runs;
mod gpu_sets;
mod gpu_stored;
mod gpu_tied;
mod gpu_tune;
mod guards;
mod hipdnn_steps;
mod last_rows;
mod merged_products;
mod passes;
mod scaled_products;
mod streams;
mod true_lengths;
