//! Compiled programs on disk.
//!
//! An entry is one file, `<key>-<digest of its content>.mxr`: what is in it is what its name says, or it is not used. It
//! is written beside its place under a lock of its key and then renamed, so a process that dies at any moment leaves
//! either nothing or a whole entry, and of several processes that want one program, one compiles it.
//!
//! A cache never fails a session: whatever goes wrong costs a warning and a compilation.
mod key;
mod room;
#[cfg(test)]
mod tests;

pub(crate) use key::{Key, KeyBuilder};

use std::{
    fmt::Display,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

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
        if self.load
            && let Some(program) = self.find(key, programs)
        {
            return Ok((program, Origin::Kept));
        }
        if !self.save {
            return Ok((programs.make()?, Origin::Compiled));
        }
        let lock = match self.lock(key) {
            Ok(lock) => lock,
            Err(error) => {
                let folder = self.folder.display();
                tracing::warn!(target: "amdgpu_ep::compile", "no program is kept in {folder}: {error}");
                return Ok((programs.make()?, Origin::Compiled));
            }
        };
        // Somebody else may have made it while this process waited.
        if self.load
            && let Some(program) = self.find(key, programs)
        {
            return Ok((program, Origin::Kept));
        }
        let program = programs.make()?;
        if let Err(reason) = self.keep(key, &program, programs) {
            let folder = self.folder.display();
            tracing::warn!(target: "amdgpu_ep::compile", "a program could not be kept in {folder}: {reason}");
        }
        drop(lock);
        Ok((program, Origin::Compiled))
    }

    /// A kept program that is whole. Others are removed.
    fn find<P: Programs>(&self, key: &Key, programs: &P) -> Option<P::Program> {
        for file in self.entries_of(key) {
            let reason = match check(&file) {
                Ok(()) => match programs.load(&file) {
                    Ok(program) => {
                        touch(&file);
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

    fn entries_of(&self, key: &Key) -> Vec<PathBuf> {
        let Ok(folder) = fs::read_dir(&self.folder) else { return Vec::new() };
        let files = folder.flatten().map(|entry| entry.path());
        let start = format!("{key}-");
        let ours = |file: &PathBuf| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start) && file.extension().is_some_and(|extension| extension == EXTENSION)
        };
        let mut found: Vec<_> = files.filter(ours).collect();
        found.sort();
        found
    }

    /// Waits until no other process makes the same program; the system releases it with the process.
    fn lock(&self, key: &Key) -> io::Result<File> {
        let locks = self.folder.join(LOCKS);
        fs::create_dir_all(&locks)?;
        let file = File::options().create(true).append(true).open(locks.join(key.as_str()))?;
        file.lock()?;
        Ok(file)
    }

    /// Writes an entry; the key's lock is held.
    fn keep<P: Programs>(&self, key: &Key, program: &P::Program, programs: &P) -> Result<(), String> {
        let partial = self.folder.join(format!("{key}.partial"));
        let outcome = programs.save(program, &partial).map_err(|error| error.to_string()).and_then(|()| {
            let place = || -> io::Result<PathBuf> {
                let file = File::open(&partial)?;
                // The rename must not reach the disk before the content does.
                file.sync_all()?;
                let place = self.folder.join(format!("{key}-{}.{EXTENSION}", digest(&file)?));
                fs::rename(&partial, &place)?;
                Ok(place)
            };
            place().map_err(|error| error.to_string())
        });
        let place = outcome.inspect_err(|_| drop(fs::remove_file(&partial)))?;
        // What `force_recompile` replaces.
        for old in self.entries_of(key).into_iter().filter(|file| *file != place) {
            let _ = fs::remove_file(old);
        }
        room::make(&self.folder, self.max_bytes, &place);
        Ok(())
    }
}

/// Says what is wrong with an entry.
fn check(file: &Path) -> io::Result<()> {
    let found = digest(&File::open(file)?)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    match name.rsplit_once('-') {
        Some((_, wanted)) if wanted == found => Ok(()),
        _ => Err(io::Error::other(format!("its content is {found}, which is not what its name says"))),
    }
}

fn digest(file: &File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file)?;
    Ok(key::short(&hasher.finalize()))
}

/// Remembers that an entry was used. Where that can't be written, entries go by age.
fn touch(file: &Path) {
    let _ = File::options().append(true).open(file).and_then(|file| file.set_modified(SystemTime::now()));
}
