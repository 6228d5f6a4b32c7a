//! The user's cache folder: where it is, what is in it, and clearing it.
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use crate::{CacheError, Entry, Folder};

/// A folder of the cache and its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The folder below the root.
    pub folder: &'static str,
    /// The extension of its files.
    pub extension: &'static str,
    /// A description of its files, for users.
    pub what: &'static str,
}

/// All folders below the root.
pub const KINDS: [Kind; 4] = [
    Kind { folder: "kernels", extension: "co", what: "compiled kernels" },
    Kind { folder: "tuning", extension: "tsv", what: "tuning measurements" },
    Kind { folder: "migraphx", extension: "mxr", what: "MIGraphX programs" },
    Kind { folder: "cudnn", extension: "plan", what: "cuDNN plans" },
];

/// Where the MIGraphX backend keeps its locks.
const LOCKS: &str = "locks";

/// The cache folder that the environment names, and the variable that named it: `AMDGPU_EP_CACHE_DIR`, otherwise a
/// folder below the user's own cache folder. Relative paths are accepted only in `AMDGPU_EP_CACHE_DIR`.
pub fn root(variable: impl Fn(&str) -> Option<OsString>) -> Option<(PathBuf, &'static str)> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
    let below = |name: &'static str, rest: &str| {
        // The specification of XDG_CACHE_HOME tells programs to ignore relative paths.
        Some((path(name).filter(|base| base.is_absolute())?.join(rest), name))
    };
    let usual = || match cfg!(windows) {
        true => below("LOCALAPPDATA", "amdgpu-ep\\cache"),
        false => below("XDG_CACHE_HOME", "amdgpu-ep").or_else(|| below("HOME", ".cache/amdgpu-ep")),
    };
    path("AMDGPU_EP_CACHE_DIR").map(|path| (path, "AMDGPU_EP_CACHE_DIR")).or_else(usual)
}

/// A cached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// The kind.
    pub kind: Kind,
    /// The path.
    pub path: PathBuf,
    /// The name, size and last use.
    pub entry: Entry,
}

/// The files in a cache folder, kind by kind, the least recently used first; empty if the folder does not exist. The
/// root may also hold other things: only files whose names look like cache entries are listed.
///
/// # Errors
/// A folder is refused, or cannot be listed.
pub fn list(root: &Path) -> Result<Vec<CachedFile>, CacheError> {
    let mut files = Vec::new();
    for (kind, folder) in folders(root)? {
        let entries = folder.entries(kind.extension).map_err(CacheError::io(folder.path()))?;
        let ours = entries.into_iter().filter(|entry| is_named_by_digest(&entry.name));
        files.extend(ours.map(|entry| CachedFile { kind, path: folder.file(&entry.name), entry }));
    }
    Ok(files)
}

/// What was removed.
#[derive(Debug, Default)]
pub struct Cleared {
    /// The number of cached files.
    pub files: usize,
    /// The total size of these files.
    pub bytes: u64,
    /// Cached files that could not be removed. On Windows, a file that another process uses stays.
    pub left: Vec<FileLeft>,
}

/// A cached file that could not be removed.
#[derive(Debug)]
pub struct FileLeft {
    /// Its path.
    pub path: PathBuf,
    /// The system's error.
    pub reason: io::Error,
}

/// Removes the files that [`list`] lists, and unfinished files that were not written to for a minute. Other files stay.
/// Running sessions do not fail; they recompile what they need.
///
/// # Errors
/// A folder is refused or cannot be listed.
pub fn clear(root: &Path) -> Result<Cleared, CacheError> {
    let mut cleared = Cleared::default();
    for CachedFile { path, entry, .. } in list(root)? {
        match fs::remove_file(&path) {
            Ok(()) => {
                cleared.files += 1;
                cleared.bytes += entry.bytes;
            }
            // Another process evicted it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(reason) => cleared.left.push(FileLeft { path, reason }),
        }
    }
    for (_, folder) in folders(root)? {
        folder.remove_unfinished(Duration::from_secs(60), is_named_by_digest).map_err(CacheError::io(folder.path()))?;
        if let Some(locks) = Folder::open(&folder.file(LOCKS))? {
            remove_locks(&locks);
        }
    }
    Ok(cleared)
}

/// Whether a file name looks like a cache entry: it ends with a digest, before any extension.
fn is_named_by_digest(name: &str) -> bool {
    const SHORTEST: usize = 16;
    let stem = name.split('.').next().unwrap_or_default();
    let digest = stem.rsplit('-').next().unwrap_or_default();
    digest.len() >= SHORTEST && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn folders(root: &Path) -> Result<Vec<(Kind, Folder)>, CacheError> {
    let open = |kind: Kind| Folder::open(&root.join(kind.folder)).map(|folder| folder.map(|folder| (kind, folder)));
    KINDS.into_iter().map(open).filter_map(Result::transpose).collect()
}

/// Removes the locks that are not held.
fn remove_locks(locks: &Folder) {
    for lock in fs::read_dir(locks.path()).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if lock.file_name().and_then(OsStr::to_str).is_some_and(is_named_by_digest)
            && let Ok(held) = fs::File::options().append(true).open(&lock)
            && held.try_lock().is_ok()
        {
            // The file is empty, so it costs nothing if this fails.
            let _ = fs::remove_file(&lock);
        }
    }
}
