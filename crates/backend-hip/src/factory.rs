//! The backend as a plugin of its own: the umbrella loads it, and tests register it directly.
use std::sync::Arc;

use exec::{dnn::Libraries, host::HostDevice};
use ort_ep::{
    DeviceOffer, Environment, EpRequest, Error, Factory, ModelCompatibility, NewEp, Registration, Result,
    saved::{self, Save},
    view::HardwareDevice,
};

use crate::{
    ep::HipEp,
    explain::{self, Explain},
    hipdnn,
    profile::Profiles,
    runs::Runs,
    saved::{FILE_EXTENSION, compatibility},
    tuning::{self, Tuning},
};

/// Makes the library's factory.
pub(crate) fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(HipFactory { host: HostDevice::new(), libraries: Libraries::default() }))
}

/// The session entry that asks for captures by ONNX Runtime's protocol. Off unless asked for: the protocol demands device
/// memory for all inputs and outputs, and ONNX Runtime GenAI, which has captures of its own in mind, gives it CPU memory.
const CAPTURE_ENTRY: &str = "ep.hip.graph_capture";

struct HipFactory {
    /// Shared by all sessions, and with it the threads for queued work, which end with the last of them.
    host: HostDevice,
    /// hipDNN, shared by all sessions that want it.
    libraries: Libraries,
}

impl HipFactory {
    /// The order of a session's work: by the driver's streams under the umbrella, by calls alone without it.
    fn runs(&self, request: &EpRequest<'_>) -> Result<Runs> {
        let wants_captures = match request.options.get(CAPTURE_ENTRY)?.as_deref() {
            None | Some("" | "0") => false,
            Some("1") => true,
            Some(other) => {
                tracing::warn!(target: "amdgpu_ep::load", "{CAPTURE_ENTRY} is {other:?}, and ignored\n  help: set it to 0 or 1");
                false
            }
        };
        let mut ordinals = request.devices.iter().filter_map(|device| device.metadata.get("hip_device_id"));
        let ordinal = ordinals.next().and_then(|id| id.parse().ok());
        if wants_captures && ordinal.is_none() {
            tracing::warn!(
                target: "amdgpu_ep::load",
                "{CAPTURE_ENTRY} is ignored: this backend has no streams of its own\n  help: register libamdgpu-ep instead"
            );
        }
        Ok(Runs::new(ordinal.unwrap_or(0), wants_captures && ordinal.is_some()))
    }
}

impl Factory for HipFactory {
    fn vendor(&self) -> &str {
        "AMD"
    }

    fn vendor_id(&self) -> u32 {
        0x1002
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// The host device sits on the CPU and needs no memory of its own.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[("arch", "host"), ("driver", "host")]).into_iter().collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        for device in &request.devices {
            let driver = device.metadata.get("driver");
            if driver.as_deref() != Some("host") {
                let driver = driver.as_deref().unwrap_or("unknown");
                return Err(Error::not_implemented(format!(
                    "the hip backend has no device for the {driver} driver yet"
                )));
            }
        }
        let file = request.options.get(explain::ENTRY)?.filter(|file| !file.is_empty());
        let (passes, dump) = (request.options.get(tuning::DISABLE_PASSES)?, request.options.get(tuning::DUMP_DIR)?);
        let entries = request.options.config_entries()?;
        let mode = hipdnn::mode(request.options.get(hipdnn::ENTRY)?.as_deref());
        let runs = self.runs(request)?;
        Ok(HipEp {
            device: Arc::new(hipdnn::device(&self.host, &self.libraries, mode, || runs.device())),
            runs: Arc::new(runs),
            explain: file.map(|file| Arc::new(Explain::new(file))),
            name: request.name.to_string_lossy().into_owned(),
            save: Save::from_entries(&entries, FILE_EXTENSION, false)?,
            folder: saved::folder(&entries),
            profiles: Profiles::default(),
            tuning: Tuning::new(passes.as_deref(), dump.as_deref()),
        }
        .into())
    }

    fn model_compatibility(&self, _: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        Ok(compatibility(info))
    }
}
