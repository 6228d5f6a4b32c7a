//! Devices, memory, copies in all directions, and edge cases.

use hip::{Device, HipError, PointerKind, RawStream};

use crate::{Outcome, Row, pattern};

pub const ROWS: &[Row] = &[
    Row::new("device_facts_are_filled_in", device_facts_are_filled_in),
    Row::new("copies_keep_every_byte_and_touch_no_other", copies_keep_every_byte_and_touch_no_other),
    Row::new("pinned_memory_starts_zeroed_and_copies_both_ways", pinned_memory_starts_zeroed_and_copies_both_ways),
    Row::new("pinned_memory_is_requested_as_coherent", pinned_memory_is_requested_as_coherent).skip_where(|device| {
        (device.kind() == hip::DriverKind::Nvidia).then_some("the CUDA twin does not report the flags of an allocation")
    }),
    Row::new("copies_within_the_device_keep_every_byte", copies_within_the_device_keep_every_byte),
    Row::new("fill_stays_in_its_range", fill_stays_in_its_range),
    Row::new("ranges_that_leave_a_buffer_are_refused", ranges_that_leave_a_buffer_are_refused),
    Row::new("empty_buffers_and_copies_are_fine", empty_buffers_and_copies_are_fine),
    Row::new("impossible_size_is_out_of_memory", impossible_size_is_out_of_memory),
    Row::new("kinds_of_pointers_are_distinguished", kinds_of_pointers_are_distinguished),
    Row::new("stream_ordered_memory_is_usable_in_order", stream_ordered_memory_is_usable_in_order)
        .skip_where(|device| (!device.info().memory_pools).then_some("the device has no memory pools")),
    Row::new("handles_outlive_the_values_they_came_from", handles_outlive_the_values_they_came_from),
    Row::new("memory_freed_is_memory_regained", memory_freed_is_memory_regained),
    Row::new("peer_copies_arrive_and_the_current_device_stays", peer_copies_arrive_and_the_current_device_stays)
        .skip_where(|device| second_device(device).is_none().then_some("there is only one device")),
];

const GUARD: usize = 64;
const SENTINEL: u8 = 0xA5;

fn second_device(device: &Device) -> Option<Device> {
    device.driver().devices().ok()?.into_iter().nth(1)
}

fn device_facts_are_filled_in(device: &Device) -> Outcome {
    let info = device.info();
    assert!(!info.name.is_empty() && !info.arch.is_empty(), "{info:?}");
    assert!([32, 64].contains(&info.wave_size), "{info:?}");
    assert!(info.compute_units > 0 && info.lds_bytes >= 16 * 1024, "{info:?}");
    assert_eq!(device.attribute(hip::sys::codes::attribute::WAVE_SIZE), i32::try_from(info.wave_size).ok());
    assert_eq!(device.attribute(-7), None);
    let memory = device.memory_info()?;
    assert!(memory.free <= memory.total && memory.total > 0, "{memory:?}");
    let driver = device.driver();
    assert!(driver.runtime_version().is_some_and(|version| version > 0));
    assert!(driver.library().is_file(), "{}", driver.library().display());
    assert_eq!(driver.no_device_reason(), None);
    eprintln!("{driver:?} {info:?} {memory:?}");
    Ok(())
}

fn copies_keep_every_byte_and_touch_no_other(device: &Device) -> Outcome {
    for bytes in [1, 3, 255, 4096, (1 << 20) + 7] {
        let mut buffer = device.alloc(bytes + 2 * GUARD)?;
        buffer.fill(0, buffer.bytes(), SENTINEL)?;
        let sent = pattern(bytes, 11);
        buffer.copy_to_device(GUARD, &sent)?;
        let mut back = vec![0; buffer.bytes()];
        buffer.copy_to_host(0, &mut back)?;
        assert!(back[..GUARD].iter().all(|&byte| byte == SENTINEL), "{bytes}: bytes before the copy changed");
        assert!(back[GUARD + bytes..].iter().all(|&byte| byte == SENTINEL), "{bytes}: bytes after the copy changed");
        assert!(back[GUARD..GUARD + bytes] == sent, "{bytes}: bytes changed during the copy");
        let mut part = vec![SENTINEL; bytes + 2];
        buffer.copy_to_host(GUARD, &mut part[1..bytes + 1])?;
        assert!(part[1..bytes + 1] == sent && part[0] == SENTINEL && part[bytes + 1] == SENTINEL, "{bytes}");
    }
    Ok(())
}

fn pinned_memory_is_requested_as_coherent(device: &Device) -> Outcome {
    let pinned = device.alloc_pinned(16)?;
    let ask = device.driver().table().pointer_get_attributes.ok_or("no hipPointerGetAttributes")?;
    let mut answer = [0u64; 32];
    // SAFETY: the buffer is large enough for every version of the structure; the address is looked up, not
    // dereferenced.
    let status = unsafe { ask(answer.as_mut_ptr().cast(), pinned.address().as_ptr().cast_const().cast()) };
    assert_eq!(status, 0);
    // The flags are the upper half of the fourth word: portable (1) and mapped (2).
    assert_eq!(answer[3] >> 32, 3);
    Ok(())
}

fn pinned_memory_starts_zeroed_and_copies_both_ways(device: &Device) -> Outcome {
    let bytes = 70_001;
    let mut pinned = device.alloc_pinned(bytes)?;
    assert!(pinned.as_slice().iter().all(|&byte| byte == 0));
    let sent = pattern(bytes, 5);
    pinned.as_mut_slice().copy_from_slice(&sent);
    let mut buffer = device.alloc(bytes)?;
    buffer.fill(0, bytes, SENTINEL)?;
    buffer.copy_from_pinned(1, &pinned, 0, bytes - 1)?;
    let mut back = device.alloc_pinned(bytes)?;
    buffer.copy_to_host(0, back.as_mut_slice())?;
    assert_eq!(back.as_slice()[0], SENTINEL);
    assert!(back.as_slice()[1..] == sent[..bytes - 1]);
    Ok(())
}

fn copies_within_the_device_keep_every_byte(device: &Device) -> Outcome {
    let bytes = 100_003;
    let sent = pattern(bytes, 23);
    let (mut from, mut to) = (device.alloc(bytes)?, device.alloc(bytes + 2 * GUARD)?);
    from.copy_to_device(0, &sent)?;
    to.fill(0, to.bytes(), SENTINEL)?;
    from.copy_to_buffer(3, &mut to, GUARD, bytes - 3)?;
    let mut back = vec![0; to.bytes()];
    to.copy_to_host(0, &mut back)?;
    assert!(back[GUARD..GUARD + bytes - 3] == sent[3..]);
    assert!(back[..GUARD].iter().chain(&back[GUARD + bytes - 3..]).all(|&byte| byte == SENTINEL));
    Ok(())
}

fn fill_stays_in_its_range(device: &Device) -> Outcome {
    let mut buffer = device.alloc(1000)?;
    buffer.fill(0, 1000, SENTINEL)?;
    buffer.fill(7, 501, 0x3C)?;
    let mut back = vec![0; 1000];
    buffer.copy_to_host(0, &mut back)?;
    for (index, &byte) in back.iter().enumerate() {
        assert_eq!(byte, if (7..508).contains(&index) { 0x3C } else { SENTINEL }, "at {index}");
    }
    Ok(())
}

fn ranges_that_leave_a_buffer_are_refused(device: &Device) -> Outcome {
    let (mut buffer, mut other) = (device.alloc(16)?, device.alloc(8)?);
    let pinned = device.alloc_pinned(16)?;
    let out_of_bounds = |result: Result<(), HipError>| matches!(result, Err(HipError::OutOfBounds { .. }));
    assert!(out_of_bounds(buffer.copy_to_device(1, &[0; 16])));
    assert!(out_of_bounds(buffer.copy_to_device(usize::MAX, &[0; 2])));
    assert!(out_of_bounds(buffer.copy_to_host(17, &mut [])));
    assert!(out_of_bounds(buffer.copy_to_host(15, &mut [0; 2])));
    assert!(out_of_bounds(buffer.copy_to_buffer(0, &mut other, 1, 8)));
    assert!(out_of_bounds(buffer.copy_to_buffer(9, &mut other, 0, 8)));
    assert!(out_of_bounds(buffer.copy_from_pinned(0, &pinned, 8, 9)));
    assert!(out_of_bounds(buffer.fill(0, 17, 0)));
    Ok(())
}

fn empty_buffers_and_copies_are_fine(device: &Device) -> Outcome {
    let mut empty = device.alloc(0)?;
    assert_eq!(empty.bytes(), 0);
    empty.copy_to_device(0, &[])?;
    empty.copy_to_host(0, &mut [])?;
    empty.fill(0, 0, 1)?;
    assert!(device.alloc_pinned(0)?.as_slice().is_empty());
    Ok(())
}

fn impossible_size_is_out_of_memory(device: &Device) -> Outcome {
    let wanted = 1usize << 50;
    match device.alloc(wanted) {
        Err(HipError::OutOfMemory { bytes, total, device: ordinal, .. }) => {
            assert_eq!((bytes, ordinal), (wanted, device.ordinal()));
            assert!(total > 0 && total < wanted);
        }
        other => return Err(format!("{other:?}").into()),
    }
    // The error must not be sticky.
    device.alloc(4096)?.fill(0, 4096, 1)?;
    Ok(())
}

fn kinds_of_pointers_are_distinguished(device: &Device) -> Outcome {
    let driver = device.driver();
    let (buffer, pinned, plain) = (device.alloc(4096)?, device.alloc_pinned(4096)?, vec![0u8; 4096]);
    let kind = |address: usize| driver.pointer_info(address).kind;
    assert_eq!(kind(buffer.address().as_ptr().addr()), PointerKind::Device(device.ordinal()));
    assert_eq!(kind(buffer.address().as_ptr().addr() + 4095), PointerKind::Device(device.ordinal()));
    assert_eq!(kind(pinned.address().as_ptr().addr()), PointerKind::PinnedHost);
    assert_eq!(kind(plain.as_ptr().addr()), PointerKind::Unknown);
    assert_eq!(kind(0), PointerKind::Unknown);
    Ok(())
}

fn stream_ordered_memory_is_usable_in_order(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let mut back = device.alloc_pinned(1000)?;
    let memory = device.alloc_async(1000, stream.raw())?;
    // SAFETY: the memory is used between its allocation and its release on one stream, which is synchronised below.
    unsafe {
        device.fill_raw_async(memory.address().as_ptr(), 0x42, 1000, stream.raw())?;
        let to = back.as_mut_slice().as_mut_ptr();
        device.copy_raw_async(to, memory.address().as_ptr(), 1000, hip::CopyKind::DeviceToHost, stream.raw())?;
    }
    memory.free(stream.raw())?;
    stream.synchronize()?;
    assert!(back.as_slice().iter().all(|&byte| byte == 0x42));
    drop(device.alloc_async(10, RawStream::DEFAULT)?);
    Ok(())
}

fn handles_outlive_the_values_they_came_from(device: &Device) -> Outcome {
    let kind = device.kind();
    let (stream, event, buffer, pinned) = {
        let driver = hip::Driver::load(kind)?;
        let device = driver.devices()?.into_iter().next().ok_or("the device went away")?;
        (device.stream()?, device.timing_event()?, device.alloc(128)?, device.alloc_pinned(128)?)
    };
    event.record(stream.raw())?;
    event.synchronize()?;
    // Drop parents first, and on a thread that has never used the driver.
    std::thread::spawn(move || {
        drop(stream);
        drop(event);
        drop(pinned);
        drop(buffer);
    })
    .join()
    .map_err(|_| "a destructor panicked")?;
    Ok(())
}

fn memory_freed_is_memory_regained(device: &Device) -> Outcome {
    let bytes = device.memory_info()?.free / 4;
    let pinned_bytes = 16 << 20;
    // Three times the free memory: the loop would fail if a buffer was not freed.
    for _ in 0..12 {
        let held = device.alloc(bytes)?;
        let pinned = device.alloc_pinned(pinned_bytes)?;
        assert_eq!((held.bytes(), pinned.bytes()), (bytes, pinned_bytes));
    }
    Ok(())
}

fn peer_copies_arrive_and_the_current_device_stays(device: &Device) -> Outcome {
    let second = second_device(device).ok_or("there is only one device")?;
    let mut current = -1;
    // SAFETY: `current` is a valid out-pointer for the length of the call.
    let mut ask = || unsafe { (device.driver().table().get_device)(&mut current) };
    assert_eq!(ask(), 0);
    let before = current;
    let sent = pattern(12_345, 77);
    let (mut here, mut there) = (device.alloc(sent.len())?, second.alloc(sent.len())?);
    here.copy_to_device(0, &sent)?;
    here.copy_to_buffer(0, &mut there, 0, sent.len())?;
    here.fill(0, sent.len(), 0)?;
    there.copy_to_buffer(5, &mut here, 5, sent.len() - 5)?;
    let mut back = vec![1; sent.len()];
    here.copy_to_host(0, &mut back)?;
    assert!(back[5..] == sent[5..] && back[..5] == [0; 5]);
    let address = there.address().as_ptr().addr();
    assert_eq!(device.driver().pointer_info(address).kind, PointerKind::Device(second.ordinal()));
    if device.can_access_peer(&second) {
        device.enable_peer_access(&second)?;
        device.enable_peer_access(&second)?;
    }
    drop(there);
    // SAFETY: as above.
    let status = unsafe { (device.driver().table().get_device)(&mut current) };
    assert_eq!((status, current), (0, before), "work on the second device changed the current device");
    Ok(())
}
