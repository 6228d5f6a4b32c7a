//! The disk cache of code objects.
//!
//! An entry is one sealed file of a [`disk_cache::Folder`], named by a digest of everything its content depends on:
//! source, target, compiler. Processes may share the folder; a folder that other users can write to is not used.
//!
//! Shipped sets of precompiled kernels have the same format, and are only read. Their names do not include the
//! compiler: whatever is installed, an entry is used if it was made from exactly the same source. It may have been
//! compiled for a target without its features (`gfx942`): such code runs on devices with any features
//! (`gfx942:sramecc+:xnack-`).
//!
//! The cache never fails a compilation: a problem with a file is only logged as a warning.
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, io};

use disk_cache::{CacheError, Folder};

use crate::{Arch, CompileError, Compiler, Kernel};

const EXTENSION: &str = "co";

/// A compiler whose results are cached.
pub struct CachedCompiler<C> {
    compiler: C,
    version: String,
    folder: Option<PathBuf>,
    /// Read-only folders, such as one shipped with the library.
    shipped: Vec<PathBuf>,
    max_bytes: u64,
    made: AtomicCounts,
}

/// Where code came from so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// From a shipped set of precompiled kernels.
    pub shipped: usize,
    /// From the disk cache.
    pub kept: usize,
    /// From the compiler.
    pub compiled: usize,
}

#[derive(Default)]
struct AtomicCounts {
    shipped: AtomicUsize,
    kept: AtomicUsize,
    compiled: AtomicUsize,
}

impl<C: Compiler> CachedCompiler<C> {
    /// Caches the output of `compiler` in `folder`, if there is one, up to `max_bytes` in total; the least recently
    /// used entries are removed first.
    pub fn new(compiler: C, folder: impl Into<Option<PathBuf>>, max_bytes: u64) -> Self {
        let (version, folder) = (compiler.version(), folder.into());
        Self { compiler, version, folder, shipped: Vec::new(), max_bytes, made: AtomicCounts::default() }
    }

    /// Searches this folder first, and never writes to it. [`ship`] made its entries.
    #[must_use]
    pub fn with_shipped(mut self, folder: PathBuf) -> Self {
        self.shipped.push(folder);
        self
    }

    /// How many kernels were compiled because they were not cached.
    pub fn compiled(&self) -> usize {
        self.made.compiled.load(Ordering::Relaxed)
    }

    fn shipped(&self, kernel: &Kernel, text: &str, arch: &Arch) -> Option<Vec<u8>> {
        if self.shipped.is_empty() {
            return None;
        }
        let mut targets = vec![&*arch.target];
        targets.extend(arch.target.split_once(':').map(|(name, _)| name));
        let names: Vec<String> = targets.iter().map(|target| entry_name(kernel.name, text, target, "")).collect();
        let mut files = self.shipped.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
        files.find_map(|file| match disk_cache::read_sealed(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let shown = file.display();
                tracing::warn!(target: "amdgpu_ep::compile", "the shipped kernel {shown} cannot be used: {error}");
                None
            }
            outcome => outcome.ok(),
        })
    }

    fn kept(&self, folder: &Path, name: &str) -> Option<Vec<u8>> {
        let folder = Folder::open(folder).unwrap_or_else(|error| {
            tell(&error);
            None
        })?;
        match folder.read_sealed(name) {
            Ok(code) => {
                folder.touch(name);
                self.made.kept.fetch_add(1, Ordering::Relaxed);
                return Some(code);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let shown = folder.file(name);
                let shown = shown.display();
                tracing::warn!(target: "amdgpu_ep::compile", "the cached kernel {shown} cannot be used and is replaced: {error}");
            }
        }
        None
    }

    fn keep(&self, folder: &Path, name: &str, code: &[u8]) {
        let folder = match Folder::create(folder) {
            Ok(folder) => folder,
            Err(error) => return tell(&error),
        };
        let written = folder.write_sealed(name, code);
        if let Err(error) = written.and_then(|()| folder.make_room(EXTENSION, self.max_bytes, name)) {
            let shown = folder.file(name);
            let shown = shown.display();
            tracing::warn!(target: "amdgpu_ep::compile", "could not cache a kernel as {shown}: {error}");
        }
    }
}

fn tell(error: &CacheError) {
    if error.is_news() {
        tracing::warn!(target: "amdgpu_ep::compile", "compiled kernels are not cached: {error}");
    }
}

impl<C: Compiler> Compiler for CachedCompiler<C> {
    fn version(&self) -> String {
        self.version.clone()
    }

    fn compile(&self, kernel: &Kernel, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        let text = kernel.text();
        if let Some(code) = self.shipped(kernel, &text, arch) {
            self.made.shipped.fetch_add(1, Ordering::Relaxed);
            return Ok(code);
        }
        let name = || entry_name(kernel.name, &text, &arch.target, &self.version);
        let place = self.folder.as_ref().map(|folder| (folder, name()));
        if let Some(code) = place.as_ref().and_then(|(folder, name)| self.kept(folder, name)) {
            return Ok(code);
        }
        self.made.compiled.fetch_add(1, Ordering::Relaxed);
        let code = self.compiler.compile(kernel, arch)?;
        if let Some((folder, name)) = &place {
            self.keep(folder, name, &code);
        }
        Ok(code)
    }

    fn counts(&self) -> Option<Counts> {
        let [shipped, kept, compiled] =
            [&self.made.shipped, &self.made.kept, &self.made.compiled].map(|count| count.load(Ordering::Relaxed));
        Some(Counts { shipped, kept, compiled })
    }
}

/// Writes the code of the kernel with this name and [text](Kernel::text) into a folder for
/// [`CachedCompiler::with_shipped`].
///
/// # Errors
/// The file cannot be written.
pub fn ship(folder: &Path, kernel: &str, text: &str, target: &str, code: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    disk_cache::write_sealed(&folder.join(entry_name(kernel, text, target, "")), code)
}

fn entry_name(kernel: &str, text: &str, target: &str, version: &str) -> String {
    let mut digest = blake3::Hasher::new();
    for part in [text, target, version] {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    format!("{kernel}-{}.{EXTENSION}", &digest.finalize().to_hex()[..32])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, SystemTime};

    /// Returns the text's length and the target as code.
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
    fn what_a_process_left_unfinished_goes_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let unfinished = |name: &str, age: Duration| {
            let file = folder.path().join(name);
            File::create(&file).unwrap().set_modified(SystemTime::now() - age).unwrap();
            file
        };
        let day = Duration::from_secs(24 * 60 * 60);
        let old = unfinished("k-0123.7-0.new", day + Duration::from_secs(60));
        let others = [unfinished("k-0123.8-0.new", Duration::from_secs(60)), unfinished("notes.txt", 2 * day)];
        let cached = CachedCompiler::new(Fake, folder.path().to_owned(), 1 << 20);
        cached.compile(&kernel(1), &Arch::new("gfx90a", 1)).unwrap();
        assert!(!old.exists());
        assert!(others.iter().all(|file| file.exists()), "one may be written now, and the other is not ours");
    }

    fn with_set(folder: &Path) -> CachedCompiler<Fake> {
        CachedCompiler::new(Fake, folder.join("own"), 1 << 20).with_shipped(folder.join("shipped"))
    }

    #[test]
    fn what_was_shipped_needs_no_compiler_on_devices_with_any_features() {
        let folder = tempfile::tempdir().unwrap();
        ship(&folder.path().join("shipped"), "k", &kernel(1).text(), "gfx942", b"code").unwrap();
        let cached = with_set(folder.path());
        for target in ["gfx942", "gfx942:sramecc+:xnack-"] {
            assert_eq!(cached.compile(&kernel(1), &Arch::new(target, 1)).unwrap(), b"code");
        }
        assert_eq!(cached.counts(), Some(Counts { shipped: 2, kept: 0, compiled: 0 }));
        assert!(!folder.path().join("own").exists());
    }

    #[test]
    fn what_was_shipped_for_another_text_or_target_or_is_spoiled_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let shipped = folder.path().join("shipped");
        ship(&shipped, "k", &kernel(1).text(), "gfx942:xnack+", b"code").unwrap();
        let cached = with_set(folder.path());
        for (number, target) in [(2, "gfx942:xnack+"), (1, "gfx942"), (1, "gfx942:xnack-"), (1, "gfx90a")] {
            assert_ne!(cached.compile(&kernel(number), &Arch::new(target, 1)).unwrap(), b"code", "{number} {target}");
        }
        let file = fs::read_dir(&shipped).unwrap().next().unwrap().unwrap().path();
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_ne!(cached.compile(&kernel(1), &Arch::new("gfx942:xnack+", 1)).unwrap(), b"code");
        assert_eq!(cached.counts(), Some(Counts { shipped: 0, kept: 0, compiled: 5 }));
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

    #[test]
    #[cfg(unix)]
    fn a_folder_that_others_can_write_to_is_neither_read_nor_written() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let arch = Arch::new("gfx90a", 1);
        let cached = CachedCompiler::new(Fake, folder.path().to_owned(), 1 << 20);
        cached.compile(&kernel(1), &arch).unwrap();
        for (mode, compiled) in [(0o777, 1), (0o770, 1), (0o755, 0)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            let again = CachedCompiler::new(Fake, folder.path().to_owned(), 1 << 20);
            again.compile(&kernel(1), &arch).unwrap();
            again.compile(&kernel(mode as usize), &arch).unwrap();
            assert_eq!(again.compiled(), compiled + 1, "mode {mode:o}");
            assert_eq!(files(folder.path()), 2 - compiled, "mode {mode:o}");
        }
    }
}
