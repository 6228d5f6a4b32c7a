//! Constants of a partition: in the model, or where they already lie.
use std::path::{Component, Path, PathBuf};

use ort_ep::{
    Error, Result,
    view::{Tensor, ValueInfo},
};

use super::proto;

/// Below this, a reference would take about as much as the data.
const SMALLEST_EXTERNAL_BYTES: usize = 1024;

/// Where constants may stay outside of the model.
pub(super) struct Weights {
    folder: Option<PathBuf>,
    /// Bytes written into the model.
    pub inline_bytes: usize,
    /// Stands for the data outside of the model.
    pub outside: blake3::Hasher,
    /// True once a constant stayed outside.
    pub any_outside: bool,
}

impl Weights {
    /// `folder` is the source model's; without one, every constant is written into the model.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, inline_bytes: 0, outside: blake3::Hasher::new(), any_outside: false }
    }

    /// The folder that references are relative to, if there are any.
    pub fn folder(self) -> Option<PathBuf> {
        self.folder.filter(|_| self.any_outside)
    }

    /// A constant under its name in the graph.
    ///
    /// # Errors
    /// ONNX Runtime does not give it.
    pub fn constant(&mut self, value: ValueInfo<'_>) -> Result<proto::Tensor> {
        let name = value.name()?;
        let data = value
            .initializer()?
            .ok_or_else(|| Error::invalid_argument(format!("the constant {name:?} has no value")))?;
        let bytes = data.size_bytes()?;
        let reference = if bytes < SMALLEST_EXTERNAL_BYTES { None } else { self.reference(value, bytes)? };
        let mut tensor = match reference {
            Some(entries) => {
                // The reference says where; the data itself says whether a compiled program still fits.
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

    /// A tensor with its data.
    ///
    /// # Errors
    /// The host can't read it.
    pub fn inline(&mut self, data: Tensor<'_>) -> Result<proto::Tensor> {
        let raw = data.bytes()?.to_vec();
        self.inline_bytes += raw.len();
        Ok(proto::Tensor { raw_data: Some(raw), ..describe(data)? })
    }

    /// The place of a constant that lies in a file below the model's folder.
    ///
    /// MIGraphX reads the entries by position: location, offset, length.
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

/// True for a file that is long enough. ONNX Runtime also marks data in its own memory as external.
fn holds(file: &Path, offset: u64, bytes: usize) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.len() >= offset.saturating_add(bytes as u64))
}

fn describe(data: Tensor<'_>) -> Result<proto::Tensor> {
    let (dims, data_type) = (data.shape()?.to_vec(), data.element_type()?.to_raw());
    Ok(proto::Tensor { dims, data_type, ..proto::Tensor::default() })
}
