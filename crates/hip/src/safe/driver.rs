//! A loaded driver.

use std::ffi::c_int;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Shared;
use super::device::Device;
use super::info::DeviceInfo;
use super::open_streams::OpenStreams;
use crate::result::{Runtime, device, memory};
use crate::sys::loader::{self, Loaded};
use crate::sys::{Role, RuntimeTable, Search, codes};
use crate::{Attempt, DriverKind, HipError, LoadError};

/// A loaded driver library. Clones share it; the library is never unloaded.
#[derive(Clone)]
pub struct Driver(Arc<Inner>);

struct Inner {
    runtime: Runtime,
    library: PathBuf,
    attempts: Vec<Attempt>,
    version: Option<i32>,
    devices: OnceLock<Vec<Arc<DeviceInfo>>>,
    no_device: Mutex<Option<String>>,
    streams: OpenStreams,
}

/// The kind of memory that a pointer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerKind {
    /// Memory of the device with this ordinal.
    Device(usize),
    /// Host memory that the driver pinned.
    PinnedHost,
    /// Memory that migrates between host and devices.
    Managed,
    /// Memory that the driver does not know: treat it as pageable host memory.
    Unknown,
}

/// Information that a driver has about a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerInfo {
    /// The kind of memory that the pointer belongs to.
    pub kind: PointerKind,
}

static LOADED: Shared<Inner> = Shared::new();

impl Driver {
    /// Loads a driver, or shares one that is already loaded. A failure is not cached, so a later call may succeed.
    ///
    /// # Errors
    /// Every name tried, with the loader's reason.
    pub fn load(kind: DriverKind) -> Result<Driver, LoadError> {
        LOADED.load(kind, || Ok(Driver::load_with(kind, &Search::from_env())?.0)).map(Driver)
    }

    /// Loads a driver with a given search, without sharing it.
    ///
    /// # Errors
    /// Every name tried, with the loader's reason.
    pub fn load_with(kind: DriverKind, search: &Search) -> Result<Driver, LoadError> {
        let Loaded { table, path, attempts } = loader::load(search, kind, Role::Runtime, None, RuntimeTable::fill)?;
        let runtime = Runtime { kind, table };
        let version = device::runtime_version(&runtime);
        Ok(Driver(Arc::new(Inner {
            runtime,
            library: path,
            attempts,
            version,
            devices: OnceLock::new(),
            no_device: Mutex::new(None),
            streams: OpenStreams::default(),
        })))
    }

    /// Which driver this is.
    pub fn kind(&self) -> DriverKind {
        self.0.runtime.kind
    }

    /// The file that the runtime was loaded from, as the loader resolved it.
    pub fn library(&self) -> &Path {
        &self.0.library
    }

    /// Names that were tried before [`Driver::library`] was found.
    pub fn attempts(&self) -> &[Attempt] {
        &self.0.attempts
    }

    /// The raw functions, for calls that the safe layer does not offer.
    pub fn table(&self) -> &RuntimeTable {
        &self.0.runtime.table
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    pub(super) fn streams(&self) -> &OpenStreams {
        &self.0.streams
    }

    /// The runtime library's version number.
    pub fn runtime_version(&self) -> Option<i32> {
        self.0.version
    }

    /// The version number of the installed (kernel-side) driver.
    pub fn driver_version(&self) -> Option<i32> {
        device::driver_version(self.runtime())
    }

    /// The runtime's version as readable text: `7.2.53211`, `13.0`; for the host driver the HIP version it implements,
    /// `host 7.2`.
    pub fn version_text(&self) -> String {
        version_text(self.kind(), self.0.version)
    }

    /// The devices, in the driver's order.
    ///
    /// It is not an error if there are none: the list is empty and [`Driver::no_device_reason`] says why.
    ///
    /// # Errors
    /// None today; reserved for a driver that fails after it has listed devices.
    pub fn devices(&self) -> Result<Vec<Device>, HipError> {
        if let Some(infos) = self.0.devices.get() {
            return Ok(self.with_infos(infos));
        }
        let runtime = self.runtime();
        let count = device::init(runtime).and_then(|()| device::count(runtime));
        let reason = match &count {
            Ok(0) => Some("the driver found no device".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        *self.0.no_device.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        let count = count.ok().and_then(|count| c_int::try_from(count).ok()).unwrap_or(0);
        if count == 0 {
            return Ok(Vec::new());
        }
        let infos = self
            .0
            .devices
            .get_or_init(|| (0..count).map(|ordinal| Arc::new(DeviceInfo::read(runtime, ordinal))).collect());
        Ok(self.with_infos(infos))
    }

    /// Why the last [`Driver::devices`] was empty.
    pub fn no_device_reason(&self) -> Option<String> {
        self.0.no_device.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the driver knows about an address. If it rejects the query, the address is pageable host memory.
    pub fn pointer_info(&self, address: usize) -> PointerInfo {
        let kind = match memory::pointer_attributes(self.runtime(), address) {
            Some(found) => pointer_kind(self.has_old_memory_types(), found.memory_type, found.device, found.is_managed),
            None => PointerKind::Unknown,
        };
        PointerInfo { kind }
    }

    fn has_old_memory_types(&self) -> bool {
        self.kind() == DriverKind::Amd && self.0.version.is_some_and(|version| version < codes::HIP_6)
    }

    fn with_infos(&self, infos: &[Arc<DeviceInfo>]) -> Vec<Device> {
        infos.iter().enumerate().map(|(ordinal, info)| Device::new(self.clone(), ordinal, info.clone())).collect()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        LOADED.forget(self.runtime.kind);
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("kind", &self.kind())
            .field("library", &self.library())
            .field("version", &self.version_text())
            .finish()
    }
}

fn pointer_kind(old_numbers: bool, memory_type: c_int, device: c_int, is_managed: c_int) -> PointerKind {
    let on_device = usize::try_from(device).map_or(PointerKind::Unknown, PointerKind::Device);
    if old_numbers {
        return match memory_type {
            _ if is_managed != 0 => PointerKind::Managed,
            0 => PointerKind::PinnedHost,
            1 => on_device,
            3 => PointerKind::Managed,
            _ => PointerKind::Unknown,
        };
    }
    match memory_type {
        1 => PointerKind::PinnedHost,
        2 => on_device,
        3 | 11 => PointerKind::Managed,
        _ => PointerKind::Unknown,
    }
}

pub(crate) fn version_text(kind: DriverKind, version: Option<i32>) -> String {
    let Some(version) = version else { return "unknown version".to_owned() };
    let (major, minor, build) = (version / 10_000_000, version / 100_000 % 100, version % 100_000);
    match kind {
        DriverKind::Amd => format!("{major}.{minor}.{build}"),
        DriverKind::Nvidia => format!("{}.{}", version / 1000, version % 1000 / 10),
        DriverKind::Host => format!("host {major}.{minor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_their_vendors_write_them() {
        assert_eq!(version_text(DriverKind::Amd, Some(70_253_211)), "7.2.53211");
        assert_eq!(version_text(DriverKind::Amd, Some(50_221_153)), "5.2.21153");
        assert_eq!(version_text(DriverKind::Nvidia, Some(13_000)), "13.0");
        assert_eq!(version_text(DriverKind::Nvidia, Some(12_080)), "12.8");
        assert_eq!(version_text(DriverKind::Host, Some(70_200_000)), "host 7.2");
        assert_eq!(version_text(DriverKind::Amd, None), "unknown version");
    }

    #[test]
    fn memory_types_are_read_by_the_numbering_of_the_runtime() {
        assert_eq!(pointer_kind(true, 0, 0, 0), PointerKind::PinnedHost);
        assert_eq!(pointer_kind(false, 0, 0, 0), PointerKind::Unknown);
        assert_eq!(pointer_kind(true, 1, 2, 0), PointerKind::Device(2));
        assert_eq!(pointer_kind(false, 2, 2, 0), PointerKind::Device(2));
        assert_eq!(pointer_kind(false, 1, 0, 0), PointerKind::PinnedHost);
        assert_eq!(pointer_kind(false, 3, 0, 1), PointerKind::Managed);
        assert_eq!(pointer_kind(false, 2, -1, 0), PointerKind::Unknown);
    }

    #[test]
    fn a_failed_load_can_be_tried_again() {
        let variables = [("AMDGPU_EP_HIP_LIBRARY", "/nowhere/libamdhip64.so".into())].into_iter().collect();
        let rocm = dylib::SearchContext { variables, ..Default::default() };
        let search = Search { rocm, ..Search::default() };
        for _ in 0..2 {
            let error = Driver::load_with(DriverKind::Amd, &search).unwrap_err();
            assert_eq!(error.attempts().len(), 1);
        }
    }
}
