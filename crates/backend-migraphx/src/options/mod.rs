//! The options of a session.
//!
//! Options are session-config entries `ep.migraphx.<key>`. The same keys are accepted under `ep.<registered name>.`;
//! other keys there are ignored, because they are the umbrella's options. Environment variables take precedence, as in
//! AMD's own provider.
mod parse;
mod raw;
#[cfg(test)]
mod tests;

pub(crate) use raw::Raw;

use std::path::PathBuf;

use ::options::OptionsError;

/// Why a session's options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OptionError {
    /// An entry has an unknown key or a malformed value.
    #[error(transparent)]
    Entries(#[from] OptionsError),
    /// The value has the wrong type.
    #[error("{origin} is {value:?}: expected {wanted}")]
    Value { origin: String, value: String, wanted: String },
    /// Two options are mutually exclusive.
    #[error("{first} and {second} cannot be used together")]
    Together { first: &'static str, second: &'static str },
}

/// The validated options of one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Where programs run: `gpu`, or `ref`, MIGraphX's CPU interpreter.
    pub target: String,
    /// The device id, if ONNX Runtime did not select a device.
    pub device_id: usize,
    /// The reduced precision to quantise to before compiling.
    pub precision: Precision,
    /// Where compiled programs are cached.
    pub cache: CacheOptions,
    /// Tries many kernels during compilation.
    pub exhaustive_tune: bool,
    /// MIGraphX's optimisation level: 0, 50 or 100.
    pub compute_mode: Option<i32>,
    /// Operators for AMD's MLSS library.
    pub mlss_ops: Vec<String>,
    /// Whether MIGraphX copies tensors between host and GPU itself; by default, if tensors are in host memory.
    pub offload_copy: Option<bool>,
    /// Writes every partition as an ONNX file to the current folder.
    pub dump_subgraphs: bool,
    /// Replays a captured HIP graph instead of launching kernels one by one.
    pub hip_graph: bool,
    /// Leaves control-flow nodes to the CPU, and takes the nodes in their bodies.
    pub cpu_control_flow: bool,
    /// Batch sizes to compile for, ascending; empty if batches are not padded.
    pub batches: Vec<usize>,
    /// Compiles the next batch size in the background.
    pub background_compile: bool,
    /// Padding of sequences.
    pub static_pad: Option<StaticPad>,
    /// The maximum number of compiled programs that a partition keeps in memory.
    pub max_programs: usize,
}

/// The reduced precision to quantise to before compiling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Precision {
    pub fp16: bool,
    pub bf16: bool,
    pub fp8: bool,
    pub int8: bool,
    /// The calibration table for int8 and fp8.
    pub calibration: Option<Calibration>,
}

/// A calibration table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calibration {
    /// The file, relative to the cache folder.
    pub table: String,
    /// True for MIGraphX's text format, false for ONNX Runtime's.
    pub native: bool,
}

/// Where compiled programs are cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheOptions {
    /// The folder; `None` disables the cache.
    pub folder: Option<PathBuf>,
    /// Saves new programs.
    pub save: bool,
    /// Loads saved programs.
    pub load: bool,
    /// The maximum size in bytes.
    pub max_bytes: u64,
}

/// Padding of sequences to a fixed length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaticPad {
    /// The length to use without an attention mask.
    pub length: usize,
    /// True if the length was set by the environment and so applies even with a mask.
    pub length_is_forced: bool,
    /// Inputs to pad, each with its axis.
    pub inputs: Vec<(String, usize)>,
    /// Outputs to trim, each with its axis.
    pub outputs: Vec<(String, usize)>,
}
