//! Builds the C++ examples with CMake, as a user does, and runs them on the host device.
//!
//! ONNX Runtime's wheel contains the library but no headers. Debian's development package has the headers, so both are
//! laid out under `target/cpp` like a release archive of ONNX Runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::debian::{self, Apt};
use crate::setup::{self, ORT_VERSIONS, Python, RuntimeSource};
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;
use crate::{output, shell};

const HEADERS: &str = "libonnxruntime-dev";
/// The suites to search for headers; the first one with new enough headers wins.
const SUITES: [&str; 2] = ["experimental", "sid"];
/// CMake from PyPI, for machines without CMake.
const CMAKE: (&str, &str) = ("cmake", "4.4.4");

/// Builds the examples, makes their models and runs them.
///
/// # Errors
/// When an example fails to build or run, or prints unexpected output. A missing tool or package is a skip.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    let (workspace, python) = (context.workspace, context.python()?);
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    for (tool, program) in [("C++ compiler", compiler.as_str()), ("make", "make")] {
        if !shell::succeeds(program, &["--version"]) {
            return Ok(Outcome::Skipped(format!("no {tool} (`{program}`)")));
        }
    }
    let (headers, cmake) = match (headers(workspace), cmake(workspace, python)) {
        (Ok(headers), Ok(cmake)) => (headers, cmake),
        (Err(error), _) | (_, Err(error)) => {
            output::say(format_args!("the C++ examples cannot be built: {error:#}"));
            return Ok(Outcome::Skipped(error.to_string().lines().next().unwrap_or_default().to_owned()));
        }
    };
    let folder = workspace.target().join("cpp");
    let archive = release_archive(&folder, &headers.folder, &python.interpreter)?;
    let build = build(workspace, &folder, &archive, &cmake)?;
    let models = folder.join("models");
    let maker = workspace.path("examples/cpp/models.py");
    shell::run(Command::new(&python.interpreter).arg(maker).arg(&models).env_remove("PYTHONPATH"))?;
    Examples { build, models, stage: context.stage()? }.check()?;
    Ok(Outcome::Passed(format!("3 programs with headers 1.{} and {}", headers.api, cmake.about)))
}

/// The built examples and their inputs.
struct Examples<'a> {
    build: PathBuf,
    models: PathBuf,
    stage: &'a Stage,
}

impl Examples<'_> {
    fn check(&self) -> Result<()> {
        self.expect("01-register", &[], "AMDGPUExecutionProvider device 0: Host CPU 0 (host)")?;
        self.expect("03-io-binding", &["recurrent.onnx"], "recurrent model: 8 values agree with the CPU provider")?;

        let log = self.build.join("convolution.log");
        let mut convolution = self.command("02-convolution", &["convolution.onnx"]);
        convolution.env("AMDGPU_EP_LOG", "debug").env("AMDGPU_EP_LOG_FILE", &log);
        expect_last_line(&mut convolution, "convolution: 2048 values agree with the CPU provider")?;
        let log = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        if !log.contains("1 steps, 1 by hipDNN") {
            bail!("hipDNN did not run the convolution of 02-convolution; the log says\n{log}");
        }

        // Without a device, registration succeeds, and anything that needs a device fails with a helpful message.
        expect_last_line(&mut self.without_device("01-register", &[]), "no AMD GPU: sessions run on the CPU")?;
        match shell::capture(&mut self.without_device("02-convolution", &["convolution.onnx"])) {
            Err(error) if error.to_string().contains("error: the provider found no AMD GPU") => Ok(()),
            Err(error) => Err(error.context("02-convolution fails without a device, but does not say why")),
            Ok(said) => bail!("02-convolution succeeds without a device, and says\n{said}"),
        }
    }

    /// The command for a program on a machine without a HIP runtime.
    fn without_device(&self, program: &str, models: &[&str]) -> Command {
        let mut command = self.command(program, models);
        command.env("AMDGPU_EP_DRIVER", "amd").env("AMDGPU_EP_HIP_LIBRARY", self.build.join("missing.so"));
        command
    }

    fn expect(&self, program: &str, models: &[&str], wanted: &str) -> Result<()> {
        expect_last_line(&mut self.command(program, models), wanted)
    }

    fn command(&self, program: &str, models: &[&str]) -> Command {
        let mut command = shell::user_program(self.build.join(program));
        command.arg(self.stage.umbrella()).args(models.iter().map(|name| self.models.join(name)));
        command.env("AMDGPU_EP_DRIVER", "host").env("ORT_DISABLE_TELEMETRY", "1");
        for variable in ["AMDGPU_EP_LOG", "AMDGPU_EP_LOG_FILE", "AMDGPU_EP_HIPDNN_LIBRARY"] {
            command.env_remove(variable);
        }
        command
    }
}

fn expect_last_line(command: &mut Command, wanted: &str) -> Result<()> {
    let last = shell::run_to_last_line(command)?;
    if !last.starts_with(wanted) {
        bail!("{} prints\n  {last}\nexpected\n  {wanted}", Path::new(command.get_program()).display());
    }
    Ok(())
}

/// ONNX Runtime's headers.
#[derive(Debug)]
struct Headers {
    folder: PathBuf,
    /// The version of the C API that they describe: the release's minor version.
    api: u32,
}

impl Headers {
    /// Reads the version of the headers in `folder`, which the Python environment's ONNX Runtime must support.
    fn in_folder(folder: PathBuf) -> Result<Self> {
        let file = folder.join("onnxruntime_c_api.h");
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let api = api_version(&text).with_context(|| format!("{} defines no ORT_API_VERSION", file.display()))?;
        let minor = |version: &str| version.split('.').nth(1).and_then(|number| number.parse::<u32>().ok());
        let (oldest, newest) = (ORT_VERSIONS.first().copied(), ORT_VERSIONS.last().copied());
        let supported = oldest.and_then(minor).unwrap_or(0)..=newest.and_then(minor).unwrap_or(0);
        if !supported.contains(&api) {
            bail!("{HEADERS} is 1.{api}, but 1.{} to 1.{} are supported", supported.start(), supported.end());
        }
        Ok(Self { folder, api })
    }
}

fn api_version(header: &str) -> Option<u32> {
    header.lines().find_map(|line| line.strip_prefix("#define ORT_API_VERSION ")?.trim().parse().ok())
}

/// The headers from Debian's package, unpacked on first use.
fn headers(workspace: &Workspace) -> Result<Headers> {
    let unpacked = workspace.target().join("cpp/headers");
    let folder = unpacked.join("root/usr/include/onnxruntime");
    if let Ok(headers) = Headers::in_folder(folder.clone()) {
        return Ok(headers);
    }
    let mirror = debian::mirror().map_err(anyhow::Error::msg)?;
    let mut outcome = Err(anyhow::anyhow!("could not download {HEADERS}"));
    for suite in SUITES {
        output::say(format_args!("unpacking {HEADERS} of Debian {suite} into target/cpp"));
        let apt = Apt::new(&unpacked, &mirror, &[suite]);
        outcome = apt.and_then(|apt| apt.unpack_only(&[HEADERS], &["*/share/*"]));
        let outcome = outcome.as_ref().map(|()| Headers::in_folder(folder.clone()));
        if let Ok(Ok(headers)) = outcome {
            return Ok(headers);
        }
    }
    outcome.and_then(|()| Headers::in_folder(folder))
}

/// A CMake, and where it comes from.
struct Cmake {
    program: PathBuf,
    about: String,
}

/// The installed CMake, or one from PyPI, fetched on first use.
fn cmake(workspace: &Workspace, python: &Python) -> Result<Cmake> {
    if shell::succeeds("cmake", &["--version"]) {
        return Ok(Cmake { program: "cmake".into(), about: "the installed CMake".into() });
    }
    let (package, version) = CMAKE;
    match setup::third_party(workspace, python, package, version)? {
        RuntimeSource::Folder(folder) => {
            Ok(Cmake { program: folder.join("cmake/data/bin/cmake"), about: format!("CMake {version} from PyPI") })
        }
        RuntimeSource::Unavailable(reason) => bail!("CMake is not installed, and {reason}"),
        RuntimeSource::Environment => bail!("CMake has no separate folder"),
    }
}

/// Links the headers and the Python environment's library into a folder laid out like a release archive.
fn release_archive(folder: &Path, headers: &Path, interpreter: &Path) -> Result<PathBuf> {
    let script =
        "import importlib.util as u; print(*u.find_spec('onnxruntime').submodule_search_locations, sep='', end='')";
    let package = PathBuf::from(shell::capture(Command::new(interpreter).args(["-c", script]))?);
    let version = ORT_VERSIONS.last().copied().unwrap_or_default();
    let library = package.join(format!("capi/libonnxruntime.so.{version}"));
    if !library.exists() {
        bail!("the onnxruntime package has no {}", library.display());
    }
    let archive = folder.join("onnxruntime");
    let libraries = archive.join("lib");
    fs::create_dir_all(&libraries).with_context(|| format!("cannot create {}", libraries.display()))?;
    let links = [
        (headers, archive.join("include")),
        (&library, libraries.join("libonnxruntime.so")),
        (&library, libraries.join("libonnxruntime.so.1")),
    ];
    for (target, link) in links {
        shell::capture(Command::new("ln").arg("-sfn").arg(target).arg(link))?;
    }
    Ok(archive)
}

/// Configures and builds from scratch, so that leftovers of an earlier run cannot hide a mistake in CMakeLists.txt.
fn build(workspace: &Workspace, folder: &Path, archive: &Path, cmake: &Cmake) -> Result<PathBuf> {
    let build = folder.join("build");
    if build.exists() {
        fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    }
    let root = format!("-DONNXRUNTIME_ROOT={}", archive.display());
    let mut configure = Command::new(&cmake.program);
    configure.arg("-S").arg(workspace.path("examples/cpp")).arg("-B").arg(&build);
    shell::capture(configure.args(["-G", "Unix Makefiles", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON", &root]))?;
    shell::run(Command::new(&cmake.program).arg("--build").arg(&build).args(["--parallel", "2"]))?;
    Ok(build)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_of(api: &str) -> Result<Headers> {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("#pragma once\n#define ORT_API_VERSION {api}\n");
        fs::write(folder.path().join("onnxruntime_c_api.h"), text).unwrap();
        Headers::in_folder(folder.path().to_owned())
    }

    #[test]
    fn headers_are_as_new_as_the_provider_and_no_newer_than_the_library() {
        assert_eq!(headers_of("24").unwrap().api, 24);
        assert_eq!(headers_of("31").unwrap().api, 31);
        for unfit in ["23", "32"] {
            let error = headers_of(unfit).unwrap_err().to_string();
            assert_eq!(error, format!("libonnxruntime-dev is 1.{unfit}, but 1.24 to 1.31 are supported"));
        }
        assert!(headers_of("x").unwrap_err().to_string().contains("defines no ORT_API_VERSION"));
    }
}
