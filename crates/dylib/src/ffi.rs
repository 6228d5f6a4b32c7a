//! The system's loader. A library that was opened once stays for the life of the process.

use std::ffi::{OsStr, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

/// An open library.
///
/// It is never closed: vendor runtimes start threads and register exit handlers, and handles made through one copy of
/// our code may be alive in another library of the same process. Nothing on the heap stands for it either, so that
/// this code can itself be unloaded without a leak.
pub struct Library(ManuallyDrop<libloading::Library>);

impl Library {
    /// Opens a library by path or by a name for the system's loader.
    ///
    /// # Errors
    /// The loader's reason, without the name.
    pub fn open(name: impl AsRef<OsStr>) -> Result<Library, String> {
        let name = name.as_ref();
        // SAFETY: running a library's initialisers is what loading a driver means; which file that is was decided by
        // the user's environment or the system's own library search.
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

    /// The library of this name that the process has already, whoever opened it.
    #[cfg(unix)]
    pub fn already_open(name: &str) -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD;
        // SAFETY: nothing is loaded, so no initialiser runs.
        let library = unsafe { libloading::os::unix::Library::open(Some(name), flags) }.ok()?;
        Some(Library(ManuallyDrop::new(library.into())))
    }

    /// The library of this name that the process has already; Windows finds those by plain name.
    #[cfg(windows)]
    pub fn already_open(_name: &str) -> Option<Library> {
        None
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is a pointer-sized function pointer type with the signature that the library's author declares for `name`.
    pub unsafe fn symbol<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller vouches for `F`; the library is never closed, so the copy cannot dangle.
        unsafe { self.0.get::<F>(name) }.ok().map(|symbol| *symbol)
    }

    /// Whether the library, or one that it brings along, has this symbol.
    pub fn has(&self, name: &str) -> bool {
        // SAFETY: the address is not used.
        unsafe { self.symbol::<*const c_void>(name) }.is_some()
    }

    /// The file that the loader found `name` in.
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

/// The file that an address was loaded from.
#[cfg(unix)]
pub fn file_at(address: usize) -> Option<PathBuf> {
    use std::ffi::CStr;
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a valid out-pointer; dladdr accepts any address.
    if unsafe { libc::dladdr(address as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed bytes are a valid `Dl_info`, and dladdr filled it.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated name that lives as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The file that an address was loaded from; not known on Windows.
#[cfg(windows)]
pub fn file_at(_address: usize) -> Option<PathBuf> {
    None
}

/// The folder of the library or executable that this code was linked into.
pub fn own_folder() -> Option<PathBuf> {
    let here = own_folder as fn() -> Option<PathBuf> as *const c_void;
    // A program that was found on PATH is known to the loader by its name alone.
    let is_path = |file: &PathBuf| file.components().count() > 1;
    let file = file_at(here as usize).filter(is_path).or_else(|| std::env::current_exe().ok())?;
    // The loader may have been given a relative path; the search must not depend on a later change of folder.
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    file.parent().map(Path::to_owned)
}

/// Where libraries of ours stand, seen from the folder of another one or of a program.
pub fn folders_beside(own: &Path) -> Vec<PathBuf> {
    let mut folders = vec![own.to_owned(), own.join("../lib")];
    // Cargo puts tests and examples one folder below the libraries they use.
    if own.ends_with("deps") || own.ends_with("examples") {
        folders.push(own.join(".."));
    }
    folders
}

/// Whether the process runs with more rights than its caller: nothing that the caller can write may choose a library.
#[cfg(target_os = "linux")]
pub fn is_privileged() -> bool {
    // SAFETY: asks for a number of the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether the process runs with more rights than its caller; other systems are not asked.
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
    fn a_missing_library_is_told_without_its_name() {
        let reason = Library::open("/nowhere/libnothing.so").map(|_| ()).unwrap_err();
        assert!(reason.starts_with("cannot open shared object file"), "{reason}");
    }

    #[test]
    fn a_symbol_leads_to_its_file() {
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
