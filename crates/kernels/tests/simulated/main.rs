//! Tests kernels in the wave simulator, against the primitives of the host device or numbers in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]

mod append;
mod append_attention;
mod arg_reduce;
mod attention;
mod cached_attention;
mod common;
mod conv;
mod cumulative;
mod expr;
mod fused;
mod gather;
mod lrn;
mod map;
mod matmul;
mod norm;
mod pool;
mod quant;
mod recurrent;
mod reduce;
mod resize;
mod rotary;
mod rotary_append;
mod scatter;
mod softmax;
mod top_k;
