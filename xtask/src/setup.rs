//! The tests' Python environment: a virtual environment, and older ONNX Runtime versions beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{output, shell};

/// Versions the integration suite runs in, oldest first; the last one is the virtual environment's own.
pub const ORT_VERSIONS: [&str; 5] = ["1.24.4", "1.26.0", "1.28.0", "1.30.0", "1.31.1"];

/// The ONNX release whose node tests measure the engine: it matches the newest of [`ORT_VERSIONS`] best.
pub const ONNX_VERSION: &str = "1.22.0";

/// The finished environment.
pub struct Python {
    /// The interpreter of the virtual environment.
    pub interpreter: PathBuf,
    /// One entry for each of [`ORT_VERSIONS`].
    pub runtimes: Vec<Runtime>,
}

/// One ONNX Runtime version.
pub struct Runtime {
    pub version: &'static str,
    pub source: RuntimeSource,
}

/// Where a version is found.
pub enum RuntimeSource {
    /// Installed in the virtual environment.
    Environment,
    /// Unpacked in this folder, to be put on `PYTHONPATH`.
    Folder(PathBuf),
    /// Not available for this Python.
    Unavailable(String),
}

/// Creates the missing parts and returns the environment. Does nothing if it is complete.
///
/// # Errors
/// When Python is missing or too old, or when pip cannot install the requirements.
pub fn run(workspace: &Workspace) -> Result<Python> {
    let interpreter = interpreter(workspace)?;
    let runtimes = ORT_VERSIONS
        .iter()
        .map(|&version| Ok(Runtime { version, source: runtime(workspace, &interpreter, version)? }))
        .collect::<Result<Vec<_>>>()?;
    for runtime in &runtimes {
        if let RuntimeSource::Unavailable(reason) = &runtime.source {
            output::say(format_args!("onnxruntime {} skipped: {reason}", runtime.version));
        }
    }
    Ok(Python { interpreter, runtimes })
}

/// The interpreter of the virtual environment alone, without the other ONNX Runtime versions.
///
/// # Errors
/// As [`run`].
pub fn interpreter(workspace: &Workspace) -> Result<PathBuf> {
    environment(workspace, workspace.venv(), "requirements-dev.txt", "onnxruntime")
}

/// An environment of tools in `target/<folder>`, installed from `python/<requirements>`; importing `module` checks that
/// it works.
///
/// # Errors
/// As [`run`].
pub fn tools(workspace: &Workspace, folder: &str, requirements: &str, module: &str) -> Result<PathBuf> {
    environment(workspace, workspace.target().join(folder), requirements, module)
}

fn environment(workspace: &Workspace, folder: PathBuf, requirements: &str, module: &str) -> Result<PathBuf> {
    // Steps run in parallel: the second one finds the environment complete.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let host = host_python()?;
    let requirements = workspace.path("python").join(requirements);
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", workspace.relative(&requirements)))?;
    let interpreter = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let stamp = Stamp { file: folder.join("installed.txt"), text: format!("# {}\n{wanted}", host.version) };
    if stamp.is_current() && shell::succeeds(&interpreter, &["-c", &format!("import {module}")]) {
        return Ok(interpreter);
    }
    output::say(format_args!("creating the Python environment in {}", workspace.relative(&folder)));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    // Debian moves ensurepip to python3-venv. An environment without pip, filled by the host's pip, does not need it.
    let mut venv = Command::new(&host.program);
    venv.args(["-m", "venv"]);
    if !shell::succeeds(&host.program, &["-c", "import ensurepip"]) {
        if !shell::succeeds(&host.program, &["-m", "pip", "--version"]) {
            bail!(
                "{} has neither the ensurepip module nor pip\n  help: install python3-venv or python3-pip",
                host.program
            );
        }
        venv.arg("--without-pip");
    }
    shell::capture(venv.arg(&folder))?;
    let mut pip = pip_of(&interpreter, &host.program);
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--requirement"]);
    shell::capture(pip.arg(&requirements)).with_context(|| {
        format!(
            "cannot install {} for Python {}\n  help: pip's package index must be reachable and have wheels for \
             this Python (3.11 to 3.13 work); set PYTHON to choose another interpreter",
            workspace.relative(&requirements),
            host.version
        )
    })?;
    stamp.write()?;
    Ok(interpreter)
}

fn host_program() -> String {
    std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

struct HostPython {
    program: String,
    version: String,
}

fn host_python() -> Result<HostPython> {
    let program = host_program();
    let script = "import sys; print('.'.join(map(str, sys.version_info[:3])))";
    let version = shell::capture(Command::new(&program).args(["-c", script])).with_context(|| {
        format!(
            "no Python 3 was found as `{program}`\n  help: install python3 with pip, or set PYTHON to an interpreter"
        )
    })?;
    let version = version.trim().to_owned();
    if !at_least(&version, (3, 11)) {
        bail!("`{program}` is Python {version}, but onnxruntime 1.31.1 needs 3.11\n  help: set PYTHON to a newer one");
    }
    Ok(HostPython { program, version })
}

fn at_least(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}

fn runtime(workspace: &Workspace, interpreter: &Path, version: &'static str) -> Result<RuntimeSource> {
    if ORT_VERSIONS.last() == Some(&version) {
        return Ok(RuntimeSource::Environment);
    }
    unpacked(interpreter, "onnxruntime", version, workspace.target().join("ort").join(version))
}

/// The folder with the ONNX package of [`ONNX_VERSION`], for `PYTHONPATH`; fetched on first use.
///
/// # Errors
/// When pip cannot install it.
pub fn node_tests(workspace: &Workspace, python: &Python) -> Result<PathBuf> {
    let folder = workspace.target().join("onnx").join(ONNX_VERSION);
    match unpacked(&python.interpreter, "onnx", ONNX_VERSION, folder)? {
        RuntimeSource::Folder(folder) => Ok(folder),
        RuntimeSource::Unavailable(reason) => bail!("onnx {ONNX_VERSION} is not available: {reason}"),
        RuntimeSource::Environment => bail!("onnx {ONNX_VERSION} has no separate folder"),
    }
}

/// A package in a separate folder under `target/third-party`; fetched on first use.
///
/// # Errors
/// When pip cannot install it.
pub fn third_party(workspace: &Workspace, python: &Python, package: &str, version: &str) -> Result<RuntimeSource> {
    let folder = workspace.target().join("third-party").join(format!("{package}-{version}"));
    unpacked(&python.interpreter, package, version, folder)
}

/// The newest ONNX Runtime for Windows, in a folder; fetched on first use. The wheel is only unpacked, so its Python
/// version does not matter.
///
/// # Errors
/// When pip cannot fetch it.
pub fn windows_runtime(workspace: &Workspace, python: &Python) -> Result<PathBuf> {
    let version = ORT_VERSIONS[ORT_VERSIONS.len() - 1];
    let folder = workspace.target().join("windows").join(format!("onnxruntime-{version}"));
    let platform = ["--platform", "win_amd64", "--python-version", "3.12", "--implementation", "cp"];
    match unpacked_for(&platform, &python.interpreter, "onnxruntime", version, folder)? {
        RuntimeSource::Folder(folder) => Ok(folder.join("onnxruntime/capi/onnxruntime.dll")),
        RuntimeSource::Unavailable(reason) => bail!("onnxruntime {version} for Windows is not available: {reason}"),
        RuntimeSource::Environment => bail!("onnxruntime {version} for Windows has no separate folder"),
    }
}

fn unpacked(interpreter: &Path, package: &str, version: &str, folder: PathBuf) -> Result<RuntimeSource> {
    unpacked_for(&[], interpreter, package, version, folder)
}

/// Fetches a package into a folder, for the platform that pip's arguments `platform` name.
fn unpacked_for(
    platform: &[&str],
    interpreter: &Path,
    package: &str,
    version: &str,
    folder: PathBuf,
) -> Result<RuntimeSource> {
    let tag =
        shell::capture(Command::new(interpreter).args(["-c", "import sys; print(sys.implementation.cache_tag)"]))?;
    let stamp = Stamp { file: folder.join("installed.txt"), text: format!("{package}=={version} {}", tag.trim()) };
    if stamp.is_current() {
        return Ok(RuntimeSource::Folder(folder));
    }
    output::say(format_args!("downloading {package} {version}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let mut pip = pip(interpreter);
    // Packages in folders share the environment's numpy and protobuf; all of them accept these versions.
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]);
    match shell::capture(pip.args(platform).arg("--target").arg(&folder).arg(format!("{package}=={version}"))) {
        Ok(_) => {
            stamp.write()?;
            Ok(RuntimeSource::Folder(folder))
        }
        Err(error) if error.to_string().contains("No matching distribution found") => {
            Ok(RuntimeSource::Unavailable(format!("pip found no wheel for {}", tag.trim())))
        }
        Err(error) => Err(error),
    }
}

/// A pip that installs for the virtual environment's interpreter.
pub fn pip(interpreter: &Path) -> Command {
    pip_of(interpreter, &host_program())
}

fn pip_of(interpreter: &Path, host: &str) -> Command {
    let has_pip = shell::succeeds(interpreter, &["-m", "pip", "--version"]);
    let mut pip = if has_pip { Command::new(interpreter) } else { Command::new(host) };
    pip.args(["-m", "pip", "--retries", "10", "--timeout", "60"]);
    if !has_pip {
        pip.arg("--python").arg(interpreter);
    }
    pip
}

/// Records what a folder was filled from. Written last, so that an incomplete installation is redone.
pub struct Stamp {
    pub file: PathBuf,
    pub text: String,
}

impl Stamp {
    pub fn is_current(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|found| found == self.text)
    }

    pub fn write(&self) -> Result<()> {
        fs::write(&self.file, &self.text).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_python_versions_by_number() {
        assert!(at_least("3.11.7", (3, 11)));
        assert!(at_least("3.13.0", (3, 11)));
        assert!(!at_least("3.9.2", (3, 11)));
        assert!(!at_least("nonsense", (3, 11)));
    }

    #[test]
    fn stamp_is_current_only_for_the_same_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("installed.txt");
        let old = Stamp { file: file.clone(), text: "numpy==1".into() };
        assert!(!old.is_current());
        old.write().unwrap();
        assert!(old.is_current());
        assert!(!Stamp { file, text: "numpy==2".into() }.is_current());
    }

    #[test]
    fn environment_requirements_name_the_newest_runtime() {
        let requirements = include_str!("../../python/requirements-dev.txt");
        let newest = format!("onnxruntime=={}", ORT_VERSIONS[ORT_VERSIONS.len() - 1]);
        assert!(requirements.lines().any(|line| line == newest), "{newest} is not in requirements-dev.txt");
        let unpinned: Vec<_> = requirements
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains("=="))
            .collect();
        assert!(unpinned.is_empty(), "not pinned: {unpinned:?}");
    }
}
