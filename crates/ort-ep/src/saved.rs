//! Partitions saved in a compiled model: its EPContext nodes, and the files next to it that they refer to.
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::view::{AttributeValue, Node};
use crate::{EpContextNode, Error, ErrorCode, FusedPartition, Result, beside};

/// ONNX files are limited to two gigabytes.
const LARGEST_EMBEDDED_BYTES: usize = i32::MAX as usize - (1 << 20);
/// The session entry with the path of the compiled model.
const MODEL_ENTRY: &str = "ep.context_file_path";

/// How the partitions of a session are saved.
#[derive(Debug)]
pub struct Save {
    embedded: bool,
    /// The path of the compiled model, if the configuration names it.
    model: Option<PathBuf>,
    /// True if an application compiles the model and chooses where the result goes, which may not be a file.
    elsewhere: bool,
    /// How many partitions were written to files.
    files: AtomicUsize,
    extension: &'static str,
}

impl Save {
    /// Reads the session's configuration. Returns `None` if nothing is to be saved, unless saving is `forced`. Files
    /// get this extension.
    ///
    /// # Errors
    /// An entry has a value that ONNX Runtime does not document.
    pub fn from_entries(
        entries: &BTreeMap<String, String>,
        extension: &'static str,
        forced: bool,
    ) -> Result<Option<Self>> {
        let flag = |key: &str| match entries.get(key).map(String::as_str) {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Error::invalid_argument(format!("{key} is {other:?}, expected 0 or 1"))),
        };
        if !flag("ep.context_enable")? && !forced {
            return Ok(None);
        }
        Ok(Some(Self {
            embedded: flag("ep.context_embed_mode")?,
            model: entries.get(MODEL_ENTRY).filter(|path| !path.is_empty()).map(PathBuf::from),
            // These entries show that ONNX Runtime's model compiler is running; 1.24 sets only the second.
            elsewhere: entries.get("session.compile_only").is_some_and(|on| on == "1")
                || entries.contains_key("session.disable_model_compile"),
            files: AtomicUsize::new(0),
            extension,
        }))
    }

    /// The file to write the next partition to; `None` if the nodes embed their blobs.
    ///
    /// # Errors
    /// The path of the compiled model is not known.
    pub fn file(&self, partition: &FusedPartition<'_>) -> Result<Option<PathBuf>> {
        if self.embedded { Ok(None) } else { self.next_file(partition.graph.model_path()?).map(Some) }
    }

    /// The file of the next partition: next to the compiled model, which ONNX Runtime puts next to its source by
    /// default.
    fn next_file(&self, source: Option<PathBuf>) -> Result<PathBuf> {
        let (model, suffix) = match (&self.model, source) {
            (Some(model), _) => (model.clone(), ""),
            (None, Some(source)) if !self.elsewhere => (source, "_ctx"),
            _ => {
                return Err(Error::invalid_argument(
                    "cannot write the files of a compiled model: the path of the compiled model is not known\n  help: set ep.context_file_path to the compiled model, or ep.context_embed_mode to 1",
                ));
            }
        };
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let stem = model.file_stem().unwrap_or_default().to_string_lossy();
        Ok(model.with_file_name(format!("{stem}{suffix}_{number}.{}", self.extension)))
    }
}

/// The folder of the compiled model that the session's configuration names, for models without a path.
pub fn folder(entries: &BTreeMap<String, String>) -> Option<PathBuf> {
    entries.get(MODEL_ENTRY).map(Path::new).and_then(Path::parent).map(Path::to_owned)
}

/// The provider that saved the partition in a node; `None` for other nodes, and `""` if the node does not say.
///
/// # Errors
/// ONNX Runtime could not describe the node.
pub fn source(node: Node<'_>) -> Result<Option<String>> {
    if node.op_type()? != "EPContext" || node.domain()? != "com.microsoft" {
        return Ok(None);
    }
    Ok(Some(node.string("source")?.unwrap_or_default()))
}

/// The location of a saved partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blob {
    /// In the node.
    Embedded(Vec<u8>),
    /// In a file next to the model.
    File(PathBuf),
}

impl Blob {
    /// The blob of an EPContext node, or the file it names. Models without a path have their files in `folder`.
    ///
    /// # Errors
    /// A message that says what is wrong with the node.
    pub fn of(partition: &FusedPartition<'_>, node: Node<'_>, folder: Option<&Path>) -> Result<Self> {
        let name = node.name()?;
        let wrong = |reason: &dyn Display| unusable(name, reason);
        let attribute = node.attribute("ep_cache_context")?.ok_or_else(|| wrong(&"it has no ep_cache_context"))?;
        let AttributeValue::String(context) = attribute.value()? else {
            return Err(wrong(&"its ep_cache_context is not a string"));
        };
        match node.int("embed_mode")?.unwrap_or(1) {
            1 => Ok(Self::Embedded(context)),
            0 => {
                let file = String::from_utf8(context).map_err(|_| wrong(&"its file name is not UTF-8"))?;
                let model = partition.graph.model_path()?;
                let parent = model.as_deref().and_then(Path::parent).or(folder).ok_or_else(|| {
                    wrong(&format!(
                        "it is in the file {file:?}, but the model has no folder\n  help: load the model by its path, or set ep.context_file_path to it"
                    ))
                })?;
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                Ok(Self::File(beside::resolve(parent, &file)?))
            }
            other => Err(wrong(&format!("its embed_mode is {other}, expected 0 or 1"))),
        }
    }

    /// The node that replaces the partition in the compiled model.
    ///
    /// # Errors
    /// The blob is too large for a node.
    pub fn into_node(self, texts: &[(&str, &str)]) -> Result<EpContextNode> {
        let (context, embedded) = match self {
            Self::Embedded(blob) if blob.len() > LARGEST_EMBEDDED_BYTES => {
                return Err(Error::invalid_argument(format!(
                    "a partition of {} bytes is too large for an ONNX file\n  help: set ep.context_embed_mode to 0",
                    blob.len()
                )));
            }
            Self::Embedded(blob) => (blob, true),
            Self::File(path) => {
                (path.file_name().unwrap_or_default().to_string_lossy().into_owned().into_bytes(), false)
            }
        };
        let texts = texts.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        Ok(EpContextNode { context, embedded, main: true, texts })
    }
}

/// The error for a saved partition that cannot be used; `name` is its node's name.
pub fn unusable(name: &str, reason: &dyn Display) -> Error {
    Error::new(ErrorCode::InvalidGraph, format!("the saved partition {name:?} cannot be used: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn save(pairs: &[(&str, &str)]) -> Result<Option<Save>> {
        Save::from_entries(&entries(pairs), "ctx", false)
    }

    #[test]
    fn nothing_is_saved_unless_asked_for() {
        assert!(save(&[]).unwrap().is_none());
        assert!(save(&[("ep.context_enable", "0"), ("ep.context_embed_mode", "1")]).unwrap().is_none());
        assert!(save(&[("ep.context_enable", "yes")]).is_err());
        assert!(Save::from_entries(&entries(&[]), "ctx", true).unwrap().is_some());
    }

    #[test]
    fn files_are_beside_the_compiled_model() {
        let on = ("ep.context_enable", "1");
        let source = || Some(PathBuf::from("models/net.onnx"));
        let named = save(&[on, ("ep.context_file_path", "out/small.onnx")]).unwrap().unwrap();
        assert_eq!(named.next_file(source()).unwrap(), Path::new("out/small_0.ctx"));
        assert_eq!(named.next_file(None).unwrap(), Path::new("out/small_1.ctx"));
        let beside = save(&[on]).unwrap().unwrap();
        assert_eq!(beside.next_file(source()).unwrap(), Path::new("models/net_ctx_0.ctx"));
        assert!(beside.next_file(None).unwrap_err().message().contains("help: set ep.context_file_path"));
        for mark in [("session.compile_only", "1"), ("session.disable_model_compile", "0")] {
            let compiler = save(&[on, mark]).unwrap().unwrap();
            assert!(compiler.next_file(source()).is_err(), "{mark:?}");
        }
    }

    #[test]
    fn nodes_name_files_by_the_name_alone() {
        let node = Blob::File("out/small_0.ctx".into()).into_node(&[("notes", "none")]).unwrap();
        assert_eq!((&*node.context, node.embedded), (&b"small_0.ctx"[..], false));
        assert_eq!(node.texts, [("notes".to_owned(), "none".to_owned())]);
        let node = Blob::Embedded(b"blob".to_vec()).into_node(&[]).unwrap();
        assert_eq!((&*node.context, node.embedded), (&b"blob"[..], true));
    }

    #[test]
    fn the_folder_is_the_named_models() {
        assert_eq!(folder(&entries(&[])), None);
        assert_eq!(folder(&entries(&[("ep.context_file_path", "out/small.onnx")])), Some("out".into()));
    }
}
