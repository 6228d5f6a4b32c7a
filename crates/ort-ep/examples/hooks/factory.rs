//! Two devices simulated in RAM.
use ort_ep::view::{HardwareDevice, HardwareKind, KeyValues};
use ort_ep::{
    AllocatorHandle, DataTransfer, DeviceOffer, Environment, EpRequest, Factory, Incompatibility,
    IncompatibilityReason, KernelDef, MemoryDevice, ModelCompatibility, NewEp, NewHardware, OfferedHardware,
    OfferedMemory, Result, Stream,
};

use crate::control::{Gone, note, note_infallible};
use crate::device::{HooksAllocator, HooksStream, HooksTransfer};
use crate::ep::HooksEp;
use crate::settings::Settings;
use crate::work;

pub const VENDOR: u32 = 0xBEEF;

#[derive(Debug)]
pub struct HooksFactory {
    _gone: Gone,
}

impl Default for HooksFactory {
    fn default() -> Self {
        Self { _gone: Gone("factory.drop") }
    }
}

impl Factory for HooksFactory {
    fn vendor(&self) -> &str {
        note_infallible("factory.vendor", "");
        "Hooks"
    }

    fn vendor_id(&self) -> u32 {
        note_infallible("factory.vendor_id", "");
        VENDOR
    }

    fn version(&self) -> &str {
        note_infallible("factory.version", "");
        "1.2.3-hooks+1"
    }

    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], environment: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        let is_virtual = environment.allows_virtual_devices();
        note("factory.devices", format_args!("{} listed, virtual={is_virtual}", listed.len()))?;
        let offer = |id| {
            let memory = MemoryDevice::gpu(VENDOR, id);
            let hardware = NewHardware {
                kind: HardwareKind::Gpu,
                vendor_id: VENDOR,
                device_id: id,
                vendor: "Hooks".into(),
                metadata: vec![("number".into(), id.to_string())],
            };
            DeviceOffer {
                hardware: OfferedHardware::New(hardware),
                metadata: vec![("place".into(), format!("slot {id}"))],
                options: vec![("from_device".into(), "default".into())],
                memories: vec![
                    OfferedMemory { name: format!("hooks{id}"), memory },
                    OfferedMemory { name: format!("hooks{id}_pinned"), memory: memory.host_accessible() },
                ],
            }
        };
        Ok((0..2).map(offer).collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let place = |device: &ort_ep::SelectedDevice<'_>| device.metadata.get("place").unwrap_or_default().into_owned();
        let places: Vec<_> = request.devices.iter().map(place).collect();
        note("factory.create_ep", places.join(", "))?;
        for (key, value) in request.options.config_entries()? {
            note("entry", format_args!("{key}={value}"))?;
        }
        Ok(HooksEp::new(Settings::read(request)?, request.name.to_string_lossy().into_owned()).into())
    }

    fn create_allocator(&self, memory: MemoryDevice, options: KeyValues<'_>) -> Result<AllocatorHandle> {
        let options: Vec<_> = options.iter().map(|(key, value)| format!("{key}={value}")).collect();
        note(
            "factory.create_allocator",
            format_args!("{:?}{} {}", memory.memory, memory.device_id, options.join(",")),
        )?;
        Ok(AllocatorHandle::new(HooksAllocator::new(memory)))
    }

    fn create_data_transfer(&self) -> Result<Option<Box<dyn DataTransfer>>> {
        note("factory.create_data_transfer", "")?;
        Ok(Some(Box::new(HooksTransfer::default())))
    }

    fn is_stream_aware(&self) -> bool {
        note_infallible("factory.is_stream_aware", "");
        true
    }

    fn create_stream(&self, device: MemoryDevice, _: KeyValues<'_>) -> Result<Box<dyn Stream>> {
        note("factory.create_stream", device.device_id)?;
        Ok(Box::new(HooksStream::new(device.device_id)))
    }

    fn kernels(&self) -> Vec<KernelDef> {
        note_infallible("factory.kernels", "");
        work::kernels()
    }

    fn model_compatibility(&self, devices: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        note("factory.model_compatibility", format_args!("{} devices, {info}", devices.len()))?;
        Ok(match info {
            "best" => ModelCompatibility::Optimal,
            "slow" => ModelCompatibility::PreferRecompilation,
            "never" => ModelCompatibility::Unsupported,
            _ => ModelCompatibility::NotApplicable,
        })
    }

    fn incompatibility(&self, device: HardwareDevice<'_>) -> Option<Incompatibility> {
        note_infallible("factory.incompatibility", device.vendor());
        (device.vendor_id() != VENDOR).then(|| Incompatibility {
            reason: IncompatibilityReason::MissingDependency,
            error_code: 7,
            notes: "no hooks on this device\n  help: use another".into(),
        })
    }
}
