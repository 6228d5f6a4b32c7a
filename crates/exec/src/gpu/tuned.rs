//! Stores tuning measurements on disk.
//!
//! There is one text file for each kind of device. Its first line names the format, the version of the library, the
//! device and the driver; a file with a different first line is ignored and replaced by the next measurement. Every
//! other line is a step, identified by a digest of its signature, and its fastest candidate. Files are replaced
//! atomically and merged with what others have written in the meantime, so readers always see complete files and
//! processes can share them. A wrong line can make a step slow but never incorrect: it only chooses among candidates
//! that all compute the result. A folder that other users can write to is not used.
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use disk_cache::{CacheError, Folder};
use graph::Step;

use super::candidate::Candidate;
use crate::{TunedStep, dnn};

/// Steps kept for a device; the oldest are dropped first. A line has about 60 bytes.
const MAX_STEPS: usize = 20_000;

/// Which measurements a session uses and makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TuneMode {
    /// Use no measurements.
    Off,
    /// Use measurements made before.
    #[default]
    Auto,
    /// Also measure steps without a measurement when a plan is prepared.
    On,
    /// Measure all steps again.
    Again,
}

/// The text is not a tuning mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, on, again or off, found {0:?}")]
pub struct UnknownTuneMode(String);

impl FromStr for TuneMode {
    type Err = UnknownTuneMode;

    fn from_str(text: &str) -> Result<Self, UnknownTuneMode> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "again" => Ok(Self::Again),
            other => Err(UnknownTuneMode(other.to_owned())),
        }
    }
}

/// The measurements for one device.
pub struct Tuned {
    /// The folder and the file name in it.
    place: Option<(PathBuf, String)>,
    head: String,
    pub(super) mode: TuneMode,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// In file order, newest last.
    entries: Entries,
    /// Measured in this session.
    fresh: HashMap<Digest, Entry>,
}

type Digest = String;

#[derive(Clone, Debug, Default, PartialEq)]
struct Entries {
    order: Vec<Digest>,
    by_digest: HashMap<Digest, Entry>,
}

/// The fastest candidate for a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    pub candidate: Candidate,
    pub micros: f32,
    /// The time of the step as it runs without tuning.
    pub usual_micros: f32,
    /// The number of candidates measured.
    pub tried: usize,
}

impl Entry {
    pub fn shown(&self) -> TunedStep {
        let Self { candidate, micros, usual_micros, tried } = *self;
        TunedStep { choice: candidate.to_string(), micros, usual_micros, tried }
    }

    fn line(&self, digest: &str) -> String {
        let Self { candidate, micros, usual_micros, tried } = self;
        format!("{digest}\t{candidate}\t{micros}\t{usual_micros}\t{tried}\n")
    }

    fn parse(line: &str) -> Option<(Digest, Self)> {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let (digest, candidate) = (next()?, next()?.parse().ok()?);
        let (micros, usual_micros, tried) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        Some((digest.to_owned(), Self { candidate, micros, usual_micros, tried }))
    }
}

impl Entries {
    /// The contents of a file in the folder; empty if it cannot be used.
    fn read(folder: &Path, name: &str, head: &str) -> Self {
        let folder = match Folder::open(folder) {
            Ok(Some(folder)) => folder,
            Ok(None) => return Self::default(),
            Err(error) => {
                warn(&error);
                return Self::default();
            }
        };
        let text = folder.read(name).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let text = match text {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                let shown = folder.file(name);
                tracing::warn!(target: "amdgpu_ep::compile", "could not read the measurements in {}: {error}", shown.display());
                return Self::default();
            }
        };
        let mut entries = Self::default();
        let Some((found, lines)) = text.split_once('\n').filter(|(found, _)| *found == head) else { return entries };
        debug_assert_eq!(found, head);
        lines.lines().filter_map(Entry::parse).for_each(|(digest, entry)| entries.insert(digest, entry));
        entries
    }

    fn insert(&mut self, digest: Digest, entry: Entry) {
        if self.by_digest.insert(digest.clone(), entry).is_some() {
            self.order.retain(|known| *known != digest);
        }
        self.order.push(digest);
    }

    fn text(&self, head: &str) -> String {
        let newest = &self.order[self.order.len().saturating_sub(MAX_STEPS)..];
        let lines = newest.iter().filter_map(|digest| Some(self.by_digest.get(digest)?.line(digest)));
        format!("{head}\n{}", lines.collect::<String>())
    }
}

impl Tuned {
    /// Opens the measurements for devices that match this description, in a folder of such files. Without a folder,
    /// measurements are kept only in memory.
    pub fn open(folder: Option<&Path>, device: &str, mode: TuneMode) -> Self {
        let device = device.replace(['\n', '\r'], " ");
        let head = format!("amdgpu-ep tuning\t1\t{}\t{device}", env!("CARGO_PKG_VERSION"));
        let name = format!("{}.tsv", &blake3::hash(head.as_bytes()).to_hex()[..16]);
        let place = folder.map(|folder| (folder.to_owned(), name));
        let entries = match &place {
            Some((folder, name)) if mode != TuneMode::Off => Entries::read(folder, name, &head),
            _ => Entries::default(),
        };
        Self { place, head, mode, state: Mutex::new(State { entries, ..State::default() }) }
    }

    /// The number of known steps.
    pub fn len(&self) -> usize {
        self.lock().entries.order.len()
    }

    /// True if no step is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, digest: &str) -> Option<Entry> {
        self.lock().entries.by_digest.get(digest).copied()
    }

    /// Whether to measure a step now.
    pub(super) fn wants(&self, digest: &str) -> bool {
        let state = self.lock();
        match self.mode {
            TuneMode::Off | TuneMode::Auto => false,
            TuneMode::On => !state.entries.by_digest.contains_key(digest),
            TuneMode::Again => !state.fresh.contains_key(digest),
        }
    }

    pub(super) fn put(&self, digest: Digest, entry: Entry) {
        let mut state = self.lock();
        state.entries.insert(digest.clone(), entry);
        state.fresh.insert(digest, entry);
    }

    /// Writes this session's measurements, merged with those of others. Errors are only logged as warnings.
    pub(super) fn save(&self) {
        let (Some((folder, name)), state) = (&self.place, self.lock()) else { return };
        let mut merged = Entries::read(folder, name, &self.head);
        for digest in state.entries.order.iter().filter(|digest| state.fresh.contains_key(*digest)) {
            merged.insert(digest.clone(), state.fresh[digest]);
        }
        let folder = match Folder::create(folder) {
            Ok(folder) => folder,
            Err(error) => return warn(&error),
        };
        if let Err(error) = folder.replace(name, &[merged.text(&self.head).as_bytes()]) {
            let shown = folder.file(name);
            tracing::warn!(target: "amdgpu_ep::compile", "could not save measurements in {}: {error}", shown.display());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn warn(error: &CacheError) {
    if error.is_news() {
        tracing::warn!(target: "amdgpu_ep::compile", "tuning measurements are not cached: {error}");
    }
}

/// A digest of a step without its buffers, for a session with or without TF32.
pub(super) fn digest(step: &Step, tf32: bool) -> Digest {
    let Step { prim, inputs, outputs, .. } = dnn::signature(step);
    let text = format!("{prim:?} {inputs:?} {outputs:?} {tf32}");
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn entry(rank: usize) -> Entry {
        Entry { candidate: Candidate::BlasLt(rank), micros: 1.5, usual_micros: 3.25, tried: 4 }
    }

    fn file(folder: &Path) -> PathBuf {
        fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn only_later_sessions_on_the_same_kind_of_device_find_measurements() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("made");
        let first = Tuned::open(Some(&below), "gfx942", TuneMode::On);
        assert!(first.wants("a") && first.is_empty());
        first.put("a".into(), entry(1));
        assert!(!first.wants("a") && first.wants("b"));
        first.save();
        let later = Tuned::open(Some(&below), "gfx942", TuneMode::Auto);
        assert_eq!((later.get("a"), later.len()), (Some(entry(1)), 1));
        assert!(!later.wants("b"));
        assert!(Tuned::open(Some(&below), "gfx1100", TuneMode::On).is_empty());
        assert!(Tuned::open(Some(&below), "gfx942", TuneMode::Off).is_empty());
        let again = Tuned::open(Some(&below), "gfx942", TuneMode::Again);
        assert!(again.get("a").is_some() && again.wants("a"));
    }

    #[test]
    fn concurrent_sessions_keep_each_others_measurements() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["a", "b"].map(|digest| {
            let tuned = Tuned::open(Some(folder.path()), "d", TuneMode::On);
            tuned.put(digest.into(), entry(0));
            tuned
        });
        one.save();
        two.save();
        let both = Tuned::open(Some(folder.path()), "d", TuneMode::Auto);
        assert_eq!(both.len(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn damaged_and_outdated_files_lose_only_their_measurements() {
        let folder = tempfile::tempdir().unwrap();
        let tuned = Tuned::open(Some(folder.path()), "d", TuneMode::On);
        tuned.put("a".into(), entry(0));
        tuned.put("b".into(), entry(1));
        tuned.save();
        let path = file(folder.path());
        let whole = fs::read_to_string(&path).unwrap();
        let count = || Tuned::open(Some(folder.path()), "d", TuneMode::Auto).len();
        for (text, left) in [
            (whole[..whole.len() - 9].to_owned(), 1),
            (whole.replace("blaslt-0", "blaslt-x"), 1),
            (whole.replacen('1', "2", 1), 0),
            (String::new(), 0),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(count(), left);
        }
        fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
        assert_eq!(count(), 0);
        tuned.save();
        assert_eq!(count(), 2);
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_can_write_to_is_neither_read_nor_written() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let count = || Tuned::open(Some(folder.path()), "d", TuneMode::Auto).len();
        let measured = |digest: &str| {
            let tuned = Tuned::open(Some(folder.path()), "d", TuneMode::On);
            tuned.put(digest.into(), entry(0));
            tuned.save();
        };
        measured("a");
        for (mode, before, after) in [(0o777, 0, 0), (0o755, 1, 2)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(count(), before, "mode {mode:o}");
            measured("b");
            assert_eq!(count(), after, "mode {mode:o}");
        }
    }

    #[test]
    fn the_oldest_steps_are_dropped_first() {
        let mut entries = Entries::default();
        (0..MAX_STEPS + 2).for_each(|number| entries.insert(number.to_string(), entry(0)));
        entries.insert("2".into(), entry(1));
        let text = entries.text("head");
        assert_eq!(text.lines().count(), 1 + MAX_STEPS);
        assert!(text.lines().nth(1).unwrap().starts_with("3\t") && text.ends_with("4\n"));
        assert!(text.lines().last().unwrap().starts_with("2\tblaslt-1\t"));
    }
}
