//! The system loader. Once opened, a library stays loaded for the life of the process.

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
        match unsafe { open_now(name) } {
            Ok(library) => Ok(Library(ManuallyDrop::new(library))),
            Err(error) => {
                let text = match &error {
                    libloading::Error::DlOpen { source } => source.to_string(),
                    other => other.to_string(),
                };
                let prefix = format!("{}: ", name.to_string_lossy());
                Err(text.strip_prefix(&prefix).unwrap_or(&text).to_owned())
            }
        }
    }

    /// The library of this name, if the process has already loaded it, whichever code did so.
    #[cfg(unix)]
    pub fn already_open(name: &str) -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: nothing is loaded, so no initialiser runs.
        let library = unsafe { libloading::os::unix::Library::open(Some(name), flags) }.ok()?;
        Some(Library(ManuallyDrop::new(library.into())))
    }

    /// The library of this name, if the process has already loaded it. Always `None` on Windows, which finds loaded
    /// libraries by bare name.
    #[cfg(windows)]
    pub fn already_open(_name: &str) -> Option<Library> {
        None
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

#[cfg(unix)]
unsafe fn open_now(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: forwarded to the caller.
    unsafe { libloading::os::unix::Library::open(Some(name), libc::RTLD_NOW | libc::RTLD_LOCAL) }.map(Into::into)
}

#[cfg(windows)]
unsafe fn open_now(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: forwarded to the caller.
    unsafe { libloading::Library::new(name) }
}

/// The file that contains the code at an address.
#[cfg(unix)]
pub fn file_at(address: usize) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a valid out-pointer, and dladdr accepts any address.
    if unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed bytes are a valid `Dl_info`, and dladdr has filled it.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr returns a NUL-terminated name that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The file that contains the code at an address; unknown on Windows.
#[cfg(windows)]
pub fn file_at(_address: usize) -> Option<PathBuf> {
    None
}

/// The folder of the library or executable that contains this code.
pub fn own_folder() -> Option<PathBuf> {
    let here = own_folder as fn() -> Option<PathBuf> as *const c_void;
    // For a program found through PATH, the loader only knows the bare name.
    let is_path = |file: &PathBuf| file.components().count() > 1;
    let file = file_at(here as usize).filter(is_path).or_else(|| std::env::current_exe().ok())?;
    // The loader may have been given a relative path. The search must not depend on later changes of the working
    // folder.
    let file = std::fs::canonicalize(&file).unwrap_or(file);
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
/// library.
#[cfg(target_os = "linux")]
pub fn is_privileged() -> bool {
    // SAFETY: only reads a number from the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the process runs with more privileges than its caller; not checked on other systems.
#[cfg(not(target_os = "linux"))]
pub fn is_privileged() -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_library_of_the_process_counts_as_already_open() {
        assert!(Library::already_open("libc.so.6").is_some());
        assert!(Library::already_open("libnothing.so.7").is_none());
    }

    #[test]
    fn a_missing_library_is_reported_without_its_name() {
        let reason = Library::open("/nowhere/libnothing.so").map(|_| ()).unwrap_err();
        assert!(reason.starts_with("cannot open shared object file"), "{reason}");
    }

    #[test]
    fn a_symbol_is_traced_to_its_file() {
        let library = Library::already_open("libc.so.6").unwrap();
        let file = library.file_of("getauxval").unwrap();
        assert!(file.to_str().unwrap().contains("libc"), "{}", file.display());
        assert!(library.has("getauxval") && !library.has("hipMalloc"));
    }

    #[test]
    fn own_folder_holds_this_test_binary() {
        assert_eq!(own_folder(), std::env::current_exe().unwrap().parent().map(Path::to_owned));
    }

    #[test]
    fn own_folder_does_not_depend_on_the_name_that_a_program_is_started_by() {
        use std::os::unix::process::CommandExt;

        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.arg0("by-name").args(["--exact", "ffi::tests::own_folder_holds_this_test_binary"]);
        let output = again.current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
