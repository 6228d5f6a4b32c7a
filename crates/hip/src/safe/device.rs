//! One device of a driver.

use std::ffi::c_int;
use std::fmt;
use std::sync::Arc;

use super::driver::Driver;
use super::info::DeviceInfo;
use super::scope::Scope;
use crate::result::{device, memory};
use crate::{DriverKind, HipError};

/// A device: its driver, its ordinal, and its properties. Clones are cheap.
#[derive(Clone)]
pub struct Device {
    driver: Driver,
    ordinal: usize,
    info: Arc<DeviceInfo>,
}

/// Device memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Free bytes.
    pub free: usize,
    /// Total bytes.
    pub total: usize,
}

impl Device {
    pub(crate) fn new(driver: Driver, ordinal: usize, info: Arc<DeviceInfo>) -> Device {
        Device { driver, ordinal, info }
    }

    /// The device's number within its driver.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The driver.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The kind of its driver.
    pub fn kind(&self) -> DriverKind {
        self.driver.kind()
    }

    /// The properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// An attribute by its HIP number; `None` if the driver has no such attribute or rejects the query.
    pub fn attribute(&self, hip_number: i32) -> Option<i32> {
        device::attribute(self.driver.runtime(), self.number(), hip_number)
    }

    /// Free and total memory at this moment.
    ///
    /// # Errors
    /// The driver's status.
    pub fn memory_info(&self) -> Result<MemoryInfo, HipError> {
        let _scope = self.enter()?;
        let (free, total) = memory::info(self.driver.runtime())?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for all work on the device.
    ///
    /// # Errors
    /// The driver's status, which may be that of earlier work.
    pub fn synchronize(&self) -> Result<(), HipError> {
        let _scope = self.enter()?;
        device::synchronize(self.driver.runtime())
    }

    /// Whether this device can access `peer`'s memory directly.
    pub fn can_access_peer(&self, peer: &Device) -> bool {
        self.kind() == peer.kind()
            && self.ordinal != peer.ordinal
            && device::can_access_peer(self.driver.runtime(), self.number(), peer.number())
    }

    /// Lets this device access `peer`'s memory directly.
    ///
    /// # Errors
    /// The driver's status.
    pub fn enable_peer_access(&self, peer: &Device) -> Result<(), HipError> {
        self.same_driver("the peer device", peer)?;
        let _scope = self.enter()?;
        device::enable_peer_access(self.driver.runtime(), peer.number())
    }

    /// Makes this device current on this thread until the scope ends, for libraries that use the driver's current
    /// device.
    ///
    /// # Errors
    /// The driver's status.
    pub fn enter(&self) -> Result<Scope<'_>, HipError> {
        Scope::enter(self.driver.runtime(), self.number())
    }

    /// The ordinal as the driver's integer type.
    pub(crate) fn number(&self) -> c_int {
        // Ordinals are below a `c_int` count.
        c_int::try_from(self.ordinal).unwrap_or(c_int::MAX)
    }

    pub(crate) fn same_driver(&self, what: &'static str, other: &Device) -> Result<(), HipError> {
        if self.kind() == other.kind() {
            return Ok(());
        }
        Err(HipError::Foreign { what, found: other.to_string(), wanted: format!("the {} driver", self.kind()) })
    }

    pub(crate) fn same_device(&self, what: &'static str, other: &Device) -> Result<(), HipError> {
        if self == other {
            return Ok(());
        }
        Err(HipError::Foreign { what, found: other.to_string(), wanted: self.to_string() })
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        self.kind() == other.kind() && self.ordinal == other.ordinal
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} device {}", self.kind(), self.ordinal)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self}, {}, {})", self.info.name, self.info.arch)
    }
}
