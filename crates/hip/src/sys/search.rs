//! Where to look for libraries: turns a snapshot of the environment into a list of files to open.

use std::env;
use std::path::{Path, PathBuf};

use dylib::{Candidate, Candidates, SearchContext, Tree, rocm};

use super::names::{self, Role};
use crate::DriverKind;

/// All inputs of the search, so that tests can use other values.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Where ROCm may be installed; [`dylib`] defines the order.
    pub rocm: SearchContext,
    /// `AMDGPU_EP_HIP_HOST_LIBRARY`: only this file is tried.
    pub host_library: Option<PathBuf>,
    /// Folders of `AMDGPU_EP_CUDA_LIBRARY_PATH`, searched before the loader's own path.
    pub cuda_folders: Vec<PathBuf>,
    /// CUDA's usual folders, searched after the loader's own path.
    pub cuda_defaults: Vec<PathBuf>,
    /// The folder of the library or executable that contains this code.
    pub own_folder: Option<PathBuf>,
    /// Whether the host driver and CUDA are also searched for by plain file name.
    pub plain_names: bool,
}

impl Search {
    /// The search that this process's environment asks for.
    pub fn from_env() -> Search {
        let cuda_defaults: &[&str] =
            if cfg!(windows) { &[] } else { &["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"] };
        Search {
            rocm: SearchContext::of_process(),
            host_library: env::var_os("AMDGPU_EP_HIP_HOST_LIBRARY")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            cuda_folders: env::var_os("AMDGPU_EP_CUDA_LIBRARY_PATH")
                .map(|list| env::split_paths(&list).filter(|folder| !folder.as_os_str().is_empty()).collect())
                .unwrap_or_default(),
            cuda_defaults: cuda_defaults.iter().map(PathBuf::from).collect(),
            own_folder: dylib::own_folder(),
            plain_names: true,
        }
    }

    /// Candidates for a library, in order. `runtime` is the driver's runtime library, if known: a compiler or BLAS from
    /// the same installation is preferred.
    pub(crate) fn candidates(&self, kind: DriverKind, role: Role, runtime: Option<&Path>) -> Vec<Candidate> {
        let Some(names) = names::library(kind, role) else { return Vec::new() };
        let mut list = Candidates::of(names.files);
        match (kind, role) {
            (DriverKind::Amd, Role::Runtime) => return self.rocm.candidates(&rocm::HIP, None),
            (DriverKind::Amd, Role::BlasLt) => return self.rocm.candidates(&rocm::HIPBLASLT, runtime),
            (DriverKind::Amd, Role::Rtc) => {
                if let Some(runtime) = runtime.or_else(|| self.rocm.hip()) {
                    let tree = Tree::of_hip(runtime);
                    // The runtime may be too old to load code from a newer compiler.
                    if let (Some(tree), Some(major)) = (&tree, major_version(runtime)) {
                        let is_same = |name: &str| is_compiler_of(name, major);
                        tree.folders.iter().for_each(|folder| list.folder_where(folder, is_same));
                    }
                    tree.iter().for_each(|tree| list.tree(tree, rocm::HIPRTC.below));
                    // Before ROCm 6 the compiler is part of the runtime library.
                    list.file(runtime);
                }
                self.rocm.installed(&rocm::HIPRTC, runtime, &mut list);
            }
            (DriverKind::Host, _) => match &self.host_library {
                Some(file) => list.file(file),
                None => {
                    let folders = self.own_folder.as_deref().map(dylib::folders_beside).unwrap_or_default();
                    folders.iter().for_each(|folder| list.folder(folder));
                    self.plain(&mut list);
                }
            },
            (DriverKind::Nvidia, _) => {
                self.cuda_folders.iter().for_each(|folder| list.folder(folder));
                self.plain(&mut list);
                self.cuda_defaults.iter().for_each(|folder| list.folder(folder));
            }
        }
        list.list()
    }

    /// Candidates for the CUDA driver, which comes with the display driver and is normally on the loader's path.
    pub(crate) fn cuda_driver(&self) -> Vec<Candidate> {
        let mut list = Candidates::of(names::CUDA_DRIVER);
        self.plain(&mut list);
        self.cuda_folders.iter().for_each(|folder| list.folder(folder));
        list.list()
    }

    fn plain(&self, list: &mut Candidates) {
        if self.plain_names {
            list.plain();
        }
    }
}

/// The `7` of `libamdhip64.so.7`, `libamdhip64.so.7.2.53211` or `amdhip64_7.dll`.
fn major_version(library: &Path) -> Option<&str> {
    let name = library.file_name()?.to_str()?;
    match name.split_once(".so.") {
        Some((_, versions)) => versions.split('.').next(),
        None => name.split_once("64_")?.1.split('.').next(),
    }
}

/// Whether this is the compiler that belongs to a runtime of this major version: `libhiprtc.so.7` or `hiprtc0701.dll`
/// to 7.
fn is_compiler_of(name: &str, major: &str) -> bool {
    let of_windows = name.to_ascii_lowercase().starts_with(&format!("hiprtc{major:0>2}"));
    name.ends_with(&format!(".so.{major}")) || of_windows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_of_a_runtime_is_known_by_its_name() {
        let major = |name: &str| major_version(Path::new(name)).map(str::to_owned);
        assert_eq!(major("libamdhip64.so.7.2.53211").as_deref(), Some("7"));
        assert_eq!(major("amdhip64_6.dll").as_deref(), Some("6"));
        assert_eq!((major("libamdhip64.so"), major("amdhip64.dll")), (None, None));
        assert!(is_compiler_of("libhiprtc.so.7", "7") && is_compiler_of("hiprtc0714.dll", "7"));
        assert!(!is_compiler_of("libhiprtc.so.6", "7") && !is_compiler_of("hiprtc0602.dll", "7"));
    }

    #[cfg(windows)]
    #[test]
    fn the_compiler_is_searched_next_to_the_runtime_then_inside_it() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["hiprtc0701.dll", "hiprtc0602.dll", "amdhip64_6.dll"];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        let tried =
            Search::default().candidates(DriverKind::Amd, Role::Rtc, Some(&folder.path().join("amdhip64_6.dll")));
        let wanted = ["hiprtc0602.dll", "hiprtc0701.dll", "hiprtc0714.dll", "hiprtc0507.dll", "amdhip64_6.dll"];
        assert_eq!(tried, wanted.map(|name| Candidate::File(folder.path().join(name))));
    }

    #[cfg(unix)]
    #[test]
    fn the_compiler_is_searched_next_to_the_runtime_then_inside_it_then_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("libamdhip64.so.6.4.43484");
        let rocm = SearchContext { plain_names: true, ..SearchContext::default() };
        let search = Search { rocm, ..Search::default() };
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
        assert!(tried.contains(&Candidate::File(deps.join("..").join(dylib::file_name("hip_host")))), "{tried:?}");
        assert!(tried.contains(&Candidate::NoFolder(deps.join("../lib"))), "{tried:?}");
    }
}
