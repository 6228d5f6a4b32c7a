//! The migraphx backend: AMD's MIGraphX, loaded at run time, as a plugin of ONNX Runtime.
//!
//! [`mgx`] is the library itself: its C functions, and the owned handles over them.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod mgx;
