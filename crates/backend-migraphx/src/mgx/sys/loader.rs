//! Opens the C library and finds its version. The library stays loaded for the life of the process; see
//! [`Library`](crate::mgx::Library).

use std::fs;
use std::path::{Path, PathBuf};

use dylib::rocm::MIGRAPHX;
use dylib::{Candidate, Failed, Library, SearchContext};

use super::Table;
use crate::mgx::{MgxError, Version};

/// A filled function table, and the file that it came from.
pub struct Loaded {
    pub table: Table,
    pub file: PathBuf,
}

/// The candidates: `explicit`, or the result of the shared search.
pub fn candidates(explicit: Option<&Path>) -> Vec<Candidate> {
    let mut context = SearchContext::of_process();
    if let (Some(variable), Some(place)) = (MIGRAPHX.variable, explicit) {
        context.variables.insert(variable, place.to_owned());
    }
    context.candidates(&MIGRAPHX, None)
}

/// Opens the first usable library.
pub fn load(candidates: Vec<Candidate>) -> Result<Loaded, MgxError> {
    let found = dylib::load(candidates, MIGRAPHX.anchor, |library| {
        // SAFETY: the file has MIGraphX's name, or the user named it as MIGraphX. The table matches its header.
        unsafe { Table::fill(&library) }
    });
    match found {
        Ok(found) => Ok(Loaded { table: found.table, file: fs::canonicalize(&found.file).unwrap_or(found.file) }),
        Err(Failed { incomplete: Some((file, missing)), .. }) => Err(MgxError::Incomplete { file, missing }),
        Err(Failed { attempts, .. }) => Err(MgxError::NotFound { attempts }),
    }
}

impl Loaded {
    /// The version of the core library that the C library is linked with.
    pub fn version(&self) -> Option<Version> {
        fs::read(&self.file).ok().and_then(|bytes| core_version(&bytes))
    }
}

/// The C library has no function for its version, but depends on the core library by a name that ends in `major * 1000000 +
/// minor * 1000 + patch`.
fn core_version(c_library: &[u8]) -> Option<Version> {
    const CORE: &[u8] = b"\0libmigraphx.so.";
    let names = c_library.windows(CORE.len()).enumerate().filter(|(_, window)| *window == CORE);
    names.map(|(at, _)| &c_library[at + CORE.len()..]).find_map(|rest| {
        let digits = rest.iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        let number: u32 = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        Some(Version { major: number / 1_000_000, minor: number / 1000 % 1000, patch: number % 1000 })
    })
}

/// Opens a target's library from the C library's folder. MIGraphX asks the loader for it by bare name and so gets the
/// matching copy. If there is none in that folder, MIGraphX's own search decides.
pub fn preload_target(c_library: &Path, version: Option<Version>, target: &str) {
    let (Some(folder), Some(Version { major, minor, patch })) = (c_library.parent(), version) else { return };
    let name = format!("libmigraphx_{target}.so.{}", major * 1_000_000 + minor * 1000 + patch);
    let folders = [folder.to_owned(), folder.join("migraphx/lib"), folder.join("../lib/migraphx/lib")];
    let Some(file) = folders.iter().map(|folder| folder.join(&name)).find(|file| file.exists()) else { return };
    if let Err(reason) = Library::open(&file) {
        tracing::debug!(target: "amdgpu_ep::load", library = %file.display(), reason, "a target cannot be opened");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_with_its_reason() {
        let error = load(candidates(Some(Path::new("/nowhere/libmigraphx_c.so.3")))).map(|_| ()).unwrap_err();
        let MgxError::NotFound { attempts } = &error else { panic!("{error:?}") };
        assert_eq!(attempts.len(), 1);
        assert!(error.to_string().contains("/nowhere/libmigraphx_c.so.3: no such file"), "{error}");
        assert!(error.to_string().contains("help: "), "{error}");
    }

    #[test]
    fn a_library_without_the_functions_is_incomplete() {
        let libm = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"];
        let libm = libm.into_iter().map(Path::new).find(|path| path.exists()).expect("a C library");
        let error = load(candidates(Some(libm))).map(|_| ()).unwrap_err();
        let MgxError::Incomplete { missing, .. } = &error else { panic!("{error:?}") };
        assert!(missing.contains(&"migraphx_program_compile"), "{missing:?}");
        assert!(!missing.contains(&"migraphx_quantize_bf16"), "newer functions must be optional: {missing:?}");
    }

    #[test]
    fn the_version_is_that_of_the_core_library_asked_for() {
        let bytes = b"\x7fELF\0libmigraphx_tf.so.2099000\0libmigraphx.so.2014001\0libc.so.6\0";
        assert_eq!(core_version(bytes), Some(Version { major: 2, minor: 14, patch: 1 }));
        assert_eq!(core_version(b"\0libmigraphx.so.\0"), None);
        assert_eq!(core_version(b"\0libmigraphx.so."), None);
        assert_eq!(core_version(b""), None);
    }
}
