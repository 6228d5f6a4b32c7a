//! Allocation, budgets, pointers and pools.

use std::ffi::c_void;
use std::ptr::null_mut;

use hip_host::abi::*;

use crate::common::{Buffer, NULL_STREAM, Stream, made, ok};
use crate::{MEMORY, start};

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both results are writable.
    ok(unsafe { hipMemGetInfo(&mut free, &mut total) });
    assert_eq!(total, MEMORY as usize);
    free
}

fn malloc(bytes: usize) -> (i32, *mut c_void) {
    let mut at = std::ptr::without_provenance_mut(0xABC0);
    // SAFETY: the result is writable.
    let status = unsafe { hipMalloc(&mut at, bytes) };
    (status, at)
}

fn attributes(pointer: *const c_void) -> (i32, PointerAttributes) {
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: the result is writable, and all zeroes are a valid value.
    unsafe { (hipPointerGetAttributes(found.as_mut_ptr(), pointer), found.assume_init()) }
}

#[test]
fn allocations_are_aligned_and_counted() {
    let _guard = start();
    let before = free_bytes();
    let buffers: Vec<_> = [1, 255, 256, 4097].map(Buffer::new).into();
    assert!(buffers.iter().all(|buffer| buffer.at.addr().is_multiple_of(256)));
    assert_eq!(before - free_bytes(), 256 + 256 + 256 + 4352);
    drop(buffers);
    assert_eq!(free_bytes(), before);
}

#[test]
fn zero_bytes_give_null_and_null_can_be_freed() {
    let _guard = start();
    assert_eq!(malloc(0), (0, null_mut()));
    ok(hipFree(null_mut()));
    ok(hipHostFree(null_mut()));
    ok(hipFreeAsync(null_mut(), NULL_STREAM));
    // SAFETY: the test passes no result on purpose.
    assert_eq!(unsafe { hipMalloc(null_mut(), 16) }, 1);
}

#[test]
fn allocations_fail_beyond_the_devices_memory() {
    let _guard = start();
    let free = free_bytes();
    assert_eq!(malloc(free + 1).0, 2);
    assert_eq!(malloc(usize::MAX).0, 2);
    assert_eq!(malloc(usize::MAX / 2).0, 2);
    let all = Buffer::new(free);
    assert_eq!(malloc(1).0, 2);
    ok(hipSetDevice(1));
    drop(Buffer::new(4096));
    ok(hipSetDevice(0));
    drop(all);
    assert_eq!(free_bytes(), free);
}

#[test]
fn only_live_bases_of_the_right_kind_can_be_freed() {
    let _guard = start();
    let (status, at) = malloc(64);
    ok(status);
    let mut local = 0u64;
    assert_eq!(hipFree(at.wrapping_byte_add(8)), 1);
    assert_eq!(hipFree(std::ptr::from_mut(&mut local).cast()), 1);
    assert_eq!(hipHostFree(at), 1);
    ok(hipFree(at));
    assert_eq!(hipFree(at), 1);
    assert_eq!(hipFreeAsync(at, NULL_STREAM), 1);
    // SAFETY: `made` gives a writable pointer.
    let pinned = made(|out| unsafe { hipHostMalloc(out, 64, 0) });
    assert_eq!(hipFree(pinned), 1);
    ok(hipHostFree(pinned));
}

#[test]
fn pointers_know_what_they_are() {
    let _guard = start();
    ok(hipSetDevice(1));
    let buffer = Buffer::new(64);
    let (status, device) = attributes(buffer.offset(63));
    assert_eq!((status, device.memory_type, device.device), (0, 2, 1));
    assert_eq!((device.device_pointer, device.host_pointer), (buffer.offset(63), null_mut()));
    assert_eq!(attributes(buffer.offset(64)).0, 1);

    // SAFETY: `made` gives a writable pointer.
    let pinned = made(|out| unsafe { hipHostMalloc(out, 64, 2) });
    let (status, host) = attributes(pinned);
    assert_eq!((status, host.memory_type, host.allocation_flags), (0, 1, 2));
    assert_eq!((host.device_pointer, host.host_pointer), (pinned, pinned));
    // SAFETY: `made` gives a writable pointer.
    assert_eq!(made(|out| unsafe { hipHostGetDevicePointer(out, pinned, 0) }), pinned);
    ok(hipHostFree(pinned));

    let local = 0u64;
    let (status, unknown) = attributes(std::ptr::from_ref(&local).cast());
    assert_eq!((status, unknown.memory_type), (1, 0));
    assert_eq!(attributes(std::ptr::null()).0, 0);

    let (mut base, mut bytes) = (null_mut(), 0);
    // SAFETY: both results are writable.
    unsafe {
        ok(hipMemGetAddressRange(&mut base, &mut bytes, buffer.offset(10)));
        assert_eq!((base, bytes), (buffer.at, 64));
        assert_eq!(hipMemGetAddressRange(&mut base, &mut bytes, pinned), 500);
    }
}

#[test]
fn own_memory_is_registered_once() {
    let _guard = start();
    let mut own = vec![0u8; 128];
    let at: *mut c_void = own.as_mut_ptr().cast();
    ok(hipHostRegister(at, 128, 0));
    assert_eq!(hipHostRegister(at.wrapping_byte_add(64), 128, 0), 712);
    assert_eq!(attributes(at).1.memory_type, 1);
    assert_eq!(hipHostFree(at), 1, "the address does not belong to the library");
    assert_eq!(hipHostUnregister(at.wrapping_byte_add(1)), 713);
    ok(hipHostUnregister(at));
    assert_eq!(hipHostUnregister(at), 713);
    assert_eq!(hipHostRegister(null_mut(), 8, 0), 1);
    assert_eq!(hipHostRegister(at, 0, 0), 1);
}

#[test]
fn memory_freed_earlier_in_a_stream_can_be_allocated_again_in_it() {
    let _guard = start();
    let stream = Stream::non_blocking();
    let most = free_bytes() / 4 * 3;
    for _ in 0..4 {
        // SAFETY: `made` gives a writable pointer.
        let at = made(|out| unsafe { hipMallocAsync(out, most, stream.0) });
        ok(hipFreeAsync(at, stream.0));
    }
    // SAFETY: `made` gives a writable pointer.
    let at = made(|out| unsafe { hipMallocAsync(out, 64, stream.0) });
    ok(hipFree(at));
}

#[test]
fn the_pool_counts_its_allocations() {
    let _guard = start();
    // SAFETY: `made` gives a writable pointer.
    let pool = made(|out| unsafe { hipDeviceGetDefaultMemPool(out, 0) });
    // SAFETY: `made` gives a writable pointer.
    assert_eq!(made(|out| unsafe { hipDeviceGetMemPool(out, 0) }), pool);
    let get = |attribute| {
        let mut value = u64::MAX;
        // SAFETY: attributes 4 to 8 are u64.
        ok(unsafe { hipMemPoolGetAttribute(pool, attribute, std::ptr::from_mut(&mut value).cast()) });
        value
    };
    let mut threshold = u64::MAX;
    // SAFETY: attribute 4 is a u64.
    ok(unsafe { hipMemPoolSetAttribute(pool, 4, std::ptr::from_mut(&mut threshold).cast()) });
    assert_eq!(get(4), u64::MAX);
    let used = get(7);
    // SAFETY: `made` gives a writable pointer.
    let at = made(|out| unsafe { hipMallocFromPoolAsync(out, 512, pool, NULL_STREAM) });
    assert_eq!(get(7), used + 512);
    ok(hipFreeAsync(at, NULL_STREAM));
    assert_eq!(get(7), used);
    assert!(get(8) >= used + 512);
    ok(hipMemPoolTrimTo(pool, 0));
    ok(hipDeviceSetMemPool(0, pool));
    assert_eq!(hipDeviceSetMemPool(1, pool), 1);
    assert_eq!(hipMemPoolTrimTo(null_mut(), 0), 1);
}
