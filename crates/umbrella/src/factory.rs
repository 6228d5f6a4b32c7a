//! The factory: offers devices to ONNX Runtime and creates everything that belongs to them.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use options::{DEVICE_ID_KEY, Options, Warning};
use ort_ep::view::{HardwareDevice, HardwareKind, KeyValues};
use ort_ep::{
    AllocatorHandle, CustomOpDomain, DataTransfer, DeviceKind, DeviceOffer, Environment, EpRequest, Error, Factory,
    Forwarded, Incompatibility, IncompatibilityReason, MemoryDevice, MemoryKind, ModelCompatibility, NewEp,
    OfferedMemory, Registration, Result, SelectedDevice, Stream,
};

use crate::backends::{Backends, Chosen, Session};
use crate::context::DeviceContext;
use crate::discovery::{discover, match_hardware};
use crate::ep::AmdGpuEp;
use crate::memory::{DeviceAllocator, PinnedAllocator};
use crate::selection::{self, Candidate};
use crate::stream::DeviceStream;
use crate::transfer::Transfer;
use crate::{AMD_VENDOR_ID, trust};

/// The metadata key that ONNX Runtime's Python package (1.26 to 1.31) uses, for any vendor, to find the device meant by
/// `providers=[(name, {"device_id": "1"})]`. Without it, the number is compared with the PCI device ID. A default
/// device option called `device_id` would be found too, but it would become an option of every session: with several
/// selected devices, the last one would win.
const PYTHON_DEVICE_ID_KEY: &str = "cuda_device_id";

/// Creates the library's factory.
pub(crate) fn create(registration: Registration<'_>) -> Result<Box<dyn Factory>> {
    let backends = Backends::new(registration.host);
    Ok(Box::new(AmdGpuFactory { name: registration.name.to_owned(), found: Mutex::default(), backends }))
}

/// The result of device discovery.
#[derive(Default)]
struct DiscoveredDevices {
    contexts: Vec<Arc<DeviceContext>>,
    reason: Option<String>,
}

struct AmdGpuFactory {
    name: String,
    found: Mutex<DiscoveredDevices>,
    backends: Backends,
}

/// The validated request of a session.
struct ValidatedRequest {
    options: Options,
    warnings: Vec<Warning>,
    context: Arc<DeviceContext>,
    /// The index of the selected device that `context` belongs to.
    device: Option<usize>,
}

impl AmdGpuFactory {
    fn found(&self) -> MutexGuard<'_, DiscoveredDevices> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context of a memory or device that belongs to this provider.
    fn context(&self, memory: MemoryDevice) -> Result<Arc<DeviceContext>> {
        let ours = memory.device == DeviceKind::Gpu && memory.vendor_id == AMD_VENDOR_ID;
        let found = self.found();
        let context = found.contexts.iter().find(|context| ours && context.id() == memory.device_id);
        context.cloned().ok_or_else(|| {
            let count = found.contexts.len();
            Error::invalid_argument(format!("{memory:?} is not on any of the {count} devices of {}", self.name))
        })
    }

    /// Fails if there is no device: no session can be created then, whatever its options.
    fn require_device(&self) -> Result<()> {
        let found = self.found();
        if !found.contexts.is_empty() {
            return Ok(());
        }
        let reason = found.reason.as_deref().unwrap_or("its devices have not been listed yet");
        Err(Error::ep_fail(format!("{} found no device: {reason}", self.name)))
    }

    /// Reads and validates a session's request.
    fn wanted(&self, request: &EpRequest<'_>) -> Result<ValidatedRequest> {
        self.require_device()?;
        let entries = request.options.config_entries()?;
        let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let (options, warnings) = Options::parse(&self.name, trust::origin(), pairs)
            .map_err(|error| Error::invalid_argument(error.to_string()))?;
        let selected = request.devices.iter().map(|device| self.selected_id(device)).collect::<Result<Vec<_>>>()?;
        let contexts = self.found().contexts.clone();
        let known: Vec<_> = contexts.iter().map(candidate).collect();
        let id = selection::select(&known, &selected, options.device_id)
            .map_err(|error| Error::invalid_argument(error.to_string()))?;
        let context = self.context(MemoryDevice::gpu(AMD_VENDOR_ID, id))?;
        let device = selected.iter().position(|&selected| selected == id);
        Ok(ValidatedRequest { options, warnings, context, device })
    }

    /// The id of a device that this library offered.
    fn selected_id(&self, selected: &SelectedDevice<'_>) -> Result<u32> {
        let id = selected.metadata.get(DEVICE_ID_KEY).and_then(|text| text.parse().ok());
        id.ok_or_else(|| {
            let vendor = selected.hardware.vendor_id();
            Error::invalid_argument(format!(
                "a selected device (vendor {vendor:#06x}) was not offered by {}\n  help: select devices from get_ep_devices()",
                self.name
            ))
        })
    }
}

impl Factory for AmdGpuFactory {
    fn vendor(&self) -> &str {
        "AMD"
    }

    fn vendor_id(&self) -> u32 {
        AMD_VENDOR_ID
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        let discovery = discover();
        if let Some(reason) = &discovery.reason {
            tracing::warn!(target: "amdgpu_ep::load", "{} offers no device: {reason}", self.name);
        }
        let hardware = match_hardware(&discovery.devices, listed);
        let mut offers: Vec<_> = discovery.devices.iter().map(DeviceContext::of).zip(hardware).collect();
        // Clients that take the first device get the best one.
        offers.sort_by_key(|(context, _)| selection::rank_of(&candidate(context)));
        let mut found = self.found();
        found.contexts = offers.iter().map(|(context, _)| context.clone()).collect();
        found.reason = discovery.reason;
        Ok(offers
            .into_iter()
            .map(|(context, hardware)| DeviceOffer {
                hardware,
                metadata: metadata(&context),
                options: Vec::new(),
                memories: vec![
                    OfferedMemory { name: "Hip".to_owned(), memory: context.memory() },
                    OfferedMemory { name: "HipPinned".to_owned(), memory: context.memory().host_accessible() },
                ],
            })
            .collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let ValidatedRequest { options, warnings, context, device } = self.wanted(request)?;
        for warning in warnings {
            match warning {
                // Logged as an error: ONNX Runtime GenAI does not show warnings, and its users must see what was
                // refused.
                Warning::Refused { .. } => tracing::error!(target: "amdgpu_ep::load", "{warning}"),
                _ => tracing::warn!(target: "amdgpu_ep::load", "{warning}"),
            }
        }
        if request.devices.len() > 1 {
            tracing::info!(target: "amdgpu_ep::load", device = context.id(), "several devices were selected; using only this one");
        }
        let chosen = self.backends.choose(&Session { request, options: &options, context: &context, device })?;
        let own = AmdGpuEp::new(context, &self.name, options.profile, request.devices.len());
        Ok(match chosen {
            None => own.into(),
            Some(Chosen { ep, memory, compatibility_prefix }) => {
                Forwarded { backend: ep, own: Box::new(own), memory, compatibility_prefix }.into()
            }
        })
    }

    fn create_allocator(&self, memory: MemoryDevice, _: KeyValues<'_>) -> Result<AllocatorHandle> {
        let context = self.context(memory)?;
        match memory.memory {
            MemoryKind::Default => Ok(AllocatorHandle::new(DeviceAllocator(context))),
            MemoryKind::HostAccessible => Ok(AllocatorHandle::new(PinnedAllocator(context))),
            other => Err(Error::invalid_argument(format!("unknown memory kind {other:?}"))),
        }
    }

    fn create_data_transfer(&self) -> Result<Option<Box<dyn DataTransfer>>> {
        let contexts = self.found().contexts.clone();
        Ok((!contexts.is_empty()).then(|| Box::new(Transfer::new(contexts)) as Box<dyn DataTransfer>))
    }

    fn is_stream_aware(&self) -> bool {
        true
    }

    fn create_stream(&self, device: MemoryDevice, _: KeyValues<'_>) -> Result<Box<dyn Stream>> {
        Ok(Box::new(DeviceStream::new(self.context(device)?)?))
    }

    fn custom_op_domains(&self) -> Vec<CustomOpDomain> {
        self.backends.custom_op_domains()
    }

    fn model_compatibility(&self, devices: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        self.backends.model_compatibility(devices, info)
    }

    fn incompatibility(&self, device: HardwareDevice<'_>) -> Option<Incompatibility> {
        if device.kind() != HardwareKind::Gpu || device.vendor_id() != AMD_VENDOR_ID {
            let notes = format!("{} runs on AMD GPUs", self.name);
            return Some(Incompatibility { reason: IncompatibilityReason::Device, error_code: 0, notes });
        }
        let notes = self.found().reason.clone()?;
        Some(Incompatibility { reason: IncompatibilityReason::Driver, error_code: 0, notes })
    }
}

fn candidate(context: &Arc<DeviceContext>) -> Candidate {
    let info = context.device.info();
    Candidate { id: context.id(), integrated: info.integrated, total_memory: info.total_memory }
}

/// The metadata that `ep_metadata` shows for a device.
fn metadata(context: &DeviceContext) -> Vec<(String, String)> {
    let device = &context.device;
    let info = device.info();
    let mut entries = vec![
        ("arch", info.arch.clone()),
        ("compute_units", info.compute_units.to_string()),
        ("driver", context.driver().to_string()),
        ("driver_version", device.driver().version_text()),
        (DEVICE_ID_KEY, context.id().to_string()),
        (PYTHON_DEVICE_ID_KEY, context.id().to_string()),
        ("integrated", u8::from(info.integrated).to_string()),
        ("name", info.name.clone()),
        ("total_memory", info.total_memory.to_string()),
        ("wave_size", info.wave_size.to_string()),
    ];
    entries.extend(info.pci_bus_id.clone().map(|id| ("pci_bus_id", id)));
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
