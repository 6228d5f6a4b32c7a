//! Tools: what clients offer, which calls a model makes, and how both are written in the formats of model families.

mod format;
mod harmony;
mod parser;
mod request;
#[cfg(test)]
mod tests;

pub use format::{Format, Markers};
pub use parser::{Delta, OutputParser};
pub use request::Tools;
