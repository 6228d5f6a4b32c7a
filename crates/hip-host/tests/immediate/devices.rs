//! Devices, properties and the last error.

use std::ffi::CStr;

use hip_host::abi::*;

use crate::common::{Buffer, NULL_STREAM, ok};
use crate::{MEMORY, start};

fn int(call: impl FnOnce(*mut i32) -> i32) -> i32 {
    let mut value = i32::MIN;
    ok(call(&mut value));
    value
}

#[test]
fn each_thread_has_its_own_current_device() {
    let _guard = start();
    // SAFETY: the results are writable.
    unsafe {
        ok(hipInit(0));
        assert_eq!(hipInit(1), 1);
        assert_eq!(int(|out| hipGetDeviceCount(out)), 2);
        ok(hipSetDevice(1));
        assert_eq!(int(|out| hipGetDevice(out)), 1);
        let elsewhere = std::thread::spawn(|| int(|out| hipGetDevice(out)));
        assert_eq!(elsewhere.join().expect("no panic"), 0);
        for wrong in [-1, 2, i32::MAX, i32::MIN] {
            assert_eq!(hipSetDevice(wrong), 101);
        }
        assert_eq!(int(|out| hipGetDevice(out)), 1);
        assert_eq!(int(|out| hipDeviceGet(out, 1)), 1);
        assert_eq!(int(|out| hipRuntimeGetVersion(out)) / 10_000_000, 7);
        assert_eq!(int(|out| hipDriverGetVersion(out)), int(|out| hipRuntimeGetVersion(out)));
        assert_eq!(hipGetDeviceCount(std::ptr::null_mut()), 1);
    }
}

#[test]
fn a_device_has_a_name_a_uuid_and_no_pci_id() {
    let _guard = start();
    let mut name = [0x55u8; 64];
    let (mut first, mut second) = ([0u8; 16], [0u8; 16]);
    // SAFETY: every result has the given size.
    unsafe {
        ok(hipDeviceGetName(name.as_mut_ptr().cast(), 64, 1));
        assert_eq!(CStr::from_bytes_until_nul(&name).expect("a C string"), c"Host CPU 1");
        name.fill(0x55);
        ok(hipDeviceGetName(name.as_mut_ptr().cast(), 5, 0));
        assert_eq!(&name[..6], b"Host\0\x55");
        assert_eq!(hipDeviceGetName(name.as_mut_ptr().cast(), 0, 0), 1);
        assert_eq!(hipDeviceGetName(std::ptr::null_mut(), 64, 0), 1);
        assert_eq!(hipDeviceGetName(name.as_mut_ptr().cast(), 64, 2), 101);
        ok(hipDeviceGetUuid(&mut first, 0));
        ok(hipDeviceGetUuid(&mut second, 1));
        assert_ne!(first, second);
        assert_eq!(hipDeviceGetPCIBusId(name.as_mut_ptr().cast(), 64, 0), 801);
    }
}

#[test]
fn attributes_are_queried_by_hip_numbers() {
    let _guard = start();
    // SAFETY: the result is writable.
    let attribute = |number| int(|out| unsafe { hipDeviceGetAttribute(out, number, 0) });
    assert_eq!(attribute(87), 32);
    assert_eq!(attribute(56), 1024);
    assert_eq!(attribute(88), 1, "memory pools work");
    assert!(attribute(63) >= 1);
    let mut untouched = -7;
    for unknown in [-1, 67, 68, 69, 9999, 10003] {
        // SAFETY: the result is writable.
        assert_eq!(unsafe { hipDeviceGetAttribute(&mut untouched, unknown, 0) }, 1, "{unknown}");
    }
    assert_eq!(untouched, -7);
}

#[test]
fn both_properties_structures_hold_the_same_facts_at_their_own_offsets() {
    let _guard = start();
    let (mut new, mut old) = ([0xFFu8; 1472], [0xFFu8; 792]);
    // SAFETY: the arrays have the sizes of the two structures.
    unsafe {
        ok(hipGetDevicePropertiesR0600(&mut new, 1));
        ok(hipGetDeviceProperties(&mut old, 1));
    }
    let text = |bytes: &[u8]| CStr::from_bytes_until_nul(bytes).expect("a C string").to_str().map(str::to_owned);
    let number = |bytes: &[u8], at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let size = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!(text(&new), Ok("Host CPU 1".to_owned()));
    assert_eq!(text(&new), text(&old));
    assert_eq!(text(&new[1160..]), Ok("host".to_owned()));
    assert_eq!(text(&old[396..]), Ok("host".to_owned()));
    assert_eq!((number(&new, 308), number(&old, 276)), (32, 32));
    assert_eq!(number(&new, 388), number(&old, 336));
    assert_eq!((size(&new, 288), size(&old, 256)), (MEMORY, MEMORY));
}

#[test]
fn devices_copy_to_each_other() {
    let _guard = start();
    let on_first = Buffer::of(&[1, 2, 3, 4]);
    ok(hipSetDevice(1));
    let on_second = Buffer::new(4);
    // SAFETY: the result is writable, and the copies are checked by the library.
    unsafe {
        assert_eq!(int(|out| hipDeviceCanAccessPeer(out, 0, 1)), 1);
        assert_eq!(int(|out| hipDeviceCanAccessPeer(out, 1, 1)), 0);
        ok(hipMemcpyPeer(on_second.at, 1, on_first.at, 0, 4));
        assert_eq!(on_second.read(), [1, 2, 3, 4]);
        assert_eq!(hipMemcpyPeer(on_second.at, 0, on_first.at, 0, 4), 1, "the destination is not on device 0");
        assert_eq!(hipMemcpyPeer(on_second.at, 1, on_first.at, 0, 5), 1);
        assert_eq!(hipMemcpyPeer(on_second.at, 7, on_first.at, 0, 4), 101);
        on_first.write(&[9; 4]);
        ok(hipMemcpyPeerAsync(on_second.at, 1, on_first.at, 0, 4, NULL_STREAM));
        assert_eq!(on_second.read(), [9; 4]);
    }
    ok(hipDeviceEnablePeerAccess(0, 0));
    assert_eq!(hipDeviceEnablePeerAccess(0, 0), 704);
    assert_eq!(hipDeviceEnablePeerAccess(1, 0), 101);
    ok(hipDeviceDisablePeerAccess(0));
    assert_eq!(hipDeviceDisablePeerAccess(0), 705);
}

#[test]
fn the_last_error_is_the_last_failure_of_the_thread() {
    let _guard = start();
    assert_eq!(hipSetDevice(77), 101);
    ok(hipSetDevice(0));
    assert_eq!(hipPeekAtLastError(), 101, "a later success does not clear it");
    assert_eq!(std::thread::spawn(|| hipPeekAtLastError()).join().expect("no panic"), 0);
    assert_eq!(hipGetLastError(), 101);
    assert_eq!(hipGetLastError(), 0);
}

#[test]
fn statuses_have_names_and_texts() {
    let _guard = start();
    // SAFETY: both functions return static C strings.
    let name = |code| unsafe { CStr::from_ptr(hipGetErrorName(code)) };
    // SAFETY: as above.
    let text = |code| unsafe { CStr::from_ptr(hipGetErrorString(code)) };
    assert_eq!(name(0), c"hipSuccess");
    assert_eq!(name(907), c"hipErrorCapturedEvent");
    assert_eq!(text(100), c"no ROCm-capable device is detected");
    assert_eq!(name(123_456), c"hipErrorUnknown");
    assert_eq!(text(-1), c"unknown error");
}

#[test]
fn code_of_other_machines_and_dead_handles_are_refused() {
    let _guard = start();
    let mut module = std::ptr::null_mut();
    let none = std::ptr::null_mut();
    // SAFETY: the images are longer than the part that is read, and the results are writable.
    unsafe {
        assert_eq!(hipModuleLoadData(&mut module, c"\x7fELF and so on".as_ptr().cast()), 801);
        assert_eq!(hipModuleLoadData(&mut module, c"not a code object".as_ptr().cast()), 200);
        assert_eq!(hipModuleLoadData(&mut module, std::ptr::null()), 1);
        assert_eq!(hipModuleUnload(module), 400);
        assert_eq!(hipModuleGetFunction(&mut module, module, c"kernel".as_ptr()), 400);
        assert_eq!(hipModuleLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, none.cast(), none.cast()), 400);
    }
}
