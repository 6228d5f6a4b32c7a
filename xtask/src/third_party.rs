//! A third-party plugin as a backend of the umbrella: OpenVINO's, from PyPI, which runs on the CPU.

use anyhow::Result;

use crate::setup::{self, Python, RuntimeSource};
use crate::shell;
use crate::stage::Stage;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// A build of ONNX Runtime that includes AMD's own provider.
const LEGACY: (&str, &str) = ("onnxruntime-migraphx", "1.27.1");

const PACKAGE: &str = "onnxruntime-ep-openvino";
const VERSION: &str = "1.8.1";
const LIBRARY: &str = "onnxruntime_ep_openvino/libonnxruntime_providers_openvino_plugin.so";

/// Fetches the plugin and runs models on it through the umbrella, once per ONNX Runtime version.
///
/// # Errors
/// When a result is wrong. A plugin that is not available here is a skip.
pub fn run(workspace: &Workspace, python: &Python, stage: &Stage) -> Result<Outcome> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(Outcome::Skipped("the plugin is available only for Linux x86-64".into()));
    }
    let folder = match setup::third_party(workspace, python, PACKAGE, VERSION) {
        Ok(RuntimeSource::Folder(folder)) => folder,
        Ok(RuntimeSource::Unavailable(reason)) => return Ok(Outcome::Skipped(reason)),
        Ok(RuntimeSource::Environment) => return Ok(Outcome::Skipped(format!("{PACKAGE} has no separate folder"))),
        Err(error) => return Ok(Outcome::Skipped(format!("could not download {PACKAGE}: {error}"))),
    };
    let mut versions = Vec::new();
    for runtime in &python.runtimes {
        let mut script = shell::user_program(&python.interpreter);
        script.current_dir(workspace.root()).arg("tests/third_party.py").env_remove("PYTHONPATH");
        script.arg("--library").arg(stage.umbrella()).arg("--plugin").arg(folder.join(LIBRARY));
        match &runtime.source {
            RuntimeSource::Environment => {}
            RuntimeSource::Folder(folder) => {
                script.env("PYTHONPATH", folder);
            }
            RuntimeSource::Unavailable(_) => continue,
        }
        shell::run(&mut script)?;
        versions.push(runtime.version);
    }
    Ok(Outcome::Passed(format!("{PACKAGE} {VERSION} in ONNX Runtime {}", versions.join(", "))))
}

/// Fetches an ONNX Runtime that includes AMD's provider, and checks that text generation prefers ours, then AMD's, then
/// the CPU.
///
/// # Errors
/// When the provider order or a token is wrong. A package that is not available here is a skip.
pub fn legacy(workspace: &Workspace, python: &Python, stage: &Stage) -> Result<Outcome> {
    let (package, version) = LEGACY;
    let folder = match setup::third_party(workspace, python, package, version) {
        Ok(RuntimeSource::Folder(folder)) => folder,
        Ok(RuntimeSource::Unavailable(reason)) => return Ok(Outcome::Skipped(reason)),
        Ok(RuntimeSource::Environment) => return Ok(Outcome::Skipped(format!("{package} has no separate folder"))),
        Err(error) => return Ok(Outcome::Skipped(format!("could not download {package}: {error}"))),
    };
    let mut maker = shell::user_program(&python.interpreter);
    maker.current_dir(workspace.root()).args(["tests/tiny_models.py", "nano-fp32"]).env_remove("PYTHONPATH");
    let model = shell::capture(&mut maker)?;
    let mut script = shell::user_program(&python.interpreter);
    script.current_dir(workspace.root()).arg("tests/legacy_provider.py").env_remove("PYTHONPATH");
    script.arg("--command").arg(stage.root.join("bin").join("amdgpu-ep")).arg("--library").arg(stage.umbrella());
    script.arg("--onnxruntime").arg(folder.join(format!("onnxruntime/capi/libonnxruntime.so.{version}")));
    script.arg("--model").arg(model.trim_end());
    let said = shell::capture(&mut script)?;
    Ok(Outcome::Passed(format!("{package} {version}, {}", said.trim())))
}
