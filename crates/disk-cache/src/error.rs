//! Why a cache folder is not used.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a cache folder is not used. Callers continue without a cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Other users can write to it, or could replace a folder on the way to it.
    #[error(
        "other users can write to {} (mode {mode:o})\n  help: chmod go-w {}, or set another cache folder",
        path.display(), path.display()
    )]
    WritableByOthers {
        /// The folder itself or one above it.
        path: PathBuf,
        /// The permissions.
        mode: u32,
    },
    /// The folder, a folder above it, or a symbolic link on the way to it belongs to another user.
    #[error(
        "{} belongs to the user with id {owner}, who can change its contents\n  help: set your own cache folder, or chown it",
        path.display()
    )]
    OtherOwner {
        /// The folder itself, one above it, or a symbolic link.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path it failed on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl CacheError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// True if the folder is refused because others could have written to it; false for a system error.
    pub fn is_refusal(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }

    /// True the first time a refusal is seen in this process, and always for other errors: several caches below one
    /// folder log only one line.
    pub fn is_news(&self) -> bool {
        /// Hashes of the refusals so far. Nothing is on the heap, so an unloaded library leaks nothing.
        static TOLD: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];
        if !self.is_refusal() {
            return true;
        }
        let mut hasher = DefaultHasher::new();
        self.to_string().hash(&mut hasher);
        let digest = hasher.finish().max(1);
        for told in &TOLD {
            match told.compare_exchange(0, digest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) if other == digest => return false,
                Err(_) => {}
            }
        }
        true
    }
}
