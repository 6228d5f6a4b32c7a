//! Files of a model folder. A folder comes from a stranger: what stands where a file should be may be a pipe that never ends.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Folders inside of folders that are looked through.
const DEPTH: usize = 4;

/// Bytes of the largest file that is read, by what it is.
pub(crate) mod largest {
    /// `genai_config.json`, and what other libraries write about themselves. Real ones have a few thousand.
    pub const CONFIG: u64 = 1 << 20;
    /// `tokenizer_config.json`, which lists special tokens. Real ones have up to a million.
    pub const TOKENIZER_CONFIG: u64 = 32 << 20;
    /// `chat_template.jinja`.
    pub const TEMPLATE: u64 = 1 << 20;
    /// `tokenizer.json`. Real ones have up to 40 million.
    pub const TOKENIZER: u64 = 256 << 20;
}

/// Opens a regular file for reading; links are followed. Pipes, sockets, devices and folders are refused, without waiting
/// for somebody at their other end.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Before it is opened, because opening a device can do something.
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
    // It may grow while it is read.
    if size <= most {
        file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if size > most || bytes.len() as u64 > most {
        return Err(Error::Text {
            path: path.to_path_buf(),
            problem: format!("it has {} bytes, and the limit is {most}", size.max(bytes.len() as u64)),
            help: "copy the file again from the model that the folder was made of".to_owned(),
        });
    }
    Ok(bytes)
}

/// As [`read`], as text.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub(crate) fn read_text(path: &Path, most: u64, help: &str) -> Result<String> {
    String::from_utf8(read(path, most, help)?).map_err(|_| Error::File {
        path: path.to_path_buf(),
        source: io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"),
        help: help.to_owned(),
    })
}

/// Refuses a model folder with anything but files and folders in it: ONNX Runtime opens what the model names, and waits.
///
/// # Errors
/// Names the first pipe, socket or device.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    match first_special(folder, DEPTH) {
        None => Ok(()),
        Some(path) => Err(Error::File {
            path,
            source: io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, a socket or a device"),
            help: "a model folder holds regular files: remove it, or copy the folder again".to_owned(),
        }),
    }
}

fn first_special(folder: &Path, depth: usize) -> Option<PathBuf> {
    // What cannot be listed is reported when a file of it is read.
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
