//! Removes unfinished files when the user presses Ctrl-C.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::ffi;

/// Files and folders of unfinished work.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static HANDLER: Once = Once::new();

/// The exit code that shells report for a command ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Retries, because another thread may still create files in a folder that is being removed.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A file or folder that is removed if the command is interrupted while this value exists.
pub struct Cleanup(PathBuf);

impl Cleanup {
    /// Creates a temporary file or folder. An interrupt waits until the path is recorded here, so that nothing is left
    /// behind. The returned value removes the file itself when the work is done or has failed.
    ///
    /// # Errors
    /// When `make` fails.
    pub fn making<T: AsRef<Path>>(make: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Cleanup)> {
        // `chat` has its own handler, and nothing to remove.
        HANDLER.call_once(|| drop(ctrlc::set_handler(end)));
        unfinished(|paths| {
            let made = make()?;
            // The path may be relative, and the current folder may change.
            let path = std::path::absolute(made.as_ref()).unwrap_or_else(|_| made.as_ref().to_owned());
            paths.push(path.clone());
            Ok((made, Cleanup(path)))
        })
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

/// Removes unfinished files and ends the process at once, because other threads are still working.
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
        let made = |path: &PathBuf| Cleanup::making(|| fs::create_dir(path).map(|()| path.clone())).unwrap().1;
        drop(made(&kept));
        let cleanup = made(&gone);
        fs::write(gone.join("file"), "").unwrap();
        let known = unfinished(|paths| paths.clone());
        assert!(known.contains(&gone) && !known.contains(&kept));
        remove(&gone);
        assert!(!gone.exists() && kept.exists());
        drop(cleanup);
        assert!(!unfinished(|paths| paths.contains(&gone)));
    }

    #[test]
    fn an_interrupt_waits_for_a_file_that_is_being_made() {
        let (made, _cleanup) = Cleanup::making(|| {
            assert!(UNFINISHED.try_lock().is_err(), "the interrupt handler did not wait");
            tempfile::NamedTempFile::new()
        })
        .unwrap();
        assert!(unfinished(|paths| paths.iter().any(|path| path == made.path())));
    }
}
