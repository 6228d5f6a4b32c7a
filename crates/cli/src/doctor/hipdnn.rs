//! The hipDNN libraries: which one each driver's sessions use, and its engines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hip::DriverKind;
use hipdnn::{Handle, LoadError, Loaded, Search};
use serde::{Deserialize, Serialize};

use super::drivers::{Attempt, Driver};
use super::environment::Environment;
use super::iree::{self, IreeCompile};
use super::{Asker, Question};

/// The hipDNN library of one driver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hipdnn {
    /// `amd`, `nvidia` or `host`.
    pub driver: String,
    /// What was found.
    #[serde(flatten)]
    pub found: HipdnnProbe,
    /// The compiler that one of its plugins needs, if any.
    pub iree_compile: Option<IreeCompile>,
}

/// The findings of a child process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HipdnnProbe {
    /// The file, if it was loaded.
    pub path: Option<String>,
    /// The version.
    pub version: Option<String>,
    /// The engines.
    pub engines: Vec<Engine>,
    /// The files of its engine plugins.
    pub plugins: Vec<String>,
    /// Every file that failed to load, if none was loaded.
    pub attempts: Vec<Attempt>,
    /// Why it cannot be used.
    pub error: Option<String>,
}

/// An engine of a library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The name.
    pub name: String,
    /// The plugin it comes from.
    pub plugin: String,
    /// The plugin's version.
    pub version: String,
}

/// Examines the library of each driver in a child process.
pub fn collect(asker: &Asker, drivers: &[Driver], environment: &Environment) -> Vec<Hipdnn> {
    let hipdnn = |kind: DriverKind| {
        let question = |file| Question::Hipdnn { driver: kind.name().to_owned(), file };
        let found = match kind {
            DriverKind::Amd => {
                let driver = drivers.iter().find(|driver| driver.kind == kind.name());
                let runtime = driver.and_then(|driver| driver.library("runtime")?.path.clone());
                ask(asker, &question(runtime.map(PathBuf::from)))
            }
            DriverKind::Nvidia => ours(asker, "hipdnn_cudnn", question),
            DriverKind::Host => ours(asker, "hipdnn_host", question),
        };
        Hipdnn { driver: kind.name().to_owned(), iree_compile: iree::collect(&found, environment), found }
    };
    DriverKind::ALL.into_iter().map(hipdnn).collect()
}

/// Our library beside the command, unless the user names one.
fn ours(asker: &Asker, name: &str, question: impl Fn(Option<PathBuf>) -> Question) -> HipdnnProbe {
    let file = dylib::file_name(name);
    let places: Vec<PathBuf> = asker.own_folders().into_iter().map(|folder| folder.join(&file)).collect();
    let there = places.iter().find(|file| file.is_file());
    if there.is_some() || Search::named_file().is_some() {
        return ask(asker, &question(there.cloned()));
    }
    let attempt = |file: PathBuf| Attempt { name: file.display().to_string(), reason: "no such file".into() };
    let attempts = places.into_iter().map(attempt).collect();
    HipdnnProbe { attempts, error: Some(format!("{file} is not installed")), ..HipdnnProbe::default() }
}

fn ask(asker: &Asker, question: &Question) -> HipdnnProbe {
    let answer = asker.ask::<HipdnnProbe>(question);
    answer.value.unwrap_or(HipdnnProbe { error: answer.detail, ..HipdnnProbe::default() })
}

/// Opens the library of a driver in this process. `file` is AMD's HIP runtime, or our library.
pub fn probe(kind: DriverKind, file: Option<&Path>) -> HipdnnProbe {
    let file = file.map(Path::to_owned);
    let search = match kind {
        DriverKind::Amd => Search { hip_runtime: file, ..Search::default() },
        _ => Search { place: Search::named_file().or(file), ..Search::default() },
    };
    match Loaded::open(&search) {
        Ok(library) => inside(library),
        Err(LoadError::NotFound { tried }) => HipdnnProbe {
            attempts: tried.into_iter().map(attempt).collect(),
            error: Some("no hipDNN backend library was found".into()),
            ..HipdnnProbe::default()
        },
        Err(error) => HipdnnProbe { error: Some(error.to_string()), ..HipdnnProbe::default() },
    }
}

fn attempt(attempt: hipdnn::Attempt) -> Attempt {
    Attempt { name: attempt.file.display().to_string(), reason: attempt.reason }
}

fn inside(library: Loaded) -> HipdnnProbe {
    let mut found = HipdnnProbe {
        path: Some(library.file().display().to_string()),
        version: Some(library.version().to_owned()),
        ..HipdnnProbe::default()
    };
    if let Err(error) = list(library, &mut found) {
        found.error = Some(error.to_string());
    }
    found
}

/// Lists engines and plugins. It is not an error if the library is too old to list them.
fn list(library: Loaded, found: &mut HipdnnProbe) -> hipdnn::Result<()> {
    let handle = Handle::new(Arc::new(library))?;
    let engine = |info: hipdnn::EngineInfo| Engine { name: info.name, plugin: info.plugin, version: info.version };
    let unless_too_old = |error: hipdnn::Error| if error.is_not_supported() { Ok(()) } else { Err(error) };
    match handle.engines() {
        Ok(engines) => found.engines = engines.into_iter().map(engine).collect(),
        Err(error) => unless_too_old(error)?,
    }
    match handle.plugins() {
        Ok(plugins) => found.plugins = plugins.iter().map(|file| file.display().to_string()).collect(),
        Err(error) => unless_too_old(error)?,
    }
    Ok(())
}

#[cfg(test)]
pub(in crate::doctor) mod tests {
    use super::*;

    /// A working library, and one that is not installed.
    pub fn hipdnn() -> Vec<Hipdnn> {
        let engine = Engine { name: "MIOPEN_ENGINE".into(), plugin: "miopen".into(), version: "1.2.3".into() };
        let there = HipdnnProbe {
            path: Some("/opt/rocm/lib/libhipdnn_backend.so".into()),
            version: Some("0.4.0.abc".into()),
            engines: vec![engine],
            plugins: vec!["/opt/rocm/lib/hipdnn_plugins/engines/libmiopen_plugin.so".into()],
            ..HipdnnProbe::default()
        };
        let absent = HipdnnProbe {
            attempts: vec![Attempt { name: "/lib/libhipdnn_host.so".into(), reason: "no such file".into() }],
            error: Some("libhipdnn_host.so is not installed".into()),
            ..HipdnnProbe::default()
        };
        let iree_compile = IreeCompile { needed_by: "libfusilli_plugin.so".into(), path: None };
        vec![
            Hipdnn { driver: "amd".into(), found: there, iree_compile: Some(iree_compile) },
            Hipdnn { driver: "host".into(), found: absent, iree_compile: None },
        ]
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_is_not_a_library_is_reported_with_the_loaders_message() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libhipdnn_host.so");
        std::fs::write(&file, "not a library").unwrap();
        let found = probe(DriverKind::Host, Some(&file));
        assert_eq!(found.path, None);
        assert!(found.attempts[0].reason.contains("file too short"), "{found:?}");
    }
}
