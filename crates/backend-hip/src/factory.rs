//! The backend as a plugin of its own: the umbrella loads it, and tests register it directly.
use std::{sync::Arc, time::Instant};

use exec::{
    Device,
    dnn::{Libraries, Mode},
    gpu::{GpuSettings, TuneMode},
    host::HostDevice,
};
use hip::DriverKind;
use ort_ep::{
    DeviceOffer, Environment, EpRequest, Error, Factory, ModelCompatibility, NewEp, Registration, Result,
    saved::{self, Save},
    view::HardwareDevice,
};

use crate::{
    entries::{self, GRAPH_CAPTURE},
    ep::HipEp,
    explain::Explain,
    gpu::{self, Gpus},
    hipdnn,
    memory::MemoryFile,
    profile::Profiles,
    progress,
    runs::Runs,
    saved::{FILE_EXTENSION, compatibility},
    timed::TimedRuns,
    tuning::Tuning,
};

/// Makes the library's factory.
pub(crate) fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(HipFactory::default()))
}

#[derive(Default)]
struct HipFactory {
    /// Shared by all sessions, and with it the threads for queued work, which end with the last of them.
    host: HostDevice,
    gpus: Gpus,
    /// hipDNN, shared by all sessions that want it.
    libraries: Libraries,
}

impl HipFactory {
    /// The order of a session's work: by the driver's streams under the umbrella, by calls alone without it.
    fn runs(&self, request: &EpRequest<'_>, driver: DriverKind) -> Result<Runs> {
        // Off unless asked for: the protocol demands device memory for all inputs and outputs, and ONNX Runtime GenAI, which
        // has captures of its own in mind, gives it CPU memory.
        let wants_captures = match request.options.get(GRAPH_CAPTURE)?.as_deref() {
            None | Some("" | "0") => false,
            Some("1") => true,
            Some(other) => {
                tracing::warn!(target: "amdgpu_ep::load", "{GRAPH_CAPTURE} is {other:?}, and ignored\n  help: set it to 0 or 1");
                false
            }
        };
        let mut ordinals = request.devices.iter().filter_map(|device| device.metadata.get("hip_device_id"));
        let ordinal = ordinals.next().and_then(|id| id.parse().ok());
        if wants_captures && ordinal.is_none() {
            tracing::warn!(
                target: "amdgpu_ep::load",
                "{GRAPH_CAPTURE} is ignored: this backend has no streams of its own\n  help: register libamdgpu-ep instead"
            );
        }
        Ok(Runs::new(driver, ordinal.unwrap_or(0), wants_captures && ordinal.is_some()))
    }
}

impl HipFactory {
    /// What runs a session's partitions: the host on the host driver, else a GPU.
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

/// The driver of the session's devices. Without the umbrella it is the host's.
fn driver(request: &EpRequest<'_>) -> Result<DriverKind> {
    let mut names = request.devices.iter().filter_map(|device| device.metadata.get("driver"));
    let Some(name) = names.next() else { return Ok(DriverKind::Host) };
    name.parse().map_err(|error: hip::UnknownDriver| Error::invalid_argument(error.to_string()))
}

/// The path that a session-config entry names; an empty one names none.
fn path(request: &EpRequest<'_>, entry: &str) -> Result<Option<String>> {
    Ok(request.options.get(entry)?.filter(|path| !path.is_empty()))
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
        let (driver, start) = (driver(request)?, Instant::now());
        let file = path(request, entries::EXPLAIN_FILE)?;
        let (passes, dump) = (request.options.get(entries::DISABLE_PASSES)?, request.options.get(entries::DUMP_DIR)?);
        let last_logits = request.options.get(entries::LAST_LOGITS)?;
        let times = path(request, entries::PROFILE_FILE)?;
        let given = request.options.config_entries()?;
        let mode = hipdnn::mode(request.options.get(entries::HIPDNN)?.as_deref());
        let runs = self.runs(request, driver)?;
        let cache = path(request, entries::CACHE_DIR)?;
        let settings = GpuSettings {
            graphs: gpu::graphs(request.options.get(entries::GRAPH)?.as_deref()),
            tf32: gpu::tf32(request.options.get(entries::TF32)?.as_deref()),
            progress: path(request, entries::PROGRESS_FILE)?.map(progress::writer),
            ..GpuSettings::default()
        };
        let tune = gpu::tune(request.options.get(entries::TUNE)?.as_deref());
        let memory = path(request, entries::MEMORY_FILE)?;
        let device = self.device(&runs, driver, mode, settings, cache.as_deref(), tune)?;
        tracing::debug!(target: "amdgpu_ep::load", "the {} device was opened in {:.1?}", device.name(), start.elapsed());
        let save = Save::from_entries(&given, FILE_EXTENSION, false)?;
        Ok(HipEp {
            memory: memory.map(|file| MemoryFile::new(file, device.name())),
            device,
            runs: Arc::new(runs),
            explain: file.map(|file| Arc::new(Explain::new(file))),
            name: request.name.to_string_lossy().into_owned(),
            save,
            folder: saved::folder(&given),
            profiles: Profiles::default(),
            timed: times.map(|file| Arc::new(TimedRuns::new(file))),
            tuning: Tuning::new(passes.as_deref(), dump.as_deref(), last_logits.as_deref()),
        }
        .into())
    }

    fn model_compatibility(&self, _: &[HardwareDevice<'_>], info: &str) -> Result<ModelCompatibility> {
        Ok(compatibility(info))
    }
}
