//! Everything the search depends on, turned into a list of candidates. The crate documentation describes the order.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use crate::rocm::{self, Library};
use crate::{Candidate, Candidates, Origin, Tree, is_privileged, own_folder};

/// Environment variables that name an installation, most specific first.
const ROOTS: [&str; 3] = ["THEROCK_DIST", "ROCM_PATH", "HIP_PATH"];

/// The state of the process and its environment, as a plain value, so that tests can pass a different one.
#[derive(Clone, Debug, Default)]
pub struct SearchContext {
    /// The environment variables that are set: those that name an installation, and those that name one library.
    pub variables: BTreeMap<&'static str, PathBuf>,
    /// The folder that holds `rocm` and `rocm-*`.
    pub opt: Option<PathBuf>,
    /// The folder of the library or executable that holds this code.
    pub own_folder: Option<PathBuf>,
    /// The HIP runtime that the process has already loaded.
    pub hip: Option<PathBuf>,
    /// Whether to pass bare names to the system loader.
    pub plain_names: bool,
}

impl SearchContext {
    /// The current state of this process.
    pub fn of_process() -> SearchContext {
        let is_trusted = !is_privileged();
        let named = rocm::LIBRARIES.iter().filter_map(|library| library.variable);
        let value = |name| env::var_os(name).filter(|value| !value.is_empty()).map(|value| (name, value.into()));
        SearchContext {
            variables: ROOTS.into_iter().chain(named).filter(|_| is_trusted).filter_map(value).collect(),
            opt: (!cfg!(windows)).then(|| PathBuf::from("/opt")),
            own_folder: own_folder().filter(|_| is_trusted),
            hip: hip_of_process(),
            plain_names: true,
        }
    }

    /// The candidates for a library, in order. `hip` is the HIP runtime in use, if the caller knows it.
    pub fn candidates(&self, library: &Library, hip: Option<&Path>) -> Vec<Candidate> {
        let mut list = Candidates::of(library.files);
        match self.named(library) {
            // A user who names a library wants that one and no other.
            Some(folder) if folder.is_dir() => list.folder(folder),
            Some(file) => list.file(file),
            None => {
                if library.is_shared && self.plain_names {
                    list.loaded();
                }
                if let (true, Some(folder)) = (library.is_beside_us, &self.own_folder) {
                    list.folder(folder);
                }
                self.installed(library, hip, &mut list);
            }
        }
        list.list()
    }

    /// Adds every installation and the bare names: the places to search if the user does not name the library.
    pub fn installed(&self, library: &Library, hip: Option<&Path>, list: &mut Candidates) {
        self.trees(library, hip).iter().for_each(|tree| list.tree(tree, library.below));
        if self.plain_names {
            list.plain();
        }
    }

    /// The installations to search for a library, in order.
    pub fn trees(&self, library: &Library, hip: Option<&Path>) -> Vec<Tree> {
        let hip = hip.or_else(|| self.hip()).filter(|_| *library != rocm::HIP);
        let variables = ROOTS.iter().filter_map(|name| Some((*name, self.variables.get(name)?)));
        let python = self.own_folder.as_deref().and_then(Tree::of_python);
        let mut trees: Vec<Tree> = hip.and_then(Tree::of_hip).into_iter().collect();
        trees.extend(variables.map(|(name, root)| Tree::at(root, Origin::Variable(name))));
        trees.extend(self.opt.iter().flat_map(|parent| Tree::usual(parent)));
        trees.extend(python);
        // `/opt/rocm` is usually a symlink to one of its neighbours, and a variable may name either.
        let mut known: Vec<Vec<PathBuf>> = Vec::new();
        trees.retain(|tree| {
            let real = tree.real_folders();
            let is_new = !known.contains(&real);
            known.push(real);
            is_new
        });
        trees
    }

    /// The path in the library's own variable.
    pub fn named(&self, library: &Library) -> Option<&Path> {
        self.variables.get(library.variable?).map(PathBuf::as_path)
    }

    /// The HIP runtime whose installation the other libraries should come from.
    pub fn hip(&self) -> Option<&Path> {
        self.named(&rocm::HIP).or(self.hip.as_deref())
    }
}

/// The HIP runtime that this process has already loaded.
fn hip_of_process() -> Option<PathBuf> {
    let opened = rocm::HIP.files.iter().find_map(|name| crate::Library::already_open(name))?;
    opened.file_of(rocm::HIP.anchor)
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "test helpers may panic")]
mod tests;
