//! Tests that need their own process: the environment at the first call, and exiting with pending work.
#![allow(clippy::expect_used, reason = "test helpers may panic")]

use std::process::Command;

use hip_host::abi::*;

const CHILD: &str = "HIP_HOST_TEST_CHILD";

/// Runs this binary again as a child with one test.
fn child(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test binary"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    command
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn switches_are_read_at_the_first_call() {
    if is_child() {
        return look_at_device();
    }
    let output = child("switches_are_read_at_the_first_call")
        .env("AMDGPU_EP_HOST_DEVICES", "3")
        .env("AMDGPU_EP_HOST_MEMORY", "8M")
        .env("AMDGPU_EP_HOST_STREAMS", "later")
        .output()
        .expect("the child starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("AMDGPU_EP_HOST_STREAMS=later is ignored"), "{errors}");
    assert!(errors.contains("help: set it to immediate or threads"), "{errors}");
}

fn look_at_device() {
    let (mut count, mut total) = (0, 0);
    // SAFETY: both results are writable.
    unsafe {
        assert_eq!(hipGetDeviceCount(&mut count), 0);
        assert_eq!(hipDeviceTotalMem(&mut total, 2), 0);
    }
    assert_eq!((count, total), (3, 8 << 20));
}

#[test]
fn a_process_may_end_with_work_pending() {
    if is_child() {
        end_with_work_pending();
    }
    for seed in 0..8 {
        let mut command = child("a_process_may_end_with_work_pending");
        command.env("AMDGPU_EP_HOST_STREAMS", "threads").env("AMDGPU_EP_HOST_SEED", seed.to_string());
        let output = command.output().expect("the child starts");
        assert_eq!(output.status.code(), Some(42), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn end_with_work_pending() -> ! {
    const BYTES: usize = 1 << 20;
    let mut buffer = std::ptr::null_mut();
    // SAFETY: the results are writable, and the destination is checked by the library.
    unsafe {
        assert_eq!(hipMalloc(&mut buffer, BYTES), 0);
        for value in 0..4 {
            let mut stream = std::ptr::null_mut();
            assert_eq!(hipStreamCreate(&mut stream), 0);
            for _ in 0..50 {
                assert_eq!(hipMemsetAsync(buffer, value, BYTES, stream), 0);
            }
        }
    }
    std::process::exit(42)
}

#[test]
fn a_function_that_the_driver_lacks_is_unsupported_and_the_rest_works() {
    const LACKS: &str = "pools, capture,event-times,graph-launch,memory-info,peers,pinned";
    if is_child() {
        return look_at_what_is_left();
    }
    let mut command = child("a_function_that_the_driver_lacks_is_unsupported_and_the_rest_works");
    let output = command.env("AMDGPU_EP_HOST_LACKS", LACKS).env("AMDGPU_EP_HOST_DEVICES", "2").output();
    let output = output.expect("the child starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn look_at_what_is_left() {
    const NOT_SUPPORTED: i32 = 801;
    const INVALID_DEVICE: i32 = 101;
    const MEMORY_POOLS: i32 = 88;
    let (mut address, mut stream, mut event) = ([std::ptr::null_mut(); 2], std::ptr::null_mut(), std::ptr::null_mut());
    let (mut number, mut free, mut total, mut ms, mut id) = (1, 1, 1, 0.0, 0);
    // SAFETY: all results are writable.
    unsafe {
        assert_eq!((hipStreamCreate(&mut stream), hipEventCreate(&mut event)), (0, 0));
        assert_eq!((hipDeviceGetAttribute(&mut number, MEMORY_POOLS, 0), number), (0, 0));
        assert_eq!(hipMallocAsync(&mut address[0], 16, stream), NOT_SUPPORTED);
        assert_eq!(hipDeviceGetDefaultMemPool(&mut address[0], 0), NOT_SUPPORTED);
        assert_eq!(hipDeviceGetMemPool(&mut address[0], 0), NOT_SUPPORTED);
        assert_eq!(hipDeviceSetMemPool(0, std::ptr::null_mut()), NOT_SUPPORTED);
        assert_eq!(hipMemPoolTrimTo(std::ptr::null_mut(), 0), NOT_SUPPORTED);
        assert_eq!(hipMemPoolGetAttribute(std::ptr::null_mut(), 4, (&raw mut total).cast()), NOT_SUPPORTED);
        assert_eq!(hipMemPoolSetAttribute(std::ptr::null_mut(), 4, (&raw mut total).cast()), NOT_SUPPORTED);
        assert_eq!(hipMallocFromPoolAsync(&mut address[0], 16, std::ptr::null_mut(), stream), NOT_SUPPORTED);
        assert_eq!(hipStreamBeginCapture(stream, 2), NOT_SUPPORTED);
        assert_eq!(hipStreamIsCapturing(stream, &mut number), NOT_SUPPORTED);
        assert_eq!(hipStreamGetCaptureInfo(stream, &mut number, &mut id), NOT_SUPPORTED);
        assert_eq!(hipGraphLaunch(std::ptr::null_mut(), stream), NOT_SUPPORTED);
        assert_eq!(hipHostMalloc(&mut address[0], 16, 0), NOT_SUPPORTED);
        assert_eq!(hipHostRegister((&raw mut ms).cast(), 4, 0), NOT_SUPPORTED);
        assert_eq!(hipDeviceEnablePeerAccess(1, 0), NOT_SUPPORTED);
        assert_eq!((hipDeviceCanAccessPeer(&mut number, 0, 1), number), (0, 0));
        assert_eq!((hipMemGetInfo(&mut free, &mut total), free, total), (0, 0, 0));
        assert_eq!((hipDeviceTotalMem(&mut total, 1), total), (0, 0));
        assert_eq!(hipDeviceTotalMem(&mut total, 2), INVALID_DEVICE);
        assert_eq!((hipEventRecord(event, stream), hipEventSynchronize(event)), (0, 0));
        assert_eq!(hipEventElapsedTime(&mut ms, event, event), NOT_SUPPORTED);
        assert_eq!((hipMalloc(&mut address[0], 16), hipFree(address[0])), (0, 0));
    }
}
