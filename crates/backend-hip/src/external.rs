//! Maps constants stored in external files: nothing is copied until a device needs it.
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use graph::Tensor;
use memmap2::Mmap;
use ort_ep::Result;
use ort_ep::view::{ExternalData, Graph, Tensor as TensorView, ValueInfo};

use crate::{convert, ffi};

/// Smaller constants are copied: sessions on a GPU keep them for later plans.
const SMALLEST_BYTES: usize = 64 << 10;

/// The external data files of a model.
pub(crate) struct ExternalFiles {
    folder: Option<PathBuf>,
    /// Files that could not be mapped are stored as `None` and not tried again.
    maps: HashMap<PathBuf, Option<Arc<Mmap>>>,
}

impl ExternalFiles {
    /// The files of the model that a graph belongs to; empty if the model has no path.
    pub fn of(graph: Graph<'_>) -> Result<Self> {
        let folder = graph.model_path()?.and_then(|path| Some(path.parent()?.to_owned()));
        Ok(Self { folder, maps: HashMap::new() })
    }

    /// A constant, mapped from its file. `None` if it is small, unaligned or not in a file, or if the file's contents
    /// differ from what ONNX Runtime has. ONNX Runtime (1.24 to 1.31) names no file if a caller replaced the data,
    /// but comparing the bytes costs less than relying on that.
    pub fn tensor(&mut self, value: ValueInfo<'_>, view: TensorView<'_>) -> Result<Option<Tensor>> {
        let bytes = view.size_bytes()?;
        if self.folder.is_none() || bytes < SMALLEST_BYTES {
            return Ok(None);
        }
        let Some(dtype) = convert::dtype(view.element_type()?) else { return Ok(None) };
        let Some(shape) = convert::extents(view)? else { return Ok(None) };
        let Some(place) = value.external_data()?.filter(|place| place.bytes == bytes) else { return Ok(None) };
        let given = view.bytes()?;
        let part = self.part(&place).filter(|part| part.as_ref() == given);
        Ok(part.and_then(|part| Tensor::lent(dtype, &shape, Box::new(part))))
    }

    fn part(&mut self, place: &ExternalData) -> Option<MappedRange> {
        let is_below = place.path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        let file = self.folder.as_ref().filter(|_| is_below)?.join(&place.path);
        let map = self.maps.entry(file).or_insert_with_key(|file| map(file)).clone()?;
        let start = usize::try_from(place.offset).ok()?;
        let range = start..start.checked_add(place.bytes)?;
        (range.end <= map.len()).then_some(MappedRange { map, range })
    }
}

fn map(file: &Path) -> Option<Arc<Mmap>> {
    // Opening a pipe would block until there is a writer.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let map = ffi::map(file).inspect_err(|error| {
        tracing::debug!(target: "amdgpu_ep::memory", "{} is copied, because mapping it failed: {error}", file.display());
    });
    Some(Arc::new(map.ok()?))
}

/// A part of a mapped file.
struct MappedRange {
    map: Arc<Mmap>,
    range: Range<usize>,
}

impl AsRef<[u8]> for MappedRange {
    fn as_ref(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use graph::DType;

    use super::*;

    fn files(folder: &Path) -> ExternalFiles {
        ExternalFiles { folder: Some(folder.to_owned()), maps: HashMap::new() }
    }

    fn place(path: &str, offset: u64, bytes: usize) -> ExternalData {
        ExternalData { path: path.into(), offset, bytes }
    }

    #[test]
    fn parts_are_read_in_place_even_after_the_file_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<u8> = (0..=255).collect();
        std::fs::write(folder.path().join("data"), &contents).unwrap();
        let mut files = files(folder.path());
        let part = files.part(&place("data", 16, 64)).unwrap();
        std::fs::remove_file(folder.path().join("data")).unwrap();
        let tensor = Tensor::lent(DType::F32, &[4, 4], Box::new(part)).unwrap();
        assert_eq!(tensor.bytes(), &contents[16..80]);
        assert_eq!(files.part(&place("data", 0, 256)).unwrap().as_ref(), contents);
    }

    #[test]
    fn misaligned_data_and_data_outside_the_file_or_folder_is_not_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("model");
        std::fs::create_dir(&inner).unwrap();
        for file in [inner.join("data"), folder.path().join("data")] {
            std::fs::write(file, [7; 256]).unwrap();
        }
        let mut files = files(&inner);
        for (offset, elems) in [(4, 4), (16, 5)] {
            let part = files.part(&place("data", offset, 16)).unwrap();
            assert!(Tensor::lent(DType::F32, &[elems], Box::new(part)).is_none());
        }
        let outside = folder.path().join("data");
        let bad = [("data", 241, 16), ("data", u64::MAX, 16), ("../data", 0, 16), ("none", 0, 16), (".", 0, 16)];
        for (path, offset, bytes) in bad.into_iter().chain([(outside.to_str().unwrap(), 0, 16)]) {
            assert!(files.part(&place(path, offset, bytes)).is_none(), "{path}");
        }
    }
}
