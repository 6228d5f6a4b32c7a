//! Host code objects: kernels that are functions of a shared library.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_int, c_void};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::LazyLock;

use hip_host::abi::*;

use crate::common::{Buffer, Gate, NULL_STREAM, Stream, made, ok};
use crate::start;

const SOURCE: &str = r"
struct HostLaunch { unsigned grid[3], block[3], lds_bytes, reserved; const void* args; };
struct Add { unsigned char* at; unsigned char by; };
unsigned add_args_bytes = sizeof(struct Add);
void add(const struct HostLaunch* launch) {
  const struct Add* a = launch->args;
  for (unsigned i = 0; i < launch->grid[0] * launch->block[0]; i++) a->at[i] += a->by;
}
";

/// The library above, or `None` after printing why it could not be built.
static IMAGE: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (folder.path().join("add.c"), folder.path().join("add.so"));
    std::fs::write(&source, SOURCE).expect("the source is written");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    match Command::new(&compiler).args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status() {
        Ok(status) => {
            assert!(status.success(), "the kernel compiles");
            Some(std::fs::read(&library).expect("the library is there"))
        }
        Err(error) => {
            eprintln!("skipped: {compiler} could not be started: {error}");
            None
        }
    }
});

#[repr(C)]
struct Add {
    at: *mut c_void,
    by: u8,
}

struct Module(*mut c_void);

impl Module {
    fn load() -> Option<Self> {
        let image = IMAGE.as_ref()?;
        // SAFETY: a whole library, and a writable result.
        Some(Module(made(|out| unsafe { hipModuleLoadData(out, image.as_ptr().cast()) })))
    }

    fn function(&self, name: &CStr) -> Result<*mut c_void, c_int> {
        let mut function = null_mut();
        // SAFETY: the result is writable and the name a C string.
        let status = unsafe { hipModuleGetFunction(&mut function, self.0, name.as_ptr()) };
        if status == 0 { Ok(function) } else { Err(status) }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        ok(hipModuleUnload(self.0));
    }
}

/// Adds to the first `threads` bytes; the arguments are dropped when the call returns.
fn launch(function: *mut c_void, buffer: &Buffer, by: u8, threads: u32, stream: *mut c_void) -> c_int {
    let mut add = Add { at: buffer.at, by };
    let mut parameters = [(&raw mut add).cast::<c_void>()];
    // SAFETY: one pointer to the kernel's structure; tests keep the buffer until the work is over.
    unsafe { hipModuleLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()) }
}

#[test]
fn a_kernel_runs_in_the_order_of_its_stream_with_a_copy_of_its_arguments() {
    let _guard = start();
    let Some(module) = Module::load() else { return };
    let add = module.function(c"add").expect("the kernel is there");
    assert_eq!(module.function(c"add"), Ok(add), "one handle per kernel");
    assert_eq!(module.function(c"subtract"), Err(500));
    let (stream, buffer) = (Stream::non_blocking(), Buffer::of(&[1, 2, 3]));
    let gate = Gate::close(&stream);
    ok(launch(add, &buffer, 10, 2, stream.0));
    assert_eq!(buffer.read(), [1, 2, 3]);
    gate.open();
    stream.sync();
    assert_eq!(buffer.read(), [11, 12, 3]);
    assert_eq!(launch(add, &buffer, 10, 1025, NULL_STREAM), 9);
    assert_eq!(launch(add, &buffer, 10, 0, NULL_STREAM), 9);
    drop(module);
    assert_eq!(launch(add, &buffer, 10, 2, stream.0), 400);
}

#[test]
fn a_captured_kernel_runs_at_each_launch_and_takes_new_arguments() {
    let _guard = start();
    let Some(module) = Module::load() else { return };
    let add = module.function(c"add").expect("the kernel is there");
    let (stream, buffers) = (Stream::non_blocking(), [Buffer::of(&[0]), Buffer::of(&[0])]);
    let capture = |buffer: &Buffer| {
        ok(hipStreamBeginCapture(stream.0, 2));
        ok(launch(add, buffer, 3, 1, stream.0));
        stream.end_capture()
    };
    let graph = capture(&buffers[0]);
    let mut kind = -1;
    // SAFETY: the result is writable.
    ok(unsafe { hipGraphNodeGetType(graph.nodes()[0], &mut kind) });
    assert_eq!(kind, 0);
    let exec = graph.instantiate();
    assert_eq!(buffers[0].read(), [0], "recorded, not run");
    exec.launch(&stream);
    exec.launch(&stream);
    let (mut node, mut result) = (null_mut(), -1);
    let moved = capture(&buffers[1]);
    // SAFETY: both results are writable.
    ok(unsafe { hipGraphExecUpdate(exec.0, moved.0, &mut node, &mut result) });
    // The graph keeps the code loaded.
    drop(module);
    exec.launch(&stream);
    stream.sync();
    assert_eq!((buffers[0].read(), buffers[1].read()), (vec![6], vec![3]));
}

#[test]
fn attributes_are_those_of_a_small_kernel() {
    let _guard = start();
    let Some(module) = Module::load() else { return };
    let add = module.function(c"add").expect("the kernel is there");
    let attribute = |number| {
        let mut value = -1;
        // SAFETY: the result is writable.
        ok(unsafe { hipFuncGetAttribute(&mut value, number, add) });
        value
    };
    assert_eq!([0, 1, 3].map(attribute), [1024, 0, 0]);
    assert!(attribute(4) > 0);
    let mut blocks = 0;
    // SAFETY: the result is writable.
    ok(unsafe { hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, add, 256, 32 << 10) });
    assert_eq!(blocks, 2);
}
