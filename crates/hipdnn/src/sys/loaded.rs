//! A backend library loaded at run time.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use hip::sys::{Library, file_at};

use super::search::{Search, SearchContext};
use super::version::checked_version;
use super::{
    AttributeName, AttributeType, Backend, Descriptor, DescriptorType, Handle, LogCallbackMode, PluginLoadingMode,
    PluginUnloadingMode, RankingOutcome, Severity, Status, Table, UserLogCallback,
};
use crate::{Attempt, LoadError};

/// The process's backend library: the one that [`Search::default`] finds. The first call searches for it; a failure is
/// cached too.
///
/// # Errors
/// There is none, or one that this crate does not support.
pub fn backend() -> Result<Arc<dyn Backend>, LoadError> {
    static BACKEND: OnceLock<Result<Arc<dyn Backend>, LoadError>> = OnceLock::new();
    let open = || Loaded::open(&Search::default()).map(|loaded| Arc::new(loaded) as Arc<dyn Backend>);
    BACKEND.get_or_init(open).clone()
}

/// A backend library that was found and loaded at run time. It is never closed: its plugins start threads.
pub struct Loaded {
    table: Table,
    file: PathBuf,
    version: String,
}

impl Loaded {
    /// Loads the first library that can be loaded, and checks that this crate supports it.
    ///
    /// # Errors
    /// No file can be loaded, or the first that can is unusable: loading a later one would only hide that.
    pub fn open(search: &Search) -> Result<Self, LoadError> {
        let (candidates, mut tried) = search.candidates(&SearchContext::here());
        for file in candidates {
            match Library::open(&file) {
                Ok(library) => return Self::check(&library, &file, search),
                Err(reason) => tried.push(Attempt { file, reason }),
            }
        }
        Err(LoadError::NotFound { tried })
    }

    /// The library's file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The version string that the library reports: `major.minor.patch.tweak`.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn check(library: &Library, file: &Path, search: &Search) -> Result<Self, LoadError> {
        // SAFETY: hipDNN declares these symbols with the signatures of the table; a different library that exports a
        // symbol with the name of the version function cannot be detected.
        let table = unsafe { Table::resolve(|symbol| library.symbol::<*const c_void>(symbol)) };
        let address = table.version_string.map(|function| function as usize);
        let file = address.and_then(file_at).unwrap_or_else(|| file.to_owned());
        let mut loaded = Self { table, file, version: String::new() };
        loaded.version = checked_version(&loaded, &loaded.file, &search.further_majors)?;
        let (file, version) = (loaded.file.display(), &loaded.version);
        tracing::debug!(target: "hipdnn::load", %file, version, "loaded hipDNN");
        Ok(loaded)
    }
}

macro_rules! implement {
    ($($method:ident = $symbol:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        // SAFETY: the functions are those of a hipDNN backend, as far as `check` can verify.
        unsafe impl Backend for Loaded {
            fn describe(&self) -> String {
                format!("hipDNN {} ({})", self.version, self.file.display())
            }

            fn has(&self, symbol: &str) -> bool {
                self.table.has(symbol)
            }

            $(
                unsafe fn $method(&self, $($argument: $type),*) -> $result {
                    // SAFETY: the caller vouches for the arguments.
                    unsafe { self.table.$method($($argument),*) }
                }
            )*
        }
    };
}
crate::with_entry_points!(implement);
