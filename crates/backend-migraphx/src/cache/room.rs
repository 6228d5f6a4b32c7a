//! Room for new programs: the ones unused for longest go first.
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{EXTENSION, LOCKS};

/// A program that took longer than this to write belongs to a process that died.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

struct Entry {
    file: PathBuf,
    used: SystemTime,
    bytes: u64,
}

/// Removes programs until at most `max_bytes` are kept; `newest` stays.
pub(super) fn make(folder: &Path, max_bytes: u64, newest: &Path) {
    let mut entries = entries(folder);
    entries.sort_by_key(|entry| std::cmp::Reverse((entry.file == newest, entry.used)));
    let mut total = 0_u64;
    for entry in entries {
        total = total.saturating_add(entry.bytes);
        if total > max_bytes && entry.file != newest {
            let (file, bytes) = (entry.file.display(), entry.bytes);
            tracing::debug!(target: "amdgpu_ep::compile", %file, bytes, "removed to make room");
            remove(folder, &entry.file);
        }
    }
}

/// The kept programs; what dead processes left behind is removed.
fn entries(folder: &Path) -> Vec<Entry> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let mut entries = Vec::new();
    for file in files.flatten() {
        let Ok(metadata) = file.metadata() else { continue };
        let (file, bytes) = (file.path(), metadata.len());
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        match file.extension().and_then(OsStr::to_str) {
            Some(EXTENSION) => entries.push(Entry { file, used, bytes }),
            Some("partial") if used.elapsed().is_ok_and(|age| age > ABANDONED) => drop(fs::remove_file(&file)),
            _ => {}
        }
    }
    entries
}

/// Removes a program and its lock, if nobody holds it. A process that opens the lock in between holds one that no other
/// sees: then two make the same program, and the later one replaces the other's.
fn remove(folder: &Path, file: &Path) {
    let _ = fs::remove_file(file);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some((key, _)) = name.split_once('-') else { return };
    let lock = folder.join(LOCKS).join(key);
    if let Ok(held) = fs::File::options().append(true).open(&lock)
        && held.try_lock().is_ok()
    {
        let _ = fs::remove_file(&lock);
    }
}
