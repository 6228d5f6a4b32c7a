//! Atomic file writes: to a temporary file beside the target, which is then renamed.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::{Builder, NamedTempFile};

use crate::interrupt::Cleanup;

/// Writes a file, replacing an existing one. If that fails or is interrupted, the old file stays.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    replaced(path, bytes).with_context(|| format!("{} could not be written", path.display()))
}

fn replaced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Pipes and devices are written to, not replaced.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return std::fs::write(path, bytes);
    }
    // A symbolic link stays, and its target is replaced.
    let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (mut beside, cleanup) = Cleanup::making(|| beside(folder))?;
    beside.write_all(bytes)?;
    if let Ok(found) = place.metadata() {
        beside.as_file().set_permissions(found.permissions())?;
    }
    beside.persist(&place).map_err(|error| error.error)?;
    drop(cleanup);
    Ok(())
}

/// A temporary file with the permissions of a normal file, subject to the user's umask.
fn beside(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = Builder::new();
    builder.prefix(".writing-");
    #[cfg(unix)]
    builder.permissions(<std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_replaced_with_its_permissions_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        write(&file, b"one").unwrap();
        let usual = folder.path().join("usual");
        fs::write(&usual, "").unwrap();
        assert_eq!(file.metadata().unwrap().permissions(), usual.metadata().unwrap().permissions());
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        write(&link, b"two").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), link.is_symlink()), ("two", true));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn a_device_is_written_to() {
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
