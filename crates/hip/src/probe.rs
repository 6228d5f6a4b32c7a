//! Finds every library of every driver for `amdgpu-ep doctor`, with the names tried and the reasons for failures.

use std::path::PathBuf;

use crate::safe::blas_lt;
use crate::sys::Role;
use crate::{Attempt, DeviceInfo, Driver, DriverKind, LoadError, Rtc};

/// A driver as found on this machine.
#[derive(Clone, Debug)]
pub struct DriverReport {
    /// Which driver.
    pub kind: DriverKind,
    /// The runtime, compiler and BLASLt, if the driver comes with them.
    pub libraries: Vec<LibraryReport>,
    /// The version number of the installed (kernel-side) driver.
    pub driver_version: Option<i32>,
    /// The devices, in order.
    pub devices: Vec<DeviceInfo>,
    /// Why there are none, if the runtime loaded.
    pub no_device_reason: Option<String>,
}

/// A library as found on this machine.
#[derive(Clone, Debug)]
pub struct LibraryReport {
    /// What it is for.
    pub role: Role,
    /// The file, if it loaded.
    pub path: Option<PathBuf>,
    /// The version as readable text, if the library loaded and reports one.
    pub version: Option<String>,
    /// Every name that was tried without success, with the reason.
    pub attempts: Vec<Attempt>,
    /// The whole message, if it did not load.
    pub error: Option<String>,
}

impl LibraryReport {
    fn new(role: Role, found: Result<(PathBuf, Option<String>, Vec<Attempt>), LoadError>) -> LibraryReport {
        match found {
            Ok((path, version, attempts)) => LibraryReport { role, path: Some(path), version, attempts, error: None },
            Err(error) => LibraryReport {
                role,
                path: None,
                version: None,
                attempts: error.attempts().to_vec(),
                error: Some(error.to_string()),
            },
        }
    }
}

impl DriverReport {
    /// Whether the runtime loaded.
    pub fn is_loaded(&self) -> bool {
        self.libraries.iter().any(|library| library.role == Role::Runtime && library.path.is_some())
    }
}

/// Inspects every driver. Loads what it can, and needs no device.
pub fn report() -> Vec<DriverReport> {
    DriverKind::ALL.into_iter().map(driver).collect()
}

/// Inspects one driver.
pub fn driver(kind: DriverKind) -> DriverReport {
    let loaded = Driver::load(kind);
    let runtime = loaded
        .as_ref()
        .map_err(LoadError::clone)
        .map(|driver| (driver.library().to_owned(), Some(driver.version_text()), driver.attempts().to_vec()));
    let mut libraries = vec![LibraryReport::new(Role::Runtime, runtime)];
    if kind != DriverKind::Host {
        let rtc =
            Rtc::load(kind).map(|rtc| (rtc.library().to_owned(), Some(rtc.version_text()), rtc.attempts().to_vec()));
        libraries.push(LibraryReport::new(Role::Rtc, rtc));
        libraries.push(LibraryReport::new(Role::BlasLt, blas_lt::found(kind)));
    }
    let mut report =
        DriverReport { kind, libraries, driver_version: None, devices: Vec::new(), no_device_reason: None };
    if let Ok(driver) = loaded {
        report.driver_version = driver.driver_version();
        match driver.devices() {
            Ok(devices) => report.devices = devices.iter().map(|device| device.info().clone()).collect(),
            Err(error) => report.no_device_reason = Some(error.to_string()),
        }
        report.no_device_reason = report.no_device_reason.or_else(|| driver.no_device_reason());
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_is_reported_and_every_missing_library_has_reasons() {
        let drivers = report();
        assert_eq!(drivers.iter().map(|driver| driver.kind).collect::<Vec<_>>(), DriverKind::ALL);
        for library in drivers.iter().flat_map(|driver| &driver.libraries) {
            assert_eq!(library.path.is_none(), library.error.is_some(), "{library:?}");
            assert!(library.path.is_some() || !library.attempts.is_empty(), "{library:?}");
        }
        for driver in &drivers {
            assert_eq!(
                driver.is_loaded() && driver.devices.is_empty(),
                driver.no_device_reason.is_some(),
                "{driver:?}"
            );
        }
    }
}
