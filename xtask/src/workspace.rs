//! Where things lie in the repository.

use std::path::{Path, PathBuf};

/// The repository root and the places under it that the commands share.
pub struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace this binary was built in.
    pub fn locate() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: manifest.parent().unwrap_or(manifest).to_path_buf() }
    }

    /// Another one, for tests.
    #[cfg(test)]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the commands make. Fixed even when `CARGO_TARGET_DIR` moves cargo's own output, so that tests find it.
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    pub fn venv(&self) -> PathBuf {
        self.target().join("venv")
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// `path` as a person would type it from the repository root.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
}
