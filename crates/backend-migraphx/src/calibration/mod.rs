//! Calibration tables: use recorded value ranges to run a model with 8-bit arithmetic in MIGraphX.
//!
//! MIGraphX calibrates by running samples, which a session does not have. AMD's own provider passes the table's numbers
//! as if they were samples, and so calibrates on uninitialised memory. Here the ranges are written into the model, as
//! pairs of `QuantizeLinear` and `DequantizeLinear` around the inputs of convolutions and matrix products. MIGraphX
//! turns those into integer arithmetic.
mod rewrite;
mod table;

pub(crate) use rewrite::{Narrow, rewrite};
pub(crate) use table::Ranges;

use std::path::PathBuf;

/// Why a table or its model cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CalibrationError {
    /// The file cannot be read.
    #[error("could not read the calibration table {}: {reason}", .file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// The file is not a calibration table.
    #[error("{} is not a calibration table: {reason}", .file.display())]
    Broken { file: PathBuf, reason: &'static str },
    /// The operator pairs cannot be inserted into this model.
    #[error("{0}")]
    Model(String),
}
