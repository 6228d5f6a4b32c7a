//! Where to look for cuDNN and its dependencies.

use std::path::{Path, PathBuf};

use hip::sys::Library;

/// Everything the search depends on, so that tests can use other values.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// `AMDGPU_EP_CUDNN_LIBRARY`: this file and no other.
    pub library: Option<PathBuf>,
    /// Folders in `AMDGPU_EP_CUDA_LIBRARY_PATH`, searched first.
    pub folders: Vec<PathBuf>,
    /// Whether the system's loader is asked by name.
    pub plain_names: bool,
}

const CUDNN: &str = "libcudnn.so.9";

/// What was tried, with the loader's reasons.
type Tried = Vec<String>;

impl Search {
    /// The search as configured by this process's environment.
    pub fn from_env() -> Self {
        let library = std::env::var_os("AMDGPU_EP_CUDNN_LIBRARY").filter(|value| !value.is_empty());
        let cuda = hip::sys::Search::from_env();
        Self { library: library.map(PathBuf::from), folders: cuda.cuda_folders, plain_names: true }
    }

    /// cuDNN, and the file or name it was found by.
    pub(super) fn cudnn(&self) -> Result<(Library, PathBuf), Tried> {
        if let Some(file) = &self.library {
            let opened = Library::open(file).map(|library| (library, file.clone()));
            return opened.map_err(|reason| vec![format!("{}: {reason}", file.display())]);
        }
        self.open(&[], CUDNN)
    }

    /// Opens a library that cuDNN will later open by name: the loader then finds the open one.
    pub(super) fn preload(&self, cudnn: &Path, stem: &str, major: usize) -> Result<(), Tried> {
        // pip installs libraries as nvidia/<package>/lib.
        let packages = cudnn.parent().and_then(Path::parent).and_then(Path::parent);
        let beside: Vec<PathBuf> = packages
            .into_iter()
            .flat_map(|root| {
                [format!("cu{major}"), stem.to_lowercase().replace("lt", ""), format!("cuda_{stem}")]
                    .map(|name| root.join(name).join("lib"))
            })
            .collect();
        self.open(&beside, &format!("lib{stem}.so.{major}")).map(drop)
    }

    fn open(&self, beside: &[PathBuf], name: &str) -> Result<(Library, PathBuf), Tried> {
        // Handles of two copies cannot be mixed, and other code may already have loaded one (PyTorch ships its own).
        if let Some(library) = self.plain_names.then(|| Library::already_open(name)).flatten() {
            return Ok((library, PathBuf::from(name)));
        }
        let files = self.folders.iter().chain(beside).map(|folder| folder.join(name)).filter(|file| file.exists());
        let plain = self.plain_names.then(|| PathBuf::from(name));
        let mut tried = Vec::new();
        for file in files.chain(plain) {
            match Library::open(&file) {
                Ok(library) => return Ok((library, file)),
                Err(reason) => tried.push(format!("{}: {reason}", file.display())),
            }
        }
        if tried.is_empty() {
            tried.push(format!("{name} is in none of the given folders"));
        }
        Err(tried)
    }
}
