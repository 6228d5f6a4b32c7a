//! Candidates: the places to try for a library.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::load::Attempt;
use crate::{Library, Tree};

/// One place to try.
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
    /// An empty list for a library with these file names, best first.
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
        for name in self.files {
            self.push(Candidate::File(folder.join(name)));
        }
    }

    /// Adds the file names with this ending in a folder.
    pub fn folder_by_ending(&mut self, folder: &Path, ending: &str) {
        for name in self.files.iter().filter(|name| name.ends_with(ending)) {
            self.push(Candidate::File(folder.join(name)));
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
        self.files.iter().for_each(|name| self.push(Candidate::Loaded(name)));
    }

    /// Adds the bare names, for the system loader.
    pub fn plain(&mut self) {
        self.files.iter().for_each(|name| self.push(Candidate::Plain(name)));
    }

    /// The finished list.
    pub fn list(self) -> Vec<Candidate> {
        self.list
    }
}
