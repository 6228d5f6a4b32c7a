//! Saves partitions to EPContext nodes and loads them back.
use std::fmt::Display;
use std::path::Path;

use ort_ep::saved::{self, Blob, Save};
use ort_ep::view::{Node, ValueInfo};
use ort_ep::{EpContextNode, Error, FusedPartition, Result};

use super::read::read;
use super::write::write;
use super::{ARCH, VERSION};
use crate::convert;
use crate::record::Record;

/// Creates the node that represents a partition in the compiled model. Writes the partition's file, if it has one.
///
/// # Errors
/// The file has no path or cannot be written.
pub(crate) fn node(save: &Save, record: &Record, partition: &FusedPartition<'_>) -> Result<EpContextNode> {
    let bytes = write(record);
    let (name, len) = (partition.node.name()?, bytes.len());
    let blob = match save.file(partition)? {
        None => Blob::Embedded(bytes),
        Some(path) => {
            std::fs::write(&path, bytes).map_err(|error| {
                let path = path.display();
                Error::invalid_argument(format!("a partition could not be saved to {path}: {error}"))
            })?;
            Blob::File(path)
        }
    };
    let texts = [("ep_sdk_version", VERSION), ("hardware_architecture", ARCH), ("partition_name", name)];
    let node = blob.into_node(&texts)?;
    tracing::debug!(target: "amdgpu_ep::compile", partition = name, bytes = len, embedded = node.embedded, "saved");
    Ok(node)
}

/// True if a provider of this name saved the node.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(crate) fn is_ours(node: Node<'_>, name: &str) -> Result<bool> {
    Ok(saved::source(node)?.is_some_and(|source| source == name))
}

/// Loads the partition of a fused EPContext node, with inputs and outputs in the fused node's order. If the model has
/// no path, its files are in `folder`.
///
/// # Errors
/// A message that says what is wrong with the node or its blob.
pub(crate) fn load(partition: &FusedPartition<'_>, node: Node<'_>, folder: Option<&Path>) -> Result<Record> {
    let name = node.name()?;
    let wrong = |reason: &dyn Display| saved::unusable(name, reason);
    let blob = match Blob::of(partition, node, folder)? {
        Blob::Embedded(bytes) => bytes,
        Blob::File(path) => {
            std::fs::read(&path).map_err(|error| wrong(&format!("could not read {}: {error}", path.display())))?
        }
    };
    let mut record = read(&blob).map_err(|error| wrong(&error))?;
    let reorder = |what, saved: &[u32], inner: Vec<_>, fused: Vec<_>| {
        order(&record, what, saved, &names(&inner)?, &fused).map_err(|stop| match stop {
            Stop::Wrong(reason) => wrong(&reason),
            Stop::Failed(error) => error,
        })
    };
    let inputs = reorder("input", &record.inputs, node.inputs()?, partition.node.inputs()?)?;
    let outputs = reorder("output", &record.outputs, node.outputs()?, partition.node.outputs()?)?;
    (record.inputs, record.outputs) = (inputs, outputs);
    Ok(record)
}

enum Stop {
    Wrong(String),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn names<'a>(values: &[Option<ValueInfo<'a>>]) -> Result<Vec<&'a str>> {
    values.iter().map(|value| value.map_or(Ok(""), ValueInfo::name)).collect()
}

/// Maps the fused node's values to the saved ones. The saved node's values are in the order they were saved in, even if
/// they have been renamed since; ONNX Runtime may order the fused node's values differently. Element types are checked,
/// because memory is allocated for the model's types but used with the partition's.
fn order(
    record: &Record,
    what: &str,
    saved: &[u32],
    inner: &[&str],
    fused: &[Option<ValueInfo<'_>>],
) -> Result<Vec<u32>, Stop> {
    let wrong = |reason: String| Err(Stop::Wrong(reason));
    if saved.len() != inner.len() || saved.len() != fused.len() {
        let (node, fused) = (inner.len(), fused.len());
        return wrong(format!("it has {} {what}s, its node has {node}, and the session uses {fused}", saved.len()));
    }
    let mut ids = Vec::with_capacity(saved.len());
    for value in fused.iter().flatten() {
        let name = value.name()?;
        let Some(at) = inner.iter().position(|known| *known == name) else {
            return wrong(format!("its node has no {what} {name:?}"));
        };
        let Some(known) = record.values.get(saved[at] as usize) else {
            return wrong(format!(
                "{what} {at} refers to value {}, but there are only {}",
                saved[at],
                record.values.len()
            ));
        };
        match convert::value_dtype(*value)? {
            Ok(dtype) if dtype == known.dtype => ids.push(saved[at]),
            Ok(dtype) => return wrong(format!("{what} {name:?} is {dtype}, but was saved as {}", known.dtype)),
            Err(reason) => return wrong(reason.to_string()),
        }
    }
    if ids.len() != saved.len() {
        return wrong(format!("it has {} {what}s, but the session uses {}", saved.len(), ids.len()));
    }
    Ok(ids)
}
