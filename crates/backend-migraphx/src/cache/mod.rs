//! On-disk cache of compiled programs.
//!
//! An entry is one file, `<key>-<digest of its content>.mxr`. It is used only if its content matches the digest. An
//! entry is written to a temporary file under a per-key lock and then renamed, so a process that dies at any moment
//! leaves either nothing or a complete entry. If several processes need the same program, only one compiles it. A
//! folder that other users can write to is neither read nor written.
//!
//! The cache never fails a session: every error becomes a warning and a recompilation.
mod key;
#[cfg(test)]
mod tests;

pub(crate) use key::{Key, KeyBuilder};

use std::fmt::Display;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use disk_cache::{CacheError, Folder};

const EXTENSION: &str = "mxr";
/// Locks have their own folder, so that users see only programs.
const LOCKS: &str = "locks";

/// A cache folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    max_bytes: u64,
    save: bool,
    load: bool,
}

/// Where a program came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was compiled just now.
    Compiled,
    /// It was loaded from the cache.
    Cached,
}

/// How programs are loaded, compiled and saved.
pub(crate) trait Programs {
    type Program;
    type Error: Display;

    /// Loads a program.
    fn load(&self, file: &Path) -> Result<Self::Program, Self::Error>;
    /// Compiles a program.
    fn make(&self) -> Result<Self::Program, Self::Error>;
    /// Saves a program.
    fn save(&self, program: &Self::Program, file: &Path) -> Result<(), Self::Error>;
}

impl Cache {
    /// A cache in `folder`, which is created when first needed.
    pub fn new(folder: PathBuf, max_bytes: u64, save: bool, load: bool) -> Self {
        Self { folder, max_bytes, save, load }
    }

    /// Returns the cached program of a key, or compiles and caches a new one.
    ///
    /// # Errors
    /// The program cannot be compiled.
    pub fn fetch<P: Programs>(&self, key: &Key, programs: &P) -> Result<(P::Program, Origin), P::Error> {
        if self.load {
            match Folder::open(&self.folder) {
                Ok(Some(folder)) => {
                    if let Some(program) = find(&folder, key, programs) {
                        return Ok((program, Origin::Cached));
                    }
                }
                Err(error) if error.is_refusal() => warn_once(&error),
                // The folder is created below, where system errors are reported.
                Ok(None) | Err(_) => {}
            }
        }
        if !self.save {
            return Ok((programs.make()?, Origin::Compiled));
        }
        let (folder, lock) = match self.lock(key) {
            Ok(locked) => locked,
            Err(error) => {
                warn_once(&error);
                return Ok((programs.make()?, Origin::Compiled));
            }
        };
        // Another process may have compiled it while this one waited.
        if self.load
            && let Some(program) = find(&folder, key, programs)
        {
            return Ok((program, Origin::Cached));
        }
        let program = programs.make()?;
        if let Err(reason) = self.store(&folder, key, &program, programs) {
            let folder = self.folder.display();
            tracing::warn!(target: "amdgpu_ep::compile", "could not cache a program in {folder}: {reason}");
        }
        drop(lock);
        Ok((program, Origin::Compiled))
    }

    /// Waits until no other process compiles the same program. If a process dies, the system releases its lock.
    fn lock(&self, key: &Key) -> Result<(Folder, File), CacheError> {
        let folder = Folder::create(&self.folder)?;
        let locks = Folder::create(&folder.file(LOCKS))?;
        let path = locks.file(key.as_str());
        let lock = || {
            let file = File::options().create(true).append(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        let file = lock().map_err(|source| CacheError::Io { path: path.clone(), source })?;
        Ok((folder, file))
    }

    /// Writes an entry. The caller holds the key's lock.
    fn store<P: Programs>(&self, folder: &Folder, key: &Key, program: &P::Program, programs: &P) -> Result<(), String> {
        let save = |file: &Path| programs.save(program, file).map_err(|error| error.to_string());
        let name = |file: &File| Ok(format!("{key}-{}.{EXTENSION}", disk_cache::digest(file)?));
        let name = folder.replace_by(key.as_str(), save, name)?;
        // Remove the entries that `force_recompile` replaced.
        for old in entries_of(folder, key).into_iter().filter(|old| *old != name) {
            let _ = fs::remove_file(folder.file(&old));
        }
        let removed = folder.make_room(EXTENSION, self.max_bytes, &name).map_err(|error| error.to_string())?;
        for name in removed {
            tracing::debug!(target: "amdgpu_ep::compile", "removed {name} to make room");
            remove_lock(folder, &name);
        }
        Ok(())
    }
}

/// Loads an intact cached program. Unusable ones are removed.
fn find<P: Programs>(folder: &Folder, key: &Key, programs: &P) -> Option<P::Program> {
    for name in entries_of(folder, key) {
        let file = folder.file(&name);
        let reason = match check(folder, &name) {
            Ok(()) => match programs.load(&file) {
                Ok(program) => {
                    folder.touch(&name);
                    return Some(program);
                }
                Err(error) => error.to_string(),
            },
            // Another process has evicted it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => error.to_string(),
        };
        let shown = file.display();
        tracing::warn!(target: "amdgpu_ep::compile", "the cached program {shown} cannot be used and is replaced: {reason}");
        let _ = fs::remove_file(&file);
    }
    None
}

/// The names of the entries of a key.
fn entries_of(folder: &Folder, key: &Key) -> Vec<String> {
    let start = format!("{key}-");
    let entries = folder.entries(EXTENSION).unwrap_or_default();
    let mut found: Vec<_> =
        entries.into_iter().map(|entry| entry.name).filter(|name| name.starts_with(&start)).collect();
    found.sort();
    found
}

/// Checks an entry's content against the digest in its name.
fn check(folder: &Folder, name: &str) -> io::Result<()> {
    let found = disk_cache::digest(&folder.open_file(name)?)?;
    match name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.')?.rsplit_once('-')) {
        Some((_, wanted)) if wanted == found => Ok(()),
        _ => Err(io::Error::other(format!("its content has the digest {found}, which differs from its name"))),
    }
}

/// Removes the lock file of an evicted entry, unless it is held. If another process opens the file just before it is
/// removed, it holds a lock that no one else can see. Then two processes may compile the same program, and the later
/// one replaces the earlier one's entry.
fn remove_lock(folder: &Folder, name: &str) {
    let Some((key, _)) = name.split_once('-') else { return };
    let lock = folder.file(LOCKS).join(key);
    if let Ok(held) = File::options().append(true).open(&lock)
        && held.try_lock().is_ok()
    {
        let _ = fs::remove_file(&lock);
    }
}

fn warn_once(error: &CacheError) {
    if error.is_news() {
        tracing::warn!(target: "amdgpu_ep::compile", "compiled programs are not cached: {error}");
    }
}
