//! Saved programs (`.mxr`): their header, and a private file to load one from memory.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::mgx::{MgxError, Version};

/// The header of a saved program. MIGraphX rejects another `format`, but accepts another `version` and only logs a
/// line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedHeader {
    /// The version of the file format.
    pub format: u64,
    /// The release that wrote it.
    pub version: Version,
}

impl SavedHeader {
    /// Larger than any header.
    const BYTES: u64 = 128;

    /// Reads the header of a file; `None` if it is not a saved program.
    pub fn of_file(file: &Path) -> Option<SavedHeader> {
        let mut head = Vec::new();
        File::open(file).ok()?.take(Self::BYTES).read_to_end(&mut head).ok()?;
        Self::of_bytes(&head)
    }

    /// Reads the header of a saved program in memory; `None` if it is not a saved program.
    pub fn of_bytes(bytes: &[u8]) -> Option<SavedHeader> {
        // MessagePack: a map of five entries, whose first two keys have a fixed order.
        let rest = bytes.strip_prefix(b"\x85\xa7version")?;
        let (format, rest) = number(rest)?;
        let rest = rest.strip_prefix(b"\xb0migraphx_version")?;
        let (&length, rest) = rest.split_first().filter(|(first, _)| **first & 0xe0 == 0xa0)?;
        let text = std::str::from_utf8(rest.get(..usize::from(length & 0x1f))?).ok()?;
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let mut part = || parts.next().flatten();
        Some(SavedHeader { format, version: Version { major: part()?, minor: part()?, patch: part()? } })
    }
}

/// A MessagePack unsigned integer.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let width = match kind {
        0..=0x7f => return Some((u64::from(kind), rest)),
        0xcc => 1,
        0xcd => 2,
        0xce => 4,
        0xcf => 8,
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    Some((digits.iter().fold(0, |sum, &digit| sum << 8 | u64::from(digit)), rest))
}

/// A file that others cannot find or replace, removed when dropped.
pub(super) struct PrivateFile {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _memory: File,
}

impl PrivateFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failed(error: &std::io::Error) -> MgxError {
        MgxError::refused("a program in memory", format!("could not create a private file for it ({error})"))
    }
}

#[cfg(target_os = "linux")]
impl PrivateFile {
    /// Creates a file in memory, which `load` opens through the process's own file-descriptor list.
    pub(super) fn new(bytes: &[u8]) -> Result<PrivateFile, MgxError> {
        use std::os::fd::{AsRawFd, FromRawFd};

        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"migraphx-program".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Self::failed(&std::io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        let mut memory = unsafe { File::from_raw_fd(descriptor) };
        memory.write_all(bytes).map_err(|error| Self::failed(&error))?;
        Ok(PrivateFile { path: format!("/proc/self/fd/{}", memory.as_raw_fd()).into(), _memory: memory })
    }
}

#[cfg(not(target_os = "linux"))]
impl PrivateFile {
    /// Creates a new file in the user's temporary folder.
    pub(super) fn new(bytes: &[u8]) -> Result<PrivateFile, MgxError> {
        use std::hash::{BuildHasher, RandomState};

        let path =
            std::env::temp_dir().join(format!("migraphx-{:016x}.mxr", RandomState::new().hash_one(std::process::id())));
        let write = || File::create_new(&path)?.write_all(bytes);
        write().map_err(|error| Self::failed(&error))?;
        Ok(PrivateFile { path })
    }
}

#[cfg(not(target_os = "linux"))]
impl Drop for PrivateFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(target: "amdgpu_ep::lifetime", file = %self.path.display(), %error, "could not remove a temporary file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"\x85\xa7version\x07\xb0migraphx_version\xa62.14.0\xa7targets\x90";

    #[test]
    fn the_head_of_a_saved_program_is_read() {
        let wanted = SavedHeader { format: 7, version: Version { major: 2, minor: 14, patch: 0 } };
        assert_eq!(SavedHeader::of_bytes(HEAD), Some(wanted));
        let wide = [b"\x85\xa7version\xcd\x01\x02".as_slice(), &HEAD[10..]].concat();
        assert_eq!(SavedHeader::of_bytes(&wide).map(|head| head.format), Some(258));
    }

    #[test]
    fn every_shorter_prefix_and_other_content_is_not_a_header() {
        let end = HEAD.len() - 9;
        assert!((0..end).all(|length| SavedHeader::of_bytes(&HEAD[..length]).is_none()));
        assert_eq!(SavedHeader::of_bytes(b"{\"version\": 7}"), None);
        let odd = [&HEAD[..27], b"\xa3two"].concat();
        assert_eq!(SavedHeader::of_bytes(&odd), None);
    }

    #[test]
    fn a_private_file_holds_the_bytes_as_long_as_it_lives() {
        let file = PrivateFile::new(b"program").unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), b"program");
        let path = file.path().to_owned();
        drop(file);
        assert_ne!(std::fs::read(path).ok().as_deref(), Some(b"program".as_slice()));
    }
}
