//! The disk cache of code objects.
//!
//! An entry is one sealed file of a [`disk_cache::Folder`], named by a digest of everything its content depends on:
//! source, target, compiler. Processes may share the folder; a folder that other users can write to is not used.
//!
//! Shipped [sets](crate::write_set) of precompiled kernels are searched first. Whatever compiler is installed, an entry
//! is used if it was made from exactly the same source. It was compiled for the device's target without features
//! (`gfx942`), which runs on devices with any features (`gfx942:sramecc+:xnack-`), or for a generic target.
//!
//! The cache never fails a compilation: a problem with a file is only logged as a warning.
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use disk_cache::{CacheError, Folder};

use crate::set::KernelSet;
use crate::{Arch, CompileError, Compiler, Kernel, Target};

const EXTENSION: &str = "co";

/// A compiler whose results are cached.
pub struct CachedCompiler<C> {
    compiler: C,
    version: String,
    folder: Option<PathBuf>,
    /// Read-only folders of sets, such as one shipped with the library.
    shipped: Vec<PathBuf>,
    /// The open sets for each target.
    sets: Mutex<HashMap<String, Arc<[KernelSet]>>>,
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
        let (shipped, sets, made) = (Vec::new(), Mutex::default(), AtomicCounts::default());
        Self { compiler, version, folder, shipped, sets, max_bytes, made }
    }

    /// Searches this folder first, and never writes to it. [`write_set`](crate::write_set) made its files.
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
        self.sets(&arch.target).iter().find_map(|set| {
            set.code(kernel, text).unwrap_or_else(|error| {
                refused(set.file(), &error);
                None
            })
        })
    }

    /// The sets whose code runs on a target, the best first.
    fn sets(&self, target: &str) -> Arc<[KernelSet]> {
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = sets.get(target) {
            return open.clone();
        }
        let names = Target::sets_for(target);
        let places = self.shipped.iter().flat_map(|folder| names.iter().map(move |name| (folder, name)));
        let opened = places.filter_map(|(folder, name)| {
            KernelSet::open(folder, name).unwrap_or_else(|error| {
                refused(&KernelSet::path(folder, name), &error);
                None
            })
        });
        let opened: Arc<[KernelSet]> = opened.collect();
        sets.insert(target.to_owned(), opened.clone());
        opened
    }

    fn own(&self, kernel: &Kernel, text: &str, arch: &Arch) -> Result<Vec<u8>, CompileError> {
        let name = || entry_name(kernel.name, text, &arch.target, &self.version);
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

    fn kept(&self, folder: &Path, name: &str) -> Option<Vec<u8>> {
        let folder = Folder::open(folder).unwrap_or_else(|error| {
            warn(&error);
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
            Err(error) => return warn(&error),
        };
        let written = folder.write_sealed(name, code);
        if let Err(error) = written.and_then(|()| folder.make_room(EXTENSION, self.max_bytes, name)) {
            let shown = folder.file(name);
            let shown = shown.display();
            tracing::warn!(target: "amdgpu_ep::compile", "could not cache a kernel as {shown}: {error}");
        }
    }
}

fn refused(set: &Path, error: &io::Error) {
    tracing::warn!(target: "amdgpu_ep::compile", "the shipped kernels in {} cannot be used: {error}", set.display());
}

fn warn(error: &CacheError) {
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
        self.own(kernel, &text, arch)
    }

    fn replace_refused(&self, kernel: &Kernel, arch: &Arch) -> Option<Result<Vec<u8>, CompileError>> {
        let text = kernel.text();
        self.shipped(kernel, &text, arch)?;
        self.made.shipped.fetch_sub(1, Ordering::Relaxed);
        Some(self.own(kernel, &text, arch))
    }

    fn counts(&self) -> Option<Counts> {
        let [shipped, kept, compiled] =
            [&self.made.shipped, &self.made.kept, &self.made.compiled].map(|count| count.load(Ordering::Relaxed));
        Some(Counts { shipped, kept, compiled })
    }
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
    use crate::{Compiled, write_set};
    use std::fs::{self, File};
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
    fn a_kernel_is_compiled_once_per_source_and_target() {
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
    fn a_damaged_entry_is_replaced() {
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
    fn the_folder_stays_within_its_limit_and_keeps_the_newest_entry() {
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
    fn unfinished_files_are_removed_after_a_day() {
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

    fn ship(folder: &Path, target: &str, number: usize, code: &[u8]) {
        let compiled = Compiled { kernel: "k".to_owned(), text: kernel(number).text(), code: code.to_vec() };
        write_set(&folder.join("shipped"), target, &[compiled]).unwrap();
    }

    #[test]
    fn shipped_kernels_need_no_compiler_whatever_the_features() {
        let folder = tempfile::tempdir().unwrap();
        ship(folder.path(), "gfx942", 1, b"code");
        let cached = with_set(folder.path());
        for target in ["gfx942", "gfx942:sramecc+:xnack-"] {
            assert_eq!(cached.compile(&kernel(1), &Arch::new(target, 1)).unwrap(), b"code");
        }
        assert_eq!(cached.counts(), Some(Counts { shipped: 2, kept: 0, compiled: 0 }));
        assert!(!folder.path().join("own").exists());
    }

    #[test]
    fn generic_code_is_used_where_exact_code_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        ship(folder.path(), "gfx11-generic", 1, b"generic");
        ship(folder.path(), "gfx1100", 1, b"exact");
        let code = |target: &str| with_set(folder.path()).compile(&kernel(1), &Arch::new(target, 1)).unwrap();
        assert_eq!((code("gfx1100"), code("gfx1102")), (b"exact".to_vec(), b"generic".to_vec()));
        assert_ne!(code("gfx1201"), b"generic");
    }

    #[test]
    fn code_that_the_driver_refuses_is_compiled_instead() {
        let folder = tempfile::tempdir().unwrap();
        ship(folder.path(), "gfx11-generic", 1, b"generic");
        let (cached, arch) = (with_set(folder.path()), Arch::new("gfx1102", 1));
        cached.compile(&kernel(1), &arch).unwrap();
        let replaced = cached.replace_refused(&kernel(1), &arch).unwrap().unwrap();
        assert_eq!(replaced, Fake.compile(&kernel(1), &arch).unwrap());
        assert_eq!(cached.counts(), Some(Counts { shipped: 0, kept: 0, compiled: 1 }));
        assert!(cached.replace_refused(&kernel(2), &arch).is_none(), "it came from the compiler already");
    }

    #[test]
    fn shipped_kernels_for_other_sources_or_targets_and_damaged_ones_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        ship(folder.path(), "gfx942", 1, b"code");
        for (number, target) in [(2, "gfx942"), (1, "gfx90a"), (1, "gfx950")] {
            let found = with_set(folder.path()).compile(&kernel(number), &Arch::new(target, 1)).unwrap();
            assert_ne!(found, b"code", "{number} {target}");
        }
        let file = folder.path().join("shipped/gfx942.set");
        let whole = fs::read(&file).unwrap();
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        let cached = with_set(folder.path());
        assert_ne!(cached.compile(&kernel(1), &Arch::new("gfx942", 1)).unwrap(), b"code");
        assert_eq!(cached.counts(), Some(Counts { shipped: 0, kept: 0, compiled: 1 }));
    }

    #[test]
    fn threads_that_request_the_same_kernel_all_get_it() {
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
    fn an_unwritable_folder_does_not_fail_a_compilation() {
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
