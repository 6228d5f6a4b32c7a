//! Saves partitions in a compiled model and reads them back.
//!
//! ONNX Runtime stores a compiled partition as an `EPContext` node that holds a program (`.mxr`) or names its file next
//! to the model. Nodes saved by AMD's own provider can be read too.
use std::fmt::Display;
use std::path::Path;

use ort_ep::saved::{self, Blob, Save};
use ort_ep::view::Node;
use ort_ep::{EpContextNode, FusedPartition, ModelCompatibility, Result};

use crate::mgx::{Program, SavedHeader, Version};
use crate::status;
use crate::toolchain::Toolchain;

/// The name that AMD's provider writes into the nodes it saves.
const AMD_SOURCE: &str = "MIGraphXExecutionProvider";
/// The prefix of this library's compatibility strings.
const OWNER: &str = "migraphx-backend";
/// The extension of saved MIGraphX programs.
pub(crate) const FILE_EXTENSION: &str = "mxr";

/// Creates the node that represents a partition in the compiled model. Writes the partition's file, if it has one.
///
/// # Errors
/// The file has no path, or MIGraphX cannot save the program.
pub(crate) fn node(
    save: &Save,
    program: &Program,
    partition: &FusedPartition<'_>,
    tools: &Toolchain,
) -> Result<EpContextNode> {
    let failed = |error| status::with("a partition could not be saved", &error);
    let version = tools.library.version().map_or_else(String::new, |version| version.to_string());
    let model = partition.graph.model_path()?;
    let model = model.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let texts = [
        ("ep_sdk_version", &*version),
        ("hardware_architecture", &tools.arch),
        ("partition_name", partition.node.name()?),
        ("onnx_model_filename", &model),
        ("notes", &format!("target={}", tools.target.name())),
    ];
    let blob = match save.file(partition)? {
        None => Blob::Embedded(program.save_bytes().map_err(failed)?),
        Some(path) => {
            program.save(&path).map_err(failed)?;
            Blob::File(path)
        }
    };
    blob.into_node(&texts)
}

/// True for nodes saved by a provider of this name, by AMD's provider, or without a name.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(crate) fn is_ours(node: Node<'_>, name: &str) -> Result<bool> {
    let ours = |source: String| source.is_empty() || source == name || source == AMD_SOURCE;
    Ok(saved::source(node)?.is_some_and(ours))
}

/// Loads the program of an EPContext node. If the model has no path, its files are in `folder`.
///
/// # Errors
/// A message that says what is wrong with the node or its program.
pub(crate) fn load(
    partition: &FusedPartition<'_>,
    node: Node<'_>,
    folder: Option<&Path>,
    tools: &Toolchain,
) -> Result<Program> {
    let name = node.name()?;
    let wrong = |reason: &dyn Display| saved::unusable(name, reason);
    let arch = node.string("hardware_architecture")?.unwrap_or_default();
    if !arch.is_empty() && arch != tools.arch {
        let here = &tools.arch;
        let text = format!("it is for {arch:?}, but this is {here:?}\n  help: compile the model again on this device");
        return Err(wrong(&text));
    }
    let here = tools.library.version();
    match Blob::of(partition, node, folder)? {
        Blob::Embedded(bytes) => {
            check_release(SavedHeader::of_bytes(&bytes), here).map_err(|reason| wrong(&reason))?;
            tools.library.load_bytes(&bytes).map_err(|error| wrong(&error))
        }
        Blob::File(path) => {
            check_release(SavedHeader::of_file(&path), here).map_err(|reason| wrong(&reason))?;
            tools.library.load(&path).map_err(|error| wrong(&error))
        }
    }
}

/// Rejects programs of other releases: MIGraphX loads them and only logs a line, although they may use kernels that
/// this release no longer has.
fn check_release(found: Option<SavedHeader>, here: Option<Version>) -> Result<(), String> {
    let Some(found) = found else {
        return Err(
            "it is not a MIGraphX program\n  help: open the model with the profile it was compiled with".to_owned()
        );
    };
    match here {
        Some(here) if (here.major, here.minor) != (found.version.major, found.version.minor) => Err(format!(
            "it was compiled by MIGraphX {}, but this is {here}\n  help: compile the model again",
            found.version
        )),
        _ => Ok(()),
    }
}

/// The compatibility string for models compiled by this library.
pub(crate) fn info(tools: &Toolchain) -> String {
    let migraphx = tools.library.version().map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    format!("{OWNER};migraphx={migraphx};target={};arch={}", tools.target.name(), tools.arch)
}

/// Whether a model with this string runs on a device of one of `archs`, with MIGraphX `here`.
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
    fn programs_of_other_releases_are_refused() {
        let head = |minor| Some(SavedHeader { format: 7, version: Version { major: 2, minor, patch: 1 } });
        assert!(check_release(head(14), Some(HERE)).is_ok());
        assert!(check_release(head(15), Some(HERE)).unwrap_err().contains("2.15.1"));
        assert!(check_release(None, Some(HERE)).unwrap_err().contains("not a MIGraphX program"));
    }

    #[test]
    fn models_of_other_devices_releases_and_owners_are_distinguished() {
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
