//! Tests operators on the device under test against references in plain loops: see `common/device.rs`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]
#[path = "../common/array.rs"]
mod array;
#[path = "../common/build.rs"]
mod build;
#[path = "../common/chain.rs"]
mod chain;
#[path = "../common/mod.rs"]
mod common;

mod activation;
mod arithmetic;
mod attention;
mod cast;
mod channel_norm;
mod channels_last;
mod coded_weights;
mod conv;
mod diffusion;
mod einsum;
mod epilogue;
mod experts;
mod fused_integer;
mod fused_linear;
mod grid_sample;
mod group_query_attention;
mod image_pieces;
mod indexing;
mod integer;
mod linear_attention;
mod loss;
mod matmul;
mod movement;
mod mrotary;
mod norm;
mod normed_nbits;
mod packed;
mod paged_attention;
mod pool;
mod qlinear;
mod quant_gather;
mod quant_matmul;
mod quantised_cache;
mod quantize;
mod recurrent;
mod reduce;
mod regions;
mod relative_bias;
mod resize;
mod search;
mod select;
mod softmax;
mod strided;
mod windowed_cache;
