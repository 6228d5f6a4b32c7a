//! Small owning wrappers around the exported functions, to keep the tests readable.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod program;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hip_host::abi::*;
use hip_host::{Config, configure};

pub const H2D: c_int = 1;
pub const D2H: c_int = 2;
pub const D2D: c_int = 3;
pub const DEFAULT: c_int = 4;
pub const NULL_STREAM: *mut c_void = null_mut();

/// Sets up the process and runs its tests one at a time: captures and device-wide waits affect other threads, and
/// `cargo test` runs the tests of one binary in one process.
pub fn start(config: &Config) -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = configure(config.clone());
    ok(hipSetDevice(0));
    hipGetLastError();
    guard
}

#[track_caller]
pub fn ok(status: c_int) {
    assert_eq!(status, 0, "{}", describe(status));
}

fn describe(status: c_int) -> String {
    // SAFETY: the function returns a static C string for every number.
    unsafe { std::ffi::CStr::from_ptr(hipGetErrorName(status)) }.to_string_lossy().into_owned()
}

/// Calls a function that stores a pointer.
#[track_caller]
pub fn made(create: impl FnOnce(*mut *mut c_void) -> c_int) -> *mut c_void {
    let mut handle = null_mut();
    ok(create(&mut handle));
    handle
}

/// Device memory of the current device.
pub struct Buffer {
    pub at: *mut c_void,
    pub bytes: usize,
}

impl Buffer {
    pub fn new(bytes: usize) -> Self {
        // SAFETY: `made` gives a writable pointer.
        Buffer { at: made(|out| unsafe { hipMalloc(out, bytes) }), bytes }
    }

    pub fn of(content: &[u8]) -> Self {
        let buffer = Self::new(content.len());
        buffer.write(content);
        buffer
    }

    pub fn offset(&self, bytes: usize) -> *mut c_void {
        self.at.wrapping_byte_add(bytes)
    }

    pub fn write(&self, content: &[u8]) {
        // SAFETY: `content` is valid for its length during the call.
        ok(unsafe { hipMemcpy(self.at, content.as_ptr().cast(), content.len(), H2D) });
    }

    pub fn read(&self) -> Vec<u8> {
        let mut content = vec![0; self.bytes];
        // SAFETY: `content` is valid for its length during the call.
        ok(unsafe { hipMemcpy(content.as_mut_ptr().cast(), self.at, self.bytes, D2H) });
        content
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        hipFree(self.at);
    }
}

pub struct Stream(pub *mut c_void);

// SAFETY: the pointer is a handle that any thread may pass to the library; it is never dereferenced.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn blocking() -> Self {
        Self::with_flags(0)
    }

    pub fn non_blocking() -> Self {
        Self::with_flags(1)
    }

    fn with_flags(flags: u32) -> Self {
        // SAFETY: `made` gives a writable pointer.
        Stream(made(|out| unsafe { hipStreamCreateWithFlags(out, flags) }))
    }

    #[track_caller]
    pub fn sync(&self) {
        ok(hipStreamSynchronize(self.0));
    }

    #[track_caller]
    pub fn fill(&self, buffer: &Buffer, value: u8) {
        // SAFETY: the destination is checked by the library.
        ok(unsafe { hipMemsetAsync(buffer.at, value.into(), buffer.bytes, self.0) });
    }

    #[track_caller]
    pub fn copy(&self, dst: &Buffer, src: &Buffer) {
        // SAFETY: both sides are device memory, checked by the library.
        ok(unsafe { hipMemcpyAsync(dst.at, src.at, src.bytes, D2D, self.0) });
    }

    pub fn capture_status(&self) -> c_int {
        let mut status = -1;
        // SAFETY: the result is writable.
        ok(unsafe { hipStreamIsCapturing(self.0, &mut status) });
        status
    }

    #[track_caller]
    pub fn end_capture(&self) -> Graph {
        // SAFETY: `made` gives a writable pointer.
        Graph(made(|out| unsafe { hipStreamEndCapture(self.0, out) }))
    }

    /// Ends a capture that yields no graph, and returns the status.
    #[track_caller]
    pub fn failed_capture(&self) -> c_int {
        let mut graph = null_mut();
        // SAFETY: the result is writable.
        let status = unsafe { hipStreamEndCapture(self.0, &mut graph) };
        assert!(status != 0 && graph.is_null());
        status
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        hipStreamDestroy(self.0);
    }
}

pub struct Event(pub *mut c_void);

impl Event {
    pub fn new() -> Self {
        // SAFETY: `made` gives a writable pointer.
        Event(made(|out| unsafe { hipEventCreate(out) }))
    }

    #[track_caller]
    pub fn record(&self, stream: &Stream) {
        ok(hipEventRecord(self.0, stream.0));
    }

    #[track_caller]
    pub fn hold_back(&self, stream: &Stream) {
        ok(hipStreamWaitEvent(stream.0, self.0, 0));
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        hipEventDestroy(self.0);
    }
}

pub struct Graph(pub *mut c_void);

impl Graph {
    pub fn nodes(&self) -> Vec<*mut c_void> {
        let mut count = 0;
        // SAFETY: the count is writable, and the only result requested.
        ok(unsafe { hipGraphGetNodes(self.0, null_mut(), &mut count) });
        let mut nodes = vec![null_mut(); count];
        // SAFETY: there is space for `count` nodes.
        ok(unsafe { hipGraphGetNodes(self.0, nodes.as_mut_ptr(), &mut count) });
        nodes
    }

    /// The edges as pairs of indices into [`Graph::nodes`].
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let mut count = 0;
        // SAFETY: the count is writable, and the only result requested.
        ok(unsafe { hipGraphGetEdges(self.0, null_mut(), null_mut(), &mut count) });
        let (mut from, mut to) = (vec![null_mut(); count], vec![null_mut(); count]);
        // SAFETY: there is space for `count` edges.
        ok(unsafe { hipGraphGetEdges(self.0, from.as_mut_ptr(), to.as_mut_ptr(), &mut count) });
        let nodes = self.nodes();
        let index = |node: &*mut c_void| nodes.iter().position(|own| own == node).expect("a node of the graph");
        let mut edges: Vec<_> = from.iter().map(index).zip(to.iter().map(index)).collect();
        edges.sort_unstable();
        edges
    }

    #[track_caller]
    pub fn instantiate(&self) -> Exec {
        // SAFETY: `made` gives a writable pointer.
        Exec(made(|out| unsafe { hipGraphInstantiateWithFlags(out, self.0, 0) }))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        hipGraphDestroy(self.0);
    }
}

pub struct Exec(pub *mut c_void);

impl Exec {
    #[track_caller]
    pub fn launch(&self, stream: &Stream) {
        ok(hipGraphLaunch(self.0, stream.0));
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        hipGraphExecDestroy(self.0);
    }
}

/// Keeps a stream busy from its creation until it is opened.
pub struct Gate {
    open: std::sync::mpsc::Sender<()>,
    blocker: std::thread::JoinHandle<()>,
}

struct GateParts {
    entered: std::sync::mpsc::Sender<()>,
    opened: std::sync::mpsc::Receiver<()>,
}

unsafe extern "C" fn pass_gate(data: *mut c_void) {
    // SAFETY: `Gate::close` leaks exactly one box of this type for one call.
    let parts = unsafe { Box::from_raw(data.cast::<GateParts>()) };
    parts.entered.send(()).expect("the gate waits for this");
    // An error means that the gate was dropped, which opens it too.
    let _ = parts.opened.recv();
}

impl Gate {
    /// Blocks `stream`. The host function runs on a separate thread, because an idle stream runs it on the caller's.
    pub fn close(stream: &Stream) -> Gate {
        let (entered, has_entered) = std::sync::mpsc::channel();
        let (open, opened) = std::sync::mpsc::channel();
        let data = Box::into_raw(Box::new(GateParts { entered, opened })).expose_provenance();
        let handle = stream.0.expose_provenance();
        let blocker = std::thread::spawn(move || {
            let (stream, data) =
                (std::ptr::with_exposed_provenance_mut(handle), std::ptr::with_exposed_provenance_mut(data));
            // SAFETY: `data` is a leaked box, and `pass_gate` reclaims it once.
            ok(unsafe { hipLaunchHostFunc(stream, Some(pass_gate), data) });
        });
        has_entered.recv().expect("the host function starts");
        Gate { open, blocker }
    }

    pub fn open(self) {
        let _ = self.open.send(());
        self.blocker.join().expect("the blocking thread ends");
    }
}
