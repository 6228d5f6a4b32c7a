//! Where the C library is looked for: a snapshot of the environment turned into a list of things to open.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of the C library, best first.
pub(super) const NAMES: &[&str] =
    if cfg!(windows) { &["migraphx_c.dll"] } else { &["libmigraphx_c.so.3", "libmigraphx_c.so"] };

/// Set to a file, or to a folder that holds one of the names.
pub(super) const VARIABLE: &str = "AMDGPU_EP_MIGRAPHX_LIBRARY";

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// A file by its full path.
    File(PathBuf),
    /// A name for the system's loader.
    Plain(&'static str),
    /// A name that counts only where the process has such a library already.
    Loaded(&'static str),
}

/// Everything the search depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// This file or folder and no other.
    pub explicit: Option<PathBuf>,
    /// `ROCM_PATH`.
    pub rocm: Option<PathBuf>,
    /// The usual places of ROCm, best first.
    pub usual: Vec<PathBuf>,
    /// The folder that holds this code.
    pub own_folder: Option<PathBuf>,
}

impl Search {
    /// The search as the caller and this process's environment ask for it.
    pub(super) fn from_env(explicit: Option<&Path>) -> Search {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Search {
            explicit: explicit.map(Path::to_owned).or_else(|| variable(VARIABLE)),
            rocm: variable("ROCM_PATH"),
            usual: if cfg!(windows) { Vec::new() } else { usual_places(Path::new("/opt")) },
            own_folder: own_folder(),
        }
    }

    /// What to try, in order.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        if let Some(explicit) = &self.explicit {
            return if explicit.is_dir() { in_folder(explicit) } else { vec![Candidate::File(explicit.clone())] };
        }
        let mut found: Vec<Candidate> = NAMES.iter().map(|name| Candidate::Loaded(name)).collect();
        if cfg!(windows) {
            found.extend(self.own_folder.iter().flat_map(|folder| in_folder(folder)));
        }
        found.extend(self.rocm.iter().flat_map(|root| in_rocm(root)));
        found.extend(NAMES.iter().map(|name| Candidate::Plain(name)));
        found.extend(self.usual.iter().flat_map(|root| in_rocm(root)));
        found.extend(self.own_folder.iter().flat_map(|folder| wheels(folder)).flat_map(|root| in_rocm(&root)));
        found
    }
}

/// The folders under a ROCm root that hold MIGraphX's libraries.
fn in_rocm(root: &Path) -> Vec<Candidate> {
    if cfg!(windows) {
        return in_folder(&root.join("bin"));
    }
    [root.join("lib/migraphx/lib"), root.join("lib")].iter().flat_map(|folder| in_folder(folder)).collect()
}

/// The names in a folder; none where the folder does not exist.
fn in_folder(folder: &Path) -> Vec<Candidate> {
    let names = NAMES.iter().filter(|_| folder.is_dir());
    names.map(|name| Candidate::File(folder.join(name))).collect()
}

/// `rocm` and then `rocm-*`, newest first.
fn usual_places(parent: &Path) -> Vec<PathBuf> {
    let mut versioned = entries(parent, |name| name.starts_with("rocm-"));
    versioned.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    let mut places = vec![parent.join("rocm")];
    places.extend(versioned);
    places.retain(|place| place.is_dir());
    places
}

/// The numbers in a file name, so that 7.10 counts as newer than 7.9.
fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Python packages beside ours that may bring MIGraphX along.
fn wheels(own_folder: &Path) -> Vec<PathBuf> {
    let is_site = |folder: &&Path| {
        let name = folder.file_name().and_then(OsStr::to_str);
        matches!(name, Some("site-packages" | "dist-packages"))
    };
    let Some(site) = own_folder.ancestors().find(is_site) else { return Vec::new() };
    entries(site, |name| ["migraphx", "rocm", "_rocm_sdk"].iter().any(|prefix| name.starts_with(prefix)))
}

fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(&wanted)).map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// The folder of the library that holds this code.
fn own_folder() -> Option<PathBuf> {
    let here = own_folder as fn() -> Option<PathBuf> as *const ();
    let file = hip::sys::file_at(here as usize).or_else(|| env::current_exe().ok())?;
    let file = fs::canonicalize(&file).unwrap_or(file);
    file.parent().map(Path::to_owned)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_file_is_the_only_one_tried() {
        let file = PathBuf::from("/nowhere/libmigraphx_c.so.3");
        let search = Search { explicit: Some(file.clone()), rocm: Some("/opt/rocm".into()), ..Search::default() };
        assert_eq!(search.candidates(), [Candidate::File(file)]);
    }

    #[test]
    fn an_explicit_folder_stands_for_the_names_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search { explicit: Some(folder.path().into()), ..Search::default() };
        let wanted = NAMES.map_paths(folder.path());
        assert_eq!(search.candidates(), wanted);
    }

    #[test]
    fn a_copy_in_the_process_comes_first_then_rocm_path_then_names_then_usual_places() {
        let root = tempfile::tempdir().unwrap();
        for folder in
            ["mine/lib/migraphx/lib", "opt/rocm/lib", "opt/rocm-7.9.0/lib", "opt/rocm-7.10.0/lib", "opt/other"]
        {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let search = Search {
            rocm: Some(root.path().join("mine")),
            usual: usual_places(&root.path().join("opt")),
            ..Search::default()
        };
        let tried = search.candidates();
        let mut wanted: Vec<Candidate> = NAMES.iter().map(|name| Candidate::Loaded(name)).collect();
        wanted.extend(NAMES.map_paths(&root.path().join("mine/lib/migraphx/lib")));
        wanted.extend(NAMES.map_paths(&root.path().join("mine/lib")));
        wanted.extend(NAMES.iter().map(|name| Candidate::Plain(name)));
        for place in ["opt/rocm/lib", "opt/rocm-7.10.0/lib", "opt/rocm-7.9.0/lib"] {
            wanted.extend(NAMES.map_paths(&root.path().join(place)));
        }
        assert_eq!(tried, wanted);
    }

    #[test]
    fn wheels_beside_ours_are_looked_into_last() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("lib/python3.11/site-packages");
        for folder in ["amdgpu_ep/lib", "_rocm_sdk_libraries/lib", "numpy/lib"] {
            fs::create_dir_all(site.join(folder)).unwrap();
        }
        let search = Search { own_folder: Some(site.join("amdgpu_ep/lib")), ..Search::default() };
        let tried = search.candidates();
        assert_eq!(tried.last(), Some(&Candidate::File(site.join("_rocm_sdk_libraries/lib/libmigraphx_c.so"))));
        assert!(!tried.iter().any(|candidate| format!("{candidate:?}").contains("numpy")));
    }

    trait MapPaths {
        fn map_paths(&self, folder: &Path) -> Vec<Candidate>;
    }

    impl MapPaths for [&str] {
        fn map_paths(&self, folder: &Path) -> Vec<Candidate> {
            self.iter().filter(|_| folder.is_dir()).map(|name| Candidate::File(folder.join(name))).collect()
        }
    }
}
