//! The backend as a standalone plugin: the umbrella loads it, and tests register it directly.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use hip::{Device, Driver, DriverKind};
use ort_ep::saved::{self, Save};
use ort_ep::view::HardwareDevice;
use ort_ep::{DeviceOffer, Environment, EpRequest, Error, Factory, ModelCompatibility, NewEp, Registration, Result};

use crate::ep::MgxEp;
use crate::mgx::Library;
use crate::options::Options;
use crate::toolchain::Toolchain;
use crate::{context, status};

/// Creates the library's factory.
pub(crate) fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(MgxFactory))
}

struct MgxFactory;

impl Factory for MgxFactory {
    fn vendor(&self) -> &str {
        "AMD"
    }

    fn vendor_id(&self) -> u32 {
        0x1002
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// On its own, the backend keeps tensors in host memory, and MIGraphX copies them. The umbrella offers GPUs.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[("arch", "host"), ("driver", "host")]).into_iter().collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let name = request.name.to_string_lossy().into_owned();
        let entries = request.options.config_entries()?;
        let environment = |name: &str| std::env::var(name).ok();
        let (options, warnings) = Options::from_entries(&entries, &name, environment)
            .map_err(|error| Error::invalid_argument(error.to_string()))?;
        for warning in warnings {
            tracing::warn!(target: "amdgpu_ep::load", "{warning}");
        }
        let forced = environment("ORT_MIGRAPHX_DUMP_EP_CONTEXT_MODEL").is_some_and(|on| on.trim() == "1");
        let save = Save::from_entries(&entries, context::FILE_EXTENSION, forced)?;
        Ok(NewEp::Own(Box::new(MgxEp {
            name,
            runtime: request.runtime,
            tools: Arc::new(toolchain(request, options)?),
            save,
            folder: saved::folder(&entries),
            claimed: Mutex::new(HashMap::new()),
            sequence_symbol: OnceLock::new(),
        })))
    }

    fn model_compatibility(&self, _: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        let here = Library::open(None).ok().and_then(|library| library.version());
        let gpus = Driver::load(DriverKind::Amd).ok().and_then(|driver| driver.devices().ok()).unwrap_or_default();
        let archs: Vec<_> = gpus.iter().map(|device| device.info().arch.clone()).collect();
        Ok(context::compatibility(info, &archs, here))
    }
}

/// Opens the library, the target and the device of a session.
fn toolchain(request: &EpRequest<'_>, options: Options) -> Result<Toolchain> {
    let metadata = |key: &str| request.devices.first().and_then(|device| device.metadata.get(key));
    let driver = metadata("driver").unwrap_or("host".into());
    let driver: DriverKind =
        driver.parse().map_err(|error: hip::UnknownDriver| Error::invalid_argument(error.to_string()))?;
    let interpreted = options.target == "ref";
    if !interpreted && driver == DriverKind::Nvidia {
        return Err(Error::not_implemented(
            "MIGraphX has no target for the nvidia driver\n  help: use the profile hip",
        ));
    }
    let library = Library::open(None).map_err(status::of)?;
    let target = library.target(&options.target).map_err(|error| {
        let file = library.file().display();
        status::with(&format!("MIGraphX in {file} has no target {:?}", options.target), &error)
    })?;
    let number = metadata(::options::DEVICE_ID_KEY).and_then(|text| text.parse().ok()).unwrap_or(options.device_id);
    let device = match driver {
        // Only streams need the device, and the standalone backend has none.
        DriverKind::Host => device(DriverKind::Host, 0).ok(),
        kind => Some(device(kind, number)?),
    };
    let host_memory = driver == DriverKind::Host;
    let offload_copy = options.offload_copy.unwrap_or(host_memory) && !interpreted;
    let arch = match (&device, interpreted) {
        (_, true) => "host".to_owned(),
        (Some(device), false) if !host_memory => device.info().arch.clone(),
        // MIGraphX selects the GPU itself, but the cache key needs its architecture.
        _ => {
            self::device(DriverKind::Amd, options.device_id).map_or("unknown".to_owned(), |gpu| gpu.info().arch.clone())
        }
    };
    let version = library.version().map_or("of unknown version".to_owned(), |version| version.to_string());
    let (file, target_name) = (library.file().display().to_string(), &options.target);
    tracing::info!(target: "amdgpu_ep::load", "MIGraphX {version} in {file}, target {target_name}, arch {arch}");
    Ok(Toolchain::new(library, target, arch, options, offload_copy, device))
}

fn device(kind: DriverKind, number: usize) -> Result<Device> {
    let driver = Driver::load(kind).map_err(|error| status::of(hip::HipError::from(error)))?;
    let devices = driver.devices().map_err(status::of)?;
    let count = devices.len();
    let found = devices.into_iter().find(|device| device.ordinal() == number);
    found.ok_or_else(|| {
        Error::invalid_argument(format!("device {number} does not exist: the {kind} driver has {count}"))
    })
}
