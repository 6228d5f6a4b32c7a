//! GPUs for sessions.
//!
//! A GPU is opened by the first session that needs it and shared by all later ones, so compiled kernels and memory for
//! runs are reused.
use std::env;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use exec::gpu::{GpuDevice, TuneMode, Tuned};
use hip::{DriverKind, Rtc};
use kernels::{Arch, CachedCompiler, Compiler, NoCompiler, RtcCompiler};
use ort_ep::{Error, Result};

/// The maximum size of the on-disk kernel cache.
const CACHE_BYTES: u64 = 256 << 20;

/// The environment variable that lists folders of precompiled kernels.
const SETS_VARIABLE: &str = "AMDGPU_EP_KERNEL_PATH";

/// Measurements from devices like this one: same target, size and driver.
pub(crate) fn tuned(gpu: &GpuDevice, cache: Option<&str>, mode: TuneMode) -> Tuned {
    let device = gpu.device();
    let (units, kind, version) = (gpu.arch().compute_units, device.kind(), device.driver().version_text());
    let described = format!("{} {units} units {kind} {version}", gpu.arch().target);
    let folder = cache.map(PathBuf::from).or_else(cache_root).map(|folder| folder.join("tuning"));
    let tuned = Tuned::open(folder.as_deref(), &described, mode);
    tracing::debug!(target: "amdgpu_ep::load", "{} saved measurements for {described}", tuned.len());
    tuned
}

/// The GPUs in use.
#[derive(Default)]
pub(crate) struct Gpus(Mutex<Vec<GpuDevice>>);

impl Gpus {
    /// The GPU behind a driver's device; `None` for the host driver, which has none. The first session decides where
    /// compiled kernels are stored.
    ///
    /// # Errors
    /// There is no compiler for the GPU, or it is not a supported target.
    pub fn open(&self, device: &hip::Device, cache: Option<&str>) -> Result<Option<GpuDevice>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |gpu: &&GpuDevice| {
            let known = gpu.device();
            (known.kind(), known.ordinal()) == (device.kind(), device.ordinal())
        };
        if let Some(gpu) = open.iter().find(is_same) {
            return Ok(Some(gpu.clone()));
        }
        let gpu = match device.kind() {
            DriverKind::Host => simulated(device)?,
            DriverKind::Amd | DriverKind::Nvidia => Some(real(device, cache)?),
        };
        open.extend(gpu.clone());
        Ok(gpu)
    }
}

fn real(device: &hip::Device, cache: Option<&str>) -> Result<GpuDevice> {
    let arch = Arch::of(device.info()).map_err(|error| Error::ep_fail(error.to_string()))?;
    let sets = shipped_sets();
    let compiler: Arc<dyn Compiler> = match Rtc::load(device.kind()) {
        Ok(rtc) => {
            let (file, version) = (rtc.library().display(), rtc.version_text());
            tracing::info!(target: "amdgpu_ep::load", "compiling kernels with {file} ({version})");
            with_cache(RtcCompiler(rtc), cache, sets)
        }
        Err(error) if sets.is_empty() => return Err(Error::ep_fail(error.to_string())),
        Err(error) => {
            tracing::warn!(target: "amdgpu_ep::load", "no kernel compiler, using precompiled kernels only: {error}");
            let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
            with_cache(NoCompiler { reason }, cache, sets)
        }
    };
    Ok(GpuDevice::new(device.clone(), arch, compiler))
}

fn with_cache(compiler: impl Compiler + 'static, cache: Option<&str>, sets: Vec<PathBuf>) -> Arc<dyn Compiler> {
    let folder = cache.map(PathBuf::from).or_else(cache_root).map(|folder| folder.join("kernels"));
    let cached = CachedCompiler::new(compiler, folder, CACHE_BYTES);
    Arc::new(sets.into_iter().fold(cached, CachedCompiler::with_shipped))
}

/// Folders of precompiled kernels: those listed in `AMDGPU_EP_KERNEL_PATH`, then `kernels` next to this library.
fn shipped_sets() -> Vec<PathBuf> {
    let listed = env::var_os(SETS_VARIABLE).unwrap_or_default();
    let beside = hip::sys::own_folder().map(|folder| folder.join("kernels"));
    let sets: Vec<PathBuf> = env::split_paths(&listed)
        .filter(|set| !set.as_os_str().is_empty())
        .chain(beside)
        .filter(|set| set.is_dir())
        .collect();
    for set in &sets {
        tracing::info!(target: "amdgpu_ep::load", "searching {} for precompiled kernels", set.display());
    }
    sets
}

/// Where compiled kernels and measurements are stored. `amdgpu-ep doctor` uses the same folder.
fn cache_root() -> Option<PathBuf> {
    disk_cache::root(|variable| env::var_os(variable)).map(|(root, _)| root)
}

#[cfg(not(feature = "simulate"))]
fn simulated(_: &hip::Device) -> Result<Option<GpuDevice>> {
    Ok(None)
}

/// For tests: with `AMDGPU_EP_SIMULATE=gfx1100`, the host driver's device runs kernels in the wave simulator, which
/// keeps its files in `AMDGPU_EP_SIMULATE_DIR`. The target may name its compute units: `gfx1100@96`. With
/// `AMDGPU_EP_SIMULATE_TEXTS`, sources are only written to that folder, and the host runs the steps.
#[cfg(feature = "simulate")]
fn simulated(device: &hip::Device) -> Result<Option<GpuDevice>> {
    use kernels::sim::{Recorder, Simulator};

    let Ok(named) = env::var("AMDGPU_EP_SIMULATE") else { return Ok(None) };
    let failed = |error: String| Error::ep_fail(format!("could not create the wave simulator: {error}"));
    let (target, units) = named.split_once('@').unwrap_or((&named, "4"));
    let arch = Arch::new(target, units.parse().map_err(|_| failed(format!("{named:?} is not TARGET@UNITS")))?);
    if let Some(texts) = env::var_os("AMDGPU_EP_SIMULATE_TEXTS") {
        return Ok(Some(GpuDevice::new(device.clone(), arch, Arc::new(Recorder(texts.into())))));
    }
    let folder =
        env::var_os("AMDGPU_EP_SIMULATE_DIR").map_or_else(|| env::temp_dir().join("amdgpu-ep-sim"), PathBuf::from);
    let simulator = Simulator::new(&folder).map_err(|error| failed(error.to_string()))?;
    simulator.set_wave(arch.wave).map_err(|error| failed(error.to_string()))?;
    tracing::info!(target: "amdgpu_ep::load", "kernels for {target} run under the wave simulator");
    // The simulator caches its own compiled kernels.
    let compiler =
        shipped_sets().into_iter().fold(CachedCompiler::new(simulator, None, 0), CachedCompiler::with_shipped);
    Ok(Some(GpuDevice::new(device.clone(), arch, Arc::new(compiler))))
}
