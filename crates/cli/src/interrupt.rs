//! What is removed when the user presses Ctrl-C.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ffi;

/// Files and folders of unfinished work.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// What a shell reports for a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Work may go on in another thread until the process has ended, and put new files into a folder that is removed.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A file or folder that is removed if the command is interrupted while this exists.
pub struct Cleanup(PathBuf);

impl Cleanup {
    /// Of `path`, which need not exist yet. Who makes it removes it when the work is done or has failed.
    pub fn of(path: &Path) -> Cleanup {
        // `chat` has a handler of its own, and nothing to remove.
        HANDLER.call_once(|| drop(ctrlc::set_handler(end)));
        // The folder may be relative, and be changed.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        unfinished(|paths| paths.push(path.clone()));
        Cleanup(path)
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        unfinished(|paths| {
            if let Some(at) = paths.iter().rposition(|path| *path == self.0) {
                paths.remove(at);
            }
        });
    }
}

fn unfinished<T>(with: impl FnOnce(&mut Vec<PathBuf>) -> T) -> T {
    with(&mut UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Removes what is unfinished, and ends the process: by force, because other threads are in the middle of something.
fn end() {
    unfinished(|paths| paths.iter().for_each(|path| remove(path)));
    ffi::exit_now(INTERRUPTED);
}

fn remove(path: &Path) {
    for _ in 0..ATTEMPTS {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        if removed.is_ok() || !path.exists() {
            return;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unfinished_work_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, gone) = (folder.path().join("kept"), folder.path().join("gone"));
        fs::create_dir(&kept).unwrap();
        fs::create_dir(&gone).unwrap();
        fs::write(gone.join("file"), "").unwrap();
        drop(Cleanup::of(&kept));
        let cleanup = Cleanup::of(&gone);
        let known = unfinished(|paths| paths.clone());
        assert!(known.contains(&gone) && !known.contains(&kept));
        remove(&gone);
        assert!(!gone.exists() && kept.exists());
        drop(cleanup);
        assert!(!unfinished(|paths| paths.contains(&gone)));
    }
}
