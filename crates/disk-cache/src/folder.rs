//! A folder that passed the check, and the files in it.
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use crate::CacheError;
use crate::room::UNFINISHED;
use crate::trust::{self, CheckedPath};

/// A folder that no other user can write to. Open it for each use: its permissions may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder; `None` if it does not exist.
    ///
    /// # Errors
    /// Others could have written to it, or a system call failed.
    pub fn open(path: &Path) -> Result<Option<Self>, CacheError> {
        Ok(match trust::check(path)? {
            CheckedPath::Folder(path) => Some(Self { path }),
            CheckedPath::Missing => None,
        })
    }

    /// Opens a folder, or creates it and its missing parents, for this user only.
    ///
    /// # Errors
    /// Others could have written to it, or it cannot be created.
    pub fn create(path: &Path) -> Result<Self, CacheError> {
        if let Some(found) = Self::open(path)? {
            return Ok(found);
        }
        private_folder().recursive(true).create(path).map_err(CacheError::io(path))?;
        // Another process may have created it at the same time.
        Self::open(path)?.ok_or_else(|| CacheError::io(path)(io::ErrorKind::NotFound.into()))
    }

    /// The path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens one of its files for reading.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or others could have written to it.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        open_checked(&self.file(name))
    }

    /// Reads one of its files.
    ///
    /// # Errors
    /// Same as [`open_file`](Self::open_file).
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Replaces a file atomically: readers see the old content or the new one. Another process may do so at the same
    /// time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn replace(&self, name: &str, parts: &[&[u8]]) -> io::Result<()> {
        let (beside, mut file) = self.new_file(name)?;
        let written = parts.iter().try_for_each(|part| file.write_all(part));
        drop(file);
        written.and_then(|()| fs::rename(&beside, self.file(name))).inspect_err(|_| discard(&beside))
    }

    /// Same as [`replace`](Self::replace), for a writer that takes a path: `write` writes to the path it is given, then
    /// `name` derives the file name from the content. The content reaches the disk before the file is renamed. Returns
    /// the name.
    ///
    /// # Errors
    /// The error of `write`, or the file cannot be renamed.
    pub fn replace_by(
        &self,
        stem: &str,
        write: impl FnOnce(&Path) -> Result<(), String>,
        name: impl FnOnce(&File) -> io::Result<String>,
    ) -> Result<String, String> {
        let (beside, file) = self.new_file(stem).map_err(|error| error.to_string())?;
        drop(file);
        let put = || -> io::Result<String> {
            // Windows writes a file to the disk only through a handle that may write.
            let file = File::options().read(true).write(true).open(&beside)?;
            file.sync_all()?;
            let name = name(&file)?;
            fs::rename(&beside, self.file(&name))?;
            Ok(name)
        };
        let placed = write(&beside).and_then(|()| put().map_err(|error| error.to_string()));
        placed.inspect_err(|_| discard(&beside))
    }

    /// Marks a file as used now, for [`make_room`](Self::make_room).
    pub fn touch(&self, name: &str) {
        if let Ok(file) = File::options().append(true).open(self.file(name)) {
            // A read-only folder is still a good cache; its entries are then evicted by age.
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Creates a file next to its final place, readable by this user only. An existing path, such as a link that was
    /// put there before the folder was private, is never opened.
    fn new_file(&self, name: &str) -> io::Result<(PathBuf, File)> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let beside = self.file(name).with_extension(format!("{}-{number}.{UNFINISHED}", process::id()));
            match private_file().open(&beside) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => return outcome.map(|file| (beside, file)),
            }
        }
    }
}

/// Opens a file for reading if others could not have written to it.
pub(crate) fn open_checked(path: &Path) -> io::Result<File> {
    // Check the file type first as well: opening a FIFO would wait for a writer.
    trust::check_file(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    trust::check_file(&file.metadata()?)?;
    Ok(file)
}

fn discard(unfinished: &Path) {
    // If this fails, the file is removed after a day.
    let _ = fs::remove_file(unfinished);
}

#[cfg(unix)]
fn private_folder() -> DirBuilder {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

#[cfg(not(unix))]
fn private_folder() -> DirBuilder {
    DirBuilder::new()
}

fn private_file() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
