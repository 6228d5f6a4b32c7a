//! Copy bandwidth of the safe API compared with the raw driver calls, interleaved in one run.
//!
//! `cargo run --release -p amdgpu-ep-hip --example bandwidth -- --driver nvidia|amd|host [--rounds 21] [--max-mib 1024]`
//!
//! Both columns are the median of the rounds. The raw column measures what a C program would write: `hipMemcpy`,
//! followed by a wait for the device if `hipMemcpy` alone returns before the data has arrived (between device
//! addresses).

use std::error::Error;
use std::ffi::c_void;
use std::process::ExitCode;
use std::time::Instant;

use hip::{Device, DeviceBuffer, Driver, DriverKind, PinnedBuffer};

const MIB: usize = 1 << 20;

struct Options {
    driver: DriverKind,
    rounds: usize,
    max_mib: usize,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { driver: DriverKind::Amd, rounds: 21, max_mib: 1024 };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--driver" => options.driver = value.parse()?,
            "--rounds" => options.rounds = value.parse::<usize>()?.max(1),
            "--max-mib" => options.max_mib = value.parse::<usize>()?.max(1),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn timed(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

struct Buffers {
    device: Device,
    near: DeviceBuffer,
    far: DeviceBuffer,
    pinned: PinnedBuffer,
    pageable: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Direction {
    PinnedToDevice,
    PageableToDevice,
    DeviceToPinned,
    DeviceToPageable,
    WithinDevice,
}

impl Direction {
    const ALL: [Direction; 5] = [
        Direction::PinnedToDevice,
        Direction::PageableToDevice,
        Direction::DeviceToPinned,
        Direction::DeviceToPageable,
        Direction::WithinDevice,
    ];

    fn name(self) -> &'static str {
        match self {
            Direction::PinnedToDevice => "H2D pinned",
            Direction::PageableToDevice => "H2D pageable",
            Direction::DeviceToPinned => "D2H pinned",
            Direction::DeviceToPageable => "D2H pageable",
            Direction::WithinDevice => "D2D",
        }
    }

    fn safe(self, buffers: &mut Buffers, bytes: usize) -> Result<(), Box<dyn Error>> {
        let Buffers { near, far, pinned, pageable, .. } = buffers;
        match self {
            Direction::PinnedToDevice => near.copy_from_pinned(0, pinned, 0, bytes)?,
            Direction::PageableToDevice => near.copy_to_device(0, &pageable[..bytes])?,
            Direction::DeviceToPinned => near.copy_to_host(0, &mut pinned.as_mut_slice()[..bytes])?,
            Direction::DeviceToPageable => near.copy_to_host(0, &mut pageable[..bytes])?,
            Direction::WithinDevice => near.copy_to_buffer(0, far, 0, bytes)?,
        }
        Ok(())
    }

    fn raw(self, buffers: &mut Buffers, bytes: usize) -> Result<(), Box<dyn Error>> {
        let table = buffers.device.driver().table();
        let near: *mut c_void = buffers.near.address().as_ptr().cast();
        let pinned: *mut c_void = buffers.pinned.address().as_ptr().cast();
        let pageable: *mut c_void = buffers.pageable.as_mut_ptr().cast();
        let (to, from, kind): (*mut c_void, *const c_void, i32) = match self {
            Direction::PinnedToDevice => (near, pinned, 1),
            Direction::PageableToDevice => (near, pageable, 1),
            Direction::DeviceToPinned => (pinned, near, 2),
            Direction::DeviceToPageable => (pageable, near, 2),
            Direction::WithinDevice => (buffers.far.address().as_ptr().cast(), near, 3),
        };
        // SAFETY: all buffers have at least `bytes` bytes and live through the call; the kinds match the addresses.
        let mut status = unsafe { (table.memcpy)(to, from, bytes, kind) };
        if status == 0 && matches!(self, Direction::WithinDevice) {
            // SAFETY: null is the default stream.
            status = unsafe { (table.stream_synchronize)(std::ptr::null_mut()) };
        }
        if status == 0 { Ok(()) } else { Err(format!("status {status}").into()) }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let driver = Driver::load(options.driver)?;
    let Some(device) = driver.devices()?.into_iter().next() else {
        return Err(driver.no_device_reason().unwrap_or_default().into());
    };
    println!("{} ({}), {} driver {}", device.info().name, device.info().arch, driver.kind(), driver.version_text());
    println!("median of {} rounds, alternating safe and raw calls; GB/s = 10^9 bytes per second\n", options.rounds);
    let largest = options.max_mib * MIB;
    let mut buffers = Buffers {
        near: device.alloc(largest)?,
        far: device.alloc(largest)?,
        pinned: device.alloc_pinned(largest)?,
        pageable: vec![1; largest],
        device,
    };
    println!("{:<13} {:>9} {:>11} {:>11} {:>7}", "direction", "MiB", "safe GB/s", "raw GB/s", "ratio");
    let mut smallest = f64::INFINITY;
    for direction in Direction::ALL {
        for mib in [1, 4, 16, 64, 256, 1024].into_iter().filter(|&mib| mib <= options.max_mib) {
            let bytes = mib * MIB;
            let (mut safe, mut raw) = (Vec::new(), Vec::new());
            for round in 0..options.rounds + 2 {
                // The order alternates, so that neither profits from the other's warm caches.
                let order = if round % 2 == 0 { [true, false] } else { [false, true] };
                for is_safe in order {
                    let time = match is_safe {
                        true => timed(|| direction.safe(&mut buffers, bytes))?,
                        false => timed(|| direction.raw(&mut buffers, bytes))?,
                    };
                    // The first two rounds warm up.
                    if round >= 2 {
                        if is_safe { &mut safe } else { &mut raw }.push(time);
                    }
                }
            }
            let (safe, raw) = (bytes as f64 / median(safe) / 1e9, bytes as f64 / median(raw) / 1e9);
            smallest = smallest.min(safe / raw);
            println!("{:<13} {mib:>9} {safe:>11.2} {raw:>11.2} {:>7.3}", direction.name(), safe / raw);
        }
    }
    println!("\nsmallest ratio {smallest:.3}");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
