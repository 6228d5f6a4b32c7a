//! Code objects on disk.
//!
//! An entry is one file named by a digest of all that its content depends on: text, target, compiler. It begins with a
//! digest of the rest, so a file that was cut short or changed is not used. It is written beside its place and renamed:
//! readers see whole entries or none, and processes may share the folder.
//!
//! The cache never fails a compilation: what goes wrong with a file costs a warning.
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use crate::{Arch, CompileError, Compiler, Kernel};

const EXTENSION: &str = "co";
const DIGEST_BYTES: usize = 32;

/// A compiler whose results are kept.
pub struct CachedCompiler<C> {
    compiler: C,
    version: String,
    folder: PathBuf,
    /// Folders that are only read, such as one shipped with the library.
    shipped: Vec<PathBuf>,
    max_bytes: u64,
    compiled: AtomicUsize,
}

impl<C: Compiler> CachedCompiler<C> {
    /// Keeps what `compiler` makes in `folder`, up to `max_bytes` in all; what was used longest ago goes first.
    pub fn new(compiler: C, folder: PathBuf, max_bytes: u64) -> Self {
        let version = compiler.version();
        Self { compiler, version, folder, shipped: Vec::new(), max_bytes, compiled: AtomicUsize::new(0) }
    }

    /// Looks in this folder too, and never writes there. Its entries are made for a target by any compiler.
    #[must_use]
    pub fn with_shipped(mut self, folder: PathBuf) -> Self {
        self.shipped.push(folder);
        self
    }

    /// How many kernels were compiled because they were not kept.
    pub fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    fn keep(&self, file: &Path, code: &[u8]) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        write_entry(file, code)?;
        make_room(&self.folder, file, self.max_bytes)
    }
}

impl<C: Compiler> Compiler for CachedCompiler<C> {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        let text = kernel.text();
        let shipped = entry_name(kernel.name, &text, &arch.target, "");
        if let Some(code) = self.shipped.iter().find_map(|folder| read_entry(&folder.join(&shipped)).ok()) {
            return Ok(code);
        }
        let file = self.folder.join(entry_name(kernel.name, &text, &arch.target, &self.version));
        match read_entry(&file) {
            Ok(code) => {
                touch(&file);
                return Ok(code);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let shown = file.display();
                tracing::warn!(target: "amdgpu_ep::compile", "the kept kernel {shown} can't be used and is replaced: {error}");
            }
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let code = self.compiler.compile(kernel, arch)?;
        if let Err(error) = self.keep(&file, &code) {
            let shown = file.display();
            tracing::warn!(target: "amdgpu_ep::compile", "a kernel could not be kept as {shown}: {error}");
        }
        Ok(code)
    }
}

/// Writes a kernel's code into a folder that [`CachedCompiler::with_shipped`] takes.
///
/// # Errors
/// The file can't be written.
pub fn ship(folder: &Path, kernel: &Kernel, target: &str, code: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    write_entry(&folder.join(entry_name(kernel.name, &kernel.text(), target, "")), code)
}

fn entry_name(kernel: &str, text: &str, target: &str, version: &str) -> String {
    let mut digest = blake3::Hasher::new();
    for part in [text, target, version] {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    format!("{kernel}-{}.{EXTENSION}", &digest.finalize().to_hex()[..32])
}

fn read_entry(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = fs::read(file)?;
    let is_whole =
        bytes.len() > DIGEST_BYTES && *blake3::hash(&bytes[DIGEST_BYTES..]).as_bytes() == bytes[..DIGEST_BYTES];
    if !is_whole {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its digest does not fit its content"));
    }
    Ok(bytes.split_off(DIGEST_BYTES))
}

fn write_entry(file: &Path, code: &[u8]) -> io::Result<()> {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let beside = file.with_extension(format!("{}-{number}.new", process::id()));
    let written = File::create(&beside).and_then(|mut new| {
        new.write_all(blake3::hash(code).as_bytes())?;
        new.write_all(code)
    });
    written.and_then(|()| fs::rename(&beside, file)).inspect_err(|_| {
        // What is left of it is of no use; nothing more can be done if it stays.
        let _ = fs::remove_file(&beside);
    })
}

/// Marks a file as used now, for [`make_room`].
fn touch(file: &Path) {
    if let Ok(file) = File::options().append(true).open(file) {
        // A folder that can't be written is still a good cache to read.
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Removes what was used longest ago until the folder is within its limit; `newest` stays.
fn make_room(folder: &Path, newest: &Path, max_bytes: u64) -> io::Result<()> {
    let mut entries: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(folder)?
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|entry| {
            let facts = entry.metadata().ok()?;
            Some((facts.modified().ok()?, facts.len(), entry.path()))
        })
        .collect();
    let mut total: u64 = entries.iter().map(|entry| entry.1).sum();
    entries.sort();
    for (_, bytes, file) in entries {
        if total <= max_bytes {
            break;
        }
        // Another process may have removed it already.
        if file != newest && fs::remove_file(&file).is_ok() {
            total -= bytes;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::{sync::Arc, thread};

    /// Gives the text's length and the target as code.
    struct Fake;

    impl Compiler for Fake {
        fn version(&self) -> String {
            "fake 1".to_owned()
        }

        fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
            Ok(format!("{} {} {}", kernel.name, kernel.text().len(), arch.target).into_bytes())
        }
    }

    fn kernel(settings: usize) -> Kernel {
        Kernel::new("k", "text").set("N", settings)
    }

    fn files(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_kernel_is_compiled_once_for_each_text_and_target() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (Arch::new("gfx90a", 1), Arch::new("gfx1100", 1));
        let cached = CachedCompiler::new(Fake, folder.path().join("new"), 1 << 20);
        let first = cached.compile(&kernel(1), &one).unwrap();
        assert_eq!(first, Fake.compile(&kernel(1), &one).unwrap());
        assert_eq!(cached.compile(&kernel(1), &one).unwrap(), first);
        assert_eq!(cached.compiled(), 1);
        cached.compile(&kernel(1), &other).unwrap();
        cached.compile(&kernel(2), &one).unwrap();
        assert_eq!(cached.compiled(), 3);
        let again = CachedCompiler::new(Fake, folder.path().join("new"), 1 << 20);
        assert_eq!(again.compile(&kernel(1), &one).unwrap(), first);
        assert_eq!(again.compiled(), 0);
    }

    #[test]
    fn a_spoiled_entry_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let arch = Arch::new("gfx90a", 1);
        let cached = CachedCompiler::new(Fake, folder.path().to_owned(), 1 << 20);
        let code = cached.compile(&kernel(1), &arch).unwrap();
        let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&file).unwrap();
        for spoiled in [&whole[..0], &whole[..20], &whole[..whole.len() - 1], &[whole.as_slice(), b"x"].concat()[..]] {
            fs::write(&file, spoiled).unwrap();
            assert_eq!(cached.compile(&kernel(1), &arch).unwrap(), code);
            assert_eq!(fs::read(&file).unwrap(), whole);
        }
        assert_eq!(cached.compiled(), 5);
    }

    #[test]
    fn the_folder_keeps_to_its_limit_and_the_newest_entry() {
        let folder = tempfile::tempdir().unwrap();
        let arch = Arch::new("gfx90a", 1);
        let cached = CachedCompiler::new(Fake, folder.path().to_owned(), 160);
        for number in 0..10 {
            cached.compile(&kernel(number), &arch).unwrap();
            assert!(files(folder.path()) <= 3, "{}", files(folder.path()));
        }
        cached.compile(&kernel(9), &arch).unwrap();
        assert_eq!(cached.compiled(), 10);
    }

    #[test]
    fn what_was_shipped_needs_no_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let arch = Arch::new("gfx1100", 1);
        ship(&folder.path().join("shipped"), &kernel(1), "gfx1100", b"code").unwrap();
        let cached =
            CachedCompiler::new(Fake, folder.path().join("own"), 1 << 20).with_shipped(folder.path().join("shipped"));
        assert_eq!(cached.compile(&kernel(1), &arch).unwrap(), b"code");
        assert_eq!(cached.compiled(), 0);
    }

    #[test]
    fn threads_that_want_the_same_kernel_all_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let cached = Arc::new(CachedCompiler::new(Fake, folder.path().to_owned(), 1 << 20));
        let wanted = Fake.compile(&kernel(1), &Arch::new("gfx90a", 1)).unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(cached.compile(&kernel(1), &Arch::new("gfx90a", 1)).unwrap(), wanted));
            }
        });
        assert_eq!(files(folder.path()), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_costs_no_result() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cached = CachedCompiler::new(Fake, file.path().join("below a file"), 1 << 20);
        assert!(cached.compile(&kernel(1), &Arch::new("gfx90a", 1)).is_ok());
    }
}
