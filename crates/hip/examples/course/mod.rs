//! What every example does first and last.
#![allow(dead_code, reason = "the first example loads its driver itself")]

use std::error::Error;
use std::process::ExitCode;

use hip::{Device, Driver};

/// The first device of the driver that the command line names: `amd` if it names none.
pub fn device() -> Result<Device, Box<dyn Error>> {
    let driver = Driver::load(std::env::args().nth(1).as_deref().unwrap_or("amd").parse()?)?;
    let reason = || driver.no_device_reason().unwrap_or_default();
    Ok(driver.devices()?.into_iter().next().ok_or_else(reason)?)
}

/// Reports an error and returns the exit code.
pub fn ended(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
