//! The model, ONNX Runtime, provider and devices that a command works with.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use ort_client::{Assigned, Device, Environment, Session};
use serde::Serialize;

use crate::doctor;
use crate::ort::{self, SessionSettings, message};

/// The name under which the provider is registered.
pub const PROVIDER: &str = "AMDGPUExecutionProvider";

const DRIVER: &str = "AMDGPU_EP_DRIVER";

/// What every command on a model takes.
#[derive(Args, Clone, Debug)]
pub struct TargetArguments {
    /// The model, an .onnx file
    pub model: PathBuf,
    /// ONNX Runtime library [default: ORT_DYLIB_PATH, or the first that `doctor` finds]
    #[arg(long, value_name = "PATH")]
    pub ort: Option<PathBuf>,
    /// Provider library [default: AMDGPU_EP_PATH, or libamdgpu-ep beside this command or in ../lib]
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Which backend to use: auto, hip, migraphx, hipgpu, directx, eager or optimize
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// A provider option; a key with a dot is a session-config entry, such as session.disable_prepacking
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = option)]
    pub options: Vec<(String, String)>,
    /// Print one JSON document (described in docs/cli.md) instead of text
    #[arg(long)]
    pub json: bool,
}

/// Parses `KEY=VALUE`.
pub fn option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=').filter(|(key, _)| !key.is_empty()) {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("expected KEY=VALUE, found {text:?}")),
    }
}

/// The model, libraries and devices in use, for reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// The model.
    pub model: String,
    /// The ONNX Runtime library.
    pub onnxruntime: String,
    /// The version.
    pub onnxruntime_version: String,
    /// The provider's library.
    pub library: String,
    /// The driver of the devices.
    pub driver: String,
    /// The architectures of the devices.
    pub archs: Vec<String>,
}

/// Where the nodes of a session were placed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// Nodes on the device.
    pub device_nodes: usize,
    /// All nodes.
    pub total_nodes: usize,
    /// Partitions on the device.
    pub partitions: usize,
}

impl Placed {
    /// Counts the nodes of an assignment.
    pub fn count(assignment: &[Assigned]) -> Placed {
        let ours = || assignment.iter().filter(|part| part.provider == PROVIDER);
        Placed {
            device_nodes: ours().map(|part| part.nodes.len()).sum(),
            total_nodes: assignment.iter().map(|part| part.nodes.len()).sum(),
            partitions: ours().count(),
        }
    }

    /// For example `12 of 14 nodes (86 %) in 2 partitions`.
    pub fn text(&self) -> String {
        let Placed { device_nodes, total_nodes, partitions } = *self;
        let share = (device_nodes * 100 + total_nodes / 2).checked_div(total_nodes).unwrap_or(0);
        let plural = if partitions == 1 { "" } else { "s" };
        format!("{device_nodes} of {total_nodes} nodes ({share} %) in {partitions} partition{plural}")
    }
}

/// Whether the model contains compiled parts.
pub fn is_compiled(assignment: &[Assigned]) -> bool {
    assignment.iter().flat_map(|part| &part.nodes).any(|node| node.op == "EPContext" && node.domain == "com.microsoft")
}

/// The model that a compiled one was made from.
#[derive(Args, Clone, Debug)]
pub struct SourceArguments {
    /// The model that this one was compiled from, for the CPU provider
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
}

impl SourceArguments {
    /// The model for the CPU provider; `None` means the model itself.
    ///
    /// # Errors
    /// When the model is compiled and no source is named: only the provider that compiled a model can run it.
    pub fn for_cpu(&self, assignment: &[Assigned]) -> Result<Option<&Path>> {
        if self.source.is_none() && is_compiled(assignment) {
            bail!(
                "the model is compiled, and the CPU provider cannot run compiled models\n  help: name the model that it was compiled from with --source"
            );
        }
        Ok(self.source.as_deref())
    }
}

/// The opened environment, devices and model.
pub struct Target {
    environment: Environment,
    devices: Vec<Device>,
    model: PathBuf,
    options: Vec<(String, String)>,
    config: Vec<(String, String)>,
    /// A description for reports.
    pub place: Setup,
}

/// The result of opening.
pub enum Opened {
    /// Everything is available.
    Ready(Box<Target>),
    /// There is no AMD GPU: the command ran in another process on the host device, with this exit code.
    Elsewhere(u8),
}

/// Opens everything. If no driver is named and there is no AMD GPU, the whole command runs again on the host device.
///
/// # Errors
/// When the model, ONNX Runtime, the provider or a device is missing or fails.
pub fn open(arguments: &TargetArguments) -> Result<Opened> {
    check_model(&arguments.model)?;
    let chosen = doctor::onnxruntime_library(arguments.ort.as_deref())?;
    let onnxruntime = &chosen.path;
    let library = match &arguments.library {
        Some(path) => path.clone(),
        None => doctor::plugin_library()?,
    };
    // ONNX Runtime resolves relative paths against its own folder.
    let library = dunce::canonicalize(&library).with_context(|| format!("{} does not exist", library.display()))?;
    let environment = ort::environment(onnxruntime)?;
    let devices = ort::devices(&environment, PROVIDER, &library)?;
    if devices.is_empty() {
        if let Some(driver) = std::env::var_os(DRIVER).filter(|driver| !driver.is_empty()) {
            let driver = driver.to_string_lossy();
            bail!("there is no device with {DRIVER}={driver}\n  help: amdgpu-ep doctor says why");
        }
        drop(environment);
        return again(onnxruntime, &library).map(Opened::Elsewhere);
    }
    chosen.announce();
    let archs: BTreeSet<&str> = devices.iter().filter_map(|device| device.fact("arch")).collect();
    let place = Setup {
        model: arguments.model.display().to_string(),
        onnxruntime: onnxruntime.display().to_string(),
        onnxruntime_version: environment.runtime().version().to_owned(),
        library: library.display().to_string(),
        driver: devices[0].fact("driver").unwrap_or("unknown").to_owned(),
        archs: archs.into_iter().map(str::to_owned).collect(),
    };
    let profile = arguments.profile.iter().map(|profile| ("profile".to_owned(), profile.clone()));
    let (config, options) =
        profile.chain(arguments.options.iter().cloned()).partition(|(key, _): &(String, String)| key.contains('.'));
    Ok(Opened::Ready(Box::new(Target { environment, devices, model: arguments.model.clone(), options, config, place })))
}

/// Rejects files on which ONNX Runtime would block: a pipe as the model, or as a weights file named after it.
fn check_model(model: &Path) -> Result<()> {
    if let Err(error) = textgen::open_regular(model) {
        bail!("the model {} could not be opened: {error}\n  help: name an .onnx file", model.display());
    }
    let folder = model.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = model.file_stem().unwrap_or_default().to_string_lossy();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_named_so = entry.file_name().to_string_lossy().starts_with(&*name);
        let found = std::fs::metadata(entry.path());
        if is_named_so && found.is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            let path = entry.path();
            bail!("{} is a pipe, a socket or a device, not a file of the model\n  help: remove it", path.display());
        }
    }
    Ok(())
}

/// Runs this command again on the host device, because a process can choose its driver only once.
fn again(onnxruntime: &Path, library: &Path) -> Result<u8> {
    // If stderr is closed, there is no one to tell.
    let _ = writeln!(
        io::stderr(),
        "note: no AMD GPU was found here (amdgpu-ep doctor says why): continuing on the host device ({DRIVER}=host)"
    );
    let executable = std::env::current_exe().context("the path of this executable could not be found")?;
    let mut command = Command::new(executable);
    command.args(std::env::args_os().skip(1)).env(DRIVER, "host");
    // The new process need not search for them again.
    command.env("ORT_DYLIB_PATH", onnxruntime).env("AMDGPU_EP_PATH", library);
    let failed = "this command could not be started again for the host device";
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;

        // Returns only on failure.
        Err(command.exec()).context(failed)
    }
    #[cfg(not(unix))]
    {
        let code = command.status().context(failed)?.code();
        Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::FAILED))
    }
}

impl Target {
    /// The environment in which values are created.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// A session with the provider first.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    pub fn session(&self, config: &[(&str, &str)], threads: Option<u16>) -> Result<Session> {
        self.session_of(&self.model, config, threads, &[])
    }

    /// A session of `model` with the provider first, and the extents in `dims` fixed.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    pub fn session_of(
        &self,
        model: &Path,
        config: &[(&str, &str)],
        threads: Option<u16>,
        dims: &[(String, usize)],
    ) -> Result<Session> {
        let mut entries = self.config(config);
        entries.push(("session.record_ep_graph_assignment_info".to_owned(), "1".to_owned()));
        let (devices, options) = (&*self.devices, &*self.options);
        self.load(model, &SessionSettings { devices, options, config: entries, threads, dims })
    }

    /// A session on the CPU provider only, for the model or its `source`.
    ///
    /// # Errors
    /// When the model cannot be loaded.
    pub fn cpu_session(&self, source: Option<&Path>, config: &[(&str, &str)], threads: Option<u16>) -> Result<Session> {
        let settings = SessionSettings { config: self.config(config), threads, ..SessionSettings::default() };
        self.load(source.unwrap_or(&self.model), &settings).context("on the CPU provider alone")
    }

    fn config(&self, more: &[(&str, &str)]) -> Vec<(String, String)> {
        let more = more.iter().map(|&(key, value)| (key.to_owned(), value.to_owned()));
        more.chain(self.config.iter().cloned()).collect()
    }

    fn load(&self, model: &Path, settings: &SessionSettings<'_>) -> Result<Session> {
        check_model(model)?;
        settings.open(&self.environment, model).map_err(|error| refused(model, error))
    }
}

/// The error for a session that could not be created. If the provider rejected its options, the model is not to blame.
fn refused(model: &Path, error: anyhow::Error) -> anyhow::Error {
    let text = error.to_string();
    if let Some(refusal) = message::refusal(&text) {
        return anyhow!("{refusal}");
    }
    // ONNX Runtime asks the provider whether it supports a compiled model, and reports nothing but yes or no.
    let error = if text.contains("Compiled model is not supported") {
        anyhow!(
            "{error}: it was compiled for another device, or by another version of the backend\n  help: compile its source again on this machine"
        )
    } else {
        error
    };
    error.context(format!("the model {} could not be loaded", model.display()))
}

impl Setup {
    /// For example `ONNX Runtime 1.31.1, driver host (host)`.
    pub fn text(&self) -> String {
        format!("ONNX Runtime {}, driver {} ({})", self.onnxruntime_version, self.driver, self.archs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ort_client::AssignedNode;

    #[test]
    fn nodes_are_counted_by_provider() {
        let node = |op: &str| AssignedNode { name: String::new(), domain: String::new(), op: op.into() };
        let parts = [
            Assigned { provider: PROVIDER.into(), nodes: vec![node("Relu"), node("Add")] },
            Assigned { provider: "CPUExecutionProvider".into(), nodes: vec![node("Det")] },
        ];
        let placed = Placed::count(&parts);
        assert_eq!(placed, Placed { device_nodes: 2, total_nodes: 3, partitions: 1 });
        assert_eq!(placed.text(), "2 of 3 nodes (67 %) in 1 partition");
        assert_eq!(Placed::count(&[]).text(), "0 of 0 nodes (0 %) in 0 partitions");
    }

    #[test]
    fn options_are_pairs() {
        assert_eq!(option("device_id=1"), Ok(("device_id".to_owned(), "1".to_owned())));
        assert_eq!(option("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(option("device_id").is_err() && option("=1").is_err());
    }
}
