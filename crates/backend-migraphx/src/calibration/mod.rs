//! Calibration tables: from the ranges of values to a model that MIGraphX runs with eight bits.
//!
//! MIGraphX calibrates by running samples, which a session does not have. AMD's own provider hands it the table's numbers
//! as if they were samples, and calibrates on memory that nobody wrote. Here the ranges go into the model, as pairs of
//! `QuantizeLinear` and `DequantizeLinear` around what enters a convolution or a matrix product: MIGraphX makes integer
//! arithmetic of those.
mod rewrite;
mod table;

pub(crate) use rewrite::{Narrow, rewrite};
pub(crate) use table::Ranges;

use std::path::PathBuf;

/// Why a table, or the model it is for, can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CalibrationError {
    /// The file is not there.
    #[error("the calibration table {} can't be read: {reason}", .file.display())]
    Unreadable { file: PathBuf, reason: String },
    /// The file is something else.
    #[error("{} is no calibration table: {reason}", .file.display())]
    Broken { file: PathBuf, reason: &'static str },
    /// Pairs of these operators can't be written into this model.
    #[error("{0}")]
    Model(String),
}
