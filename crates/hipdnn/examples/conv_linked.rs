//! The convolution of `conv_fprop_dynamic` with a hipDNN that the linker found (`-L` its folder, or `LIBRARY_PATH`).
//!
//! `cargo xtask test --only hipdnn-link` builds and runs it with our own library under hipDNN's name.

mod sample;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn::Linked;

fn main() -> ExitCode {
    sample::ended(convolve())
}

fn convolve() -> Result<(), Box<dyn Error>> {
    sample::run(&sample::driver()?, Arc::new(Linked::new()?))
}
