//! Which provider runs the model: its plugin library, else its old name inside ONNX Runtime, else the CPU.

use std::fmt;
use std::path::{Path, PathBuf};

use ort::AsPointer;
use ort::session::Session;
use ort::session::builder::SessionBuilder;

use crate::config::{DeviceFilter, HardwareKind, ProviderRequest};
use crate::error::Doing;
use crate::ffi::{self, DeviceFacts};
use crate::{Error, Result, Runtime};

/// The name of our provider in ONNX Runtime.
pub const AMDGPU: &str = "AMDGPUExecutionProvider";

/// The name that AMD's provider has inside of ONNX Runtime builds that bring it.
const LEGACY: &str = "MIGraphX";

/// Where the plugin library is looked for when nobody names it.
const PATH_VARIABLE: &str = "AMDGPU_EP_PATH";

/// A provider that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// AMD GPUs.
    Amdgpu,
    /// ONNX Runtime's own.
    Cpu,
}

/// The provider meant by a name, in any case and with or without `ExecutionProvider`.
pub fn normalise(name: &str) -> Option<Name> {
    let lower = name.to_ascii_lowercase();
    match lower.strip_suffix("executionprovider").unwrap_or(&lower) {
        "amdgpu" | "amdgpuexecutionprovider" => Some(Name::Amdgpu),
        "cpu" => Some(Name::Cpu),
        _ => None,
    }
}

/// What a session runs on.
#[derive(Clone, Debug, PartialEq)]
pub enum Attached {
    /// Our provider, by its plugin library.
    Plugin {
        /// The driver that its devices say, such as `amd` or `host`.
        driver: Option<String>,
    },
    /// AMD's provider inside of this ONNX Runtime.
    Legacy,
    /// The CPU.
    Cpu,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attached::Plugin { driver: Some(driver) } => write!(f, "{AMDGPU} (driver {driver})"),
            Attached::Plugin { driver: None } => f.write_str(AMDGPU),
            Attached::Legacy => f.write_str(LEGACY),
            Attached::Cpu => f.write_str("CPUExecutionProvider"),
        }
    }
}

/// A session, what it runs on, and why not on something better.
pub(crate) struct Opened {
    pub session: Session,
    pub attached: Attached,
    pub notices: Vec<String>,
}

/// Makes a session with the first provider that can be had. `builder` gives the session's own settings, `entries` what
/// the provider may want to know about the model.
pub(crate) fn open(
    runtime: &Runtime,
    request: Option<&ProviderRequest>,
    entries: &[(String, String)],
    model: &Path,
    builder: impl Fn() -> Result<SessionBuilder>,
) -> Result<Opened> {
    let cpu = || -> Result<Session> { builder()?.commit_from_file(model).doing("loading the model on the CPU") };
    let Some(request) = request else {
        return Ok(Opened { session: cpu()?, attached: Attached::Cpu, notices: Vec::new() });
    };
    let mut reasons = Vec::new();
    match by_plugin(runtime, request, entries, model, &builder) {
        Ok((session, attached)) => return Ok(Opened { session, attached, notices: Vec::new() }),
        Err(reason) => reasons.push(format!("plugin: {}", reason.trim())),
    }
    match by_legacy_name(request, model, &builder) {
        Ok(session) => {
            let notice = format!("{AMDGPU} could not be had ({}): using {LEGACY}", reasons.join("; "));
            return Ok(Opened { session, attached: Attached::Legacy, notices: vec![notice] });
        }
        Err(reason) => reasons.push(format!("{LEGACY}: {}", reason.trim())),
    }
    let reasons = reasons.join("; ");
    if request.require_gpu {
        return Err(Error::Provider {
            problem: format!("no AMD GPU can be used ({reasons})"),
            help: "`amdgpu-ep doctor` says why; without the demand for a GPU the CPU is used".to_owned(),
        });
    }
    let session = cpu()?;
    let notice = format!("no AMD GPU can be used, the CPU is ({reasons})");
    Ok(Opened { session, attached: Attached::Cpu, notices: vec![notice] })
}

/// The plugin path. The reason why not is for a person: it may end in a session on something else.
fn by_plugin(
    runtime: &Runtime,
    request: &ProviderRequest,
    entries: &[(String, String)],
    model: &Path,
    builder: impl Fn() -> Result<SessionBuilder>,
) -> Result<(Session, Attached), String> {
    register(runtime, request)?;
    let environment = runtime.environment();
    let ours = || environment.devices().filter(|device| device.ep().is_ok_and(|name| name == AMDGPU));
    let facts: Vec<DeviceFacts> = ours().map(|device| ffi::device_facts(&device)).collect();
    if facts.is_empty() {
        return Err("it is registered and offers no device".to_owned());
    }
    let chosen: Vec<bool> = facts.iter().map(|facts| is_wanted(facts, &request.filter)).collect();
    let Some(first) = chosen.iter().position(|&chosen| chosen) else {
        return Err(format!("none of its {} devices passes the filter", facts.len()));
    };
    let driver = facts[first].driver.clone();
    if request.require_gpu && driver.as_deref() == Some("host") {
        return Err("its only device is the host device (AMDGPU_EP_DRIVER=host)".to_owned());
    }
    let devices = ours().zip(&chosen).filter(|(_, chosen)| **chosen).map(|(device, _)| device);
    let options: Vec<(String, String)> =
        request.options.iter().map(|(key, value)| (format!("{AMDGPU}.{key}"), value.clone())).collect();
    let mut builder = builder().map_err(|error| error.to_string())?;
    for (key, value) in entries {
        builder = builder.with_config_entry(key, value).map_err(|error| error.to_string())?;
    }
    let mut builder = builder.with_devices(devices, Some(&options)).map_err(|error| error.to_string())?;
    let session = builder.commit_from_file(model).map_err(|error| error.to_string())?;
    Ok((session, Attached::Plugin { driver }))
}

fn by_legacy_name(
    request: &ProviderRequest,
    model: &Path,
    builder: impl Fn() -> Result<SessionBuilder>,
) -> Result<Session, String> {
    let mut builder = builder().map_err(|error| error.to_string())?;
    ffi::append_by_name(builder.ptr_mut(), LEGACY, &request.options).map_err(|error| error.to_string())?;
    builder.commit_from_file(model).map_err(|error| error.to_string())
}

/// Registers the plugin library, unless the provider is there already.
fn register(runtime: &Runtime, request: &ProviderRequest) -> Result<(), String> {
    if runtime.environment().devices().any(|device| device.ep().is_ok_and(|name| name == AMDGPU)) {
        return Ok(());
    }
    let library = match &request.library {
        Some(path) => path.clone(),
        None => match std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => return Err(format!("no library is named, and {PATH_VARIABLE} is not set")),
        },
    };
    runtime.register(AMDGPU, &library).map_err(|error| error.to_string())
}

fn is_wanted(device: &DeviceFacts, filter: &DeviceFilter) -> bool {
    filter.kind.is_none_or(|kind: HardwareKind| kind == device.kind)
        && filter.vendor_id.is_none_or(|id| id == device.vendor_id)
        && filter.device_id.is_none_or(|id| id == device.device_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_the_provider_is_one_name() {
        for name in ["amdgpu", "AMDGPU", "AmdGpu", "AMDGPUExecutionProvider", "amdgpuexecutionprovider"] {
            assert_eq!(normalise(name), Some(Name::Amdgpu), "{name}");
        }
        assert_eq!(normalise("AMDGPUExecutionProviderExecutionProvider"), Some(Name::Amdgpu));
        for name in ["cpu", "CPU", "CPUExecutionProvider"] {
            assert_eq!(normalise(name), Some(Name::Cpu), "{name}");
        }
        for name in ["", "migraphx", "rocm", "hip", "cuda", "executionprovider", "amdgpu "] {
            assert_eq!(normalise(name), None, "{name}");
        }
    }

    #[test]
    fn a_filter_chooses_by_everything_it_names() {
        let device = DeviceFacts { kind: HardwareKind::Gpu, vendor_id: 0x1002, device_id: 7, driver: None };
        let all = DeviceFilter::default();
        assert!(is_wanted(&device, &all));
        assert!(is_wanted(&device, &DeviceFilter { kind: Some(HardwareKind::Gpu), device_id: Some(7), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { kind: Some(HardwareKind::Cpu), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { vendor_id: Some(0x10de), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { device_id: Some(8), ..all }));
    }
}
