//! How partitions are prepared: which passes run, which outputs are needed, and where the stages are dumped.
//!
//! The entry `ep.hip.last_logits` promises that the application reads only the rows of last tokens from a decoder's
//! logits: the other rows are zero, or omitted. Nodes of other providers may read a partition's outputs, so only model
//! outputs that no node reads are marked for the engine.
//!
//! ONNX Runtime GenAI pads the attention mask to its maximum width, and says so with `ep.migraphx.static_pad_seq`. The
//! engine then takes the length of a sequence from the mask's values where the model takes it from the width.
//!
//! The session-config entry `ep.hip.disable_passes` lists passes and stages to disable, separated by commas. The entry
//! `ep.hip.dump_dir` names a folder, which is created if necessary. Each stage of each partition is written to a text
//! file in it, named after the partition, a running number and the stage.
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use exec::{Settings, Watcher};
use graph::pass::Selection;
use graph::{Graph, Unread};
use options::BackendOptions;
use options::hip::{DISABLE_PASSES, DUMP_DIR, LAST_LOGITS, STATIC_PAD_SEQ};
use ort_ep::{Error, Result, view};

/// The maximum number of files per partition: a session with ever-changing shapes must not fill the disk.
const MAX_FILES: usize = 100;

/// The settings of a session.
#[derive(Default)]
pub(crate) struct Tuning {
    passes: Selection,
    dump: Option<PathBuf>,
    /// What to do with logits that are not read; `None` if all may be read.
    unread: Option<Unread>,
    /// Whether the application pads attention masks.
    padded_masks: bool,
    /// The outputs of the model that no node reads.
    ends: Mutex<Vec<String>>,
}

impl Tuning {
    /// Reads the options.
    ///
    /// # Errors
    /// `ep.hip.disable_passes` names a pass that does not exist.
    pub fn new(options: &BackendOptions) -> Result<Self> {
        let (passes, unknown) = Selection::without(options.get(DISABLE_PASSES).unwrap_or_default());
        if !unknown.is_empty() {
            let (unknown, names) = (unknown.join(", "), Selection::names().collect::<Vec<_>>().join(", "));
            return Err(Error::invalid_argument(format!(
                "{DISABLE_PASSES}: unknown pass {unknown}\n  help: the passes are {names}"
            )));
        }
        let unread = match options.get(LAST_LOGITS) {
            Some("on") => Some(Unread::Zeros),
            Some("alone") => Some(Unread::LeftOut),
            _ => None,
        };
        Ok(Self {
            passes,
            dump: options.get(DUMP_DIR).map(PathBuf::from),
            unread,
            padded_masks: options.is_on(STATIC_PAD_SEQ),
            ends: Mutex::default(),
        })
    }

    /// Whether the application pads attention masks to a fixed width.
    pub fn padded_masks(&self) -> bool {
        self.padded_masks
    }

    /// Inspects a graph of the model before its partitions are compiled.
    ///
    /// # Errors
    /// ONNX Runtime failed to describe the graph.
    pub fn see(&self, graph: view::Graph<'_>) -> Result<()> {
        if self.unread.is_none() || graph.parent_node()?.is_some() {
            return Ok(());
        }
        let mut found = Vec::new();
        for output in graph.outputs()? {
            if output.consumers()?.is_empty() {
                found.push(output.name()?.to_owned());
            }
        }
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(())
    }

    /// Tells the graph what the application promises: which outputs are read only at the last rows, and whether masks
    /// are padded.
    pub fn mark(&self, graph: &mut Graph) {
        if self.padded_masks {
            graph.set_padded_masks();
        }
        let Some(unread) = self.unread else { return };
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let outputs = graph.outputs().iter().map(|&id| &graph.value(id).name);
        let marked = outputs.enumerate().filter(|(_, name)| ends.contains(name)).map(|(at, _)| at).collect();
        graph.set_last_rows(marked, unread);
    }

    /// The settings for the partition with this name.
    pub fn settings(&self, partition: &str) -> Settings {
        let watcher = self.dump.as_deref().map(|folder| writer(folder, partition));
        Settings { passes: self.passes.clone(), watcher, planned: None }
    }
}

/// Writes each stage to its own file.
fn writer(folder: &Path, partition: &str) -> Watcher {
    let base = folder.join(plain(partition));
    let folder = folder.to_owned();
    let written = AtomicUsize::new(0);
    Arc::new(move |stage: &str, text: &dyn fmt::Display| {
        let number = written.fetch_add(1, Ordering::Relaxed);
        if number >= MAX_FILES {
            return;
        }
        let mut file = base.clone().into_os_string();
        file.push(format!(".{number:02}-{}.txt", plain(stage)));
        let done = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, text.to_string()));
        if let Err(error) = done {
            tracing::warn!(target: "amdgpu_ep::compile", "{} could not be written: {error}", file.display());
        }
    })
}

/// Turns a name into a valid file name.
fn plain(name: &str) -> String {
    let kept = |one: char| one.is_ascii_alphanumeric() || matches!(one, '-' | '_');
    let name: String = name.chars().map(|one| if kept(one) { one } else { '_' }).collect();
    if name.is_empty() { "partition".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(key: &str, text: &str) -> Result<Tuning> {
        Tuning::new(&options::hip::TABLE.read([(key, text)]).unwrap())
    }

    #[test]
    fn listed_passes_are_off() {
        let settings = tuning(DISABLE_PASSES, "gelu").unwrap().settings("p");
        assert!(!settings.passes.runs("gelu") && settings.passes.runs("attention"));
        assert!(settings.watcher.is_none());
        assert_eq!(tuning(DUMP_DIR, "").unwrap().settings("p").passes, Selection::default());
    }

    #[test]
    fn an_unknown_pass_is_an_error_that_lists_the_passes() {
        let error = tuning(DISABLE_PASSES, "gelu, no-such-pass").err().unwrap();
        assert!(
            error.message().contains("unknown pass no-such-pass") && error.message().contains("attention"),
            "{error}"
        );
    }

    #[test]
    fn stages_become_numbered_files_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("made").join("here");
        let watcher = tuning(DUMP_DIR, below.to_str().unwrap()).unwrap().settings("../a b").watcher.unwrap();
        (0..MAX_FILES + 3).for_each(|_| watcher("plan-0/x", &"text"));
        let mut names: Vec<_> =
            std::fs::read_dir(&below).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!((names.len(), names[0].as_str()), (MAX_FILES, "___a_b.00-plan-0_x.txt"));
        assert_eq!(std::fs::read_to_string(below.join(&names[7])).unwrap(), "text");
    }

    #[test]
    fn a_folder_that_cannot_be_created_does_not_fail_the_session() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let below = file.path().join("folder");
        tuning(DUMP_DIR, below.to_str().unwrap()).unwrap().settings("p").watcher.unwrap()("stage", &"text");
    }
}
