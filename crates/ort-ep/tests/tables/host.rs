//! The host side of the FFI boundary: real runtimes, and the plugin's tables without a session.
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use ort_ep::sys;

type CreateFn = unsafe extern "C" fn(
    *const c_char,
    *const sys::OrtApiBase,
    *const sys::OrtLogger,
    *mut *mut sys::OrtEpFactory,
    usize,
    *mut usize,
) -> sys::Status;
type ReleaseFn = unsafe extern "C" fn(*mut sys::OrtEpFactory) -> sys::Status;

/// The `hooks` example and the installed runtimes, all in this one process.
pub struct Host {
    pub runtimes: Vec<Runtime>,
    create: CreateFn,
    pub release: ReleaseFn,
    report: PathBuf,
    _plugin: Library,
}

/// A runtime.
pub struct Runtime {
    pub base: *const sys::OrtApiBase,
    pub api: sys::Api,
    pub ep_api: sys::EpApi,
    _library: Library,
}

// SAFETY: the entry is static data of the runtime.
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// The host, for one test at a time, because environment variables control the plugin. `None`, after printing why, if
/// something was not set up.
pub fn host() -> Option<(&'static Host, MutexGuard<'static, ()>)> {
    static HOST: OnceLock<Option<Host>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let host = HOST.get_or_init(Host::open).as_ref()?;
    Some((host, turn))
}

impl Host {
    fn open() -> Option<Self> {
        let file = format!("{}hooks{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let test = std::env::current_exe().unwrap();
        let file = test.ancestors().nth(2).unwrap().join("examples").join(file);
        let runtimes: Vec<_> = runtime_files().iter().map(|file| Runtime::open(file)).collect();
        if runtimes.is_empty() || !file.exists() {
            println!("skipped: no runtime or no {}; `cargo xtask test --only rust` builds them", file.display());
            return None;
        }
        let report = std::env::temp_dir().join(format!("ort-ep-tables-{}", std::process::id()));
        // An earlier process with the same id may have left one.
        let _ = std::fs::remove_file(&report);
        // SAFETY: the two symbols of every plugin have these types. The tests of this process run one at a time, so no
        // variable is read while it is set.
        unsafe {
            std::env::set_var("HOOKS_REPORT", &report);
            let plugin = Library::new(file).unwrap();
            let create = *plugin.get(c"CreateEpFactories").unwrap();
            let release = *plugin.get(c"ReleaseEpFactory").unwrap();
            Some(Self { runtimes, create, release, report, _plugin: plugin })
        }
    }

    /// Calls the plugin's entry with room for `room` factories.
    pub fn create(
        &self,
        base: *const sys::OrtApiBase,
        name: Option<&CStr>,
        room: usize,
    ) -> (sys::Status, Option<Factory<'_>>) {
        let mut factory = ptr::null_mut();
        let mut count = 7;
        let name = name.map_or(ptr::null(), CStr::as_ptr);
        let out = if room == 0 { ptr::null_mut() } else { &raw mut factory };
        // SAFETY: the entry's contract: texts and out-pointers are valid or null, and the base is a runtime's.
        let status = unsafe { (self.create)(name, base, ptr::null(), out, room, &mut count) };
        assert_eq!(count, usize::from(!factory.is_null()));
        (status, (!factory.is_null()).then_some(Factory { host: self, raw: factory }))
    }

    /// The hooks called since the last call.
    pub fn calls(&self) -> Vec<String> {
        let lines = std::fs::read_to_string(&self.report).unwrap_or_default();
        let _ = std::fs::remove_file(&self.report);
        lines.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Runs `body` while a hook has a fault.
    pub fn with_fault<T>(&self, fault: &str, body: impl FnOnce() -> T) -> T {
        // SAFETY: the tests of this process run one at a time, so no variable is read while it is set.
        unsafe { std::env::set_var("HOOKS_FAULT", fault) };
        let result = body();
        // SAFETY: as above.
        unsafe { std::env::remove_var("HOOKS_FAULT") };
        result
    }
}

impl Runtime {
    fn open(file: &Path) -> Self {
        // SAFETY: the symbol has this type in every ONNX Runtime, and the entry is valid while the library is loaded.
        unsafe {
            let library = Library::new(file).unwrap();
            let entry = library.get::<unsafe extern "C" fn() -> *const sys::OrtApiBase>(c"OrtGetApiBase").unwrap();
            let base = entry();
            let api = sys::Api::negotiate(base).unwrap();
            let runtime = Self { base, api, ep_api: api.ep_api().unwrap(), _library: library };
            // Never released: the plugin's tables ask the runtime for the environment's entries.
            let mut environment = ptr::null_mut();
            let status = api.CreateEnv(sys::ORT_LOGGING_LEVEL_ERROR, c"tables".as_ptr(), &mut environment);
            assert_eq!(runtime.error(status), None);
            runtime
        }
    }

    /// The text of a status, which is released; `None` on success.
    pub fn error(&self, status: sys::Status) -> Option<String> {
        if status.is_null() {
            return None;
        }
        // SAFETY: a non-null status is ours and released once; the text is copied before that.
        unsafe {
            let text = CStr::from_ptr(self.api.GetErrorMessage(status)).to_string_lossy().into_owned();
            self.api.ReleaseStatus(status);
            Some(text)
        }
    }

    /// A factory with a unique name.
    pub fn factory<'a>(&self, host: &'a Host) -> Factory<'a> {
        let name = CString::new(format!("Tables{}", self.api.version())).unwrap();
        let (status, factory) = host.create(self.base, Some(&name), 1);
        assert_eq!(self.error(status), None);
        factory.unwrap()
    }
}

/// A factory of the plugin, released on drop.
pub struct Factory<'a> {
    pub host: &'a Host,
    pub raw: *mut sys::OrtEpFactory,
}

impl Drop for Factory<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the plugin and released only here.
        assert!(unsafe { (self.host.release)(self.raw) }.is_null());
    }
}

fn runtime_files() -> Vec<PathBuf> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folders = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let mut packages = folders(target.join("ort"));
    packages.extend(folders(target.join("venv/lib")).into_iter().map(|folder| folder.join("site-packages")));
    let files = packages.into_iter().flat_map(|package| folders(package.join("onnxruntime/capi")));
    let is_runtime =
        |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libonnxruntime.so."));
    let mut files: Vec<_> = files.filter(is_runtime).collect();
    files.sort();
    files
}
