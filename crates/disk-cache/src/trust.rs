//! Checks whether others could have written to a folder. The rules are in the crate's documentation.
use std::path::PathBuf;

/// A path that passed the check.
pub(crate) enum CheckedPath {
    /// A folder, with its path without symbolic links.
    Folder(PathBuf),
    /// It does not exist yet; the existing folders above it passed.
    Missing,
}

#[cfg(not(unix))]
pub(crate) use plain::{check, check_file};
#[cfg(unix)]
pub(crate) use unix::{check, check_file};

/// Systems whose permissions are not checked.
#[cfg(not(unix))]
mod plain {
    use std::fs::{self, Metadata};
    use std::io;
    use std::path::Path;

    use super::CheckedPath;
    use crate::CacheError;

    pub(crate) fn check(path: &Path) -> Result<CheckedPath, CacheError> {
        match fs::metadata(path) {
            Ok(facts) if facts.is_dir() => Ok(CheckedPath::Folder(path.to_owned())),
            Ok(_) => Err(CacheError::io(path)(io::ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(CheckedPath::Missing),
            Err(error) => Err(CacheError::io(path)(error)),
        }
    }

    pub(crate) fn check_file(facts: &Metadata) -> io::Result<()> {
        if facts.is_file() { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
    }
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::fs::{self, Metadata};
    use std::io;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{self, Component, Path, PathBuf};

    use super::CheckedPath;
    use crate::CacheError;

    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    const PERMISSIONS: u32 = 0o7777;
    /// The same limit as Linux.
    const MAX_LINKS: usize = 40;

    /// A component of a path that is still to be walked.
    enum PathPart {
        Root,
        Up,
        Name(OsString),
    }

    pub(crate) fn check(path: &Path) -> Result<CheckedPath, CacheError> {
        let absolute = path::absolute(path).map_err(CacheError::io(path))?;
        let mut open = parts(&absolute);
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(part) = open.pop() {
            let next = match part {
                PathPart::Root => PathBuf::from("/"),
                PathPart::Up => {
                    // `at` has no symbolic links, so this is the parent folder.
                    at.pop();
                    continue;
                }
                PathPart::Name(name) => at.join(name),
            };
            let facts = match next.symlink_metadata() {
                Ok(facts) => facts,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(CheckedPath::Missing),
                Err(error) => return Err(CacheError::io(next)(error)),
            };
            check_owner(&next, &facts)?;
            if facts.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return Err(CacheError::io(path)(io::Error::other("too many symbolic links")));
                }
                open.extend(parts(&fs::read_link(&next).map_err(CacheError::io(&next))?));
                continue;
            }
            if !facts.is_dir() {
                return Err(CacheError::io(next)(io::ErrorKind::NotADirectory.into()));
            }
            if facts.mode() & STICKY == 0 {
                check_mode(&next, &facts)?;
            }
            at = next;
        }
        let facts = fs::metadata(&at).map_err(CacheError::io(&at))?;
        check_mode(&at, &facts)?;
        Ok(CheckedPath::Folder(at))
    }

    /// The components of a path in reverse order.
    fn parts(path: &Path) -> Vec<PathPart> {
        let parts = path.components().rev().filter_map(|component| match component {
            Component::RootDir => Some(PathPart::Root),
            Component::ParentDir => Some(PathPart::Up),
            Component::Normal(name) => Some(PathPart::Name(name.to_owned())),
            Component::CurDir | Component::Prefix(_) => None,
        });
        parts.collect()
    }

    fn is_ours(facts: &Metadata) -> bool {
        facts.uid() == 0 || facts.uid() == rustix::process::geteuid().as_raw()
    }

    fn check_owner(path: &Path, facts: &Metadata) -> Result<(), CacheError> {
        if is_ours(facts) {
            return Ok(());
        }
        Err(CacheError::OtherOwner { path: path.to_owned(), owner: facts.uid() })
    }

    fn check_mode(path: &Path, facts: &Metadata) -> Result<(), CacheError> {
        if facts.mode() & OTHERS_WRITE == 0 {
            return Ok(());
        }
        Err(CacheError::WritableByOthers { path: path.to_owned(), mode: facts.mode() & PERMISSIONS })
    }

    /// The reason why an entry is not used, from the metadata of the open file.
    pub(crate) fn check_file(facts: &Metadata) -> io::Result<()> {
        let reason = if !facts.is_file() {
            "it is not a regular file"
        } else if !is_ours(facts) {
            "it belongs to another user"
        } else if facts.mode() & OTHERS_WRITE != 0 {
            "other users can write to it"
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
    }
}
