//! Plans cached on disk.
//!
//! cuDNN compiles code for most graphs of several operations, one at a time, whatever the number of threads. It can
//! serialise a plan as text, including the code, and restore it within a millisecond. The text of a graph's best plan
//! is cached in a file named by a digest of everything it depends on: the graph, cuDNN's version, and the device as
//! cuDNN describes it. A file is sealed with a digest of its content; the least recently used ones are removed first.
//! If a plan cannot be cached or restored, it is built again. A folder that other users can write to is not used.

use std::path::PathBuf;
use std::{env, io};

use disk_cache::{CacheError, Folder};
use hipdnn_abi::{Fault, Outcome};

use crate::graph::Graph;
use crate::safe::Descriptor;
use crate::sys::{AttributeName as A, DescriptorType as D};
use crate::worker::Worker;

/// Increase this when the file format or the request to cuDNN for a graph changes.
const FORMAT: &str = "1";
const EXTENSION: &str = "plan";
/// The most bytes of cached plans.
const MAX_BYTES: u64 = 256 << 20;

/// The cached plans for a device.
pub struct PlanCache {
    folder: PathBuf,
    /// cuDNN's version and the device.
    made_for: String,
}

/// A plan on the best of the configurations for a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// How many configurations there are.
    pub choices: usize,
    /// The tensors whose addresses the plan takes.
    pub bound: Vec<usize>,
    /// The plan as cuDNN serialises it.
    pub text: String,
}

impl PlanCache {
    /// The cached plans for a described device, if there is a cache folder.
    pub fn new(made_for: String) -> Option<Self> {
        let (root, _) = disk_cache::root(|variable| env::var_os(variable))?;
        Some(Self { folder: root.join("cudnn"), made_for })
    }

    fn name(&self, graph: &Graph) -> String {
        let mut digest = blake3::Hasher::new();
        for part in [&*self.made_for, FORMAT, &format!("{graph:?}")] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        format!("{}.{EXTENSION}", &digest.finalize().to_hex()[..32])
    }

    /// The cached plan for a graph.
    pub fn find(&self, graph: &Graph) -> Option<Entry> {
        let folder = Folder::open(&self.folder).unwrap_or_else(|error| {
            warn_once(&error);
            None
        })?;
        let name = self.name(graph);
        let content = folder.read_sealed(&name);
        let entry =
            content.and_then(|content| Entry::read(&content).ok_or_else(|| io::Error::other("it is not a plan")));
        match entry {
            Ok(entry) => {
                folder.touch(&name);
                Some(entry)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let file = folder.file(&name);
                tracing::warn!(target: "hipdnn::cudnn", "cannot use the cached plan {}, replacing it: {error}", file.display());
                None
            }
        }
    }

    /// Caches the plan for a graph.
    pub fn put(&self, graph: &Graph, entry: &Entry) {
        let folder = match Folder::create(&self.folder) {
            Ok(folder) => folder,
            Err(error) => return warn_once(&error),
        };
        let name = self.name(graph);
        let written = folder.write_sealed(&name, entry.written().as_bytes());
        if let Err(error) = written.and_then(|()| folder.make_room(EXTENSION, MAX_BYTES, &name)) {
            let file = folder.file(&name);
            tracing::warn!(target: "hipdnn::cudnn", "cannot cache a plan as {}: {error}", file.display());
        }
    }
}

fn warn_once(error: &CacheError) {
    if error.is_news() {
        tracing::warn!(target: "hipdnn::cudnn", "cuDNN plans are not cached: {error}");
    }
}

impl Entry {
    /// The plan of a graph with its configurations, if cuDNN can serialise it.
    pub fn of(plan: &Descriptor, choices: usize, bound: &[usize]) -> Option<Self> {
        let text = plan.text(A::EXECUTION_PLAN_JSON_REPRESENTATION).ok().filter(|text| !text.is_empty())?;
        Some(Self { choices, bound: bound.to_vec(), text })
    }

    /// The restored plan, and its workspace size.
    ///
    /// # Errors
    /// cuDNN rejects the text, or a uid in it belongs to no tensor of the graph.
    pub fn restore(&self, worker: &Worker, graph: &Graph) -> Outcome<(Descriptor, usize)> {
        if self.choices == 0 || self.bound.iter().any(|&tensor| tensor >= graph.tensors.len()) {
            return Err(Fault::bad("the cached plan belongs to another graph"));
        }
        let plan = Descriptor::new(worker.cudnn, D::EXECUTION_PLAN_DESCRIPTOR)?;
        worker.place_plan(&plan)?;
        plan.set_text(A::EXECUTION_PLAN_JSON_REPRESENTATION, &self.text)?;
        plan.finalize()?;
        let workspace = plan.i64(A::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok((plan, usize::try_from(workspace).unwrap_or(0)))
    }

    fn written(&self) -> String {
        let bound = self.bound.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        format!("{}\n{bound}\n{}", self.choices, self.text)
    }

    fn read(content: &[u8]) -> Option<Self> {
        let (choices, rest) = std::str::from_utf8(content).ok()?.split_once('\n')?;
        let (bound, text) = rest.split_once('\n')?;
        let bound = bound.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        Some(Self { choices: choices.parse().ok()?, bound, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn plan_cache(folder: &Path, made_for: &str) -> PlanCache {
        PlanCache { folder: folder.to_owned(), made_for: made_for.to_owned() }
    }

    fn file(plan_cache: &PlanCache, graph: &Graph) -> PathBuf {
        plan_cache.folder.join(plan_cache.name(graph))
    }

    fn entry(text: &str) -> Entry {
        Entry { choices: 3, bound: vec![0, 2, 7], text: text.to_owned() }
    }

    fn graph(extent: i64) -> Graph {
        let mut graph = Graph::default();
        graph.add_inside(crate::sys::DataType::HALF, &[1, extent], &[0, 1]);
        graph
    }

    #[test]
    fn a_plan_is_found_for_the_same_graph_and_device_only() {
        let folder = tempfile::tempdir().unwrap();
        let here = plan_cache(folder.path(), "9.19 H200");
        assert_eq!(here.find(&graph(8)), None);
        here.put(&graph(8), &entry("{\n\"a\": 1}"));
        assert_eq!(here.find(&graph(8)), Some(entry("{\n\"a\": 1}")));
        assert_eq!(here.find(&graph(9)), None);
        assert_eq!(plan_cache(folder.path(), "9.20 H200").find(&graph(8)), None);
    }

    #[test]
    fn a_modified_or_truncated_file_is_not_used_and_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let here = plan_cache(folder.path(), "");
        here.put(&graph(8), &entry("text"));
        let file = file(&here, &graph(8));
        let whole = fs::read(&file).unwrap();
        for cut in [0, 31, whole.len() - 1] {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(here.find(&graph(8)), None, "{cut} bytes");
        }
        here.put(&graph(8), &entry("other"));
        assert_eq!(here.find(&graph(8)), Some(entry("other")));
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let here = plan_cache(folder.path(), "");
        for extent in 1..=4 {
            here.put(&graph(extent), &entry("text"));
            let old = SystemTime::UNIX_EPOCH + Duration::from_secs(extent as u64);
            File::options().append(true).open(file(&here, &graph(extent))).unwrap().set_modified(old).unwrap();
        }
        assert!(here.find(&graph(1)).is_some(), "used now");
        let bytes = fs::metadata(file(&here, &graph(1))).unwrap().len();
        Folder::open(&here.folder).unwrap().unwrap().make_room(EXTENSION, 2 * bytes, &here.name(&graph(2))).unwrap();
        let left: Vec<i64> = (1..=4).filter(|&extent| here.find(&graph(extent)).is_some()).collect();
        assert_eq!(left, [1, 2], "the newest and the one in use");
    }

    #[test]
    fn unfinished_files_are_removed_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let here = plan_cache(folder.path(), "");
        let unfinished = |name: &str, age: Duration| {
            let file = here.folder.join(name);
            File::create(&file).unwrap().set_modified(SystemTime::now() - age).unwrap();
            file
        };
        let old = unfinished("0123.7-0.new", Duration::from_secs(24 * 60 * 60 + 60));
        let young = unfinished("0123.8-0.new", Duration::from_secs(60));
        here.put(&graph(8), &entry("text"));
        assert!(!old.exists() && young.exists());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_can_write_to_is_neither_read_nor_written() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let here = plan_cache(folder.path(), "");
        here.put(&graph(8), &entry("text"));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(here.find(&graph(8)), None);
        here.put(&graph(9), &entry("text"));
        assert!(!file(&here, &graph(9)).exists());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(here.find(&graph(8)), Some(entry("text")));
    }
}
