//! Stream order through the HIP library that the process has open. It must be the host driver: only its memory is RAM.

use std::ffi::{c_int, c_void};

type HostFn = unsafe extern "C" fn(*mut c_void);

/// The functions of the host driver.
pub struct HostDriver {
    launch_host_fn: unsafe extern "C" fn(*mut c_void, HostFn, *mut c_void) -> c_int,
    is_capturing: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
}

impl HostDriver {
    /// The library that is already open. Another copy of the file would not know the stream.
    pub fn open() -> Option<HostDriver> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let file = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|file| {
            let name = file.rsplit('/').next().unwrap_or_default();
            name.starts_with("libhip-host.so") || name.starts_with("libhip_host.so")
        })?;
        // SAFETY: the library is already open, so no initialiser runs; the stream's owner keeps it open.
        let library = std::mem::ManuallyDrop::new(unsafe { libloading::Library::new(file) }.ok()?);
        // SAFETY: these are HIP's signatures for these names.
        unsafe {
            Some(HostDriver {
                launch_host_fn: *library.get(b"hipLaunchHostFunc").ok()?,
                is_capturing: *library.get(b"hipStreamIsCapturing").ok()?,
            })
        }
    }

    /// Queues work on a stream.
    ///
    /// # Safety
    /// `stream` is a stream of the host driver.
    pub unsafe fn launch(&self, stream: *mut c_void, work: Box<dyn Fn() + Send + Sync>) -> Result<(), String> {
        let mut capturing = 0;
        // SAFETY: the caller guarantees the stream; `capturing` is a valid out-pointer.
        if unsafe { (self.is_capturing)(stream, &mut capturing) } != 0 {
            return Err("hipStreamIsCapturing failed".into());
        }
        // A captured job may be replayed at any time, so it is never freed.
        let keep = capturing != 0;
        let job = Box::into_raw(Box::new(Job { work, keep }));
        // SAFETY: the job is freed after its only run, or never.
        let status = unsafe { (self.launch_host_fn)(stream, run, job.cast()) };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the driver rejected the job, so it never runs.
        drop(unsafe { Box::from_raw(job) });
        Err(format!("hipLaunchHostFunc returned {status}"))
    }
}

struct Job {
    work: Box<dyn Fn() + Send + Sync>,
    keep: bool,
}

unsafe extern "C" fn run(job: *mut c_void) {
    let job = job.cast::<Job>();
    // SAFETY: the driver passes the job of `launch`, which lives until it has run, or forever.
    let keep = unsafe {
        ((*job).work)();
        (*job).keep
    };
    if !keep {
        // SAFETY: this was its only run.
        drop(unsafe { Box::from_raw(job) });
    }
}
