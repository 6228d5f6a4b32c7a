//! The size limit of a folder.
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use crate::Folder;

/// The extension of files that are being written.
pub(crate) const UNFINISHED: &str = "new";
/// The extension that MIGraphX programs used to have while they were written.
const FORMERLY_UNFINISHED: &str = "partial";
/// A file that is still unfinished after this time was left by a killed process.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// A cached file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was last used.
    pub used: SystemTime,
    /// The size.
    pub bytes: u64,
    /// The name in the folder.
    pub name: String,
}

impl Folder {
    /// The files with this extension, the least recently used first.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn entries(&self, extension: &str) -> io::Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = files(self.path())?
            .filter(|(path, _)| path.extension().is_some_and(|found| found == extension))
            .filter_map(|(path, facts)| {
                let name = path.file_name()?.to_str()?.to_owned();
                Some(Entry { used: facts.modified().ok()?, bytes: facts.len(), name })
            })
            .collect();
        entries.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
        Ok(entries)
    }

    /// Removes the least recently used files with this extension until at most `max_bytes` are left; `newest` is kept.
    /// Also removes unfinished files of killed processes. Returns the names of the removed files.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub fn make_room(&self, extension: &str, max_bytes: u64, newest: &str) -> io::Result<Vec<String>> {
        self.remove_unfinished(ABANDONED, |_| true)?;
        let entries = self.entries(extension)?;
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Vec::new();
        for entry in entries {
            if total <= max_bytes {
                break;
            }
            // Another process may have removed it already.
            if entry.name != newest && fs::remove_file(self.file(&entry.name)).is_ok() {
                total -= entry.bytes;
                removed.push(entry.name);
            }
        }
        Ok(removed)
    }

    /// Removes unfinished files that were not written to for this long and whose name passes `is_ours`.
    pub(crate) fn remove_unfinished(&self, age: Duration, is_ours: impl Fn(&str) -> bool) -> io::Result<usize> {
        let is_abandoned = |path: &Path, used: SystemTime| {
            let extension = path.extension().and_then(OsStr::to_str);
            let is_unfinished = matches!(extension, Some(UNFINISHED | FORMERLY_UNFINISHED));
            let is_ours = || path.file_name().and_then(OsStr::to_str).is_some_and(&is_ours);
            is_unfinished && is_ours() && used.elapsed().is_ok_and(|idle| idle >= age)
        };
        let abandoned = files(self.path())?
            .filter(|(path, facts)| facts.modified().is_ok_and(|used| is_abandoned(path, used)))
            // Another process may have removed it already.
            .filter(|(path, _)| fs::remove_file(path).is_ok());
        Ok(abandoned.count())
    }
}

/// The regular files of a folder. Symbolic links are not followed.
fn files(folder: &Path) -> io::Result<impl Iterator<Item = (PathBuf, fs::Metadata)>> {
    let all = fs::read_dir(folder)?.flatten();
    let known = all.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    Ok(known.filter(|(_, facts)| facts.is_file()))
}
