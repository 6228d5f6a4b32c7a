//! The run-time compiler. It needs no device.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use super::driver::{Driver, version_text};
use crate::result::rtc::{self, RtcStatus};
use crate::sys::loader::{self, Loaded};
use crate::sys::{Handle, Role, RtcTable, Search, codes};
use crate::{Attempt, DriverKind, LoadError, RtcError};

/// A loaded hiprtc or nvrtc. Clones share it; the library is never unloaded.
#[derive(Clone)]
pub struct Rtc(Arc<Inner>);

struct Inner {
    kind: DriverKind,
    table: RtcTable,
    library: PathBuf,
    attempts: Vec<Attempt>,
    /// The version of the HIP runtime that the compiler belongs to, if known.
    hip_version: Option<i32>,
}

/// Held during each compilation with HIP 5's compiler: two at once corrupt its heap and crash the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

static LOADED: Shared<Inner> = Shared::new();

impl Rtc {
    /// Loads the compiler of a driver, or shares one that is already loaded. A failure is not cached.
    ///
    /// # Errors
    /// Every name tried, with the loader's reason.
    pub fn load(kind: DriverKind) -> Result<Rtc, LoadError> {
        let load = || {
            // Prefer a compiler next to the runtime in use; without a runtime there may still be one.
            let runtime = (kind == DriverKind::Amd).then(|| Driver::load(kind).ok()).flatten();
            Ok(Rtc::load_with(kind, &Search::from_env(), runtime.as_ref())?.0)
        };
        LOADED.load(kind, load).map(Rtc)
    }

    /// Loads a compiler with a given search, without sharing it.
    ///
    /// # Errors
    /// Every name tried, with the loader's reason.
    pub fn load_with(kind: DriverKind, search: &Search, runtime: Option<&Driver>) -> Result<Rtc, LoadError> {
        let beside = runtime.map(Driver::library);
        let Loaded { table, path, attempts } = loader::load(search, kind, Role::Rtc, beside, RtcTable::fill)?;
        let mut own_version = 0;
        // SAFETY: the out-pointer lives for the call.
        let status = table.runtime_get_version.map(|get| unsafe { get(&mut own_version) });
        let hip_version = match status {
            Some(0) if own_version != 0 => Some(own_version),
            _ => runtime.and_then(Driver::runtime_version).or_else(|| version_in_name(kind, &path)),
        };
        Ok(Rtc(Arc::new(Inner { kind, table, library: path, attempts, hip_version })))
    }

    /// The driver it compiles for.
    pub fn kind(&self) -> DriverKind {
        self.0.kind
    }

    /// The file that it was loaded from, as the loader resolved it.
    pub fn library(&self) -> &Path {
        &self.0.library
    }

    /// Names that were tried before [`Rtc::library`] was found.
    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// The version as text for readers and cache keys: the HIP runtime's, or nvrtc's own.
    pub fn version_text(&self) -> String {
        match self.0.kind {
            DriverKind::Nvidia => match rtc::version(&self.0.table) {
                Ok((major, minor)) => format!("{major}.{minor}"),
                Err(_) => "unknown version".to_owned(),
            },
            kind => version_text(kind, self.0.hip_version),
        }
    }

    /// The option that selects a target.
    pub fn target_option(&self, arch: &str) -> String {
        match self.0.kind {
            DriverKind::Nvidia => format!("--gpu-architecture={arch}"),
            DriverKind::Amd | DriverKind::Host => format!("--offload-arch={arch}"),
        }
    }

    /// Compiles one source without headers to code for [`Module::load`](crate::Module::load).
    ///
    /// # Errors
    /// The compiler's log, or why the request was not passed to the compiler.
    pub fn compile(&self, source: &str, name: &str, options: &[&str]) -> Result<Vec<u8>, RtcError> {
        self.refuse_deadly_targets(options)?;
        let (c_source, c_name) = (c_text("the source", source)?, c_text("the name", name)?);
        let c_options: Vec<CString> =
            options.iter().map(|option| c_text("an option", option)).collect::<Result<_, _>>()?;
        let c_options: Vec<&CStr> = c_options.iter().map(CString::as_c_str).collect();
        let refused = |status: RtcStatus, log: String| RtcError::Compile {
            name: name.to_owned(),
            call: status.call,
            code: status.code,
            text: status.text,
            log,
        };
        let _turn = self.is_hip_5().then(|| ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner));
        let table = &self.0.table;
        let program = rtc::create(table, &c_source, &c_name).map_err(|status| refused(status, String::new()))?;
        let program = Program { table, handle: program };
        // SAFETY: the program is live until the end of this function.
        unsafe {
            rtc::compile(table, program.handle, &c_options)
                .and_then(|()| rtc::code(table, program.handle))
                .map_err(|status| refused(status, rtc::log(table, program.handle)))
        }
    }

    fn is_hip_5(&self) -> bool {
        self.0.kind == DriverKind::Amd && self.0.hip_version.is_some_and(|version| version < codes::HIP_6)
    }

    /// HIP 5's compiler terminates the process if it is given an unknown target.
    fn refuse_deadly_targets(&self, options: &[&str]) -> Result<(), RtcError> {
        if !self.is_hip_5() {
            return Ok(());
        }
        let targets = options.iter().filter_map(|option| {
            option.strip_prefix("--offload-arch=").or_else(|| option.strip_prefix("--gpu-architecture="))
        });
        for target in targets {
            if !known_to_hip_5(target, self.0.hip_version.unwrap_or(0)) {
                let version = self.version_text();
                return Err(RtcError::UnknownTarget { target: target.to_owned(), version });
            }
        }
        Ok(())
    }
}

/// A lower bound of the version from the soname, for a compiler without a runtime.
fn version_in_name(kind: DriverKind, library: &Path) -> Option<i32> {
    let name = library.file_name()?.to_str()?;
    let is_hip_5 = kind == DriverKind::Amd && name.split(".so.").nth(1).is_some_and(|rest| rest.starts_with('5'));
    is_hip_5.then_some(50_000_000)
}

/// Targets that HIP 5 is known to accept; RDNA 3 came with 5.5.
fn known_to_hip_5(target: &str, version: i32) -> bool {
    const HIP_5_5: i32 = 50_500_000;
    const ALWAYS: [&str; 15] = [
        "gfx900", "gfx906", "gfx908", "gfx90a", "gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030", "gfx1031",
        "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
    ];
    const SINCE_5_5: [&str; 3] = ["gfx1100", "gfx1101", "gfx1102"];
    let family = target.split(':').next().unwrap_or_default();
    ALWAYS.contains(&family) || version >= HIP_5_5 && SINCE_5_5.contains(&family)
}

fn c_text(what: &'static str, text: &str) -> Result<CString, RtcError> {
    if text.is_empty() {
        return Err(RtcError::BadText { what, reason: "it is empty" });
    }
    CString::new(text).map_err(|_| RtcError::BadText { what, reason: "it contains a NUL byte" })
}

struct Program<'a> {
    table: &'a RtcTable,
    handle: Handle,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` on this table and is destroyed only here.
        if let Err(status) = unsafe { rtc::destroy(self.table, self.handle) } {
            tracing::warn!(target: "amdgpu_ep::lifetime", code = status.code, "compiler program leaked");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        LOADED.forget(self.kind);
    }
}

impl fmt::Debug for Rtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rtc")
            .field("kind", &self.0.kind)
            .field("library", &self.0.library)
            .field("version", &self.version_text())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hip_5_gets_only_targets_that_do_not_crash_it() {
        assert!(known_to_hip_5("gfx90a:sramecc+:xnack-", 50_221_153));
        assert!(known_to_hip_5("gfx1030", 50_221_153));
        assert!(!known_to_hip_5("gfx1100", 50_221_153));
        assert!(known_to_hip_5("gfx1100", 50_700_000));
        assert!(!known_to_hip_5("gfx942", 50_700_000));
        assert!(!known_to_hip_5("", 50_700_000));
    }

    #[test]
    fn a_lone_compiler_of_hip_5_is_recognised_by_its_soname() {
        let named = |name: &str| version_in_name(DriverKind::Amd, Path::new(name));
        assert_eq!(named("/lib/libhiprtc.so.5"), Some(50_000_000));
        assert_eq!(named("/lib/libhiprtc.so.5.7.31921"), Some(50_000_000));
        assert_eq!(named("/lib/libhiprtc.so.7"), None);
        assert_eq!(named("/lib/libhiprtc.so"), None);
    }
}
