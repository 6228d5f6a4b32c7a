//! Reads files of a model folder. The folder is untrusted: a path may turn out to be a pipe that never ends.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Levels of subfolders that are searched.
const DEPTH: usize = 4;

/// Size limits in bytes, by kind of file.
pub(crate) mod largest {
    /// `genai_config.json`, and configuration files of other libraries. Real ones have a few thousand bytes.
    pub const CONFIG: u64 = 1 << 20;
    /// `tokenizer_config.json`, which lists special tokens. Real ones have up to a million bytes.
    pub const TOKENIZER_CONFIG: u64 = 32 << 20;
    /// `chat_template.jinja`.
    pub const TEMPLATE: u64 = 1 << 20;
    /// `tokenizer.json`. Real ones have up to 40 million bytes.
    pub const TOKENIZER: u64 = 256 << 20;
}

/// Opens a regular file for reading, following links. Rejects pipes, sockets, devices and folders without blocking on
/// them.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening as well, because opening a device can have side effects.
    check_regular(&std::fs::metadata(path)?)?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    check_regular(&file.metadata()?)?;
    Ok(file)
}

fn check_regular(metadata: &Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    let kind = if metadata.is_dir() { "it is a folder" } else { "it is a pipe, a socket or a device" };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{kind}, not a regular file")))
}

/// Reads a regular file of at most this many bytes.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is larger.
pub(crate) fn read(path: &Path, most: u64, help: &str) -> Result<Vec<u8>> {
    let failed = |source| Error::File { path: path.to_path_buf(), source, help: help.to_owned() };
    let file = open_regular(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::new();
    // The file may grow while it is read.
    if size <= most {
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if size > most || bytes.len() as u64 > most {
        return Err(Error::Text {
            path: path.to_path_buf(),
            problem: format!("it has {} bytes, but the limit is {most}", size.max(bytes.len() as u64)),
            help: "copy the file again from the folder's original model".to_owned(),
        });
    }
    Ok(bytes)
}

/// Like [`read`], as UTF-8 text.
///
/// # Errors
/// Like [`read`], and when it is not UTF-8.
pub(crate) fn read_text(path: &Path, most: u64, help: &str) -> Result<String> {
    String::from_utf8(read(path, most, help)?).map_err(|_| Error::File {
        path: path.to_path_buf(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"),
        help: help.to_owned(),
    })
}

/// Rejects a model folder that contains anything but files and folders: ONNX Runtime opens every file that the model
/// names, and would block on a pipe.
///
/// # Errors
/// The error names the first pipe, socket or device.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    match first_special(folder, DEPTH) {
        None => Ok(()),
        Some(path) => Err(Error::File {
            path,
            source: io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, a socket or a device"),
            help: "a model folder may hold only regular files: remove it, or copy the folder again".to_owned(),
        }),
    }
}

fn first_special(folder: &Path, depth: usize) -> Option<PathBuf> {
    // A folder that cannot be listed is reported when one of its files is read.
    let entries = std::fs::read_dir(folder).ok()?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.is_dir() && depth > 0 {
            if let Some(found) = first_special(&path, depth - 1) {
                return Some(found);
            }
        } else if !metadata.is_dir() && !metadata.is_file() {
            return Some(path);
        }
    }
    None
}
