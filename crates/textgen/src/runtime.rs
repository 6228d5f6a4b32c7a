//! ONNX Runtime, loaded once per process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort_client::{Environment, LoadError, LogLevel, MIN_API_VERSION, NegotiationError, Registration};

use crate::error::Doing;
use crate::{Error, Result, ffi};

/// ONNX Runtime has one environment per process. It is never released, because sessions may outlive every [`Runtime`].
static LOADED: Mutex<Option<(PathBuf, Runtime)>> = Mutex::new(None);

/// A loaded ONNX Runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    environment: Environment,
    /// The libraries that were registered here, with their names. They stay registered.
    registered: Arc<Mutex<Vec<(String, Registration)>>>,
}

impl Runtime {
    /// Loads ONNX Runtime from a library, or returns the one that was already loaded from the same path.
    ///
    /// Models also run on a provider that other code of this process has registered. That code has to keep it
    /// registered.
    ///
    /// # Errors
    /// When the library cannot be loaded, is older than 1.24, or a different one is already loaded.
    pub fn load(library: &Path) -> Result<Runtime> {
        let wrong = |problem: String, help: &str| Error::Runtime {
            path: library.to_path_buf(),
            problem,
            help: help.to_owned(),
        };
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, runtime)) = &*loaded {
            if path == library {
                return Ok(runtime.clone());
            }
            let problem = format!("{} is already loaded", path.display());
            return Err(wrong(problem, "a process can load only one ONNX Runtime"));
        }
        let help = format!("install onnxruntime 1.{MIN_API_VERSION} or newer, and name its library");
        let runtime = ort_client::Runtime::load(library).map_err(|error| {
            let problem = match error {
                LoadError::Version(NegotiationError::TooOld(found)) => {
                    format!("it is version {found}, which is too old")
                }
                other => other.to_string(),
            };
            wrong(problem, &help)
        })?;
        let environment = Environment::new(&runtime, "textgen", LogLevel::Error)
            .and_then(|environment| environment.disable_telemetry().map(|()| environment))
            .map_err(|error| wrong(error.message().into_owned(), &help))?;
        let runtime = Runtime { environment, registered: Arc::default() };
        *loaded = Some((library.to_path_buf(), runtime.clone()));
        Ok(runtime)
    }

    /// Registers a provider's plugin library under a name.
    ///
    /// # Errors
    /// When ONNX Runtime rejects it.
    pub fn register(&self, name: &str, library: &Path) -> Result<()> {
        // ONNX Runtime resolves relative paths against its own folder.
        let library = dunce::canonicalize(library).map_err(|source| Error::File {
            path: library.to_path_buf(),
            source,
            help: "name the provider's library".to_owned(),
        })?;
        let registration = Registration::new(&self.environment, name, &library);
        let registration = registration.doing("registering the provider's library")?;
        self.registered().push((name.to_owned(), registration));
        Ok(())
    }

    /// The provider of this name, if it is registered and has a device.
    pub(crate) fn provider(&self, name: &str) -> Result<Option<Registration>> {
        let ours =
            self.registered().iter().find(|(known, _)| known == name).map(|(_, registration)| registration.clone());
        let doing = "listing the devices";
        match ours {
            Some(ours) => Ok((!ours.devices().doing(doing)?.is_empty()).then_some(ours)),
            None => ffi::registered_elsewhere(&self.environment, name).doing(doing),
        }
    }

    /// The environment in which sessions are created.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    fn registered(&self) -> MutexGuard<'_, Vec<(String, Registration)>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
