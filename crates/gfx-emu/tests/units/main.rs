//! Parts of the emulator, one by one.
//!
//! They are here and not beside the code because the library takes long to compile, and tests beside the code would
//! compile it a second time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod effects;
mod float;
mod floats;
mod integers;
mod lanes;
mod machine;
mod matrix;
mod memory;
mod scalars;
mod tables;
mod text;
