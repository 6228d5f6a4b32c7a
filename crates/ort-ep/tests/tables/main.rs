//! Calls the plugin's tables in ways ONNX Runtime does not use today: with real runtimes, several of them in one
//! process, but without a session.
#![cfg(target_os = "linux")] // Only the Linux packages contain the runtime as a separate library.
#![allow(clippy::unwrap_used, reason = "everything here is part of a test")]
mod host;

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::{ptr, slice, thread};

use ort_ep::sys;

use host::{Factory, Runtime, host};

/// Calls a slot of one of the plugin's tables with the table itself as the first argument.
///
/// The macro is unsafe inside: every use passes a live table and arguments that the slot's contract allows.
macro_rules! slot {
    ($table:expr, $name:ident $(, $argument:expr)*) => {{
        let table = $table;
        // SAFETY: as the macro says.
        unsafe { (*table).$name.unwrap()(table $(, $argument)*) }
    }};
}

/// The devices a factory offers, and the memory of the first.
struct Offered<'a> {
    runtime: &'a Runtime,
    devices: Vec<*mut sys::OrtEpDevice>,
    info: *const sys::OrtMemoryInfo,
}

impl<'a> Offered<'a> {
    fn by(runtime: &'a Runtime, factory: &Factory<'_>, room: usize) -> Self {
        let mut devices = vec![ptr::null_mut(); 8];
        let mut count = 0;
        let status =
            slot!(factory.raw, GetSupportedDevices, ptr::null(), 0, devices.as_mut_ptr(), room, &raw mut count);
        assert_eq!(runtime.error(status), None);
        devices.truncate(count);
        // SAFETY: the device is alive, and so is its info as long as the factory.
        let info = unsafe { runtime.api.EpDevice_MemoryInfo(devices[0], sys::ORT_MEMORY_DEFAULT) };
        Self { runtime, devices, info }
    }

    fn allocator(&self, factory: &Factory<'_>) -> *mut sys::OrtAllocator {
        let mut allocator = ptr::null_mut();
        let status = slot!(factory.raw, CreateAllocator, self.info, ptr::null(), &raw mut allocator);
        assert_eq!(self.runtime.error(status), None);
        allocator
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        for &device in &self.devices {
            // SAFETY: the devices are ours, as they would be ONNX Runtime's.
            unsafe { self.runtime.ep_api.ReleaseEpDevice(device) };
        }
    }
}

#[test]
fn only_our_blocks_are_freed_and_only_once() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let offered = Offered::by(runtime, &factory, 8);
        let allocator = offered.allocator(&factory);
        assert_eq!(slot!(allocator, Info), offered.info);
        let sizes = [0, 1, 255, 4096, 0];
        let blocks: Vec<_> = sizes.iter().map(|&bytes| slot!(allocator, Alloc, bytes).cast::<u8>()).collect();
        assert!(blocks.iter().all(|block| !block.is_null() && block.addr() % 256 == 0));
        assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), sizes.len(), "two blocks share an address");
        // SAFETY: each block has as many bytes as were asked for.
        let bytes = |at: usize| unsafe { slice::from_raw_parts_mut(blocks[at], sizes[at]) };
        (0..sizes.len()).for_each(|at| bytes(at).fill(at as u8));
        host.calls();
        let mut stranger = 0_u64;
        for address in [ptr::null_mut(), (&raw mut stranger).cast(), blocks[3].wrapping_add(8).cast::<c_void>()] {
            slot!(allocator, Free, address);
        }
        assert_eq!(host.calls(), [""; 0], "freed an address that is not ours");
        slot!(allocator, Free, blocks[2].cast());
        slot!(allocator, Free, blocks[2].cast());
        assert_eq!(host.calls().iter().filter(|call| *call == "allocator.free").count(), 1);
        assert!(
            [0, 1, 3, 4].iter().all(|&at| bytes(at).iter().all(|&byte| byte == at as u8)),
            "a neighbouring block was overwritten"
        );
        for at in [0, 1, 3, 4] {
            slot!(allocator, Free, blocks[at].cast());
        }
        let reserved = slot!(allocator, Reserve, 64);
        assert!(!reserved.is_null());
        slot!(allocator, Free, reserved);
        assert!(slot!(allocator, Alloc, usize::MAX).is_null(), "the allocation should fail");
        slot!(factory.raw, ReleaseAllocator, allocator);
        assert!(host.calls().contains(&"allocator.drop".to_owned()));
    }
}

#[test]
fn an_allocator_lives_as_long_as_its_last_block() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let offered = Offered::by(runtime, &factory, 8);
        let allocator = offered.allocator(&factory);
        let blocks = [slot!(allocator, Alloc, 16), slot!(allocator, Alloc, 16)];
        slot!(factory.raw, ReleaseAllocator, allocator);
        host.calls();
        slot!(allocator, Free, blocks[0]);
        assert!(!host.calls().contains(&"allocator.drop".to_owned()));
        slot!(allocator, Free, blocks[1]);
        assert_eq!(host.calls().last().map(String::as_str), Some("allocator.drop"));
        // A failure to free an allocator cannot be reported, whichever call frees it.
        for released_first in [true, false] {
            let allocator = offered.allocator(&factory);
            let block = slot!(allocator, Alloc, 16);
            host.with_fault("panic:allocator.drop", || {
                if released_first {
                    slot!(factory.raw, ReleaseAllocator, allocator);
                }
                slot!(allocator, Free, block);
                if !released_first {
                    slot!(factory.raw, ReleaseAllocator, allocator);
                }
            });
            assert_eq!(host.calls().last().map(String::as_str), Some("allocator.drop"));
        }
    }
}

#[test]
fn the_last_of_many_threads_releases_the_allocator() {
    let Some((host, _turn)) = host() else { return };
    let runtime = host.runtimes.last().unwrap();
    let factory = runtime.factory(host);
    let offered = Offered::by(runtime, &factory, 8);
    for _ in 0..200 {
        let allocator = offered.allocator(&factory);
        let blocks: Vec<_> = (0..4).map(|_| slot!(allocator, Alloc, 16).addr()).collect();
        slot!(factory.raw, ReleaseAllocator, allocator);
        host.calls();
        let allocator = allocator.addr();
        thread::scope(|scope| {
            for block in &blocks {
                scope.spawn(move || {
                    let allocator = ptr::with_exposed_provenance_mut::<sys::OrtAllocator>(allocator);
                    slot!(allocator, Free, ptr::with_exposed_provenance_mut(*block));
                });
            }
        });
        let calls = host.calls();
        assert_eq!(calls.iter().filter(|call| *call == "allocator.freed").count(), 4, "{calls:?}");
        assert_eq!(calls.last().map(String::as_str), Some("allocator.drop"), "{calls:?}");
    }
}

#[test]
fn counters_are_reported_under_the_runtimes_names() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let offered = Offered::by(runtime, &factory, 8);
        let allocator = offered.allocator(&factory);
        let block = slot!(allocator, Alloc, 300);
        let mut pairs = ptr::null_mut();
        assert_eq!(runtime.error(slot!(allocator, GetStats, &raw mut pairs)), None);
        // SAFETY: the pairs were handed over to us; the text lives as long as they do.
        let text = |key: &CStr| unsafe {
            CStr::from_ptr(runtime.api.GetKeyValue(pairs, key.as_ptr())).to_string_lossy().into_owned()
        };
        assert_eq!((text(c"NumAllocs"), text(c"MaxAllocSize")), ("1".to_owned(), "300".to_owned()));
        // SAFETY: as above.
        unsafe { runtime.api.ReleaseKeyValuePairs(pairs) };
        let status = host.with_fault("panic:allocator.stats", || slot!(allocator, GetStats, &raw mut pairs));
        let error = runtime.error(status).unwrap();
        assert!(error.contains("GetStats panicked: allocator.stats was told to panic"), "{error}");
        slot!(allocator, Free, block);
        slot!(factory.raw, ReleaseAllocator, allocator);
    }
}

#[test]
fn memory_that_was_not_offered_has_no_allocator() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let _offered = Offered::by(runtime, &factory, 8);
        let (mut info, mut allocator) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the out-pointer is valid; the info is released below.
        let status = unsafe { runtime.api.CreateCpuMemoryInfo(sys::ORT_ALLOCATOR_DEVICE, 0, &mut info) };
        assert_eq!(runtime.error(status), None);
        let status = slot!(factory.raw, CreateAllocator, info.cast_const(), ptr::null(), &raw mut allocator);
        let error = runtime.error(status).unwrap();
        assert!(error.contains("never offered") && allocator.is_null(), "{error}");
        // SAFETY: ours, and not used any more.
        unsafe { runtime.api.ReleaseMemoryInfo(info) };
    }
}

#[test]
fn no_more_devices_are_offered_than_the_array_holds() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        assert_eq!(Offered::by(runtime, &factory, 8).devices.len(), 2);
        assert_eq!(Offered::by(runtime, &factory, 1).devices.len(), 1);
    }
}

#[test]
fn a_factory_with_live_objects_stays_loaded() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let raw = factory.raw;
        let offered = Offered::by(runtime, &factory, 8);
        let allocator = offered.allocator(&factory);
        let block = slot!(allocator, Alloc, 8);
        drop(offered);
        host.calls();
        drop(factory);
        assert!(!host.calls().contains(&"factory.drop".to_owned()));
        slot!(allocator, Free, block);
        slot!(raw, ReleaseAllocator, allocator);
        assert!(host.calls().contains(&"allocator.drop".to_owned()));
    }
}

#[test]
fn waiting_without_a_stream_reaches_the_plugin() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let offered = Offered::by(runtime, &factory, 8);
        // SAFETY: the info is alive, and the device is a part of it.
        let device = unsafe { runtime.ep_api.MemoryInfo_GetMemoryDevice(offered.info) };
        let mut stream = ptr::null_mut();
        let status = slot!(factory.raw, CreateSyncStreamForDevice, device, ptr::null(), &raw mut stream);
        assert_eq!(runtime.error(status), None);
        let mut notification = ptr::null_mut();
        assert_eq!(runtime.error(slot!(stream, CreateNotification, &raw mut notification)), None);
        host.calls();
        assert_eq!(runtime.error(slot!(notification, WaitOnDevice, ptr::null_mut())), None);
        assert_eq!(host.calls(), ["notification.wait_on_device 0 waits: None"]);
        for kind in ["panic", "fail"] {
            let fault = format!("{kind}:notification.wait_on_device");
            let status = host.with_fault(&fault, || slot!(notification, WaitOnDevice, ptr::null_mut()));
            let error = runtime.error(status).unwrap();
            assert!(error.contains(&format!("notification.wait_on_device was told to {kind}")), "{error}");
        }
        slot!(notification, Release);
        slot!(stream, Release);
    }
}

#[test]
fn slots_that_the_runtime_never_calls_work_too() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        assert_eq!(slot!(factory.raw, GetVendorId), 0xBEEF);
        assert_eq!(host.with_fault("panic:factory.vendor_id", || slot!(factory.raw, GetVendorId)), 0);
        let name = slot!(factory.raw, GetName);
        // SAFETY: the text lives as long as the factory.
        let name = unsafe { CStr::from_ptr(name) };
        assert_eq!(name.to_str().unwrap(), format!("Tables{}", runtime.api.version()));
    }
}

#[test]
fn a_factory_without_its_own_operators_offers_no_domain() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let mut count = usize::MAX;
        assert_eq!(runtime.error(slot!(factory.raw, GetNumCustomOpDomains, &mut count)), None);
        assert_eq!(count, 0);
        assert_eq!(runtime.error(slot!(factory.raw, GetCustomOpDomains, ptr::null_mut(), 0)), None);
    }
}

#[test]
fn releasing_nothing_is_allowed() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        slot!(factory.raw, ReleaseAllocator, ptr::null_mut());
        slot!(factory.raw, ReleaseEp, ptr::null_mut());
        // SAFETY: every release function accepts null.
        assert!(unsafe { (host.release)(ptr::null_mut()) }.is_null());
    }
}

#[test]
fn copies_without_tensors_are_rejected_or_do_nothing() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let factory = runtime.factory(host);
        let mut transfer = ptr::null_mut();
        assert_eq!(runtime.error(slot!(factory.raw, CreateDataTransfer, &raw mut transfer)), None);
        let copy = |count| slot!(transfer, CopyTensors, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), count);
        assert_eq!(runtime.error(copy(0)), None);
        assert!(runtime.error(copy(1)).unwrap().contains("CopyTensors got no tensors"));
        let (mut sources, mut targets) = ([ptr::null()], [ptr::null_mut()]);
        let status = slot!(transfer, CopyTensors, sources.as_mut_ptr(), targets.as_mut_ptr(), ptr::null_mut(), 1);
        assert!(runtime.error(status).unwrap().contains("tensor 0 is null"));
        slot!(transfer, Release);
    }
}

#[test]
fn unusable_entries_are_rejected() {
    let Some((host, _turn)) = host() else { return };
    for runtime in &host.runtimes {
        let refused = |name: Option<&CStr>, room| {
            let (status, factory) = host.create(runtime.base, name, room);
            assert!(factory.is_none());
            runtime.error(status).unwrap()
        };
        assert!(refused(Some(c"x"), 0).contains("no output for a factory"));
        assert!(refused(None, 1).contains("no registration name"));
        assert!(refused(Some(c""), 1).contains("name is empty"));
        assert!(refused(Some(c"\xFF"), 1).contains("not UTF-8"));
    }
    // Without a runtime no status can be created.
    let (status, factory) = host.create(ptr::null(), Some(c"x"), 1);
    assert!(status.is_null() && factory.is_none());
}

#[test]
fn an_old_runtime_is_refused_with_help() {
    let Some((host, _turn)) = host() else { return };
    unsafe extern "system" fn old_version() -> *const c_char {
        c"1.23.2".as_ptr()
    }
    for runtime in &host.runtimes {
        // SAFETY: the entry of a live runtime.
        let old = sys::OrtApiBase { GetVersionString: Some(old_version), GetApi: unsafe { (*runtime.base).GetApi } };
        let (status, factory) = host.create(&old, Some(c"Old"), 1);
        let error = runtime.error(status).unwrap();
        assert!(factory.is_none() && error.contains("1.23.2 is too old") && error.contains("help:"), "{error}");
    }
}
