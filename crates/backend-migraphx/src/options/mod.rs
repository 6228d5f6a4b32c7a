//! What a session asks of the backend.
//!
//! Options are session-config entries `ep.migraphx.<key>`; under `ep.<registered name>.` the same keys are taken, and
//! others left alone, because the umbrella has options of its own there. Environment variables win, as they do in
//! AMD's own provider.
mod parse;
mod raw;
#[cfg(test)]
mod tests;

pub(crate) use raw::Raw;

use std::path::PathBuf;

use ::options::OptionsError;

/// Why the options of a session can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OptionError {
    /// An entry has an unknown key or a malformed value.
    #[error(transparent)]
    Entries(#[from] OptionsError),
    /// The value is not of the option's type.
    #[error("{origin} is {value:?}: expected {wanted}")]
    Value { origin: String, value: String, wanted: String },
    /// Two options exclude each other.
    #[error("{first} and {second} can't be used together")]
    Together { first: &'static str, second: &'static str },
}

/// The options of one session, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Where programs run: `gpu`, or `ref`, MIGraphX's interpreter on the CPU.
    pub target: String,
    /// The number of the device, where ONNX Runtime did not select one.
    pub device_id: usize,
    /// How numbers are narrowed before compiling.
    pub precision: Precision,
    /// Where compiled programs are kept.
    pub cache: CacheOptions,
    /// Tries many kernels while compiling.
    pub exhaustive_tune: bool,
    /// How hard MIGraphX optimises: 0, 50 or 100.
    pub compute_mode: Option<i32>,
    /// Operators for AMD's MLSS library.
    pub mlss_ops: Vec<String>,
    /// Whether MIGraphX copies tensors between host and GPU itself; by default where tensors lie in host memory.
    pub offload_copy: Option<bool>,
    /// Writes every partition as an ONNX file into the current folder.
    pub dump_subgraphs: bool,
    /// Replays a captured HIP graph instead of launching.
    pub hip_graph: bool,
    /// Leaves control flow to the CPU and takes its bodies.
    pub cpu_control_flow: bool,
    /// Batch sizes to compile for, ascending; empty if batches are not padded.
    pub batches: Vec<usize>,
    /// Compiles the next batch size in the background.
    pub background_compile: bool,
    /// Padding of sequences.
    pub static_pad: Option<StaticPad>,
    /// The most compiled programs a partition keeps in memory.
    pub max_programs: usize,
}

/// How numbers are narrowed before compiling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Precision {
    pub fp16: bool,
    pub bf16: bool,
    pub fp8: bool,
    pub int8: bool,
    /// The calibration table of int8 and fp8.
    pub calibration: Option<Calibration>,
}

/// A calibration table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calibration {
    /// Its file, relative to the cache's folder.
    pub table: String,
    /// True for MIGraphX's text format, false for ONNX Runtime's.
    pub native: bool,
}

/// Where compiled programs are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CacheOptions {
    /// The folder; none keeps nothing.
    pub folder: Option<PathBuf>,
    /// Keeps new programs.
    pub save: bool,
    /// Uses kept ones.
    pub load: bool,
    /// The most bytes to keep.
    pub max_bytes: u64,
}

/// Padding of sequences to one length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StaticPad {
    /// The length without an attention mask.
    pub length: usize,
    /// The length was set by the environment: it counts even with a mask.
    pub length_is_forced: bool,
    /// Inputs to pad and the axes they are padded on.
    pub inputs: Vec<(String, usize)>,
    /// Outputs to cut back.
    pub outputs: Vec<(String, usize)>,
}
