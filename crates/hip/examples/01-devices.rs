//! Loads a driver and lists its devices.
//!
//! `cargo run -p amdgpu-ep-hip --example 01-devices -- [amd|nvidia|host]`
//!
//! Nothing is linked: the driver's libraries are found now. On a machine without them, the error lists every place that
//! was tried. `host` needs `libhip-host.so` of the repository (`cargo xtask stage`), in `AMDGPU_EP_HIP_HOST_LIBRARY`.

mod course;

use std::error::Error;
use std::process::ExitCode;

use hip::{Driver, DriverKind};

fn main() -> ExitCode {
    course::ended(list())
}

fn list() -> Result<(), Box<dyn Error>> {
    let kind: DriverKind = std::env::args().nth(1).as_deref().unwrap_or("amd").parse()?;
    let driver = Driver::load(kind)?;
    println!("{} driver {} from {}", driver.kind(), driver.version_text(), driver.library().display());
    let devices = driver.devices()?;
    if let Some(reason) = driver.no_device_reason() {
        println!("no device: {reason}");
    }
    for device in devices {
        let (info, memory) = (device.info(), device.memory_info()?);
        println!(
            "{}: {} ({}), {} of {} MiB free",
            device.ordinal(),
            info.name,
            info.arch,
            memory.free >> 20,
            memory.total >> 20
        );
    }
    Ok(())
}
