//! The conclusion, a pure function of the findings. It checks from the hardware upwards; the first problem is the
//! verdict.

use ort_client::{MAX_API_VERSION, MIN_API_VERSION};
use serde::Serialize;

use super::Findings;
use super::drivers::Driver;
use super::environment::HIDING;
use super::kernel::{Access, Kernel, Node};
use super::onnxruntime::{Library, Support};
use crate::child::Outcome;

/// The conclusion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The machine-readable code.
    pub code: Code,
    /// The exit code of `doctor`: 0 if a supported ONNX Runtime can use an AMD GPU, otherwise 1.
    pub exit_code: u8,
    /// A summary in one line.
    pub summary: String,
    /// The most likely fix, or how to use the GPU.
    pub next_step: String,
    /// Other problems, and further information.
    pub notes: Vec<String>,
}

/// The kinds of conclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// An AMD GPU can be used.
    Ready,
    /// Everything works, but with the driver that `AMDGPU_EP_DRIVER` names instead of an AMD GPU.
    OtherDriver,
    /// Examining the driver crashed, hung or failed.
    DriverFailed,
    /// The driver's runtime library does not load.
    NoRuntime,
    /// There is no AMD GPU.
    NoGpu,
    /// The GPU is not bound to the amdgpu kernel driver.
    NoKernelDriver,
    /// `/dev/kfd` or every render node is missing.
    NoDeviceNode,
    /// This user may not use `/dev/kfd` or a render node.
    NoPermission,
    /// A variable hides every device.
    DevicesHidden,
    /// The driver lists no device, for another reason.
    NoDevice,
    /// There is no ONNX Runtime.
    NoOnnxruntime,
    /// Every ONNX Runtime is too old.
    OnnxruntimeTooOld,
    /// No ONNX Runtime can be used.
    OnnxruntimeBroken,
    /// `libamdgpu-ep.so` was not found.
    NoPlugin,
    /// `libamdgpu-ep.so` cannot be used.
    PluginBroken,
}

/// The values of `AMDGPU_EP_LOG`, in any case.
const LOG_LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A code, with the summary and the next step.
type Finding = (Code, String, String);

/// Evaluates the findings.
pub fn judge(findings: &Findings) -> Verdict {
    let wanted = findings.environment.session_driver;
    let driver = findings.drivers.iter().find(|driver| driver.kind == wanted);
    let blocked = match driver {
        Some(driver) => driver_problem(findings, driver),
        None => Some((
            Code::DriverFailed,
            format!("the {wanted} driver was not queried"),
            "report this as a bug".to_owned(),
        )),
    };
    let blocked = blocked.or_else(|| software_problem(findings));
    let (code, summary, next_step) = blocked.unwrap_or_else(|| working(findings, wanted));
    Verdict { code, exit_code: u8::from(code != Code::Ready), summary, next_step, notes: notes(findings, code, wanted) }
}

/// The first line of a message. The rest is help for a different situation.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn driver_problem(findings: &Findings, driver: &Driver) -> Option<Finding> {
    let kind = &driver.kind;
    if driver.probe != Outcome::Answered {
        let how = driver.probe_detail.as_deref().unwrap_or("no reason given");
        let next = match findings.environment.set("HSA_OVERRIDE_GFX_VERSION") {
            Some(version) if kind == "amd" => format!("unset HSA_OVERRIDE_GFX_VERSION (it is {version}) and try again"),
            _ if kind == "amd" => "check that rocminfo runs; if it does not, reinstall ROCm".to_owned(),
            _ => "reinstall the driver's libraries, or unset AMDGPU_EP_DRIVER".to_owned(),
        };
        return Some((Code::DriverFailed, format!("querying the {kind} driver failed: {how}"), next));
    }
    if !driver.found.devices.is_empty() {
        return None;
    }
    if kind != "amd" {
        return Some(other_driver_problem(driver));
    }
    let kernel = findings.kernel.as_ref().filter(|kernel| !kernel.wsl);
    if let Some(kernel) = kernel.filter(|kernel| kernel.gpus.is_empty() && kernel.pci_error.is_none()) {
        let next = match &kernel.container {
            Some(container) => {
                format!("check the host: this runs in a {container} container, which shows the PCI bus of its host")
            }
            None => "try it without a GPU: set AMDGPU_EP_DRIVER=host".to_owned(),
        };
        return Some((Code::NoGpu, "there is no AMD GPU on the PCI bus".to_owned(), next));
    }
    if !driver.is_loaded() {
        return Some(no_runtime(findings, driver));
    }
    let reason = driver.found.no_device_reason.as_deref().map_or("its device list is empty", first_line);
    kernel.and_then(kernel_problem).or_else(|| hidden(findings)).or_else(|| {
        let summary = format!("the HIP runtime finds no device: {reason}");
        let next = "see what rocminfo and `dmesg | grep -i amdgpu` say; ROCm's support matrix lists the supported GPUs";
        Some((Code::NoDevice, summary, next.to_owned()))
    })
}

fn other_driver_problem(driver: &Driver) -> Finding {
    let kind = &driver.kind;
    let error = driver.library("runtime").and_then(|library| library.error.as_deref());
    match error {
        Some(error) => {
            let next = error.lines().find_map(|line| line.trim().strip_prefix("help: "));
            let next = next.unwrap_or("unset AMDGPU_EP_DRIVER");
            (Code::NoRuntime, format!("the {kind} driver could not be loaded"), next.to_owned())
        }
        None => {
            let reason = driver.found.no_device_reason.as_deref().map_or("its device list is empty", first_line);
            let summary = format!("the {kind} driver finds no device: {reason}");
            (Code::NoDevice, summary, "unset AMDGPU_EP_DRIVER, or set it to host".to_owned())
        }
    }
}

fn no_runtime(findings: &Findings, driver: &Driver) -> Finding {
    let incomplete = driver
        .library("runtime")
        .and_then(|library| library.error.as_deref())
        .filter(|error| error.contains("is not a usable"))
        .map(|error| first_line(error).to_owned());
    match findings.environment.set("AMDGPU_EP_HIP_LIBRARY").filter(|file| !file.is_empty()) {
        Some(file) => {
            let summary = format!("AMDGPU_EP_HIP_LIBRARY names {file}, which cannot be loaded as a HIP runtime");
            (Code::NoRuntime, summary, "correct AMDGPU_EP_HIP_LIBRARY, or unset it".to_owned())
        }
        None => {
            let summary = incomplete.unwrap_or_else(|| "no HIP runtime could be loaded".to_owned());
            let next = if cfg!(windows) {
                "install AMD's display driver or the HIP SDK, \
                 or set AMDGPU_EP_HIP_LIBRARY to the full path of amdhip64_7.dll"
            } else {
                "install ROCm's HIP runtime (package hip-runtime-amd or libamdhip64), \
                 or set AMDGPU_EP_HIP_LIBRARY to the full path of libamdhip64.so"
            };
            (Code::NoRuntime, summary, next.to_owned())
        }
    }
}

fn kernel_problem(kernel: &Kernel) -> Option<Finding> {
    let container = kernel.container.as_deref();
    let bound = |driver: &str| kernel.gpus.iter().any(|gpu| gpu.driver.as_deref() == Some(driver));
    if !kernel.gpus.is_empty() && !bound("amdgpu") && kernel.kfd.access == Access::Missing {
        let holder = kernel.gpus.iter().find_map(|gpu| gpu.driver.as_deref());
        return Some(match holder {
            Some("vfio-pci") => (
                Code::NoKernelDriver,
                "the GPU is bound to vfio-pci, for use in a virtual machine".to_owned(),
                "use it inside that machine, or bind it to amdgpu again".to_owned(),
            ),
            Some(other) => (
                Code::NoKernelDriver,
                format!("the GPU is bound to the kernel driver {other}, not to amdgpu"),
                format!("prevent {other} from loading, or use a GPU that amdgpu supports"),
            ),
            None if kernel.amdgpu_loaded => (
                Code::NoKernelDriver,
                "the amdgpu module is loaded but is not bound to the GPU".to_owned(),
                "see why: sudo dmesg | grep -i amdgpu".to_owned(),
            ),
            None => (
                Code::NoKernelDriver,
                "the amdgpu kernel module is not loaded".to_owned(),
                "load it with `sudo modprobe amdgpu`; if that fails, `sudo dmesg` says why".to_owned(),
            ),
        });
    }
    if kernel.kfd.access == Access::Missing {
        let next = match container {
            Some(_) => "start the container with --device=/dev/kfd --device=/dev/dri",
            None => "see why with `sudo dmesg | grep -i kfd`; the kernel needs CONFIG_HSA_AMD",
        };
        return Some((Code::NoDeviceNode, "/dev/kfd is missing".to_owned(), next.to_owned()));
    }
    if let Some(finding) = unusable(&kernel.kfd, container) {
        return Some(finding);
    }
    if kernel.render_nodes.iter().any(|node| node.access == Access::Usable) {
        return None;
    }
    match kernel.render_nodes.iter().find_map(|node| unusable(node, container)) {
        Some(finding) => Some(finding),
        None => {
            let next = match container {
                Some(_) => "start the container with --device=/dev/kfd --device=/dev/dri",
                None => "see why with `sudo dmesg | grep -i drm`",
            };
            Some((Code::NoDeviceNode, "there is no /dev/dri/renderD* of an AMD GPU".to_owned(), next.to_owned()))
        }
    }
}

/// Why an existing node cannot be used.
fn unusable(node: &Node, container: Option<&str>) -> Option<Finding> {
    let path = &node.path;
    let reason = node.reason.as_deref().unwrap_or("no reason given");
    let group = node.group.as_deref().unwrap_or("render");
    match node.access {
        Access::Usable | Access::Missing => None,
        Access::Denied => {
            let next = match container {
                Some(_) => format!("start the container with --device={path} --group-add {group}"),
                // If a node belongs to root's group, udev has not processed it.
                None if group == "root" => "let udev set the group: reinstall ROCm's udev rules, or reboot".to_owned(),
                None => format!("add yourself to its group, then log in again: sudo usermod -aG {group} $USER"),
            };
            Some((Code::NoPermission, format!("this user may not open {path} (group {group}): {reason}"), next))
        }
        Access::Failed => {
            let next = "see why with `sudo dmesg | grep -i amdgpu`".to_owned();
            Some((Code::NoDeviceNode, format!("{path} cannot be opened: {reason}"), next))
        }
    }
}

fn hidden(findings: &Findings) -> Option<Finding> {
    let (name, value) = HIDING.iter().find_map(|&name| findings.environment.set(name).map(|value| (name, value)))?;
    let summary = format!("the HIP runtime finds no device while {name} is set to {value:?}");
    Some((Code::DevicesHidden, summary, format!("unset {name} and try again")))
}

fn software_problem(findings: &Findings) -> Option<Finding> {
    let libraries = &findings.onnxruntime.libraries;
    let install = format!("install a supported one: pip install -U 'onnxruntime>=1.{MIN_API_VERSION}'");
    if !libraries.iter().any(|library| library.api_version.is_some()) {
        let too_old = libraries.iter().find(|library| library.support == Support::TooOld);
        return Some(match (too_old, libraries.first()) {
            (Some(library), _) => {
                let version = version(library);
                let summary = format!("ONNX Runtime {version} is too old: 1.{MIN_API_VERSION} or newer is needed");
                (Code::OnnxruntimeTooOld, summary, install)
            }
            (None, Some(library)) => {
                let reason = library.reason.as_deref().map_or("no reason given", first_line);
                (Code::OnnxruntimeBroken, format!("{} cannot be used: {reason}", library.path), install)
            }
            (None, None) => {
                let next = format!("{install}, or set ORT_DYLIB_PATH to its library");
                (Code::NoOnnxruntime, "no ONNX Runtime was found".to_owned(), next)
            }
        });
    }
    match (&findings.plugin.path, &findings.plugin.error) {
        (None, _) => Some((
            Code::NoPlugin,
            format!("{} was not found near this command", dylib::file_name("amdgpu-ep")),
            format!(
                "keep bin/ and lib/ of an installation together, or set AMDGPU_EP_PATH to {}",
                dylib::file_name("amdgpu-ep")
            ),
        )),
        (Some(path), Some(error)) => Some((
            Code::PluginBroken,
            format!("{path} cannot be used: {}", first_line(error)),
            "install amdgpu-ep again".to_owned(),
        )),
        (Some(_), None) => None,
    }
}

fn version(library: &Library) -> &str {
    library.version.as_deref().unwrap_or("of unknown version")
}

fn working(findings: &Findings, wanted: &str) -> Finding {
    let driver = findings.drivers.iter().find(|driver| driver.kind == wanted);
    let devices: Vec<String> = driver
        .into_iter()
        .flat_map(|driver| &driver.found.devices)
        .map(|device| format!("{} ({})", device.name, device.arch))
        .collect();
    let devices = devices.join(", ");
    let runtimes: Vec<&str> =
        findings.onnxruntime.libraries.iter().filter(|library| library.api_version.is_some()).map(version).collect();
    let runtimes = runtimes.join(", ");
    if wanted == "amd" {
        let summary = format!("ready: {devices} with ONNX Runtime {runtimes}");
        let path = findings.plugin.path.as_deref().unwrap_or_default();
        let next =
            format!("in Python: ort.register_execution_provider_library(\"AMDGPUExecutionProvider\", \"{path}\")");
        return (Code::Ready, summary, next);
    }
    let summary = format!("AMDGPU_EP_DRIVER={wanted}: sessions use {devices} with ONNX Runtime {runtimes}, no AMD GPU");
    let next = if has_device(findings, "amd") {
        "unset AMDGPU_EP_DRIVER to use the AMD GPU"
    } else {
        "nothing, unless you expect an AMD GPU: `AMDGPU_EP_DRIVER=amd amdgpu-ep doctor` says why there is none"
    };
    (Code::OtherDriver, summary, next.to_owned())
}

fn has_device(findings: &Findings, kind: &str) -> bool {
    findings.drivers.iter().any(|driver| driver.kind == kind && !driver.found.devices.is_empty())
}

fn notes(findings: &Findings, code: Code, wanted: &str) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(findings.environment.driver_error.as_deref().map(|error| error.replace("\n  help: ", "; ")));
    notes
        .extend(findings.environment.unknown().map(|name| format!("{name} is set, but this version does not read it")));
    let level = findings.environment.set("AMDGPU_EP_LOG").map(str::trim).filter(|level| !level.is_empty());
    if let Some(level) = level.filter(|level| !LOG_LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))) {
        notes.push(format!("AMDGPU_EP_LOG is ignored: it is {level:?}, expected one of {}", LOG_LEVELS.join(", ")));
    }
    for driver in &findings.drivers {
        let detail =
            driver.probe_detail.as_deref().filter(|_| driver.kind != wanted || driver.probe == Outcome::Answered);
        notes.extend(detail.map(|detail| format!("{} driver: {detail}", driver.kind)));
    }
    for library in &findings.onnxruntime.libraries {
        match library.support {
            Support::Supported => {}
            Support::Newer => notes.push(format!(
                "ONNX Runtime {} is newer than this build knows; it is used at API version {MAX_API_VERSION}",
                version(library)
            )),
            Support::TooOld if code != Code::OnnxruntimeTooOld => {
                notes.push(format!("{} is ONNX Runtime {}: too old", library.path, version(library)));
            }
            Support::Broken if code != Code::OnnxruntimeBroken => {
                let reason = library.reason.as_deref().map_or("no reason given", first_line);
                notes.push(format!("{} cannot be used: {reason}", library.path));
            }
            Support::TooOld | Support::Broken => {}
        }
    }
    for library in findings.rocm.iter().filter(|library| library.is_foreign) {
        let path = library.path.as_deref().unwrap_or_default();
        notes.push(format!("{} comes from a different ROCm installation than the HIP runtime: {path}", library.name));
    }
    for iree in findings.hipdnn.iter().filter_map(|library| library.iree_compile.as_ref()) {
        if iree.path.is_none() {
            notes.push(format!("{} needs iree-compile, which is not on PATH", iree.needed_by));
        }
    }
    if matches!(code, Code::Ready | Code::OtherDriver) && findings.plugin.backends.is_empty() {
        notes.push("no backend is installed: ONNX Runtime runs every node on the CPU".to_owned());
    }
    if let Some(path) = findings.cache.path.as_ref().filter(|_| !findings.cache.writable) {
        notes.push(format!("the cache folder {path} cannot be written"));
    }
    let gpu_is_missing = wanted == "amd" && !has_device(findings, "amd");
    if gpu_is_missing && has_device(findings, "host") && software_problem(findings).is_none() {
        notes.push("the host device can be used: set AMDGPU_EP_DRIVER=host".to_owned());
    }
    if gpu_is_missing {
        notes.extend(software_problem(findings).map(|(_, summary, _)| summary));
    }
    notes
}

#[cfg(test)]
pub(super) mod tests;
