//! The environment variables that have an effect, and the driver that a session uses because of them.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use hip::DriverKind;
use serde::Serialize;

/// A copy of the environment, which tests can replace.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// This process's environment.
    pub fn from_process() -> Environment {
        Environment(env::vars_os().collect())
    }

    /// A variable, even if it is empty.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// A variable that is not empty.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// A variable that is not empty, as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.value(name).map(PathBuf::from)
    }

    /// The entries of a list such as `PATH`.
    pub fn paths(&self, name: &str) -> Vec<PathBuf> {
        let list = self.value(name).map(|list| env::split_paths(list).collect::<Vec<_>>());
        list.unwrap_or_default().into_iter().filter(|part| !part.as_os_str().is_empty()).collect()
    }

    /// The program with this name in the folders of `PATH`. Relative entries are skipped: they depend on the current
    /// folder, which is not where users install programs.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}{}", env::consts::EXE_SUFFIX);
        let folders = self.paths("PATH").into_iter().filter(|folder| folder.is_absolute());
        folders.map(|folder| folder.join(&file)).find(|path| path.is_file())
    }
}

impl<K: Into<OsString>, V: Into<OsString>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Environment {
        Environment(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The variables, and what they select.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Settings {
    /// The driver that a session uses: `amd`, `nvidia` or `host`.
    pub session_driver: &'static str,
    /// Why `AMDGPU_EP_DRIVER` is ignored.
    pub driver_error: Option<String>,
    /// Every variable that has an effect, and all others with our prefix.
    pub variables: Vec<Variable>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The value, if it is set.
    pub value: Option<String>,
    /// What it does; absent if it is unknown.
    pub about: Option<&'static str>,
}

const OUR_PREFIX: &str = "AMDGPU_EP_";

/// The prefix of variables for the MIGraphX provider inside ONNX Runtime, which the migraphx backend reads too.
const MIGRAPHX_PREFIX: &str = "ORT_MIGRAPHX_";

/// Variables that hide devices from the HIP runtime.
pub const HIDING: [&str; 4] =
    ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"];

const KNOWN: [(&str, &str); 43] = [
    ("AMDGPU_EP_DRIVER", "auto or amd (AMD GPUs), nvidia (the CUDA twin), host (RAM and CPU)"),
    ("AMDGPU_EP_LOG", "error, warn, info, debug, trace or off: level of the log on stderr, or in AMDGPU_EP_LOG_FILE"),
    (
        "AMDGPU_EP_LOG_FILE",
        "append the log to this file instead of stderr; the level is info unless AMDGPU_EP_LOG is set",
    ),
    ("AMDGPU_EP_TRUST_OPTIONS", "1: session options may load libraries and name files (docs/security.md)"),
    ("AMDGPU_EP_CACHE_DIR", "folder for the caches of compiled kernels, measurements, programs and plans"),
    ("AMDGPU_EP_KERNEL_PATH", "folders with precompiled kernels"),
    ("AMDGPU_EP_BACKEND_PATH", "additional folders to search for backends"),
    ("AMDGPU_EP_FORCE_ARCH", "architecture for routing sessions, instead of the device's own"),
    ("AMDGPU_EP_HIPGPU_LIBRARY", "AMD's libhipgpu, behind profile=hipgpu"),
    ("AMDGPU_EP_DIRECTX_LIBRARY", "the plugin behind profile=directx, on Windows"),
    ("AMDGPU_EP_PATH", "where ONNX Runtime GenAI finds this library (amdgpu-ep)"),
    ("AMDGPU_EP_HIP_LIBRARY", "the only HIP runtime to try"),
    ("AMDGPU_EP_MIGRAPHX_LIBRARY", "the only MIGraphX C library to try"),
    ("AMDGPU_EP_MIGRAPHX_TARGET", "MIGraphX's target, gpu or ref; overrides the session's"),
    ("AMDGPU_EP_HIPDNN_LIBRARY", "the only hipDNN backend library to try"),
    ("HIPDNN_BACKEND_LIBRARY_PATH", "the folder of the hipDNN backend library"),
    ("FUSILLI_EXTERNAL_IREE_COMPILE", "the iree-compile that hipDNN's plugin Fusilli runs, instead of the one on PATH"),
    ("AMDGPU_EP_HIPDNN_HOST_LACKS", "functions that our hipDNN library on the CPU hides, for tests"),
    ("AMDGPU_EP_HIP_HOST_LIBRARY", "the only host driver to try"),
    ("AMDGPU_EP_CUDA_LIBRARY_PATH", "folders to search first for CUDA libraries"),
    ("AMDGPU_EP_HOST_DEVICES", "number of host devices"),
    ("AMDGPU_EP_HOST_MEMORY", "memory of each host device"),
    ("AMDGPU_EP_HOST_STREAMS", "immediate or threads: how the host device runs work"),
    ("AMDGPU_EP_HOST_SEED", "seed for the host device's random delays"),
    ("AMDGPU_EP_HOST_POISON", "1: the host device checks for buffer overruns"),
    ("AMDGPU_EP_HOST_LACKS", "features that the host device hides, for tests"),
    ("AMDGPU_EP_HOST_CALLS", "log every call of the host driver to this file"),
    ("AMDGPU_EP_HOST_LOST", "while this file exists, all calls of the host driver fail, as if its devices were lost"),
    ("THEROCK_DIST", "where a TheRock build of ROCm is installed; searched first"),
    ("ROCM_PATH", "where ROCm is installed"),
    ("HIP_PATH", "where HIP is installed"),
    ("HIPBLASLT_TENSILE_LIBPATH", "the folder of hipBLASLt's kernels"),
    ("HIP_VISIBLE_DEVICES", "the only devices that HIP shows"),
    ("ROCR_VISIBLE_DEVICES", "the only devices that ROCm shows"),
    ("GPU_DEVICE_ORDINAL", "the only devices that the HIP runtime shows"),
    ("CUDA_VISIBLE_DEVICES", "the only devices that CUDA, and HIP too, shows"),
    ("HSA_OVERRIDE_GFX_VERSION", "makes ROCm treat the GPU as another architecture"),
    ("LD_LIBRARY_PATH", "folders that the loader searches first"),
    ("ORT_AMDGPU_TRACE_ROUTING", "1: one line in the log for each session and its backends"),
    ("ORT_DYLIB_PATH", "the ONNX Runtime library that the ort crate loads"),
    ("VIRTUAL_ENV", "the active Python environment"),
    ("CONDA_PREFIX", "the active conda environment"),
    ("XDG_CACHE_HOME", "the user's cache folder"),
];

impl Settings {
    /// Reads the relevant variables.
    pub fn read(environment: &Environment) -> Settings {
        let text = environment.raw("AMDGPU_EP_DRIVER").map(|value| value.to_string_lossy().into_owned());
        let (driver, driver_error) = match session_driver(text.as_deref()) {
            Ok(kind) => (kind, None),
            Err(error) => (DriverKind::Amd, Some(format!("AMDGPU_EP_DRIVER is ignored: {error}, or auto"))),
        };
        let known = KNOWN.iter().map(|&(name, about)| Variable {
            name: name.to_owned(),
            value: environment.raw(name).map(|value| value.to_string_lossy().into_owned()),
            about: Some(about),
        });
        let others = environment.0.iter().filter_map(|(name, value)| {
            let name = name.to_string_lossy();
            let about = match KNOWN.iter().any(|&(known, _)| known == name) {
                false if name.starts_with(MIGRAPHX_PREFIX) => Some("an option of the migraphx backend"),
                false if name.starts_with(OUR_PREFIX) => None,
                _ => return None,
            };
            let value = Some(value.to_string_lossy().into_owned());
            Some(Variable { name: name.into_owned(), value, about })
        });
        Settings { session_driver: driver.name(), driver_error, variables: known.chain(others).collect() }
    }

    /// A variable that is set, even if it is empty.
    pub fn set(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|variable| variable.name == name)?.value.as_deref()
    }

    /// The variables with our prefix that are unknown.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().filter(|variable| variable.about.is_none()).map(|variable| variable.name.as_str())
    }
}

/// Parses `AMDGPU_EP_DRIVER` like the plugin: an unknown name is reported, and AMD is used.
fn session_driver(text: Option<&str>) -> Result<DriverKind, hip::UnknownDriver> {
    match text.map(str::trim) {
        None | Some("") => Ok(DriverKind::Amd),
        Some(text) if text.eq_ignore_ascii_case("auto") => Ok(DriverKind::Amd),
        Some(text) => text.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_variables_are_the_real_ones() {
        let mut text = String::from("| Variable | Meaning |\n|---|---|\n");
        for (name, about) in KNOWN {
            text += &format!("| `{name}` | {about} |\n");
        }
        testkit::generated::check("crates/cli/src/doctor/environment.md", &text).unwrap();
    }

    fn settings(variables: &[(&str, &str)]) -> Settings {
        Settings::read(&variables.iter().copied().collect())
    }

    #[test]
    fn driver_is_amd_unless_another_is_named() {
        for (value, want) in [("", "amd"), ("auto", "amd"), (" AUTO ", "amd"), ("Host", "host"), ("nvidia", "nvidia")] {
            let settings = settings(&[("AMDGPU_EP_DRIVER", value)]);
            assert_eq!((settings.session_driver, settings.driver_error), (want, None), "{value:?}");
        }
        assert_eq!(settings(&[]).session_driver, "amd");
    }

    #[test]
    fn unknown_driver_is_quoted_and_amd_is_used() {
        let settings = settings(&[("AMDGPU_EP_DRIVER", "vulkan")]);
        assert_eq!(settings.session_driver, "amd");
        let error = settings.driver_error.unwrap();
        assert!(error.contains("\"vulkan\"") && error.contains("host, or auto"), "{error}");
    }

    #[test]
    fn misspelt_variable_of_ours_is_found() {
        let settings = settings(&[("AMDGPU_EP_DRVIER", "host"), ("OTHER", "1"), ("AMDGPU_EP_LOG", "info")]);
        assert_eq!(settings.unknown().collect::<Vec<_>>(), ["AMDGPU_EP_DRVIER"]);
        assert_eq!(settings.set("AMDGPU_EP_LOG"), Some("info"));
        assert_eq!(settings.set("OTHER"), None);
    }

    #[test]
    fn options_of_migraphx_that_are_set_are_listed() {
        let settings = settings(&[("ORT_MIGRAPHX_FP16_ENABLE", "1")]);
        assert_eq!(settings.set("ORT_MIGRAPHX_FP16_ENABLE"), Some("1"));
        assert_eq!(settings.unknown().count(), 0);
    }

    #[test]
    fn empty_is_set_but_has_no_value() {
        let environment: Environment = [("HIP_VISIBLE_DEVICES", ""), ("LIST", "/a:/b:")].into_iter().collect();
        assert_eq!(Settings::read(&environment).set("HIP_VISIBLE_DEVICES"), Some(""));
        assert_eq!(environment.value("HIP_VISIBLE_DEVICES"), None);
        if cfg!(unix) {
            assert_eq!(environment.paths("LIST"), [PathBuf::from("/a"), PathBuf::from("/b")]);
        }
    }

    #[test]
    fn every_hiding_variable_is_reported() {
        assert!(HIDING.iter().all(|name| KNOWN.iter().any(|(known, _)| known == name)));
    }
}
