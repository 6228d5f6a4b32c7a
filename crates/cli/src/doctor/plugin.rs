//! Our own libraries: the execution provider, the host driver and the backends.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use super::{Asker, Question};
use crate::{ffi, ort};

/// The state of our own libraries.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Plugin {
    /// The execution provider library, if found.
    pub path: Option<String>,
    /// Why it cannot be used.
    pub error: Option<String>,
    /// Every path that was tried, in order, up to the one found.
    pub looked_for: Vec<String>,
    /// The host driver beside it.
    pub host_driver: Option<String>,
    /// The backends beside it and in `AMDGPU_EP_BACKEND_PATH`.
    pub backends: Vec<Backend>,
    /// The folders that were searched for backends.
    pub backend_folders: Vec<String>,
}

/// A backend library.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Backend {
    /// The name, such as `hip` or `migraphx`.
    pub name: String,
    /// The file.
    pub path: String,
    /// The version, if the backend offers a device.
    pub version: Option<String>,
    /// How many devices it offers when registered on its own; absent if it could not be examined.
    pub devices: Option<usize>,
    /// Why it cannot be used.
    pub error: Option<String>,
}

/// What a child reports about a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendProbe {
    version: Option<String>,
    devices: Option<usize>,
    error: Option<String>,
}

/// What a child reports about the plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PluginProbe {
    /// Why it cannot be used.
    pub error: Option<String>,
}

/// A model without nodes, whose output is its input.
const EMPTY_MODEL: &[u8] =
    b"\x08\x08\x12\x00:%\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01b\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x11";

const EXPORTS: [&str; 2] = ["CreateEpFactories", "ReleaseEpFactory"];

/// Opens the plugin in this process.
pub fn probe(file: &Path) -> PluginProbe {
    PluginProbe { error: ffi::exports(file, &EXPORTS).err() }
}

/// Creates a session on a backend in this process; without an ONNX Runtime, only opens the backend.
pub fn probe_backend(file: &Path, onnxruntime: Option<&Path>) -> BackendProbe {
    if let Err(error) = ffi::exports(file, &EXPORTS) {
        return BackendProbe { error: Some(error), ..BackendProbe::default() };
    }
    let Some(onnxruntime) = onnxruntime else { return BackendProbe::default() };
    match registered(file, onnxruntime) {
        Ok(said) => said,
        Err(error) => BackendProbe { error: Some(reason(&error)), ..BackendProbe::default() },
    }
}

fn registered(file: &Path, onnxruntime: &Path) -> anyhow::Result<BackendProbe> {
    let environment = ort::environment(onnxruntime)?;
    let devices = ort::devices(&environment, "BackendExecutionProvider", file)?;
    let version = devices.iter().find_map(|device| device.fact("version")).map(str::to_owned);
    let mut said = BackendProbe { version, devices: Some(devices.len()), error: None };
    if let Some(first) = devices.get(..1) {
        // A backend loads its own libraries only when a session is created.
        let settings = ort::SessionSettings { devices: first, ..ort::SessionSettings::default() };
        let session = settings.open_bytes(&environment, EMPTY_MODEL);
        said.error = session.err().map(|error| reason(&error));
    }
    Ok(said)
}

/// The provider's message, without ONNX Runtime's prefix.
fn reason(error: &anyhow::Error) -> String {
    let text = error.root_cause().to_string();
    let text = text.strip_prefix("ONNX Runtime: ").unwrap_or(&text);
    ort::message::refusal(text).unwrap_or(text).to_owned()
}

/// Searches for our libraries, and opens the plugin and each backend in a child process. Backends are registered with
/// `onnxruntime`, if there is one.
pub fn collect(asker: &Asker, environment: &Environment, onnxruntime: Option<&str>) -> Plugin {
    let mut plugin = find(&asker.own_folders(), environment);
    if let Some(path) = &plugin.path {
        let answer = asker.ask::<PluginProbe>(&Question::Plugin { file: path.into() });
        plugin.error = match answer.value {
            Some(said) => said.error,
            None => answer.detail,
        };
    }
    for backend in &mut plugin.backends {
        let file = PathBuf::from(&backend.path);
        let answer =
            asker.ask::<BackendProbe>(&Question::Backend { file, onnxruntime: onnxruntime.map(PathBuf::from) });
        let said = answer.value.unwrap_or(BackendProbe { error: answer.detail, ..BackendProbe::default() });
        (backend.version, backend.devices, backend.error) = (said.version, said.devices, said.error);
    }
    plugin
}

/// Searches for our libraries without opening them.
pub fn find(own_folders: &[PathBuf], environment: &Environment) -> Plugin {
    let beside = own_folders.iter().map(|folder| folder.join(dylib::file_name("amdgpu-ep")));
    let mut plugin = Plugin::default();
    let mut home = None;
    for file in environment.path("AMDGPU_EP_PATH").into_iter().chain(beside) {
        plugin.looked_for.push(file.display().to_string());
        if file.is_file() {
            plugin.path = Some(file.display().to_string());
            home = file.parent().map(Path::to_owned);
            break;
        }
    }
    let host = home.iter().map(|folder| folder.join(dylib::file_name("hip-host"))).find(|file| file.is_file());
    plugin.host_driver = host.map(|file| file.display().to_string());
    let mut folders: Vec<PathBuf> = home.into_iter().collect();
    for folder in environment.paths("AMDGPU_EP_BACKEND_PATH") {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    plugin.backends = folders.iter().flat_map(|folder| backends_in(folder)).collect();
    plugin.backend_folders = folders.iter().map(|folder| folder.display().to_string()).collect();
    plugin
}

fn backends_in(folder: &Path) -> Vec<Backend> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut backends: Vec<Backend> = entries
        .filter_map(|entry| {
            let file = entry.file_name();
            let name = backend_name(file.to_str()?)?.to_owned();
            let path = entry.path().display().to_string();
            Some(Backend { name, path, version: None, devices: None, error: None })
        })
        .collect();
    backends.sort_by(|one, other| one.name.cmp(&other.name));
    backends
}

/// The `hip` of `libhip-backend.so`.
fn backend_name(file: &str) -> Option<&str> {
    let stem = if cfg!(windows) {
        file.strip_suffix(".dll")?
    } else {
        file.strip_prefix("lib")?.strip_suffix(std::env::consts::DLL_SUFFIX)?
    };
    stem.strip_suffix("-backend").filter(|name| !name.is_empty())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
pub(super) mod tests {
    use super::*;

    /// A backend in `/lib`, usable unless there is an error.
    pub fn backend(name: &str, error: Option<&str>) -> Backend {
        let (path, version) =
            (format!("/lib/{}", dylib::file_name(&format!("{name}-backend"))), Some("0.1.0".to_owned()));
        Backend { name: name.to_owned(), path, version, devices: Some(1), error: error.map(str::to_owned) }
    }

    fn prefix(files: &[&str]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let prefix = tempfile::tempdir().unwrap();
        for file in files {
            let file = prefix.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let folders = vec![prefix.path().join("bin"), prefix.path().join("lib")];
        (prefix, folders)
    }

    #[test]
    fn installed_prefix_is_found_with_its_backends() {
        let files =
            ["lib/libamdgpu-ep.so", "lib/libhip-host.so", "lib/libmigraphx-backend.so", "lib/libhip-backend.so"];
        let (prefix, folders) = prefix(&files);
        let plugin = find(&folders, &Environment::default());
        let path = |name: &str| prefix.path().join("lib").join(name).display().to_string();
        assert_eq!(plugin.path, Some(path("libamdgpu-ep.so")));
        assert_eq!(plugin.host_driver, Some(path("libhip-host.so")));
        let names: Vec<_> = plugin.backends.iter().map(|backend| backend.name.as_str()).collect();
        assert_eq!(names, ["hip", "migraphx"]);
        assert_eq!(plugin.looked_for.len(), 2);
    }

    #[test]
    fn named_file_comes_before_the_neighbours() {
        let (prefix, folders) = prefix(&["bin/libamdgpu-ep.so", "elsewhere/plugin.so"]);
        let named = prefix.path().join("elsewhere/plugin.so");
        let plugin = find(&folders, &[("AMDGPU_EP_PATH", &named)].into_iter().collect());
        assert_eq!(plugin.path, Some(named.display().to_string()));
        assert_eq!(plugin.host_driver, None);
    }

    #[test]
    fn backend_folders_are_searched_even_without_the_plugin() {
        let (prefix, folders) = prefix(&["one/libhip-backend.so", "two/libother-backend.so", "two/README"]);
        let list = std::env::join_paths([prefix.path().join("one"), prefix.path().join("two")]).unwrap();
        let plugin = find(&folders, &[("AMDGPU_EP_BACKEND_PATH", list)].into_iter().collect());
        assert_eq!(plugin.path, None);
        let names: Vec<_> = plugin.backends.iter().map(|backend| backend.name.as_str()).collect();
        assert_eq!(names, ["hip", "other"]);
    }

    #[test]
    fn only_backend_libraries_are_backends() {
        for (file, want) in [
            ("libhip-backend.so", Some("hip")),
            ("libdirectx-backend.so", Some("directx")),
            ("lib-backend.so", None),
            ("libhip-backend.so.debug", None),
            ("libhip-host.so", None),
            ("hip-backend.so", None),
        ] {
            assert_eq!(backend_name(file), want, "{file}");
        }
    }
}
