//! Plans on disk.
//!
//! cuDNN compiles code for most graphs of several operations, for one at a time whatever the number of threads. It can write a plan
//! as text, code included, and restore it within a millisecond. The text of a graph's best plan is kept in a file that is named
//! by a digest of all that it depends on: the graph, cuDNN's version, and the device as cuDNN describes it. A file begins with a
//! digest of the rest, is written beside its place and renamed; what was used longest ago goes first. A plan that can't be
//! kept or restored is made anew: that is slower, and all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use std::{env, process};

use hipdnn_abi::{Fault, Outcome};

use crate::descriptor::Descriptor;
use crate::graph::Graph;
use crate::sys::{AttributeName as A, DescriptorType as D};
use crate::worker::Worker;

/// Another one when files, or what is asked of cuDNN for a graph, change.
const FORMAT: &str = "1";
const EXTENSION: &str = "plan";
/// What is being written, and after how long nobody does so any more.
const UNFINISHED: &str = "new";
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);
const DIGEST_BYTES: usize = 32;
/// The most bytes of plans that are kept.
const MOST_BYTES: u64 = 256 << 20;

/// The plans that are kept for a device.
pub struct Kept {
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
    /// The plan as cuDNN writes it.
    pub text: String,
}

impl Kept {
    /// The plans for what is described by a text, if there is a place for them.
    pub fn new(made_for: String) -> Option<Self> {
        Some(Self { folder: cache_root()?.join("cudnn"), made_for })
    }

    fn file(&self, graph: &Graph) -> PathBuf {
        let mut digest = blake3::Hasher::new();
        for part in [&*self.made_for, FORMAT, &format!("{graph:?}")] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
        self.folder.join(format!("{}.{EXTENSION}", &digest.finalize().to_hex()[..32]))
    }

    /// The plan that was kept for a graph.
    pub fn find(&self, graph: &Graph) -> Option<Entry> {
        let file = self.file(graph);
        match fs::read(&file) {
            Ok(bytes) => {
                let entry = Entry::read(&bytes);
                if entry.is_none() {
                    tracing::warn!(target: "hipdnn::cudnn", "the kept plan {} can't be read and is replaced", file.display());
                }
                touch(&file);
                entry
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(target: "hipdnn::cudnn", "the kept plan {} can't be read: {error}", file.display());
                None
            }
        }
    }

    /// Keeps the plan for a graph.
    pub fn put(&self, graph: &Graph, entry: &Entry) {
        let file = self.file(graph);
        let done = fs::create_dir_all(&self.folder)
            .and_then(|()| replace(&file, &entry.written()))
            .and_then(|()| make_room(&self.folder, &file, MOST_BYTES));
        if let Err(error) = done {
            tracing::warn!(target: "hipdnn::cudnn", "a plan could not be kept as {}: {error}", file.display());
        }
    }
}

impl Entry {
    /// The plan of a graph whose configurations were asked for, if cuDNN writes it.
    pub fn of(plan: &Descriptor, choices: usize, bound: &[usize]) -> Option<Self> {
        let text = plan.text(A::EXECUTION_PLAN_JSON_REPRESENTATION).ok().filter(|text| !text.is_empty())?;
        Some(Self { choices, bound: bound.to_vec(), text })
    }

    /// The plan again, and the memory it wants for itself.
    ///
    /// # Errors
    /// cuDNN does not take the text, or a number in it belongs to no tensor of the graph.
    pub fn restore(&self, worker: &Worker, graph: &Graph) -> Outcome<(Descriptor, usize)> {
        if self.choices == 0 || self.bound.iter().any(|&tensor| tensor >= graph.tensors.len()) {
            return Err(Fault::bad("the kept plan is one of another graph"));
        }
        let plan = Descriptor::new(worker.cudnn, D::EXECUTION_PLAN_DESCRIPTOR)?;
        worker.place_plan(&plan)?;
        plan.set_text(A::EXECUTION_PLAN_JSON_REPRESENTATION, &self.text)?;
        plan.finalize()?;
        let workspace = plan.i64(A::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok((plan, usize::try_from(workspace).unwrap_or(0)))
    }

    fn written(&self) -> Vec<u8> {
        let bound = self.bound.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let rest = format!("{}\n{bound}\n{}", self.choices, self.text);
        [blake3::hash(rest.as_bytes()).as_bytes(), rest.as_bytes()].concat()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (digest, rest) = bytes.split_at_checked(DIGEST_BYTES)?;
        if *blake3::hash(rest).as_bytes() != digest {
            return None;
        }
        let (choices, rest) = std::str::from_utf8(rest).ok()?.split_once('\n')?;
        let (bound, text) = rest.split_once('\n')?;
        let bound = bound.split_whitespace().map(|number| number.parse().ok()).collect::<Option<_>>()?;
        Some(Self { choices: choices.parse().ok()?, bound, text: text.to_owned() })
    }
}

/// Where compiled code is kept.
fn cache_root() -> Option<PathBuf> {
    let path = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    let below = |variable: &str, rest: &str| Some(path(variable).filter(|base| base.is_absolute())?.join(rest));
    let usual = || match cfg!(windows) {
        true => below("LOCALAPPDATA", "amdgpu-ep/cache"),
        false => below("XDG_CACHE_HOME", "amdgpu-ep").or_else(|| below("HOME", ".cache/amdgpu-ep")),
    };
    path("AMDGPU_EP_CACHE_DIR").or_else(usual)
}

/// Writes a file beside its place and renames it: readers see a whole one or none.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = file.with_extension(format!("{}-{number}.{UNFINISHED}", process::id()));
    fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, file)).inspect_err(|_| {
        // What is left of it is of no use; nothing more can be done if it stays.
        let _ = fs::remove_file(&beside);
    })
}

/// Marks a file as used now.
fn touch(file: &Path) {
    if let Ok(file) = File::options().append(true).open(file) {
        // A folder that can't be written is still good to read.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Removes what was used longest ago until the folder is within its limit; `newest` stays. What a process left
/// unfinished that ended while it wrote goes too.
fn make_room(folder: &Path, newest: &Path, most: u64) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let (file, Ok(facts)) = (entry.path(), entry.metadata()) else { continue };
        let Ok(used) = facts.modified() else { continue };
        match file.extension().and_then(OsStr::to_str) {
            Some(EXTENSION) => files.push((used, facts.len(), file)),
            Some(UNFINISHED) if used.elapsed().is_ok_and(|age| age > ABANDONED) => {
                // Another process may have removed it already.
                let _ = fs::remove_file(&file);
            }
            _ => {}
        }
    }
    let mut total: u64 = files.iter().map(|file| file.1).sum();
    files.sort();
    for (_, bytes, file) in files {
        if total <= most {
            break;
        }
        // Another process may have removed it already.
        if file != newest && fs::remove_file(&file).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kept(name: &str, made_for: &str) -> Kept {
        let folder = env::temp_dir().join(format!("hipdnn-cudnn-kept-{name}-{}", process::id()));
        Kept { folder, made_for: made_for.to_owned() }
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
        let here = kept("same", "9.19 H200");
        assert_eq!(here.find(&graph(8)), None);
        here.put(&graph(8), &entry("{\n\"a\": 1}"));
        assert_eq!(here.find(&graph(8)), Some(entry("{\n\"a\": 1}")));
        assert_eq!(here.find(&graph(9)), None);
        assert_eq!(kept("same", "9.20 H200").find(&graph(8)), None);
        fs::remove_dir_all(&here.folder).unwrap();
    }

    #[test]
    fn a_file_that_was_changed_or_cut_short_is_not_used_and_replaced() {
        let here = kept("changed", "");
        here.put(&graph(8), &entry("text"));
        let file = here.file(&graph(8));
        let whole = fs::read(&file).unwrap();
        for cut in [0, 31, whole.len() - 1] {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_eq!(here.find(&graph(8)), None, "{cut} bytes");
        }
        here.put(&graph(8), &entry("other"));
        assert_eq!(here.find(&graph(8)), Some(entry("other")));
        fs::remove_dir_all(&here.folder).unwrap();
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let here = kept("room", "");
        for extent in 1..=4 {
            here.put(&graph(extent), &entry("text"));
            let old = SystemTime::UNIX_EPOCH + Duration::from_secs(extent as u64);
            File::options().append(true).open(here.file(&graph(extent))).unwrap().set_modified(old).unwrap();
        }
        assert!(here.find(&graph(1)).is_some(), "used now");
        let bytes = fs::metadata(here.file(&graph(1))).unwrap().len();
        make_room(&here.folder, &here.file(&graph(2)), 2 * bytes).unwrap();
        let left: Vec<i64> = (1..=4).filter(|&extent| here.find(&graph(extent)).is_some()).collect();
        assert_eq!(left, [1, 2], "the newest and the one in use");
        fs::remove_dir_all(&here.folder).unwrap();
    }

    #[test]
    fn what_a_process_left_unfinished_goes_after_a_day() {
        let here = kept("unfinished", "");
        fs::create_dir_all(&here.folder).unwrap();
        let unfinished = |name: &str, age: Duration| {
            let file = here.folder.join(name);
            File::create(&file).unwrap().set_modified(SystemTime::now() - age).unwrap();
            file
        };
        let old = unfinished("0123.7-0.new", ABANDONED + Duration::from_secs(60));
        let young = unfinished("0123.8-0.new", Duration::from_secs(60));
        here.put(&graph(8), &entry("text"));
        assert!(!old.exists() && young.exists());
        fs::remove_dir_all(&here.folder).unwrap();
    }
}
