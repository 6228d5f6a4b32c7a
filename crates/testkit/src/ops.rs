//! Cases of operators that several crates test, with results in 64-bit floats by the operator's definition.
//!
//! A case says which primitive runs on which shapes, and computes the expected elements from the elements of its inputs
//! with plain loops. The tests of a crate choose types and layouts, make a [`Sample`] and run it their own way: on the
//! CPU (`host-ops`) or in the wave simulator (`kernels`).

pub mod append;
pub mod append_attention;
pub mod attention;
pub mod cached_attention;
pub mod conv;
pub mod definition;
pub mod experts;
pub mod indexing;
pub mod map;
pub mod matmul;
pub mod normalise;
pub mod paged;
pub mod pool;
pub mod quant;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod retain;
pub mod rotary;
mod sample;
pub mod state;
mod values;
mod view;

pub use sample::{Memory, Sample};
pub use values::{compare, ints, is_close, list, noise, random, random_indices, random_ints, round_numbers, tensor};
pub use view::{
    ARRANGEMENTS, Arrangement, channels_last, dense, flat, gather, indices, places, reversed, room, scatter, spread,
    strided,
};
