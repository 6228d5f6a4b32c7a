//! Constants of a partition: embedded in the model, or referenced in their external files.
use std::path::{Component, Path, PathBuf};

use ort_ep::view::{Tensor, ValueInfo};
use ort_ep::{Error, Result};

use super::proto;

/// Below this size, a reference would take about as much space as the data.
const SMALLEST_EXTERNAL_BYTES: usize = 1024;

/// Decides which constants stay in external files.
pub(super) struct Weights {
    folder: Option<PathBuf>,
    /// Bytes embedded in the model.
    pub inline_bytes: usize,
    /// Hashes the external data.
    pub outside: blake3::Hasher,
    /// True once a constant has been left in its file.
    pub any_outside: bool,
}

impl Weights {
    /// `folder` is the source model's folder; without one, every constant is embedded.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, inline_bytes: 0, outside: blake3::Hasher::new(), any_outside: false }
    }

    /// The folder that references are relative to, if there are any.
    pub fn folder(self) -> Option<PathBuf> {
        self.folder.filter(|_| self.any_outside)
    }

    /// Converts a constant, under its name in the graph.
    ///
    /// # Errors
    /// ONNX Runtime does not provide the data.
    pub fn constant(&mut self, value: ValueInfo<'_>) -> Result<proto::Tensor> {
        let name = value.name()?;
        let data = value
            .initializer()?
            .ok_or_else(|| Error::invalid_argument(format!("the constant {name:?} has no value")))?;
        let bytes = data.size_bytes()?;
        let reference = if bytes < SMALLEST_EXTERNAL_BYTES { None } else { self.reference(value, bytes)? };
        let mut tensor = match reference {
            Some(entries) => {
                // The reference only names the location. Hash the data too, so that a change invalidates the compiled
                // program.
                self.outside.update(data.bytes()?);
                self.any_outside = true;
                let location = proto::EXTERNAL;
                proto::Tensor { external_data: entries, data_location: location, ..describe(data)? }
            }
            None => self.inline(data)?,
        };
        tensor.name = name.to_owned();
        Ok(tensor)
    }

    /// Embeds a tensor with its data.
    ///
    /// # Errors
    /// The host cannot read the tensor.
    pub fn inline(&mut self, data: Tensor<'_>) -> Result<proto::Tensor> {
        let raw = data.bytes()?.to_vec();
        self.inline_bytes += raw.len();
        Ok(proto::Tensor { raw_data: Some(raw), ..describe(data)? })
    }

    /// Locates a constant in a file below the model's folder.
    ///
    /// MIGraphX reads these entries by position: location, offset, length.
    fn reference(&self, value: ValueInfo<'_>, bytes: usize) -> Result<Option<Vec<proto::Entry>>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let Some(place) = value.external_data()? else { return Ok(None) };
        let plain = place.path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let Some(location) = place.path.to_str().filter(|_| plain) else { return Ok(None) };
        if place.bytes != bytes || !holds(&folder.join(location), place.offset, bytes) {
            return Ok(None);
        }
        let entry = |key: &str, value: String| proto::Entry { key: key.to_owned(), value };
        Ok(Some(vec![
            entry("location", location.to_owned()),
            entry("offset", place.offset.to_string()),
            entry("length", bytes.to_string()),
        ]))
    }
}

/// True if the file exists and is long enough. ONNX Runtime also marks data in its own memory as external.
fn holds(file: &Path, offset: u64, bytes: usize) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.len() >= offset.saturating_add(bytes as u64))
}

fn describe(data: Tensor<'_>) -> Result<proto::Tensor> {
    let (dims, data_type) = (data.shape()?.to_vec(), data.element_type()?.to_raw());
    Ok(proto::Tensor { dims, data_type, ..proto::Tensor::default() })
}
