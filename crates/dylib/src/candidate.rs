//! Candidates: the places to try for a library.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::load::Attempt;
use crate::{Library, Tree};

/// A place to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// A file by its full path.
    File(PathBuf),
    /// A bare name for the system loader.
    Plain(&'static str),
    /// A name that is used only if the process has already loaded such a library.
    Loaded(&'static str),
    /// A folder that does not exist, kept so that the report mentions it once.
    NoFolder(PathBuf),
}

impl Candidate {
    /// Opens the candidate. A failure is added to `attempts`.
    pub fn open(&self, attempts: &mut Vec<Attempt>) -> Option<Library> {
        let result = match self {
            Candidate::File(path) if !path.exists() => Err("no such file".to_owned()),
            Candidate::File(path) => Library::open(path),
            Candidate::Plain(name) => Library::open(name),
            Candidate::NoFolder(_) => Err("no such folder".to_owned()),
            // It is not a failure if the library was not loaded before.
            Candidate::Loaded(name) => return Library::already_open(name),
        };
        result.map_err(|reason| attempts.push(Attempt { name: self.to_string(), reason })).ok()
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Candidate::File(path) | Candidate::NoFolder(path) => write!(f, "{}", path.display()),
            Candidate::Plain(name) | Candidate::Loaded(name) => f.write_str(name),
        }
    }
}

/// The candidates for one library, in order and without duplicates.
#[derive(Debug)]
pub struct Candidates {
    files: &'static [&'static str],
    list: Vec<Candidate>,
}

impl Candidates {
    /// An empty list for a library with these file names, best first. A name may have one `*`, which stands for the
    /// digits of a version: in a folder, all files with such a name are candidates, newest first.
    pub fn of(files: &'static [&'static str]) -> Candidates {
        Candidates { files, list: Vec::new() }
    }

    fn push(&mut self, candidate: Candidate) {
        if !self.list.contains(&candidate) {
            self.list.push(candidate);
        }
    }

    /// Adds a file.
    pub fn file(&mut self, file: &Path) {
        self.push(Candidate::File(file.to_owned()));
    }

    /// Adds every file name in a folder.
    pub fn folder(&mut self, folder: &Path) {
        if !folder.is_dir() {
            self.push(Candidate::NoFolder(folder.to_owned()));
            return;
        }
        self.folder_where(folder, |_| true);
    }

    /// Adds the file names that `is_wanted` accepts, in a folder.
    pub fn folder_where(&mut self, folder: &Path, is_wanted: impl Fn(&str) -> bool) {
        for name in self.files {
            let names = match name.split_once('*') {
                Some((start, end)) => versions(folder, start, end),
                None => vec![(*name).to_owned()],
            };
            names.iter().filter(|name| is_wanted(name)).for_each(|name| self.push(Candidate::File(folder.join(name))));
        }
    }

    /// Adds every file name in an installation, looking in the subfolders `below` of its library folders.
    pub fn tree(&mut self, tree: &Tree, below: &[&str]) {
        let places = tree.folders.iter().flat_map(|folder| below.iter().map(move |below| folder.join(below)));
        let there: Vec<PathBuf> = places.filter(|folder| folder.is_dir()).collect();
        there.iter().for_each(|folder| self.folder(folder));
        // One entry for the whole installation is enough.
        if let (true, Some(folder)) = (there.is_empty(), tree.folders.first()) {
            self.push(Candidate::NoFolder(folder.clone()));
        }
    }

    /// Adds a copy that the process has already loaded.
    pub fn loaded(&mut self) {
        self.bare_names().for_each(|name| self.push(Candidate::Loaded(name)));
    }

    /// Adds the bare names, for the system loader.
    pub fn plain(&mut self) {
        self.bare_names().for_each(|name| self.push(Candidate::Plain(name)));
    }

    /// The names that the system loader understands.
    fn bare_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.files.iter().copied().filter(|name| !name.contains('*'))
    }

    /// The finished list.
    pub fn list(self) -> Vec<Candidate> {
        self.list
    }
}

/// The files of a folder whose name is `start`, digits, `end`: the highest number first. Case is ignored, as on
/// Windows.
fn versions(folder: &Path, start: &str, end: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let lower = name.to_ascii_lowercase();
        let digits = lower.strip_prefix(start)?.strip_suffix(end)?;
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        Some((number, name))
    });
    let mut numbered: Vec<(u64, String)> = numbered.collect();
    numbered.sort_by(|a, b| b.cmp(a));
    numbered.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_in_the_middle_of_a_name_is_found_in_the_folder_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["hiprtc0602.dll", "HIPRTC0714.DLL", "hiprtc0701.dll", "hiprtc-builtins0701.dll", "hiprtc.dll"];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        let files = |wanted: &[&str]| -> Vec<Candidate> {
            wanted.iter().map(|name| Candidate::File(folder.path().join(name))).collect()
        };
        let mut list = Candidates::of(&["hiprtc*.dll"]);
        list.folder_where(folder.path(), |name| name.starts_with("hiprtc06"));
        list.folder(folder.path());
        // The system loader does not know patterns.
        list.plain();
        list.loaded();
        assert_eq!(list.list(), files(&["hiprtc0602.dll", "HIPRTC0714.DLL", "hiprtc0701.dll"]));
    }
}
