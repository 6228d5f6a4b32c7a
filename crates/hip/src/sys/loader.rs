//! Opening libraries. A library that was opened once stays for the life of the process.

use std::ffi::{OsStr, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use super::names::{self, Role};
use super::search::{Candidate, Search};
use super::table::Symbols;
use super::twin;
use crate::{Attempt, DriverKind, LoadError};

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

    /// The file that the loader found `name` in.
    fn file_of(&self, name: &str) -> Option<PathBuf> {
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

/// The folder of the library or executable this code was linked into.
pub fn own_folder() -> Option<PathBuf> {
    let here = own_folder as fn() -> Option<PathBuf> as *const c_void;
    let file = file_at(here as usize).or_else(|| std::env::current_exe().ok())?;
    // The loader may have been given a relative path; the search must not depend on a later change of folder.
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    file.parent().map(Path::to_owned)
}

/// A filled table and where it came from.
pub(crate) struct Loaded<T> {
    pub table: T,
    pub path: PathBuf,
    /// Names tried before this one.
    pub attempts: Vec<Attempt>,
}

/// Opens the first usable library for a role and fills its table.
///
/// `runtime` is the file of the driver's runtime, where it is known.
pub(crate) fn load<T>(
    search: &Search,
    kind: DriverKind,
    role: Role,
    runtime: Option<&Path>,
    fill: unsafe fn(&Symbols<'_>) -> Result<T, Vec<&'static str>>,
) -> Result<Loaded<T>, LoadError> {
    let Some(names) = names::library(kind, role) else {
        return Err(LoadError::NotOffered { driver: kind, what: names::role_in_words(role) });
    };
    let mut attempts = Vec::new();
    let cuda_driver = match (kind, role) {
        (DriverKind::Nvidia, Role::Runtime) => {
            // Without it there is no device either, which the CUDA runtime then says in its own words.
            search.cuda_driver().iter().find_map(|candidate| open(candidate, &mut attempts))
        }
        _ => None,
    };
    let mut incomplete = None;
    for candidate in search.candidates(kind, role, runtime) {
        if let (Candidate::File(file), DriverKind::Nvidia, Role::Rtc) = (&candidate, kind, role) {
            twin::preload_compiler_data(file);
        }
        let Some(main) = open(&candidate, &mut attempts) else { continue };
        let path = main.file_of(names.anchor).unwrap_or_else(|| PathBuf::from(shown(&candidate)));
        // SAFETY: the file bears the vendor's name for this role, or the user named it as that library; these are the
        // names whose signatures the table is written from.
        match unsafe { fill(&Symbols { kind, main, cuda_driver: cuda_driver.as_ref() }) } {
            Ok(table) => {
                tracing::debug!(target: "amdgpu_ep::load", driver = %kind, library = %path.display(), "loaded {}", names.what);
                return Ok(Loaded { table, path, attempts });
            }
            Err(missing) => {
                attempts.push(Attempt { name: shown(&candidate), reason: format!("lacks {}", missing.join(", ")) });
                incomplete.get_or_insert((path, missing));
            }
        }
    }
    let (what, help) = (names.what, names.help);
    Err(match incomplete {
        Some((path, missing)) => LoadError::Incomplete { what, path, missing, attempts, help },
        None => LoadError::NotFound { what, attempts, help },
    })
}

fn shown(candidate: &Candidate) -> String {
    match candidate {
        Candidate::File(path) | Candidate::NoFolder(path) => path.display().to_string(),
        Candidate::Plain(name) | Candidate::Loaded(name) => (*name).to_owned(),
    }
}

fn open(candidate: &Candidate, attempts: &mut Vec<Attempt>) -> Option<Library> {
    let result = match candidate {
        Candidate::File(path) if !path.exists() => Err("no such file".to_owned()),
        Candidate::File(path) => Library::open(path),
        Candidate::Plain(name) => Library::open(name),
        Candidate::NoFolder(_) => Err("no such folder".to_owned()),
        // Not being there already is no failure to report.
        Candidate::Loaded(name) => return Library::already_open(name),
    };
    result.map_err(|reason| attempts.push(Attempt { name: shown(candidate), reason })).ok()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::sys::RuntimeTable;

    fn only(folder: &Path) -> Search {
        Search { rocm_folders: vec![folder.to_owned()], ..Search::default() }
    }

    fn load_runtime(search: &Search) -> Result<Loaded<RuntimeTable>, LoadError> {
        load(search, DriverKind::Amd, Role::Runtime, None, RuntimeTable::fill)
    }

    #[test]
    fn empty_folder_lists_every_name_tried() {
        let folder = tempfile::tempdir().unwrap();
        let error = load_runtime(&only(folder.path())).map(|_| ()).unwrap_err();
        let LoadError::NotFound { what: "HIP runtime", attempts, .. } = &error else { panic!("{error:?}") };
        let names: Vec<&str> = attempts.iter().map(|attempt| attempt.name.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]);
        assert!(attempts.iter().all(|attempt| attempt.reason == "no such file"));
        assert!(error.to_string().contains("\n  help: "), "{error}");
    }

    #[test]
    fn text_file_in_place_of_the_library_is_reported_with_the_loaders_reason() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libamdhip64.so.6"), "not a library\n").unwrap();
        let error = load_runtime(&only(folder.path())).map(|_| ()).unwrap_err();
        let reason = &error.attempts()[1].reason;
        assert!(matches!(error, LoadError::NotFound { .. }));
        assert!(reason.contains("file too short") || reason.contains("invalid ELF header"), "{reason}");
    }

    #[test]
    fn library_without_the_symbols_is_incomplete_and_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let libm = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .expect("a C library");
        std::fs::copy(libm, folder.path().join("libamdhip64.so.7")).unwrap();
        let error = load_runtime(&only(folder.path())).map(|_| ()).unwrap_err();
        let LoadError::Incomplete { missing, path, .. } = &error else { panic!("{error:?}") };
        assert!(missing.contains(&"hipMalloc") && missing.contains(&"hipStreamSynchronize"), "{missing:?}");
        assert!(!missing.contains(&"hipMallocAsync"), "optional symbols must not be asked for: {missing:?}");
        assert!(path.ends_with("libamdhip64.so.7"));
    }

    #[test]
    fn folder_that_is_missing_is_one_attempt() {
        let error = load_runtime(&only(Path::new("/nowhere/at/all"))).map(|_| ()).unwrap_err();
        assert_eq!(error.attempts(), [Attempt { name: "/nowhere/at/all".into(), reason: "no such folder".into() }]);
    }

    #[test]
    fn only_a_library_of_the_process_counts_as_already_open() {
        assert!(Library::already_open("libc.so.6").is_some());
        assert!(Library::already_open("libnothing.so.7").is_none());
    }

    #[test]
    fn host_driver_has_no_compiler() {
        let result = load(&Search::default(), DriverKind::Host, Role::Rtc, None, crate::sys::RtcTable::fill);
        let error = result.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the host driver has no run-time compiler");
    }

    #[test]
    fn own_folder_holds_this_test_binary() {
        assert_eq!(own_folder(), std::env::current_exe().unwrap().parent().map(Path::to_owned));
    }
}
