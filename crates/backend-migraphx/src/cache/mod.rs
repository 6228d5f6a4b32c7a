//! Compiled programs on disk.
//!
//! An entry is one file, `<key>-<digest of its content>.mxr`: what is in it is what its name says, or it is not used. It
//! is written beside its place under a lock of its key and then renamed, so a process that dies at any moment leaves
//! either nothing or a whole entry, and of several processes that want one program, one compiles it. A folder that other
//! users can write to is neither read nor written.
//!
//! A cache never fails a session: whatever goes wrong costs a warning and a compilation.
mod key;
#[cfg(test)]
mod tests;

pub(crate) use key::{Key, KeyBuilder};

use std::{
    fmt::Display,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use disk_cache::{CacheError, Folder};

const EXTENSION: &str = "mxr";
/// Locks have a folder of their own, so that users see programs only.
const LOCKS: &str = "locks";

/// A folder of compiled programs.
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
    /// It was compiled now.
    Compiled,
    /// It was kept.
    Kept,
}

/// How a program is read, made and written.
pub(crate) trait Programs {
    type Program;
    type Error: Display;

    /// Reads a program.
    fn load(&self, file: &Path) -> Result<Self::Program, Self::Error>;
    /// Makes a program, the long way.
    fn make(&self) -> Result<Self::Program, Self::Error>;
    /// Writes a program.
    fn save(&self, program: &Self::Program, file: &Path) -> Result<(), Self::Error>;
}

impl Cache {
    /// A cache in `folder`, which is made when it is first needed.
    pub fn new(folder: PathBuf, max_bytes: u64, save: bool, load: bool) -> Self {
        Self { folder, max_bytes, save, load }
    }

    /// The program of a key: the one that was kept, or a new one, which is kept.
    ///
    /// # Errors
    /// It can't be made.
    pub fn fetch<P: Programs>(&self, key: &Key, programs: &P) -> Result<(P::Program, Origin), P::Error> {
        if self.load {
            match Folder::open(&self.folder) {
                Ok(Some(folder)) => {
                    if let Some(program) = find(&folder, key, programs) {
                        return Ok((program, Origin::Kept));
                    }
                }
                Err(error) if error.is_refusal() => tell(&error),
                // It is created below, where an error of the system is told.
                Ok(None) | Err(_) => {}
            }
        }
        if !self.save {
            return Ok((programs.make()?, Origin::Compiled));
        }
        let (folder, lock) = match self.lock(key) {
            Ok(locked) => locked,
            Err(error) => {
                tell(&error);
                return Ok((programs.make()?, Origin::Compiled));
            }
        };
        // Another process may have made it while this one waited.
        if self.load
            && let Some(program) = find(&folder, key, programs)
        {
            return Ok((program, Origin::Kept));
        }
        let program = programs.make()?;
        if let Err(reason) = self.keep(&folder, key, &program, programs) {
            let folder = self.folder.display();
            tracing::warn!(target: "amdgpu_ep::compile", "a program could not be kept in {folder}: {reason}");
        }
        drop(lock);
        Ok((program, Origin::Compiled))
    }

    /// Waits until no other process makes the same program; the system releases the lock with the process.
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

    /// Writes an entry; the key's lock is held.
    fn keep<P: Programs>(&self, folder: &Folder, key: &Key, program: &P::Program, programs: &P) -> Result<(), String> {
        let save = |file: &Path| programs.save(program, file).map_err(|error| error.to_string());
        let name = |file: &File| Ok(format!("{key}-{}.{EXTENSION}", disk_cache::digest(file)?));
        let name = folder.replace_by(key.as_str(), save, name)?;
        // What `force_recompile` replaces.
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

/// A kept program that is whole. Others are removed.
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
            // Another process made room.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => error.to_string(),
        };
        let shown = file.display();
        tracing::warn!(target: "amdgpu_ep::compile", "the kept program {shown} can't be used and is replaced: {reason}");
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

/// Says what is wrong with an entry.
fn check(folder: &Folder, name: &str) -> io::Result<()> {
    let found = disk_cache::digest(&folder.open_file(name)?)?;
    match name.strip_suffix(EXTENSION).and_then(|stem| stem.strip_suffix('.')?.rsplit_once('-')) {
        Some((_, wanted)) if wanted == found => Ok(()),
        _ => Err(io::Error::other(format!("its content is {found}, which is not what its name says"))),
    }
}

/// Removes the lock of an entry that was removed, if nobody holds it. A process that opens the lock in between holds one that
/// no other sees: then two make the same program, and the later one replaces the other's.
fn remove_lock(folder: &Folder, name: &str) {
    let Some((key, _)) = name.split_once('-') else { return };
    let lock = folder.file(LOCKS).join(key);
    if let Ok(held) = File::options().append(true).open(&lock)
        && held.try_lock().is_ok()
    {
        let _ = fs::remove_file(&lock);
    }
}

fn tell(error: &CacheError) {
    if error.is_news() {
        tracing::warn!(target: "amdgpu_ep::compile", "compiled programs are not cached: {error}");
    }
}
