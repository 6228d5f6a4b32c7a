//! Partitions saved in a compiled model, and read back.
//!
//! ONNX Runtime keeps a compiled partition as an `EPContext` node that holds a program (`.mxr`) or names its file beside
//! the model. Nodes that AMD's own provider saved are read too.
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use ort_ep::{
    EpContextNode, Error, ErrorCode, FusedPartition, ModelCompatibility, Result, beside,
    view::{AttributeValue, Node},
};

use crate::{
    mgx::{Program, SavedHeader, Version},
    toolchain::Toolchain,
};

/// The name under which AMD's provider saves.
const AMD_SOURCE: &str = "MIGraphXExecutionProvider";
/// What compatibility texts of this library start with.
const OWNER: &str = "migraphx-backend";
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
    pub fn from_entries(entries: &BTreeMap<String, String>, forced: bool) -> Result<Option<Self>> {
        let flag = |key: &str| match entries.get(key).map(String::as_str) {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(Error::invalid_argument(format!("{key} is {other:?}, and should be 0 or 1"))),
        };
        if !flag("ep.context_enable")? && !forced {
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
    /// There is no place for the file, or MIGraphX can't save the program.
    pub fn node(&self, program: &Program, partition: &FusedPartition<'_>, tools: &Toolchain) -> Result<EpContextNode> {
        let failed = |error: &dyn std::fmt::Display| Error::ep_fail(format!("a partition could not be saved: {error}"));
        let context = if self.embedded {
            let bytes = program.save_bytes().map_err(|error| failed(&error))?;
            if bytes.len() > LARGEST_EMBEDDED_BYTES {
                return Err(Error::invalid_argument(format!(
                    "a program of {} bytes is too large for an ONNX file\n  help: set ep.context_embed_mode to 0",
                    bytes.len()
                )));
            }
            bytes
        } else {
            let path = self.file(partition.graph.model_path()?)?;
            program.save(&path).map_err(|error| failed(&error))?;
            path.file_name().unwrap_or_default().to_string_lossy().into_owned().into_bytes()
        };
        let version = tools.library.version().map_or_else(String::new, |version| version.to_string());
        let model = partition.graph.model_path()?;
        let model = model.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let texts = [
            ("ep_sdk_version", version),
            ("hardware_architecture", tools.arch.clone()),
            ("partition_name", partition.node.name()?.to_owned()),
            ("onnx_model_filename", model),
            ("notes", format!("target={}", tools.target.name())),
        ];
        let texts = texts.map(|(name, text)| (name.to_owned(), text)).into();
        Ok(EpContextNode { context, embedded: self.embedded, main: true, texts })
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
        Ok(model.with_file_name(format!("{stem}{suffix}_{number}.mxr")))
    }
}

/// True for nodes that a provider of this name saved, or AMD's, or one that left no name.
///
/// # Errors
/// ONNX Runtime refused to describe it.
pub(crate) fn is_ours(node: Node<'_>, name: &str) -> Result<bool> {
    if node.op_type()? != "EPContext" || node.domain()? != "com.microsoft" {
        return Ok(false);
    }
    let source = node.string("source")?.unwrap_or_default();
    Ok(source.is_empty() || source == name || source == AMD_SOURCE)
}

/// The program behind an EPContext node. Models without a path have their files in `folder`.
///
/// # Errors
/// A sentence that says what is wrong with the node or its program.
pub(crate) fn load(
    partition: &FusedPartition<'_>,
    node: Node<'_>,
    folder: Option<&Path>,
    tools: &Toolchain,
) -> Result<Program> {
    let name = node.name()?;
    let wrong = |reason: &dyn std::fmt::Display| {
        Error::new(ErrorCode::InvalidGraph, format!("the saved partition {name:?} can't be used: {reason}"))
    };
    let arch = node.string("hardware_architecture")?.unwrap_or_default();
    if !arch.is_empty() && arch != tools.arch {
        let here = &tools.arch;
        let text = format!("it is for {arch:?}, and this is {here:?}\n  help: compile the model again on this device");
        return Err(wrong(&text));
    }
    let attribute = node.attribute("ep_cache_context")?.ok_or_else(|| wrong(&"it has no ep_cache_context"))?;
    let AttributeValue::String(context) = attribute.value()? else {
        return Err(wrong(&"its ep_cache_context is no string"));
    };
    match node.int("embed_mode")?.unwrap_or(1) {
        1 => {
            check_release(SavedHeader::of_bytes(&context), tools.library.version()).map_err(|reason| wrong(&reason))?;
            tools.library.load_bytes(&context).map_err(|error| wrong(&error))
        }
        0 => {
            let file = String::from_utf8(context).map_err(|_| wrong(&"its file's name is not UTF-8"))?;
            let model = partition.graph.model_path()?;
            let parent = model.as_deref().and_then(Path::parent).or(folder).ok_or_else(|| {
                wrong(&format!(
                    "it is in the file {file:?}, and the model has no folder\n  help: load the model by its path, or set ep.context_file_path to it"
                ))
            })?;
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let path = beside::resolve(parent, &file)?;
            check_release(SavedHeader::of_file(&path), tools.library.version()).map_err(|reason| wrong(&reason))?;
            tools.library.load(&path).map_err(|error| wrong(&error))
        }
        other => Err(wrong(&format!("its embed_mode is {other}, and should be 0 or 1"))),
    }
}

/// MIGraphX takes programs of other releases with no more than a line in its log, and they may hold kernels it no longer
/// has.
fn check_release(found: Option<SavedHeader>, here: Option<Version>) -> Result<(), String> {
    let Some(found) = found else {
        return Err(
            "it is no program of MIGraphX\n  help: open the model with the profile it was compiled with".to_owned()
        );
    };
    match here {
        Some(here) if (here.major, here.minor) != (found.version.major, found.version.minor) => Err(format!(
            "it was compiled by MIGraphX {}, and this is {here}\n  help: compile the model again",
            found.version
        )),
        _ => Ok(()),
    }
}

/// The text for models compiled by this library.
pub(crate) fn info(tools: &Toolchain) -> String {
    let migraphx = tools.library.version().map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    format!("{OWNER};migraphx={migraphx};target={};arch={}", tools.target.name(), tools.arch)
}

/// Says whether a model with this text runs on a device of one of `archs`, with MIGraphX `here`.
pub(crate) fn compatibility(info: &str, archs: &[String], here: Option<Version>) -> ModelCompatibility {
    let mut parts = info.split(';');
    if parts.next() != Some(OWNER) {
        return ModelCompatibility::NotApplicable;
    }
    let field = |name: &str| parts.clone().find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    let (Some(release), Some(arch)) = (field("migraphx"), field("arch")) else {
        return ModelCompatibility::Unsupported;
    };
    let fits = arch == "host" || archs.iter().any(|known| known == arch);
    match here.map(|version| version.to_string()) {
        _ if !fits => ModelCompatibility::Unsupported,
        Some(here) if here == release => ModelCompatibility::Optimal,
        Some(here) if same_minor(&here, release) => ModelCompatibility::PreferRecompilation,
        _ => ModelCompatibility::Unsupported,
    }
}

fn same_minor(a: &str, b: &str) -> bool {
    let minor = |text: &str| text.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    minor(a).is_some() && minor(a) == minor(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Version = Version { major: 2, minor: 14, patch: 0 };

    #[test]
    fn files_lie_beside_the_compiled_model() {
        let save = |pairs: &[(&str, &str)]| {
            let entries = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            Save::from_entries(&entries, false)
        };
        let on = ("ep.context_enable", "1");
        let source = || Some(PathBuf::from("models/net.onnx"));
        assert!(save(&[]).unwrap().is_none());
        assert!(save(&[("ep.context_enable", "yes")]).is_err());
        let named = save(&[on, ("ep.context_file_path", "out/small.onnx")]).unwrap().unwrap();
        assert_eq!(named.file(source()).unwrap(), Path::new("out/small_0.mxr"));
        assert_eq!(named.file(None).unwrap(), Path::new("out/small_1.mxr"));
        let beside = save(&[on]).unwrap().unwrap();
        assert_eq!(beside.file(source()).unwrap(), Path::new("models/net_ctx_0.mxr"));
        assert!(beside.file(None).unwrap_err().message().contains("help: set ep.context_file_path"));
    }

    #[test]
    fn programs_of_other_releases_are_refused() {
        let head = |minor| Some(SavedHeader { format: 7, version: Version { major: 2, minor, patch: 1 } });
        assert!(check_release(head(14), Some(HERE)).is_ok());
        assert!(check_release(head(15), Some(HERE)).unwrap_err().contains("2.15.1"));
        assert!(check_release(None, Some(HERE)).unwrap_err().contains("no program of MIGraphX"));
    }

    #[test]
    fn models_of_other_devices_releases_and_owners_are_told_apart() {
        let archs = ["gfx1100".to_owned()];
        for (text, want) in [
            ("migraphx-backend;migraphx=2.14.0;target=gpu;arch=gfx1100", ModelCompatibility::Optimal),
            (
                "migraphx-backend;migraphx=2.14.9;target=gpu;arch=gfx1100;more=1",
                ModelCompatibility::PreferRecompilation,
            ),
            ("migraphx-backend;migraphx=2.15.0;target=gpu;arch=gfx1100", ModelCompatibility::Unsupported),
            ("migraphx-backend;migraphx=2.14.0;target=gpu;arch=gfx1201", ModelCompatibility::Unsupported),
            ("migraphx-backend;migraphx=2.14.0;target=ref;arch=host", ModelCompatibility::Optimal),
            ("migraphx-backend", ModelCompatibility::Unsupported),
            ("hip-backend;format=1", ModelCompatibility::NotApplicable),
        ] {
            assert_eq!(compatibility(text, &archs, Some(HERE)), want, "{text}");
        }
    }
}
