//! Paths in the repository.

use std::path::{Path, PathBuf};

/// The repository root and the paths below it that the commands share.
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace this binary was built in.
    pub fn locate() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: manifest.parent().unwrap_or(manifest).to_path_buf() }
    }

    /// A workspace in another folder, for tests.
    #[cfg(test)]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The output folder of the commands. Fixed even if `CARGO_TARGET_DIR` moves cargo's own output, so that tests find
    /// it.
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    pub fn venv(&self) -> PathBuf {
        self.target().join("venv")
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// `path` as a user would type it from the repository root.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}

/// The name of a crate's folder. Some packages have longer names.
pub fn folder_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
