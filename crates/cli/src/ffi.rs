//! The only unsafe code of the command: its environment, and calls to the C library.

#[cfg(unix)]
use std::ffi::CStr;
use std::path::Path;

use dylib::Library;

/// Disables ONNX Runtime's telemetry in this process, unless the user has set the variable. Releases since 1.29 would
/// open network connections, and this command promises not to.
pub fn disable_telemetry() {
    const VARIABLE: &str = "ORT_DISABLE_TELEMETRY";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: `main` calls this first, before there is any other thread that could read the environment.
        unsafe { std::env::set_var(VARIABLE, "1") };
    }
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

/// Ends the process without running the exit handlers of C++ libraries, whose threads may still be working.
#[cfg(unix)]
pub fn exit_now(code: i32) -> ! {
    // SAFETY: takes any number, and nothing in this process runs afterwards.
    unsafe { libc::_exit(code) }
}

/// Ends the process without running the exit handlers of C++ libraries, whose threads may still be working.
#[cfg(windows)]
pub fn exit_now(code: i32) -> ! {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentProcess() -> *mut std::ffi::c_void;
        fn TerminateProcess(process: *mut std::ffi::c_void, code: u32) -> i32;
    }
    // SAFETY: the handle is that of this process, and nothing in it runs afterwards.
    unsafe { TerminateProcess(GetCurrentProcess(), code.cast_unsigned()) };
    // Only if Windows refused.
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
