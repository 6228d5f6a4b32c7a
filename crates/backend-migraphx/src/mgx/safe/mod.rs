//! The top layer: owned libraries, targets, programs and results.

mod handle;
mod library;
mod operators;
mod options;
mod program;
mod results;
mod saved;
mod shape;
mod types;

pub use library::{Library, Target};
pub use options::{CompileOptions, ParseOptions, Quantize, Sample};
pub use program::{Parameter, Program, Role};
pub use results::Results;
pub use saved::SavedHeader;
pub use shape::Shape;
