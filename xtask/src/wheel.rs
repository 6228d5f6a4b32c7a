//! The Python package: packed from a staged folder, and tested as users install it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::amd::Machine;
use crate::backends::Backends;
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{notices, pytest, setup, shell, symbols};

/// Packs a staged folder into a wheel in `folder`, tagged with the system that its files run on, and returns its path.
///
/// # Errors
/// When a file cannot be read or written.
pub fn pack(workspace: &Workspace, interpreter: &Path, stage: &Stage, folder: &Path) -> Result<PathBuf> {
    let tag = platform_tag(stage)?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let notices = stage.root.join("THIRD-PARTY-NOTICES.txt");
    fs::write(&notices, notices::text(workspace, &stage.packages(), stage.platform)?)
        .with_context(|| format!("cannot write {}", notices.display()))?;
    let mut script = Command::new(interpreter);
    script.arg(workspace.path("python/make_wheel.py")).arg("--notices").arg(&notices);
    script.args(["--version", env!("CARGO_PKG_VERSION"), "--platform", &tag]);
    script.arg("--command").arg(stage.command());
    for library in stage.libraries() {
        script.arg("--library").arg(library);
    }
    if stage.kernels().is_dir() {
        script.arg("--kernels").arg(stage.kernels());
    }
    let wheel = shell::capture(script.arg("--out").arg(folder))?;
    Ok(PathBuf::from(wheel.trim()))
}

/// The machines that the staged files run on, as wheels name them.
fn platform_tag(stage: &Stage) -> Result<String> {
    if stage.platform.is_windows() {
        return Ok("win_amd64".to_owned());
    }
    let mut files = stage.libraries();
    files.push(stage.command());
    let glibc = files.iter().map(|file| Ok(symbols::read(file)?.glibc)).collect::<Result<Vec<_>>>()?;
    let Some((major, minor)) = glibc.into_iter().max().flatten() else { bail!("no staged file needs glibc") };
    Ok(format!("manylinux_{major}_{minor}_{}", std::env::consts::ARCH))
}

/// Packs the staged libraries as they are, and checks the wheel: shipped files differ only in their profile and linker.
///
/// # Errors
/// As [`pack`] and [`check`].
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let python = context.python()?;
    let folder = context.workspace.target().join("wheel");
    let wheel = pack(context.workspace, &python.interpreter, context.stage()?, &folder)?;
    check(context.workspace, python, &wheel, &Backends::all())
}

/// Packs the staged libraries, and runs the README's program on an emulated GPU in an environment with the wheel.
///
/// # Errors
/// As [`pack`], or when the program fails.
pub fn emulated(context: &Context<'_>, target: &str, machine: &Machine) -> Result<Outcome> {
    let (workspace, python) = (context.workspace, context.python()?);
    let folder = workspace.target().join("amd").join(target);
    let wheel = pack(workspace, &python.interpreter, context.stage()?, &folder.join("wheel"))?;
    let starter = machine.starter()?;
    pytest::run(workspace, python, &format!("amd-wheel-{target}"), |pytest| {
        pytest.args(["tests/wheel/test_documents.py", "-k", "emulated"]).envs(machine.environment());
        pytest.env("AMDGPU_EP_WHEEL", wheel).env("AMDGPU_EP_TEST_STARTER", starter);
    })
}

/// Installs a wheel with these backends into empty environments and uses it as described in its README.
///
/// # Errors
/// When a test fails.
pub fn check(workspace: &Workspace, python: &setup::Python, wheel: &Path, backends: &Backends) -> Result<Outcome> {
    let auditor = setup::tools(workspace, "wheel-tools", "requirements-wheel.txt", "auditwheel")?;
    pytest::run(workspace, python, "wheel", |pytest| {
        pytest.arg("tests/wheel").env("AMDGPU_EP_WHEEL", wheel).env("AMDGPU_EP_WHEEL_AUDITOR", auditor);
        pytest.env("AMDGPU_EP_WHEEL_BACKENDS", backends.to_string());
    })
}

/// Packs a part of the staged files, and checks the list of files in the wheel.
///
/// # Errors
/// When the wheel lacks a file, or has an unexpected one.
pub fn check_part(context: &Context<'_>, part: &Stage) -> Result<Outcome> {
    let python = context.python()?;
    let wheel = pack(context.workspace, &python.interpreter, part, &part.root.join("wheel"))?;
    pytest::run(context.workspace, python, "wheel-part", |pytest| {
        pytest.args(["tests/wheel/test_wheel.py", "-k", "record or our_libraries or network"]);
        pytest.env("AMDGPU_EP_WHEEL", wheel).env("AMDGPU_EP_WHEEL_BACKENDS", part.backends.to_string());
    })
}
