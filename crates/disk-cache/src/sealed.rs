//! Files that begin with a digest of their content: truncated or corrupted files are not used.
use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::Folder;

const DIGEST_BYTES: usize = 32;

impl Folder {
    /// Reads the content of a sealed file.
    ///
    /// # Errors
    /// It does not exist, cannot be read, its digest does not match, or others could have written to it.
    pub fn read_sealed(&self, name: &str) -> io::Result<Vec<u8>> {
        unseal(self.read(name)?)
    }

    /// Writes a sealed file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_sealed(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.replace(name, &[blake3::hash(content).as_bytes(), content])
    }
}

/// Reads the content of a sealed file in an installed folder, which this user did not write; only the digest is
/// checked.
///
/// # Errors
/// It cannot be read, or its digest does not match.
pub fn read_sealed(file: &Path) -> io::Result<Vec<u8>> {
    unseal(fs::read(file)?)
}

/// Writes a sealed file that others may read, to be installed with a library.
///
/// # Errors
/// It cannot be written.
pub fn write_sealed(file: &Path, content: &[u8]) -> io::Result<()> {
    fs::write(file, [blake3::hash(content).as_bytes(), content].concat())
}

/// A short digest of a file's content, for its name: 128 bits are enough to avoid accidental collisions.
///
/// # Errors
/// It cannot be read.
pub fn digest(file: &File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn unseal(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    match bytes.split_at_checked(DIGEST_BYTES) {
        Some((digest, content)) if !content.is_empty() && *blake3::hash(content).as_bytes() == digest => {
            Ok(bytes.split_off(DIGEST_BYTES))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "its digest does not match its content")),
    }
}
