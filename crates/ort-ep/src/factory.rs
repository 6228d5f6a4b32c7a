//! The factory: finds devices and creates execution providers.
use std::collections::BTreeMap;
use std::ffi::CStr;

use crate::view::{HardwareDevice, HardwareKind, KeyValues, SessionOptions};
use crate::{
    AllocatorHandle, CustomOpDomain, DataTransfer, Error, KernelDef, MemoryDevice, NewEp, PluginHost, Result, Runtime,
    Stream,
};

/// What ONNX Runtime passes when it loads the library.
pub struct Registration<'a> {
    /// The name the user registered the library under; the execution provider uses it too.
    pub name: &'a str,
    /// The runtime that loads it.
    pub runtime: Runtime,
    /// Loads other plugins into the same runtime.
    pub host: PluginHost,
}

/// The configuration of the process-wide environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// All entries; those of a plugin are named `ep_factory.<name>.<key>`.
    pub entries: BTreeMap<String, String>,
}

impl Environment {
    /// True if the user asked for virtual devices, by a registration name that ends in `.virtual`.
    pub fn allows_virtual_devices(&self) -> bool {
        self.entries.get("allow_virtual_devices").is_some_and(|value| value == "1")
    }
}

/// Finds devices and creates execution providers. Several threads may call it at once.
///
/// Applications often register a library only to list its devices: load the device's runtime as late as possible.
pub trait Factory: Send + Sync + 'static {
    /// The vendor's name.
    fn vendor(&self) -> &str;

    /// The vendor's PCI id.
    fn vendor_id(&self) -> u32 {
        0
    }

    /// The plugin's own version, following SemVer 2.0.
    fn version(&self) -> &str;

    /// Offers devices (ONNX Runtime accepts at most eight): some of those `listed`, or new ones.
    ///
    /// # Errors
    /// Fails the registration: prefer an empty list and a log line.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], environment: &Environment) -> Result<Vec<DeviceOffer<'a>>>;

    /// Creates the execution provider of a session: our own, or one that forwards to another plugin's.
    ///
    /// # Errors
    /// Fails the session.
    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp>;

    /// Creates an allocator for a memory that [`devices`](Self::devices) offered. Called before any execution provider
    /// exists, and several times for one memory: their blocks must be interchangeable.
    ///
    /// # Errors
    /// Fails the session. During registration it fails the registration from API 31 on, and is only logged before that.
    fn create_allocator(&self, memory: MemoryDevice, options: KeyValues<'_>) -> Result<AllocatorHandle> {
        let _ = options;
        Err(Error::not_implemented(format!("no allocator for {memory:?}")))
    }

    /// Creates a data transfer, if the devices have their own memory. The SDK then also registers the two kernels
    /// (`MemcpyFromHost`, `MemcpyToHost`) without which ONNX Runtime would give compiled partitions host pointers.
    ///
    /// # Errors
    /// Same as for [`create_allocator`](Self::create_allocator).
    fn create_data_transfer(&self) -> Result<Option<Box<dyn DataTransfer>>> {
        Ok(None)
    }

    /// True if work runs on streams of [`create_stream`](Self::create_stream).
    fn is_stream_aware(&self) -> bool {
        false
    }

    /// Creates a stream for a device.
    ///
    /// # Errors
    /// Fails the run.
    fn create_stream(&self, device: MemoryDevice, options: KeyValues<'_>) -> Result<Box<dyn Stream>> {
        let _ = options;
        Err(Error::not_implemented(format!("no streams for {device:?}")))
    }

    /// Kernels in addition to the SDK's own copy kernels.
    fn kernels(&self) -> Vec<KernelDef> {
        Vec::new()
    }

    /// Custom-op domains of other plugins that sessions may use. Called whenever an application adds the provider to a
    /// session, before the session exists: prefer plugins that are already loaded over loading one to find out.
    fn custom_op_domains(&self) -> Vec<CustomOpDomain> {
        Vec::new()
    }

    /// Checks whether a compiled model made elsewhere runs here.
    ///
    /// # Errors
    /// Returned to the caller.
    fn model_compatibility(&self, devices: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        let _ = (devices, info);
        Ok(ModelCompatibility::NotApplicable)
    }

    /// Says why a device cannot be used; `None` if it can.
    fn incompatibility(&self, device: HardwareDevice<'_>) -> Option<Incompatibility> {
        let _ = device;
        None
    }
}

/// A session's request for an execution provider.
pub struct EpRequest<'a> {
    /// The name the library is registered under.
    pub name: &'a CStr,
    /// The selected devices.
    pub devices: Vec<SelectedDevice<'a>>,
    /// The session's options; valid only during the call.
    pub options: SessionOptions<'a>,
    /// The runtime that makes the request.
    pub runtime: Runtime,
    pub(crate) logger: *const ort_ep_sys::OrtLogger,
}

impl<'a> EpRequest<'a> {
    /// The same session with other devices and options, for a backend.
    pub fn with<'b>(&'b self, devices: Vec<SelectedDevice<'b>>, options: SessionOptions<'b>) -> EpRequest<'b> {
        EpRequest { name: self.name, devices, options, runtime: self.runtime, logger: self.logger }
    }
}

/// A selected device.
#[derive(Clone, Copy)]
pub struct SelectedDevice<'a> {
    /// The hardware.
    pub hardware: HardwareDevice<'a>,
    /// The metadata it was offered with.
    pub metadata: KeyValues<'a>,
}

/// A device to add to ONNX Runtime's list.
pub struct DeviceOffer<'a> {
    /// The hardware behind it.
    pub hardware: OfferedHardware<'a>,
    /// Device metadata; ONNX Runtime itself sets `version` and `library_path`.
    pub metadata: Vec<(String, String)>,
    /// Default options.
    pub options: Vec<(String, String)>,
    /// The device's memories: at most one of each [`MemoryKind`](crate::MemoryKind).
    pub memories: Vec<OfferedMemory>,
}

impl<'a> DeviceOffer<'a> {
    /// The CPU as a device without its own memory; `None` if ONNX Runtime did not list it.
    pub fn of_cpu(listed: &[HardwareDevice<'a>], metadata: &[(&str, &str)]) -> Option<Self> {
        let cpu = listed.iter().find(|device| device.kind() == HardwareKind::Cpu)?;
        let metadata = metadata.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let hardware = OfferedHardware::Listed(*cpu);
        Some(Self { hardware, metadata, options: Vec::new(), memories: Vec::new() })
    }
}

/// The hardware behind an offered device.
pub enum OfferedHardware<'a> {
    /// One that ONNX Runtime listed.
    Listed(HardwareDevice<'a>),
    /// One that ONNX Runtime did not find.
    New(NewHardware),
}

/// Hardware that ONNX Runtime did not find.
#[derive(Clone, Debug)]
pub struct NewHardware {
    /// The kind.
    pub kind: HardwareKind,
    /// The vendor's PCI id.
    pub vendor_id: u32,
    /// The PCI device id.
    pub device_id: u32,
    /// The vendor's name.
    pub vendor: String,
    /// The metadata.
    pub metadata: Vec<(String, String)>,
}

/// A memory of an offered device.
#[derive(Clone, Debug)]
pub struct OfferedMemory {
    /// A display name.
    pub name: String,
    /// How ONNX Runtime identifies it.
    pub memory: MemoryDevice,
}

/// Whether a compiled model runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModelCompatibility {
    /// The model was not made by this provider.
    NotApplicable,
    /// It runs at full speed.
    Optimal,
    /// It runs, but recompiling would help.
    PreferRecompilation,
    /// It does not run.
    Unsupported,
}

/// Why a device cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incompatibility {
    /// The reason's kind.
    pub reason: IncompatibilityReason,
    /// An error code of the driver, or 0.
    pub error_code: i32,
    /// What was found and what to do.
    pub notes: String,
}

/// The kinds of reasons ONNX Runtime knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IncompatibilityReason {
    /// The driver is missing or unsuitable.
    Driver,
    /// The device itself is unsuitable.
    Device,
    /// A library is missing.
    MissingDependency,
}
