//! Where libraries are looked for: a snapshot of the environment turned into a list of files to open.

use std::env;
use std::path::{Path, PathBuf};

use super::loader;
use super::names::{self, Role};
use crate::DriverKind;

/// Everything the search depends on, so that it can be tried with other values.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// `AMDGPU_EP_HIP_LIBRARY`: this file and no other.
    pub hip_library: Option<PathBuf>,
    /// `AMDGPU_EP_HIP_HOST_LIBRARY`: this file and no other.
    pub host_library: Option<PathBuf>,
    /// Folders of `ROCM_PATH` and `HIP_PATH`, then the usual place.
    pub rocm_folders: Vec<PathBuf>,
    /// Folders of `AMDGPU_EP_CUDA_LIBRARY_PATH`, asked before the loader's own search.
    pub cuda_folders: Vec<PathBuf>,
    /// The usual places of CUDA, asked after the loader's own search.
    pub cuda_defaults: Vec<PathBuf>,
    /// The folder of the library or executable that holds this code.
    pub own_folder: Option<PathBuf>,
    /// Whether plain names are given to the system's loader.
    pub plain_names: bool,
}

/// One thing to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// A file by its full path.
    File(PathBuf),
    /// A name for the system's loader.
    Plain(&'static str),
    /// A name that counts only where the process has such a library already.
    Loaded(&'static str),
    /// A folder that is not there, kept so that the report can say so once.
    NoFolder(PathBuf),
}

fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

impl Search {
    /// The search as this process's environment asks for it.
    pub fn from_env() -> Search {
        let libraries = if cfg!(windows) { "bin" } else { "lib" };
        let rocm = [variable("ROCM_PATH"), variable("HIP_PATH")].into_iter().flatten().map(|root| root.join(libraries));
        let usual_rocm = (!cfg!(windows)).then(|| PathBuf::from("/opt/rocm/lib"));
        let mut rocm_folders: Vec<PathBuf> = Vec::new();
        for folder in rocm.chain(usual_rocm) {
            if !rocm_folders.contains(&folder) {
                rocm_folders.push(folder);
            }
        }
        let cuda_defaults: &[&str] =
            if cfg!(windows) { &[] } else { &["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"] };
        Search {
            hip_library: variable("AMDGPU_EP_HIP_LIBRARY"),
            host_library: variable("AMDGPU_EP_HIP_HOST_LIBRARY"),
            rocm_folders,
            cuda_folders: env::var_os("AMDGPU_EP_CUDA_LIBRARY_PATH")
                .map(|list| env::split_paths(&list).filter(|folder| !folder.as_os_str().is_empty()).collect())
                .unwrap_or_default(),
            cuda_defaults: cuda_defaults.iter().map(PathBuf::from).collect(),
            own_folder: loader::own_folder(),
            plain_names: true,
        }
    }

    /// What to try for a library, in order. `runtime` is the driver's runtime library, where it is already known: its
    /// folder comes first, so that a compiler or BLAS of the same installation is preferred.
    pub(crate) fn candidates(&self, kind: DriverKind, role: Role, runtime: Option<&Path>) -> Vec<Candidate> {
        let Some(names) = names::library(kind, role) else { return Vec::new() };
        let mut list = List { files: names.files, found: Vec::new() };
        match (kind, role) {
            (DriverKind::Host, _) => match &self.host_library {
                Some(file) => list.file(file),
                None => {
                    for folder in self.host_folders() {
                        list.folder(&folder);
                    }
                    list.plain(self.plain_names);
                }
            },
            (DriverKind::Amd, Role::Runtime) => match &self.hip_library {
                Some(file) => list.file(file),
                None => {
                    // Pointers and streams of two copies of the runtime do not mix, and others (PyTorch brings its own)
                    // may have loaded one before.
                    list.loaded(self.plain_names);
                    self.amd_rest(&mut list);
                }
            },
            (DriverKind::Amd, _) => {
                let runtime = runtime.or(self.hip_library.as_deref());
                if let Some(folder) = runtime.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty()) {
                    // Code that a newer compiler writes may be more than the runtime can load.
                    if let (Role::Rtc, Some(major)) = (role, runtime.and_then(major_version)) {
                        list.first(folder, &format!(".so.{major}"));
                    }
                    list.folder(folder);
                }
                // Before ROCm 6 the compiler lives in the runtime library itself.
                if let (Role::Rtc, Some(runtime)) = (role, runtime) {
                    list.file(runtime);
                }
                self.amd_rest(&mut list);
            }
            (DriverKind::Nvidia, _) => {
                for folder in &self.cuda_folders {
                    list.folder(folder);
                }
                list.plain(self.plain_names);
                for folder in &self.cuda_defaults {
                    list.folder(folder);
                }
            }
        }
        list.found
    }

    /// What to try for the CUDA driver, which comes with the display driver and is normally on the loader's path.
    pub(crate) fn cuda_driver(&self) -> Vec<Candidate> {
        let mut list = List { files: names::CUDA_DRIVER, found: Vec::new() };
        list.plain(self.plain_names);
        for folder in &self.cuda_folders {
            list.folder(folder);
        }
        list.found
    }

    fn amd_rest(&self, list: &mut List) {
        for folder in &self.rocm_folders {
            list.folder(folder);
        }
        list.plain(self.plain_names);
    }

    fn host_folders(&self) -> Vec<PathBuf> {
        let Some(own) = &self.own_folder else { return Vec::new() };
        let mut folders = vec![own.clone(), own.join("../lib")];
        // Cargo puts tests and examples one folder below the libraries they use.
        if own.ends_with("deps") || own.ends_with("examples") {
            folders.push(own.join(".."));
        }
        folders
    }
}

/// The `7` of `libamdhip64.so.7` or `libamdhip64.so.7.2.53211`.
fn major_version(library: &Path) -> Option<&str> {
    let (_, versions) = library.file_name()?.to_str()?.split_once(".so.")?;
    versions.split('.').next()
}

struct List {
    files: &'static [&'static str],
    found: Vec<Candidate>,
}

impl List {
    fn push(&mut self, candidate: Candidate) {
        if !self.found.contains(&candidate) {
            self.found.push(candidate);
        }
    }

    fn file(&mut self, file: &Path) {
        self.push(Candidate::File(file.to_owned()));
    }

    fn folder(&mut self, folder: &Path) {
        if !folder.is_dir() {
            self.push(Candidate::NoFolder(folder.to_owned()));
            return;
        }
        for name in self.files {
            self.push(Candidate::File(folder.join(name)));
        }
    }

    /// The names with this ending, before all others.
    fn first(&mut self, folder: &Path, ending: &str) {
        let wanted = |name: &&&str| name.ends_with(ending);
        for name in self.files.iter().filter(wanted) {
            self.push(Candidate::File(folder.join(name)));
        }
    }

    fn loaded(&mut self, wanted: bool) {
        if wanted {
            for name in self.files {
                self.push(Candidate::Loaded(name));
            }
        }
    }

    fn plain(&mut self, wanted: bool) {
        if wanted {
            for name in self.files {
                self.push(Candidate::Plain(name));
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_library_is_the_only_one_tried() {
        let file = PathBuf::from("/nowhere/libamdhip64.so.7");
        let search = Search { hip_library: Some(file.clone()), plain_names: true, ..Search::default() };
        assert_eq!(search.candidates(DriverKind::Amd, Role::Runtime, None), [Candidate::File(file)]);
    }

    #[test]
    fn configured_folders_come_before_plain_names_newest_first() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search {
            rocm_folders: vec![folder.path().to_owned(), "/nowhere/lib".into()],
            plain_names: true,
            ..Search::default()
        };
        let tried = search.candidates(DriverKind::Amd, Role::Runtime, None);
        let (loaded, tried) = tried.split_at(4);
        assert_eq!(loaded[0], Candidate::Loaded("libamdhip64.so.7"), "a copy in the process comes first");
        assert!(loaded.iter().all(|candidate| matches!(candidate, Candidate::Loaded(_))), "{loaded:?}");
        assert_eq!(tried[0], Candidate::File(folder.path().join("libamdhip64.so.7")));
        assert_eq!(tried[3], Candidate::File(folder.path().join("libamdhip64.so")));
        assert_eq!(tried[4], Candidate::NoFolder("/nowhere/lib".into()));
        assert_eq!(tried[5], Candidate::Plain("libamdhip64.so.7"));
        assert_eq!(tried.last(), Some(&Candidate::Plain("libamdhip64.so")));
    }

    #[test]
    fn the_compiler_is_sought_next_to_the_runtime_then_inside_it_then_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("libamdhip64.so.6.4.43484");
        let search = Search { plain_names: true, ..Search::default() };
        let tried = search.candidates(DriverKind::Amd, Role::Rtc, Some(&runtime));
        let beside = |name: &str| Candidate::File(folder.path().join(name));
        assert_eq!(tried[0], beside("libhiprtc.so.6"), "the runtime's own version comes first");
        assert_eq!(tried[1], beside("libhiprtc.so.7"));
        assert_eq!(tried[4], Candidate::File(runtime));
        assert_eq!(tried[5], Candidate::Plain("libhiprtc.so.7"));
        assert_eq!(tried.len(), 9);
    }

    #[test]
    fn cargo_output_of_the_host_driver_is_found_from_a_test_binary() {
        let target = tempfile::tempdir().unwrap();
        let deps = target.path().join("deps");
        std::fs::create_dir(&deps).unwrap();
        let search = Search { own_folder: Some(deps.clone()), ..Search::default() };
        let tried = search.candidates(DriverKind::Host, Role::Runtime, None);
        assert!(tried.contains(&Candidate::File(deps.join("../libhip_host.so"))), "{tried:?}");
        assert!(tried.contains(&Candidate::NoFolder(deps.join("../lib"))), "{tried:?}");
    }
}
