//! The only unsafe code of the command outside its ONNX Runtime client: opening other libraries, and calls to the C
//! library.

use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};

use dylib::Library;
use ort_ep_sys::{Api, NegotiationError, OrtApiBase};

/// Disables ONNX Runtime's telemetry in this process, unless the user has set the variable. Releases since 1.29 would
/// open network connections, and this command promises not to.
pub fn disable_telemetry() {
    const VARIABLE: &str = "ORT_DISABLE_TELEMETRY";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: `main` calls this first, before there is any other thread that could read the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
}

/// Facts about an ONNX Runtime library.
pub struct OnnxRuntime {
    /// The file that the loader chose.
    pub file: Option<PathBuf>,
    /// Its version, such as `1.31.1`.
    pub version: String,
    /// The API version that the plugin would use with it.
    pub api_version: Result<u32, NegotiationError>,
}

type GetApiBase = unsafe extern "C" fn() -> *const OrtApiBase;

/// Opens a library as ONNX Runtime and reads its version.
///
/// # Errors
/// The loader's error, or what the library lacks.
pub fn onnxruntime(name: &OsStr) -> Result<OnnxRuntime, String> {
    let library = Library::open(name)?;
    // SAFETY: `OrtGetApiBase` has had this signature in every release of ONNX Runtime. A library that uses the name for
    // something else can at worst crash this process, which exists to take that risk.
    let entry = unsafe { library.symbol::<GetApiBase>("OrtGetApiBase") }
        .ok_or("it opens, but has no OrtGetApiBase: this is not ONNX Runtime")?;
    // SAFETY: takes no argument and returns a static table or null.
    let base = unsafe { entry() };
    // SAFETY: a non-null result is a static table of the library, which stays open to the end of the process.
    let version = match unsafe { base.as_ref() }.and_then(|base| base.GetVersionString) {
        // SAFETY: takes no argument and returns a static string or null.
        Some(get_version) => text(unsafe { get_version() }),
        None => String::new(),
    };
    // SAFETY: `base` is null or the library's own table, and the library stays open.
    let api_version = unsafe { Api::negotiate(base) }.map(|api| api.version());
    Ok(OnnxRuntime { file: dylib::file_at(entry as *const () as usize), version, api_version })
}

/// Opens a library and looks up functions, without calling them.
///
/// # Errors
/// The loader's error, or the missing names.
pub fn exports(file: &Path, names: &[&str]) -> Result<(), String> {
    let library = Library::open(file)?;
    let missing: Vec<&str> = names.iter().filter(|name| !library.has(name)).copied().collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("it opens, but lacks {}", missing.join(", "))) }
}

fn text(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: ONNX Runtime returns NUL-terminated static strings.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Ends the process without running the exit handlers of C++ libraries, whose threads may still be working.
#[cfg(unix)]
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes any number, and nothing in this process runs afterwards.
    unsafe { libc::_exit(code) }
}

/// Ends the process.
#[cfg(windows)]
pub fn exit_now(code: i32) -> ! {
    std::process::exit(code)
}

/// Whether this user may create files in a folder, checked without creating one.
#[cfg(unix)]
pub fn is_writable_folder(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;

    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is NUL-terminated and outlives the call.
    folder.is_dir() && unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) } == 0 && !shows_the_kernel(&path)
}

/// Whether a folder is in a pseudo file system of the kernel: root has write permission there, but cannot create files.
#[cfg(target_os = "linux")]
fn shows_the_kernel(path: &CStr) -> bool {
    const KINDS: [i64; 7] = [
        libc::PROC_SUPER_MAGIC,
        libc::SYSFS_MAGIC,
        libc::CGROUP_SUPER_MAGIC,
        libc::CGROUP2_SUPER_MAGIC,
        libc::DEBUGFS_MAGIC,
        libc::TRACEFS_MAGIC,
        libc::SECURITYFS_MAGIC,
    ];
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `path` is NUL-terminated, and `found` has space for the result.
    let asked = unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) };
    // SAFETY: the call has filled the structure if it succeeded.
    asked == 0 && KINDS.contains(&unsafe { found.assume_init() }.f_type)
}

/// Only checked on Linux.
#[cfg(all(unix, not(target_os = "linux")))]
fn shows_the_kernel(_path: &CStr) -> bool {
    false
}

/// Whether this user may create files in a folder, according to its attributes.
#[cfg(windows)]
pub fn is_writable_folder(folder: &Path) -> bool {
    std::fs::metadata(folder).is_ok_and(|found| found.is_dir() && !found.permissions().readonly())
}
