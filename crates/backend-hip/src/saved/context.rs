//! EPContext nodes: partitions go out and come back.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use ort_ep::{
    EpContextNode, Error, ErrorCode, FusedPartition, Result, beside,
    view::{AttributeValue, Node, ValueInfo},
};

use super::{ARCH, VERSION, read::read, write::write};
use crate::{convert, record::Record};

/// ONNX files end at two gigabytes.
const LARGEST_EMBEDDED_BYTES: usize = i32::MAX as usize - (1 << 20);

/// How the partitions of a session are saved.
pub(crate) struct Save {
    embedded: bool,
    /// The compiled model, if its place is known before the session is.
    model: Option<PathBuf>,
    /// True if an application makes the compiled model, which then lies where it was told, or nowhere.
    elsewhere: bool,
    /// How many partitions went into files.
    files: AtomicUsize,
}

impl Save {
    /// What the session's configuration asks for; `None` if nothing is saved.
    ///
    /// # Errors
    /// An entry has a value that ONNX Runtime does not document.
    pub fn from_entries(entries: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let flag = |key: &str| match entries.get(key).map(String::as_str) {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Error::invalid_argument(format!("{key} is {other:?}, and should be 0 or 1"))),
        };
        if !flag("ep.context_enable")? {
            return Ok(None);
        }
        Ok(Some(Self {
            embedded: flag("ep.context_embed_mode")?,
            model: entries.get("ep.context_file_path").filter(|path| !path.is_empty()).map(PathBuf::from),
            // ONNX Runtime's compiler is known by these; 1.24 sets the second only.
            elsewhere: entries.get("session.compile_only").is_some_and(|on| on == "1")
                || entries.contains_key("session.disable_model_compile"),
            files: AtomicUsize::new(0),
        }))
    }

    /// The node that stands for a partition in the compiled model; writes its file, if it has one.
    ///
    /// # Errors
    /// There is no place for the file.
    pub fn node(&self, record: &Record, partition: &FusedPartition<'_>) -> Result<EpContextNode> {
        let blob = write(record);
        let bytes = blob.len();
        let context = if self.embedded {
            if bytes > LARGEST_EMBEDDED_BYTES {
                return Err(Error::invalid_argument(format!(
                    "a partition of {bytes} bytes is too large for an ONNX file\n  help: set ep.context_embed_mode to 0"
                )));
            }
            blob
        } else {
            let path = self.file(partition.graph.model_path()?)?;
            std::fs::write(&path, blob).map_err(|error| {
                let path = path.display();
                Error::invalid_argument(format!("a partition could not be saved to {path}: {error}"))
            })?;
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned().into_bytes()
        };
        let name = partition.node.name()?;
        tracing::debug!(target: "amdgpu_ep::compile", partition = name, bytes, embedded = self.embedded, "saved");
        let texts = [("ep_sdk_version", VERSION), ("hardware_architecture", ARCH), ("partition_name", name)];
        Ok(EpContextNode {
            context,
            embedded: self.embedded,
            main: true,
            texts: texts.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        })
    }

    /// The file of the next partition: beside the compiled model, which ONNX Runtime puts beside its source by default.
    fn file(&self, source: Option<PathBuf>) -> Result<PathBuf> {
        let (model, suffix) = match (&self.model, source) {
            (Some(model), _) => (model.clone(), ""),
            (None, Some(source)) if !self.elsewhere => (source, "_ctx"),
            _ => {
                return Err(Error::invalid_argument(
                    "there is no place for the files of a compiled model: where it goes is not known\n  help: set ep.context_file_path to the compiled model, or ep.context_embed_mode to 1",
                ));
            }
        };
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let stem = model.file_stem().unwrap_or_default().to_string_lossy();
        Ok(model.with_file_name(format!("{stem}{suffix}_{number}.hipctx")))
    }
}

/// Who saved the partition behind a node; `None` for other nodes, and `""` if it does not say.
///
/// # Errors
/// ONNX Runtime refused to describe it.
pub(crate) fn source(node: Node<'_>) -> Result<Option<String>> {
    if node.op_type()? != "EPContext" || node.domain()? != "com.microsoft" {
        return Ok(None);
    }
    Ok(Some(node.string("source")?.unwrap_or_default()))
}

/// True for nodes that a provider of this name saved.
///
/// # Errors
/// ONNX Runtime refused to describe it.
pub(crate) fn is_ours(node: Node<'_>, name: &str) -> Result<bool> {
    Ok(source(node)?.is_some_and(|source| source == name))
}

/// The partition behind a fused EPContext node, with inputs and outputs in the fused node's order. Models without a path
/// have their files in `folder`.
///
/// # Errors
/// A sentence that says what is wrong with the node or its blob.
pub(crate) fn load(partition: &FusedPartition<'_>, node: Node<'_>, folder: Option<&Path>) -> Result<Record> {
    let name = node.name()?;
    let wrong = |reason: &dyn std::fmt::Display| {
        Error::new(ErrorCode::InvalidGraph, format!("the saved partition {name:?} can't be used: {reason}"))
    };
    let attribute = node.attribute("ep_cache_context")?.ok_or_else(|| wrong(&"it has no ep_cache_context"))?;
    let AttributeValue::String(context) = attribute.value()? else {
        return Err(wrong(&"its ep_cache_context is no string"));
    };
    let blob = match node.int("embed_mode")?.unwrap_or(1) {
        1 => context,
        0 => {
            let file = String::from_utf8(context).map_err(|_| wrong(&"its file's name is not UTF-8"))?;
            let model = partition.graph.model_path()?;
            let parent = model.as_deref().and_then(Path::parent).or(folder);
            let parent = parent.ok_or_else(|| {
                wrong(&format!(
                    "it is in the file {file:?}, and the model has no folder\n  help: load the model by its path, or set ep.context_file_path to it"
                ))
            })?;
            let path = beside::resolve(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, &file)?;
            std::fs::read(&path).map_err(|error| wrong(&format!("{} can't be read: {error}", path.display())))?
        }
        other => return Err(wrong(&format!("its embed_mode is {other}, and should be 0 or 1"))),
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

/// The saved values behind the fused node's values. The saved node's values are in the order they were saved in, whatever
/// they are called now; ONNX Runtime orders the fused node's as it likes. Element types are checked, since memory is made
/// by what the model says, and used by what the partition says.
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
        return wrong(format!("it has {} {what}s, its node {node}, and {fused} are used", saved.len()));
    }
    let mut ids = Vec::with_capacity(saved.len());
    for value in fused.iter().flatten() {
        let name = value.name()?;
        let Some(at) = inner.iter().position(|known| *known == name) else {
            return wrong(format!("{what} {name:?} is not one of its node's"));
        };
        let Some(known) = record.values.get(saved[at] as usize) else {
            return wrong(format!("{what} {at} is value {} of {}", saved[at], record.values.len()));
        };
        match convert::value_dtype(*value)? {
            Ok(dtype) if dtype == known.dtype => ids.push(saved[at]),
            Ok(dtype) => return wrong(format!("{what} {name:?} is {dtype}, and was saved as {}", known.dtype)),
            Err(reason) => return wrong(reason.to_string()),
        }
    }
    if ids.len() != saved.len() {
        return wrong(format!("it has {} {what}s, and {} are used", saved.len(), ids.len()));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(entries: &[(&str, &str)]) -> Result<Option<Save>> {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Save::from_entries(&entries.collect())
    }

    #[test]
    fn nothing_is_saved_unless_asked_for() {
        assert!(save(&[]).unwrap().is_none());
        assert!(save(&[("ep.context_enable", "0"), ("ep.context_embed_mode", "1")]).unwrap().is_none());
        assert!(save(&[("ep.context_enable", "yes")]).is_err());
    }

    #[test]
    fn files_lie_beside_the_compiled_model() {
        let on = ("ep.context_enable", "1");
        let source = || Some(PathBuf::from("models/net.onnx"));
        let named = save(&[on, ("ep.context_file_path", "out/small.onnx")]).unwrap().unwrap();
        assert_eq!(named.file(source()).unwrap(), Path::new("out/small_0.hipctx"));
        assert_eq!(named.file(None).unwrap(), Path::new("out/small_1.hipctx"));
        let beside = save(&[on]).unwrap().unwrap();
        assert_eq!(beside.file(source()).unwrap(), Path::new("models/net_ctx_0.hipctx"));
        assert!(beside.file(None).unwrap_err().message().contains("help: set ep.context_file_path"));
        for mark in [("session.compile_only", "1"), ("session.disable_model_compile", "0")] {
            let compiler = save(&[on, mark]).unwrap().unwrap();
            assert!(compiler.file(source()).is_err(), "{mark:?}");
        }
    }
}
