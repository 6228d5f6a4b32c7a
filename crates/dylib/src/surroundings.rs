//! Everything the search depends on, turned into a list of things to try. The order is in the crate's documentation.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use crate::rocm::{self, Library};
use crate::{Candidate, Candidates, Origin, Tree, is_privileged, own_folder};

/// Variables that name an installation, most specific first.
const ROOTS: [&str; 3] = ["THEROCK_DIST", "ROCM_PATH", "HIP_PATH"];

/// What the process and its environment say. A plain value, so that the search can be tried with others.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The variables that are set: those that name an installation, and those that name one library.
    pub variables: BTreeMap<&'static str, PathBuf>,
    /// The folder that holds `rocm` and `rocm-*`.
    pub opt: Option<PathBuf>,
    /// The folder of the library or executable that holds this code.
    pub own_folder: Option<PathBuf>,
    /// The HIP runtime that the process has already.
    pub hip: Option<PathBuf>,
    /// Whether bare names are given to the system's loader.
    pub plain_names: bool,
}

impl Surroundings {
    /// What this process says now.
    pub fn of_process() -> Surroundings {
        let is_trusted = !is_privileged();
        let named = rocm::LIBRARIES.iter().filter_map(|library| library.variable);
        let value = |name| env::var_os(name).filter(|value| !value.is_empty()).map(|value| (name, value.into()));
        Surroundings {
            variables: ROOTS.into_iter().chain(named).filter(|_| is_trusted).filter_map(value).collect(),
            opt: (!cfg!(windows)).then(|| PathBuf::from("/opt")),
            own_folder: own_folder().filter(|_| is_trusted),
            hip: hip_of_process(),
            plain_names: true,
        }
    }

    /// What to try for a library, in order. `hip` is the HIP runtime in use, where the caller knows it.
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

    /// Adds every installation and the bare names, which are all there is to try where nobody names the library.
    pub fn installed(&self, library: &Library, hip: Option<&Path>, list: &mut Candidates) {
        self.trees(library, hip).iter().for_each(|tree| list.tree(tree, library.below));
        if self.plain_names {
            list.plain();
        }
    }

    /// The installations to look into for a library, in order.
    pub fn trees(&self, library: &Library, hip: Option<&Path>) -> Vec<Tree> {
        let hip = hip.or_else(|| self.hip()).filter(|_| *library != rocm::HIP);
        let variables = ROOTS.iter().filter_map(|name| Some((*name, self.variables.get(name)?)));
        let python = self.own_folder.as_deref().and_then(Tree::of_python);
        let mut trees: Vec<Tree> = hip.and_then(Tree::of_hip).into_iter().collect();
        trees.extend(variables.map(|(name, root)| Tree::at(root, Origin::Variable(name))));
        trees.extend(self.opt.iter().flat_map(|parent| Tree::usual(parent)));
        trees.extend(python);
        // `/opt/rocm` is usually a link to one of its neighbours, and a variable may name either.
        let mut known: Vec<Vec<PathBuf>> = Vec::new();
        trees.retain(|tree| {
            let real = tree.real_folders();
            let is_new = !known.contains(&real);
            known.push(real);
            is_new
        });
        trees
    }

    /// What the library's own variable names.
    pub fn named(&self, library: &Library) -> Option<&Path> {
        self.variables.get(library.variable?).map(PathBuf::as_path)
    }

    /// The HIP runtime whose installation the other libraries should come from.
    pub fn hip(&self) -> Option<&Path> {
        self.named(&rocm::HIP).or(self.hip.as_deref())
    }
}

/// The HIP runtime that somebody in this process opened before.
fn hip_of_process() -> Option<PathBuf> {
    let opened = rocm::HIP.files.iter().find_map(|name| crate::Library::already_open(name))?;
    opened.file_of(rocm::HIP.anchor)
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "helpers of tests are tests")]
mod tests;
