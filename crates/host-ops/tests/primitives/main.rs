//! Runs primitives on the CPU and compares them with loops in double precision.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attention;
mod common;
mod conv;
mod decoder;
mod experts;
mod indexing;
mod map;
mod matmul;
mod normalise;
mod pool;
mod quant;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod state;
