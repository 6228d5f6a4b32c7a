//! AMD's unmodified HIP runtime on the emulated machine, without kernels: memory, copies, events, signals, queues.
//!
//! `cargo xtask amd` starts this program where the runtime and the machine are found; elsewhere its rows are skipped.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hip::{CopyKind, Device, Driver, DriverKind};
use libtest_mimic::{Arguments, Failed, Trial};

type Outcome = Result<(), Failed>;
type Row = (&'static str, fn(&[Device]) -> Outcome);

const ROWS: [Row; 7] = [
    ("devices_are_the_chips_of_the_topology", devices_are_the_chips_of_the_topology),
    ("copies_through_pinned_memory_keep_every_byte", copies_through_pinned_memory_keep_every_byte),
    ("copies_of_pageable_memory_keep_every_byte", copies_of_pageable_memory_keep_every_byte),
    ("host_functions_and_copies_of_a_stream_run_in_order", host_functions_and_copies_of_a_stream_run_in_order),
    ("streams_wait_for_events_of_each_other", streams_wait_for_events_of_each_other),
    ("the_runtime_starts_without_gigabytes", the_runtime_starts_without_gigabytes),
    ("threads_sleep_in_an_idle_program", threads_sleep_in_an_idle_program),
];

fn main() {
    let arguments = Arguments::from_args();
    let trials = match machine() {
        Ok(devices) => {
            let devices = Arc::new(devices);
            let trial = |(name, row): Row| {
                let devices = Arc::clone(&devices);
                Trial::test(name, move || row(&devices))
            };
            ROWS.into_iter().map(trial).collect()
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            ROWS.map(|(name, _)| Trial::test(name, || Ok(())).with_ignored_flag(true)).into()
        }
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// The devices, or why there is no emulated machine here.
fn machine() -> Result<Vec<Device>, String> {
    if std::env::var_os("HSA_MODEL_LIB").is_none() {
        return Err("HSA_MODEL_LIB is not set; cargo xtask amd sets it".into());
    }
    let driver = Driver::load(DriverKind::Amd).map_err(|error| error.to_string())?;
    let devices = driver.devices().map_err(|error| error.to_string())?;
    // The variable is set, so there must be devices.
    assert!(!devices.is_empty(), "{:?}", driver.no_device_reason());
    Ok(devices)
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed) * 31 % 251) as u8).collect()
}

fn devices_are_the_chips_of_the_topology(devices: &[Device]) -> Outcome {
    let folder = std::env::var_os("HSA_MODEL_TOPOLOGY").ok_or("HSA_MODEL_TOPOLOGY is not set")?;
    let chips = amd_model::topology::chips(folder.as_ref())?;
    assert_eq!(devices.len(), chips.len());
    for (device, chip) in devices.iter().zip(chips) {
        let info = device.info();
        eprintln!("{info:?}");
        assert_eq!(info.arch.split(':').next(), Some(chip.target));
        assert_eq!(info.wave_size, chip.wave);
    }
    Ok(())
}

const SIZES: [usize; 5] = [1, 3, 4096, 65_537, (3 << 20) + 5];

fn copies_through_pinned_memory_keep_every_byte(devices: &[Device]) -> Outcome {
    for device in devices {
        let stream = device.stream()?;
        for bytes in SIZES {
            let (mut sent, got) = (device.alloc_pinned(bytes)?, device.alloc_pinned(bytes)?);
            sent.as_mut_slice().copy_from_slice(&pattern(bytes, 7));
            let buffer = device.alloc(bytes)?;
            let to = buffer.address().as_ptr();
            // SAFETY: all buffers live until the stream is synchronised below.
            unsafe {
                device.copy_raw_async(to, sent.address().as_ptr(), bytes, CopyKind::HostToDevice, stream.raw())?;
                device.copy_raw_async(got.address().as_ptr(), to, bytes, CopyKind::DeviceToHost, stream.raw())?;
            }
            stream.synchronize()?;
            assert!(got.as_slice() == pattern(bytes, 7), "{bytes} bytes");
        }
    }
    Ok(())
}

fn copies_of_pageable_memory_keep_every_byte(devices: &[Device]) -> Outcome {
    for device in devices {
        for bytes in SIZES {
            let mut buffer = device.alloc(bytes)?;
            buffer.copy_to_device(0, &pattern(bytes, 3))?;
            let mut got = vec![0; bytes];
            buffer.copy_to_host(0, &mut got)?;
            assert!(got == pattern(bytes, 3), "{bytes} bytes");
        }
    }
    Ok(())
}

fn host_functions_and_copies_of_a_stream_run_in_order(devices: &[Device]) -> Outcome {
    const BYTES: usize = 1 << 16;
    for device in devices {
        let stream = device.stream()?;
        let (mut sent, got) = (device.alloc_pinned(BYTES)?, device.alloc_pinned(BYTES)?);
        sent.as_mut_slice().copy_from_slice(&pattern(BYTES, 1));
        let buffer = device.alloc(BYTES)?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        for round in 0..50 {
            // SAFETY: the buffers live until the stream is synchronised below.
            unsafe {
                let to = buffer.address().as_ptr();
                device.copy_raw_async(to, sent.address().as_ptr(), BYTES, CopyKind::HostToDevice, stream.raw())?;
                device.copy_raw_async(got.address().as_ptr(), to, BYTES, CopyKind::DeviceToHost, stream.raw())?;
            }
            let seen = Arc::clone(&seen);
            stream.launch_host_fn(move || {
                if let Ok(mut seen) = seen.lock() {
                    seen.push(round);
                }
            })?;
        }
        stream.synchronize()?;
        assert_eq!(*seen.lock().map_err(|_| "poisoned")?, (0..50).collect::<Vec<_>>());
        assert!(got.as_slice() == pattern(BYTES, 1));
    }
    Ok(())
}

fn streams_wait_for_events_of_each_other(devices: &[Device]) -> Outcome {
    const BYTES: usize = 4096;
    for device in devices {
        let (first, second) = (device.stream()?, device.stream()?);
        let (mut sent, got) = (device.alloc_pinned(BYTES)?, device.alloc_pinned(BYTES)?);
        let buffer = device.alloc(BYTES)?;
        for round in 0..100 {
            sent.as_mut_slice().copy_from_slice(&pattern(BYTES, round));
            let event = device.event()?;
            // SAFETY: the buffers live until both streams are synchronised below.
            unsafe {
                let (to, from) = (buffer.address().as_ptr(), sent.address().as_ptr());
                device.copy_raw_async(to, from, BYTES, CopyKind::HostToDevice, first.raw())?;
                event.record(first.raw())?;
                second.wait(&event)?;
                let to = got.address().as_ptr();
                device.copy_raw_async(to, buffer.address().as_ptr(), BYTES, CopyKind::DeviceToHost, second.raw())?;
            }
            second.synchronize()?;
            first.synchronize()?;
            assert!(event.query()?);
            assert!(got.as_slice() == pattern(BYTES, round), "round {round}");
        }
    }
    Ok(())
}

/// The most bytes that this process had in memory.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().strip_suffix(" kB")?.parse().ok()
}

/// ROCr clears a table of a random size, two gigabytes on average, unless the model spares it that.
fn the_runtime_starts_without_gigabytes(_: &[Device]) -> Outcome {
    let peak = peak_kib().ok_or("/proc/self/status has no VmHWM")?;
    assert!(peak < 512 << 10, "{peak} KiB");
    Ok(())
}

/// For each thread of this process: its processor time, and how often it has slept.
fn threads() -> Result<HashMap<PathBuf, (Duration, u64)>, Failed> {
    let tasks = std::fs::read_dir("/proc/self/task")?;
    let of = |task: PathBuf| {
        let ran = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let ran = Duration::from_nanos(ran.split_whitespace().next()?.parse().ok()?);
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((task, (ran, slept.trim().parse().ok()?)))
    };
    Ok(tasks.flatten().filter_map(|task| of(task.path())).collect())
}

/// Unless the model paces them, ROCr's event threads take a processor each. Then they run whenever the system lets them,
/// and never sleep.
fn threads_sleep_in_an_idle_program(devices: &[Device]) -> Outcome {
    let stream = devices[0].stream()?;
    // The threads exist from the first host function on.
    stream.launch_host_fn(|| ())?;
    stream.synchronize()?;
    let before = threads()?;
    thread::sleep(Duration::from_millis(500));
    for (task, (ran, slept)) in threads()? {
        let Some((ran_before, slept_before)) = before.get(&task) else { continue };
        let ran = ran.saturating_sub(*ran_before);
        assert!(ran < Duration::from_millis(10) || slept > *slept_before, "{} ran for {ran:?}", task.display());
    }
    Ok(())
}
