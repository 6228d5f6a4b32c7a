//! The system loader. Once opened, a library stays loaded for the life of the process.

#[cfg(unix)]
#[path = "ffi/unix.rs"]
mod system;
#[cfg(windows)]
#[path = "ffi/windows.rs"]
mod system;

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::{OsStr, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// An open library.
///
/// It is never closed: vendor runtimes start threads and register exit handlers, and handles created by one copy of our
/// code may still be in use in another library of the same process. Nothing is allocated on the heap for it either, so
/// this code can itself be unloaded without a leak.
pub struct Library(ManuallyDrop<libloading::Library>);

impl Library {
    /// Opens a library by path, or by a bare name for the system loader.
    ///
    /// # Errors
    /// The loader's error message, without the name.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Library, String> {
        let name = name.as_ref();
        // SAFETY: loading a driver means running its initialisers; the user's environment or the system's own library
        // search chose the file.
        match unsafe { system::open(name) } {
            Ok(library) => Ok(Library(ManuallyDrop::new(library))),
            Err(error) => {
                let text = match &error {
                    libloading::Error::DlOpen { source } => source.to_string(),
                    libloading::Error::LoadLibraryExW { source } => source.to_string(),
                    other => other.to_string(),
                };
                let prefix = format!("{}: ", name.to_string_lossy());
                Err(text.strip_prefix(&prefix).unwrap_or(&text).to_owned())
            }
        }
    }

    /// The library of this name, if the process has already loaded it, whichever code did so.
    pub fn already_open(name: &str) -> Option<Library> {
        system::already_open(name).map(|library| Library(ManuallyDrop::new(library)))
    }

    /// Looks up a function of the library.
    ///
    /// # Safety
    /// `F` is a pointer-sized function pointer type with the signature that the library's author declares for `name`.
    pub unsafe fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller vouches for `F`. The library is never closed, so the copy cannot dangle.
        unsafe { self.0.get::<F>(name) }.ok().map(|symbol| *symbol)
    }

    /// Whether the library, or one of its dependencies, has this symbol.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the address is not used.
        unsafe { self.symbol::<*const c_void>(name) }.is_some()
    }

    /// The file in which the loader found `name`.
    pub fn file_of(&self, name: &str) -> Option<PathBuf> {
        // SAFETY: only the address is used.
        let address = unsafe { self.symbol::<*const c_void>(name) }?;
        file_at(address as usize)
    }
}

/// Opens a library that is closed when the value is dropped. Names are looked up as by [`Library::open`].
///
/// # Errors
/// The loader's error.
///
/// # Safety
/// Runs the library's initialisers, and its destructors when it is closed.
pub unsafe fn open_to_close(name: impl AsRef<OsStr>) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: forwarded to the caller.
    unsafe { system::open_lazily(name.as_ref()) }
}

/// The file that contains the code at an address.
pub fn file_at(address: usize) -> Option<PathBuf> {
    system::file_at(address)
}

/// The folder of the library or executable that contains this code.
pub fn own_folder() -> Option<PathBuf> {
    let here = own_folder as fn() -> Option<PathBuf> as *const c_void;
    // For a program found through PATH, the loader only knows the bare name.
    let is_path = |file: &PathBuf| file.components().count() > 1;
    let file = file_at(here as usize).filter(is_path).or_else(|| std::env::current_exe().ok())?;
    // The loader may have been given a relative path. The search must not depend on later changes of the working
    // folder.
    let file = system::absolute(&file).unwrap_or(file);
    file.parent().map(Path::to_owned)
}

/// The folders to search for our libraries, given the folder of another of our libraries or programs.
pub fn folders_beside(own: &Path) -> Vec<PathBuf> {
    let mut folders = vec![own.to_owned(), own.join("../lib")];
    // Cargo puts tests and examples one folder below the libraries they use.
    if own.ends_with("deps") || own.ends_with("examples") {
        folders.push(own.join(".."));
    }
    folders
}

/// Whether the process runs with more privileges than its caller. Then nothing that the caller controls may choose a
/// library. Not checked outside Linux.
pub fn is_privileged() -> bool {
    system::is_privileged()
}

/// The file name of a library on this system: `libhip-host.so` or `hip-host.dll` for `hip-host`.
pub fn file_name(stem: &str) -> String {
    format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library of every process, and one of its functions.
    const OF_THE_SYSTEM: (&str, &str) =
        if cfg!(windows) { ("kernel32.dll", "GetModuleHandleExW") } else { ("libc.so.6", "getauxval") };

    #[test]
    fn only_a_library_of_the_process_counts_as_already_open() {
        assert!(Library::already_open(OF_THE_SYSTEM.0).is_some());
        assert!(Library::already_open(&file_name("nothing")).is_none());
    }

    #[test]
    fn a_missing_library_is_reported_without_its_name() {
        let missing = std::env::temp_dir().join("nowhere").join(file_name("nothing"));
        let reason = Library::open(&missing).map(|_| ()).unwrap_err();
        assert!(!reason.is_empty() && !reason.contains("nothing"), "{reason}");
        if cfg!(unix) {
            assert!(reason.starts_with("cannot open shared object file"), "{reason}");
        }
    }

    #[test]
    fn a_symbol_is_traced_to_its_file() {
        let (name, function) = OF_THE_SYSTEM;
        let library = Library::already_open(name).unwrap();
        let file = library.file_of(function).unwrap();
        assert!(file.is_absolute() && file.is_file(), "{}", file.display());
        let stem = name.split('.').next().unwrap();
        assert!(file.to_str().unwrap().to_ascii_lowercase().contains(stem), "{}", file.display());
        assert!(library.has(function) && !library.has("hipMalloc"));
    }

    #[test]
    fn own_folder_holds_this_test_binary() {
        assert_eq!(own_folder(), std::env::current_exe().unwrap().parent().map(Path::to_owned));
    }

    #[cfg(unix)]
    #[test]
    fn own_folder_does_not_depend_on_the_name_that_a_program_is_started_by() {
        use std::os::unix::process::CommandExt;

        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.arg0("by-name").args(["--exact", "ffi::tests::own_folder_holds_this_test_binary"]);
        let output = again.current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    /// A program that is started in a folder of downloads must not load libraries from there.
    #[cfg(windows)]
    #[test]
    fn a_bare_name_is_not_looked_up_in_the_current_folder() {
        let test = "ffi::tests::a_bare_name_is_not_looked_up_in_the_current_folder";
        let name = "amdgpu-ep-test-planted.dll";
        let Some(folder) = std::env::var_os("AMDGPU_EP_TEST_PLANTED").map(PathBuf::from) else {
            let folder = tempfile::tempdir().unwrap();
            let system = PathBuf::from(std::env::var_os("SystemRoot").unwrap()).join("System32");
            std::fs::copy(system.join("version.dll"), folder.path().join(name)).unwrap();
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", test]).env("AMDGPU_EP_TEST_PLANTED", folder.path()).env("PATH", folder.path());
            let output = again.current_dir(folder.path()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
            return;
        };
        assert!(Library::open(name).is_err());
        assert!(Library::open(folder.join(name)).is_ok(), "the same file by its path");
    }
}
