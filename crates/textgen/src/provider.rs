//! Selects the provider: the plugin library, or AMD's provider inside ONNX Runtime, or the CPU.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use options::{Options, Origin, Profile};
use ort_client::{Hardware, Registration, Session, SessionOptions};

use crate::config::{DeviceFilter, ProviderRequest};
use crate::error::Doing;
use crate::{Error, Result, Runtime, ffi, files};

/// The name of our provider in ONNX Runtime.
pub const AMDGPU: &str = "AMDGPUExecutionProvider";

/// The name of AMD's provider in ONNX Runtime builds that include it.
const LEGACY: &str = "MIGraphX";

/// The backend that compiles every shape.
const MIGRAPHX: &str = "migraphx";

/// Names the plugin library when the caller does not.
const PATH_VARIABLE: &str = "AMDGPU_EP_PATH";

/// A provider that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// AMD GPUs.
    Amdgpu,
    /// ONNX Runtime's CPU provider.
    Cpu,
}

/// Parses a provider name, ignoring case and an `ExecutionProvider` suffix.
pub fn normalise(name: &str) -> Option<Name> {
    let lower = name.to_ascii_lowercase();
    match lower.strip_suffix("executionprovider").unwrap_or(&lower) {
        "amdgpu" | "amdgpuexecutionprovider" => Some(Name::Amdgpu),
        "cpu" => Some(Name::Cpu),
        _ => None,
    }
}

/// The provider that a session runs on.
#[derive(Clone, Debug, PartialEq)]
pub enum Attached {
    /// Our provider, from its plugin library.
    Plugin {
        /// The driver that its devices report, such as `amd` or `host`.
        driver: Option<String>,
        /// The backend that took the session, such as `hip` or `migraphx`; `None` if none did or the library does not
        /// report it.
        backend: Option<String>,
    },
    /// AMD's provider inside this ONNX Runtime.
    Legacy,
    /// The CPU.
    Cpu,
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attached::Plugin { driver: Some(driver), .. } => write!(f, "{AMDGPU} (driver {driver})"),
            Attached::Plugin { driver: None, .. } => f.write_str(AMDGPU),
            Attached::Legacy => f.write_str(LEGACY),
            Attached::Cpu => f.write_str("CPUExecutionProvider"),
        }
    }
}

/// Whether the provider compiles every new shape, which may take minutes. Prompts are then padded to the longest
/// sequence, masks have the same width, and caches are not shortened, so that there is one program for prompts and one
/// for steps.
pub(crate) fn needs_static_shapes(attached: &Attached) -> bool {
    match attached {
        Attached::Plugin { backend, .. } => backend.as_deref() == Some(MIGRAPHX),
        Attached::Legacy => true,
        Attached::Cpu => false,
    }
}

/// A session, its provider, and notices about providers that were not available.
#[derive(Debug)]
pub struct Opened {
    /// The session.
    pub session: Session,
    /// The provider that it runs on.
    pub attached: Attached,
    /// Why it does not run on the requested provider; meant for stderr.
    pub notices: Vec<String>,
}

/// Creates a session of any ONNX model, on the provider that a language model would run on.
///
/// # Errors
/// When the file is not a model, when an option is wrong, when creating a session on an available device fails, or when
/// a GPU, profile or backend library that the caller named is not available.
pub fn open_session(runtime: &Runtime, request: Option<&ProviderRequest>, model: &Path) -> Result<Opened> {
    files::open_regular(model).map_err(|source| Error::File {
        path: model.to_path_buf(),
        source,
        help: "name an .onnx file".to_owned(),
    })?;
    let settings = || SessionOptions::new(runtime.environment()).doing("creating session options");
    open(runtime, request, &[], model, settings)
}

/// Creates a session on the plugin's provider, or on AMD's provider inside ONNX Runtime, or on the CPU. `settings`
/// makes the session's own settings; `entries` are hints about the model for the provider.
///
/// # Errors
/// When an option is wrong, when creating a session on an available device fails, or when a GPU, profile or backend
/// library that the caller named is not available.
pub(crate) fn open(
    runtime: &Runtime,
    request: Option<&ProviderRequest>,
    entries: &[(String, String)],
    model: &Path,
    settings: impl Fn() -> Result<SessionOptions>,
) -> Result<Opened> {
    let cpu = || Session::from_file(&settings()?, model).doing("loading the model on the CPU");
    let Some(request) = request else {
        return Ok(Opened { session: cpu()?, attached: Attached::Cpu, notices: Vec::new() });
    };
    // A misspelled option is an error even on machines without a GPU.
    let named = Named::of(&checked_options(&request.options, entries)?);
    let mut reasons = Vec::new();
    match by_plugin(runtime, request, entries, &settings, |settings| Session::from_file(settings, model)) {
        Ok((session, attached)) => return Ok(Opened { session, attached, notices: Vec::new() }),
        Err(AttachError::Unavailable(reason)) => reasons.push(format!("plugin: {}", reason.trim())),
        Err(AttachError::Failed(error)) => return Err(error),
    }
    if named.may_be_legacy() {
        match by_legacy_name(request, model, &settings) {
            Ok(session) => {
                let notice = format!("{AMDGPU} is not available ({}); using {LEGACY}", reasons.join("; "));
                return Ok(Opened { session, attached: Attached::Legacy, notices: vec![notice] });
            }
            Err(reason) => reasons.push(format!("{LEGACY}: {}", reason.trim())),
        }
    }
    let reasons = reasons.join("; ");
    if request.require_gpu {
        return Err(Error::Provider {
            problem: format!("no usable AMD GPU. Reason: {reasons}"),
            help: "run `amdgpu-ep doctor` to find out why, or remove the GPU requirement to run on the CPU".to_owned(),
        });
    }
    if let Some(what) = named.what() {
        return Err(Error::Provider {
            problem: format!("{what} cannot be used: no usable AMD GPU. Reason: {reasons}"),
            help: "run `amdgpu-ep doctor` to find out why, or use profile=auto to allow the CPU".to_owned(),
        });
    }
    let session = cpu()?;
    let notice = format!("no usable AMD GPU; running on the CPU. Reason: {reasons}");
    Ok(Opened { session, attached: Attached::Cpu, notices: vec![notice] })
}

/// Creates a session of a model in memory on the plugin's provider, for work beside another model.
///
/// # Errors
/// When the provider is not available or rejects the model. The reason is for the log.
pub(crate) fn open_beside(
    runtime: &Runtime,
    request: &ProviderRequest,
    entries: &[(String, String)],
    model: &[u8],
) -> Result<(Session, Attached), String> {
    let settings = || {
        let mut settings = SessionOptions::new(runtime.environment()).doing("creating session options")?;
        // The device does the work.
        settings.intra_threads(1).doing("creating session options")?;
        Ok(settings)
    };
    by_plugin(runtime, request, entries, settings, |settings| Session::from_bytes(settings, model)).map_err(|error| {
        match error {
            AttachError::Unavailable(reason) => reason,
            AttachError::Failed(error) => error.to_string(),
        }
    })
}

/// The backend that the caller named. The CPU may run the model instead only if none is named.
#[derive(Clone, Debug, PartialEq)]
enum Named {
    Nothing,
    Profile(Profile),
    Library(PathBuf),
}

impl Named {
    fn of(options: &Options) -> Named {
        match (&options.backend_library, options.profile) {
            (Some(library), _) => Named::Library(library.clone()),
            (None, Profile::Auto) => Named::Nothing,
            (None, profile) => Named::Profile(profile),
        }
    }

    /// Whether AMD's provider inside ONNX Runtime, which is MIGraphX, satisfies the request.
    fn may_be_legacy(&self) -> bool {
        matches!(self, Named::Nothing | Named::Profile(Profile::Migraphx | Profile::Optimized))
    }

    fn what(&self) -> Option<String> {
        match self {
            Named::Nothing => None,
            Named::Profile(profile) => Some(format!("profile {profile}")),
            Named::Library(library) => Some(format!("backend_library {}", library.display())),
        }
    }
}

/// Why there is no session on the plugin's provider.
enum AttachError {
    /// There is no library or no device, so another provider may run the model. The reason is for the user.
    Unavailable(String),
    /// It is available but failed; running elsewhere would hide the failure.
    Failed(Error),
}

impl From<Error> for AttachError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Parses the options of the provider and its backends the same way as the provider.
fn checked_options(options: &[(String, String)], entries: &[(String, String)]) -> Result<Options> {
    let prefixed: Vec<(String, &str)> = options
        .iter()
        .map(|(key, value)| (format!("ep.{}.{key}", AMDGPU.to_ascii_lowercase()), value.as_str()))
        .collect();
    let given = prefixed.iter().map(|(key, value)| (key.as_str(), *value));
    let entries = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let checked = Options::parse(AMDGPU, Origin::Trusted, given.chain(entries));
    checked.map(|(options, _)| options).map_err(|error| {
        let text = error.to_string();
        let (problem, help) = text.split_once("\n  help: ").unwrap_or((&text, "docs/options.md lists the options"));
        Error::request(problem, help)
    })
}

fn by_plugin(
    runtime: &Runtime,
    request: &ProviderRequest,
    entries: &[(String, String)],
    settings: impl Fn() -> Result<SessionOptions>,
    load: impl FnOnce(&mut SessionOptions) -> ort_client::Result<Session>,
) -> Result<(Session, Attached), AttachError> {
    let Some(registration) = register(runtime, request)? else {
        return Err(AttachError::Unavailable("it is registered but offers no device".to_owned()));
    };
    let doing = "loading the model on AMDGPUExecutionProvider";
    let mut devices = registration.devices().doing(doing)?;
    let offered = devices.len();
    devices.retain(|device| is_wanted(&device.hardware(), &request.filter));
    let Some(first) = devices.first() else {
        return Err(AttachError::Unavailable(format!("none of its {offered} devices matches the filter")));
    };
    let driver = first.fact("driver").map(str::to_owned);
    let library = first.fact("library_path").map(PathBuf::from);
    if request.require_gpu && driver.as_deref() == Some("host") {
        let reason = "its only device is the host device (AMDGPU_EP_DRIVER=host)";
        return Err(AttachError::Unavailable(reason.to_owned()));
    }
    let mut settings = settings()?;
    for (key, value) in entries {
        settings.config(key, value).doing(doing)?;
    }
    settings.devices(&devices, &request.options).doing(doing)?;
    let session = load(&mut settings).doing(doing)?;
    let backend = library.as_deref().and_then(ffi::last_backend);
    Ok((session, Attached::Plugin { driver, backend }))
}

fn by_legacy_name(
    request: &ProviderRequest,
    model: &Path,
    settings: impl Fn() -> Result<SessionOptions>,
) -> Result<Session, String> {
    let mut settings = settings().map_err(|error| error.to_string())?;
    // This provider has no profiles, and rejects unknown options.
    let options: Vec<_> = request.options.iter().filter(|(key, _)| key != "profile").cloned().collect();
    settings.provider(LEGACY, &options).map_err(|error| error.message().into_owned())?;
    Session::from_file(&settings, model).map_err(|error| error.message().into_owned())
}

/// Registers the plugin library, unless it is registered already; `None` if it offers no device. Its options come from
/// the caller: those that a model folder may not set were removed when the configuration was read.
fn register(runtime: &Runtime, request: &ProviderRequest) -> Result<Option<Registration>, AttachError> {
    // ONNX Runtime rejects a second registration, so only one thread may check and register at a time.
    static REGISTERING: Mutex<()> = Mutex::new(());
    let _registering = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(registration) = runtime.provider(AMDGPU)? {
        return Ok(Some(registration));
    }
    let named = std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let Some(library) = request.library.clone().or(named) else {
        return Err(AttachError::Unavailable(format!("no library was given, and {PATH_VARIABLE} is not set")));
    };
    let library = regular_file(&library)?;
    ffi::with_trusted_options(&library, || runtime.register(AMDGPU, &library))?;
    Ok(runtime.provider(AMDGPU)?)
}

/// The absolute path of the library. The user named it, so a wrong path is an error.
fn regular_file(library: &Path) -> Result<PathBuf> {
    let help = || format!("name {DLL_PREFIX}amdgpu-ep{DLL_SUFFIX}, or unset {PATH_VARIABLE} to run without it");
    let whole = dunce::canonicalize(library).map_err(|source| Error::File {
        path: library.to_path_buf(),
        source,
        help: help(),
    })?;
    if !whole.is_file() {
        let problem = format!("{} is not a file", library.display());
        return Err(Error::Provider { problem, help: help() });
    }
    Ok(whole)
}

fn is_wanted(device: &Hardware, filter: &DeviceFilter) -> bool {
    filter.kind.is_none_or(|kind| Some(kind) == device.kind)
        && filter.vendor_id.is_none_or(|id| id == device.vendor_id)
        && filter.device_id.is_none_or(|id| id == device.device_id)
}

#[cfg(test)]
mod tests {
    use ort_client::HardwareKind;

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
    fn a_backend_is_named_by_its_profile_or_its_library() {
        let named =
            |key: &str, value: &str| Named::of(&checked_options(&[(key.to_owned(), value.to_owned())], &[]).unwrap());
        for (profile, legacy) in [("migraphx", true), ("optimize", true), ("hip", false), ("eager", false)] {
            let named = named("profile", profile);
            assert_eq!(named.what(), Some(format!("profile {profile}")));
            assert_eq!(named.may_be_legacy(), legacy, "{profile}");
        }
        assert_eq!(named("profile", "auto"), Named::Nothing);
        assert!(Named::Nothing.may_be_legacy());
        let library = named("backend_library", "/lib/libother.so");
        assert_eq!(
            (library.what().unwrap().as_str(), library.may_be_legacy()),
            ("backend_library /lib/libother.so", false)
        );
    }

    #[test]
    fn only_migraphx_compiles_every_shape() {
        let on = |backend: Option<&str>| {
            needs_static_shapes(&Attached::Plugin { driver: None, backend: backend.map(str::to_owned) })
        };
        assert!(on(Some("migraphx")) && needs_static_shapes(&Attached::Legacy));
        assert!(!on(Some("hip")) && !on(None) && !needs_static_shapes(&Attached::Cpu));
    }

    #[test]
    fn a_filter_chooses_by_everything_it_names() {
        let device = Hardware { kind: Some(HardwareKind::Gpu), vendor_id: 0x1002, device_id: 7 };
        let all = DeviceFilter::default();
        assert!(is_wanted(&device, &all));
        assert!(is_wanted(&device, &DeviceFilter { kind: Some(HardwareKind::Gpu), device_id: Some(7), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { kind: Some(HardwareKind::Cpu), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { vendor_id: Some(0x10de), ..all.clone() }));
        assert!(!is_wanted(&device, &DeviceFilter { device_id: Some(8), ..all }));
    }
}
