//! What is removed when the user presses Ctrl-C.

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

/// What a shell reports for a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Work may go on in another thread until the process has ended, and put new files into a folder that is removed.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);

/// A file or folder that is removed if the command is interrupted while this exists.
pub struct Cleanup(PathBuf);

impl Cleanup {
    /// Makes a temporary file or folder. An interrupt waits until it is known here, so that none is left behind. Its
    /// own type removes it when the work is done or has failed.
    ///
    /// # Errors
    /// When `make` fails.
    pub fn making<T: AsRef<Path>>(make: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Cleanup)> {
        // `chat` has a handler of its own, and nothing to remove.
        HANDLER.call_once(|| drop(ctrlc::set_handler(end)));
        unfinished(|paths| {
            let made = make()?;
            // The folder may be relative, and be changed.
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
            assert!(UNFINISHED.try_lock().is_err(), "an interrupt would not wait");
            tempfile::NamedTempFile::new()
        })
        .unwrap();
        assert!(unfinished(|paths| paths.iter().any(|path| path == made.path())));
    }
}
