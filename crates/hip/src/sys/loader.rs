//! Opens the library of a role and fills its table.

use std::path::{Path, PathBuf};

use dylib::{Attempt, Candidate, Failed};

use super::names::{self, Role};
use super::search::Search;
use super::table::Symbols;
use super::twin;
use crate::{DriverKind, LoadError};

/// A filled table and the file it came from.
pub(crate) struct Loaded<T> {
    pub table: T,
    pub path: PathBuf,
    /// Names tried before this one.
    pub attempts: Vec<Attempt>,
}

/// Opens the first usable library for a role and fills its table.
///
/// `runtime` is the file of the driver's runtime, if known.
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
            // Without the CUDA driver there is no device either, and the CUDA runtime reports that itself.
            search.cuda_driver().iter().find_map(|candidate| candidate.open(&mut attempts))
        }
        _ => None,
    };
    let candidates = search.candidates(kind, role, runtime).into_iter().inspect(|candidate| {
        if let (Candidate::File(file), DriverKind::Nvidia, Role::Rtc) = (candidate, kind, role) {
            twin::preload_compiler_data(file);
        }
    });
    let found = dylib::load(candidates, names.anchor, |main| {
        // SAFETY: the file has the vendor's name for this role, or the user named it as that library; the table's
        // signatures are those that the vendor declares for these names.
        unsafe { fill(&Symbols { kind, main, cuda_driver: cuda_driver.as_ref() }) }
    });
    let (what, help) = (names.what, names.help);
    match found {
        Ok(found) => {
            attempts.extend(found.attempts);
            let path = found.file;
            tracing::debug!(target: "amdgpu_ep::load", driver = %kind, library = %path.display(), "loaded {what}");
            Ok(Loaded { table: found.table, path, attempts })
        }
        Err(Failed { attempts: more, incomplete }) => {
            attempts.extend(more);
            Err(match incomplete {
                Some((path, missing)) => LoadError::Incomplete { what, path, missing, attempts, help },
                None => LoadError::NotFound { what, attempts, help },
            })
        }
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used, reason = "test helpers may panic")]
mod tests {
    use dylib::SearchContext;

    use super::*;
    use crate::sys::RuntimeTable;

    /// A search in one installation; creates its library folder if the root exists.
    fn only(root: &Path) -> Search {
        if root.is_dir() {
            std::fs::create_dir_all(root.join("lib")).unwrap();
        }
        let variables = [("ROCM_PATH", root.to_owned())].into_iter().collect();
        Search { rocm: SearchContext { variables, ..SearchContext::default() }, ..Search::default() }
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
        let search = only(folder.path());
        std::fs::write(folder.path().join("lib/libamdhip64.so.6"), "not a library\n").unwrap();
        let error = load_runtime(&search).map(|_| ()).unwrap_err();
        let reason = &error.attempts()[1].reason;
        assert!(matches!(error, LoadError::NotFound { .. }));
        assert!(reason.contains("file too short") || reason.contains("invalid ELF header"), "{reason}");
    }

    #[test]
    fn library_without_the_symbols_is_incomplete_and_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let search = only(folder.path());
        let libm = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .expect("a C library");
        std::fs::copy(libm, folder.path().join("lib/libamdhip64.so.7")).unwrap();
        let error = load_runtime(&search).map(|_| ()).unwrap_err();
        let LoadError::Incomplete { missing, path, .. } = &error else { panic!("{error:?}") };
        assert!(missing.contains(&"hipMalloc") && missing.contains(&"hipStreamSynchronize"), "{missing:?}");
        assert!(!missing.contains(&"hipMallocAsync"), "optional symbols must not be required: {missing:?}");
        assert!(path.ends_with("libamdhip64.so.7"));
    }

    #[test]
    fn folder_that_is_missing_is_one_attempt() {
        let error = load_runtime(&only(Path::new("/nowhere/at/all"))).map(|_| ()).unwrap_err();
        assert_eq!(error.attempts(), [Attempt { name: "/nowhere/at/all/lib".into(), reason: "no such folder".into() }]);
    }

    #[test]
    fn host_driver_has_no_compiler() {
        let result = load(&Search::default(), DriverKind::Host, Role::Rtc, None, crate::sys::RtcTable::fill);
        let error = result.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "the host driver has no run-time compiler");
    }
}
