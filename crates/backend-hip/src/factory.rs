//! The backend as a standalone plugin: the umbrella loads it, and tests register it directly.
use std::env;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use exec::Device;
use exec::dnn::{Libraries, Mode};
use exec::gpu::{GpuSettings, TuneMode};
use exec::host::HostDevice;
use hip::DriverKind;
use options::hip::{self as keys, GRAPH_CAPTURE};
use options::{BackendOptions, DEVICE_ID_KEY};
use ort_ep::saved::{self, Save};
use ort_ep::view::HardwareDevice;
use ort_ep::{DeviceOffer, Environment, EpRequest, Error, Factory, ModelCompatibility, NewEp, Registration, Result};
use reports::ReportFile;

use crate::ep::HipEp;
use crate::gpu::{self, Gpus};
use crate::memory::MemoryReport;
use crate::profile::Profiles;
use crate::runs::Runs;
use crate::saved::{FILE_EXTENSION, compatibility};
use crate::tuning::Tuning;
use crate::{hipdnn, progress};

/// Creates the library's factory.
pub(crate) fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(HipFactory::default()))
}

#[derive(Default)]
struct HipFactory {
    /// Shared by all sessions, as are its worker threads for queued work. They exit with the last handle.
    host: HostDevice,
    gpus: Gpus,
    /// hipDNN, shared by all sessions that use it.
    libraries: Libraries,
}

impl HipFactory {
    /// Decides how a session's work is ordered: by the driver's streams under the umbrella, by calls alone without it.
    fn runs(&self, request: &EpRequest<'_>, options: &BackendOptions, driver: DriverKind) -> Runs {
        // Off by default: the protocol requires device memory for all inputs and outputs, but ONNX Runtime GenAI, which
        // expects to do its own captures, passes CPU memory.
        let wants_captures = options.is_on(GRAPH_CAPTURE);
        let mut ordinals = request.devices.iter().filter_map(|device| device.metadata.get(DEVICE_ID_KEY));
        let ordinal = ordinals.next().and_then(|id| id.parse().ok());
        if wants_captures && ordinal.is_none() {
            tracing::warn!(
                target: "amdgpu_ep::load",
                "{GRAPH_CAPTURE} is ignored: the backend has no streams when registered by itself\n  help: register libamdgpu-ep instead"
            );
        }
        // If the session lists no devices, the umbrella passes the device id as an option.
        let from_option =
            || options.get(keys::DEVICE_ID).filter(|_| request.devices.is_empty()).and_then(|id| id.parse().ok());
        Runs::new(driver, ordinal.or_else(from_option).unwrap_or(0), wants_captures && ordinal.is_some())
    }
}

impl HipFactory {
    /// The device that runs a session's partitions: the CPU for the host driver, otherwise a GPU.
    fn device(
        &self,
        runs: &Runs,
        driver: DriverKind,
        mode: Mode,
        settings: GpuSettings,
        cache: Option<&str>,
        tune: TuneMode,
    ) -> Result<Arc<dyn Device>> {
        if driver == DriverKind::Host && !cfg!(feature = "simulate") {
            return Ok(Arc::new(hipdnn::device(&self.host, &self.libraries, mode, || runs.device())));
        }
        let device = runs.device()?;
        let Some(gpu) = self.gpus.open(device, cache)? else {
            return Ok(Arc::new(hipdnn::device(&self.host, &self.libraries, mode, || Ok(device))));
        };
        let dnn = hipdnn::offering(&self.libraries, mode, device).map(Arc::new);
        let tuned = (tune != TuneMode::Off).then(|| Arc::new(gpu::tuned(&gpu, cache, tune)));
        Ok(Arc::new(gpu.with(GpuSettings { dnn, tuned, ..settings })))
    }
}

/// The entry by which ONNX Runtime GenAI says that it pads attention masks, whichever backend runs the session.
const GENAI_PADS: &str = "ep.migraphx.static_pad_seq";

/// The driver named by the session's devices. Without devices, the driver requested by `AMDGPU_EP_DRIVER`, as in the
/// umbrella: on a machine with a real GPU, the host driver would be handed GPU memory.
fn driver(said: Option<&str>, asked: Option<&str>) -> Result<DriverKind> {
    match said {
        Some(name) => name.parse().map_err(|error: hip::UnknownDriver| Error::invalid_argument(error.to_string())),
        // The umbrella has already warned about a variable it ignores.
        None => Ok(DriverKind::wanted(asked).unwrap_or(DriverKind::Amd)),
    }
}

/// Parses a multiple-choice option. The option table has already validated the value.
fn mode<T: FromStr + Default>(options: &BackendOptions, key: &str) -> T {
    options.get(key).and_then(|word| word.parse().ok()).unwrap_or_default()
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

    /// The host device is the CPU and needs no memory of its own.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[("arch", "host"), ("driver", "host")]).into_iter().collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let start = Instant::now();
        let said = request.devices.iter().find_map(|device| device.metadata.get("driver"));
        let driver = driver(said.as_deref(), env::var("AMDGPU_EP_DRIVER").ok().as_deref())?;
        let given = request.options.config_entries()?;
        let entries = given.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let genai = given.get(GENAI_PADS).filter(|_| !given.contains_key(keys::STATIC_PAD_SEQ));
        let entries = entries.chain(genai.map(|value| (keys::STATIC_PAD_SEQ, value.as_str())));
        let options = keys::TABLE.read(entries).map_err(|error| Error::invalid_argument(error.to_string()))?;
        let tuning = Tuning::new(&options)?;
        let runs = self.runs(request, &options, driver);
        let settings = GpuSettings {
            blas: mode(&options, keys::BLASLT),
            graphs: mode(&options, keys::REPLAY),
            tf32: options.is_on(keys::TF32),
            progress: ReportFile::named(&options).map(progress::writer),
            ..GpuSettings::default()
        };
        let (hipdnn, tune) = (mode(&options, keys::HIPDNN), mode(&options, keys::TUNE));
        let device = self.device(&runs, driver, hipdnn, settings, options.get(keys::CACHE_DIR), tune)?;
        tracing::debug!(target: "amdgpu_ep::load", "opened the {} device in {:.1?}", device.name(), start.elapsed());
        let save = Save::from_entries(&given, FILE_EXTENSION, false)?;
        Ok(HipEp {
            memory: ReportFile::named(&options).map(|file| MemoryReport::new(file, device.name())),
            device,
            runs: Arc::new(runs),
            explain: ReportFile::named(&options).map(Arc::new),
            name: request.name.to_string_lossy().into_owned(),
            takes_control_flow: !options.is_on(keys::CPU_CONTROL_FLOW),
            family: options.get(keys::MODEL_ARCH).map(str::to_owned),
            release: request.runtime.release(),
            refused: Mutex::default(),
            save,
            folder: saved::folder(&given),
            profiles: Profiles::default(),
            timed: ReportFile::named(&options).map(Arc::new),
            tuning,
        }
        .into())
    }

    fn model_compatibility(&self, _: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        Ok(compatibility(info))
    }
}

#[cfg(test)]
mod tests {
    use exec::gpu::{BlasMode, ReplayMode};
    use options::Kind;

    use super::*;

    #[test]
    fn without_devices_the_host_is_used_only_on_request() {
        assert_eq!(driver(None, None).unwrap(), DriverKind::Amd);
        assert_eq!(driver(None, Some("auto")).unwrap(), DriverKind::Amd);
        assert_eq!(driver(None, Some("vulkan")).unwrap(), DriverKind::Amd);
        assert_eq!(driver(None, Some("nvidia")).unwrap(), DriverKind::Nvidia);
        assert_eq!(driver(None, Some("host")).unwrap(), DriverKind::Host);
    }

    #[test]
    fn device_metadata_names_the_driver() {
        assert_eq!(driver(Some("host"), None).unwrap(), DriverKind::Host);
        assert_eq!(driver(Some("amd"), Some("host")).unwrap(), DriverKind::Amd);
        let error = driver(Some("vulkan"), None).unwrap_err();
        assert!(error.message().contains("unknown driver \"vulkan\""), "{error}");
    }

    #[test]
    fn the_engine_accepts_every_word_of_the_option_table() {
        for (key, knows) in [
            (keys::REPLAY, (|word| word.parse::<ReplayMode>().is_ok()) as fn(&str) -> bool),
            (keys::HIPDNN, |word| word.parse::<Mode>().is_ok()),
            (keys::BLASLT, |word| word.parse::<BlasMode>().is_ok()),
            (keys::TUNE, |word| word.parse::<TuneMode>().is_ok()),
        ] {
            let name = key.trim_start_matches("ep.hip.");
            let Kind::Choice(words) = keys::TABLE.find(name).unwrap().kind else { panic!("{key} is not a choice") };
            assert!(words.iter().all(|word| knows(word)), "{key}: {words:?}");
        }
    }
}
