//! The library as a loader sees it: by file and by symbol.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

use std::ffi::{c_int, c_void};
use std::path::PathBuf;

use libloading::Library;

/// Every function of the HIP runtime that callers may look up.
const SYMBOLS: &[&str] = &[
    "hipInit hipRuntimeGetVersion hipDriverGetVersion hipGetDeviceCount hipSetDevice hipGetDevice hipDeviceGet",
    "hipDeviceGetName hipDeviceGetAttribute hipDeviceTotalMem hipMemGetInfo hipDeviceGetUuid hipDeviceGetPCIBusId",
    "hipDeviceSynchronize hipGetDevicePropertiesR0600 hipGetDeviceProperties hipDeviceCanAccessPeer",
    "hipDeviceEnablePeerAccess hipSetDeviceFlags hipGetErrorName hipGetErrorString hipGetLastError hipPeekAtLastError",
    "hipMalloc hipFree hipExtMallocWithFlags hipMallocAsync hipFreeAsync hipMallocFromPoolAsync hipHostMalloc hipHostFree",
    "hipHostGetDevicePointer hipHostRegister hipHostUnregister hipPointerGetAttributes hipMemGetAddressRange",
    "hipMemcpy hipMemcpyAsync hipMemcpyWithStream hipMemcpyPeer hipMemcpyPeerAsync hipMemcpy2D hipMemcpy2DAsync",
    "hipMemset hipMemsetAsync hipMemsetD8 hipMemsetD8Async hipMemsetD16 hipMemsetD16Async hipMemsetD32 hipMemsetD32Async",
    "hipDeviceGetDefaultMemPool hipDeviceGetMemPool hipDeviceSetMemPool hipMemPoolCreate hipMemPoolDestroy",
    "hipMemPoolSetAttribute hipMemPoolGetAttribute hipMemPoolTrimTo",
    "hipStreamCreate hipStreamCreateWithFlags hipStreamCreateWithPriority hipStreamDestroy hipStreamSynchronize",
    "hipStreamQuery hipStreamWaitEvent hipStreamGetFlags hipStreamGetPriority hipDeviceGetStreamPriorityRange",
    "hipLaunchHostFunc hipStreamAddCallback hipEventCreate hipEventCreateWithFlags hipEventRecord hipEventSynchronize",
    "hipEventQuery hipEventDestroy hipEventElapsedTime hipStreamBeginCapture hipStreamEndCapture hipStreamIsCapturing",
    "hipStreamGetCaptureInfo hipStreamGetCaptureInfo_v2 hipThreadExchangeStreamCaptureMode hipGraphCreate hipGraphDestroy",
    "hipGraphInstantiate hipGraphInstantiateWithFlags hipGraphLaunch hipGraphUpload hipGraphExecUpdate hipGraphExecDestroy",
    "hipGraphGetNodes hipGraphGetEdges hipGraphNodeGetType hipModuleLoad hipModuleLoadData hipModuleLoadDataEx",
    "hipModuleUnload hipModuleGetFunction hipModuleGetGlobal hipModuleLaunchKernel hipFuncGetAttribute",
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor hipModuleOccupancyMaxPotentialBlockSize",
];

/// Cargo puts the shared library next to the test binary, with its own file name.
fn library() -> Library {
    let name = format!("{}hip_host{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let path: PathBuf = std::env::current_exe().expect("a test binary").with_file_name(name);
    // SAFETY: loading our own library runs none of its code.
    unsafe { Library::new(path) }.expect("the library loads")
}

/// Threads of this process that the library started.
#[cfg(target_os = "linux")]
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a list of threads");
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    tasks.flatten().filter_map(name).filter(|name| name.trim_end() == "hip-host stream").count()
}

#[test]
fn every_symbol_is_exported() {
    let library = library();
    for name in SYMBOLS.iter().flat_map(|line| line.split(' ')) {
        // SAFETY: the address is not used.
        let found = unsafe { library.get::<*const c_void>(name) };
        assert!(found.is_ok(), "{name} is missing");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_loader_can_copy_memory_without_creating_a_thread() {
    let library = library();
    // SAFETY: the signatures are HIP's, and host memory is valid for four bytes.
    unsafe {
        let malloc = library.get::<unsafe extern "C" fn(*mut *mut c_void, usize) -> c_int>("hipMalloc").expect("there");
        let free = library.get::<unsafe extern "C" fn(*mut c_void) -> c_int>("hipFree").expect("there");
        type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int;
        let copy = library.get::<Copy>("hipMemcpyAsync").expect("there");
        let (mut at, mut back) = (std::ptr::null_mut(), [0u8; 4]);
        assert_eq!(malloc(&mut at, 4), 0);
        assert_eq!(copy(at, [1u8, 2, 3, 4].as_ptr().cast(), 4, 1, std::ptr::null_mut()), 0);
        assert_eq!(copy(back.as_mut_ptr().cast(), at, 4, 2, std::ptr::null_mut()), 0);
        assert_eq!(back, [1, 2, 3, 4]);
        assert_eq!(free(at), 0);
    }
    assert_eq!(workers(), 0);
}
