//! A safe SDK for ONNX Runtime plugin execution providers.
mod element_type;
mod error;
mod memory;
mod runtime;
pub mod view;

pub use element_type::ElementType;
pub use error::{Error, ErrorCode, Result};
pub use memory::{DeviceKind, MemoryDevice, MemoryKind};
pub use runtime::Runtime;
