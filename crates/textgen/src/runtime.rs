//! ONNX Runtime, loaded once per process.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ort::environment::Environment;

use crate::error::Doing;
use crate::{Error, Result};

/// The oldest ONNX Runtime with a supported plugin interface.
const OLDEST: &str = "1.24";

/// ONNX Runtime has one environment per process. It is never released, because sessions may outlive every [`Runtime`].
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

/// A loaded ONNX Runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    environment: Environment,
}

impl Runtime {
    /// Loads ONNX Runtime from a library, or returns the one that was already loaded from the same path.
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
        if let Some((path, environment)) = &*loaded {
            if path == library {
                return Ok(Runtime { environment: environment.clone() });
            }
            let problem = format!("{} is loaded already", path.display());
            return Err(wrong(problem, "a process has one ONNX Runtime"));
        }
        let help = format!("install onnxruntime {OLDEST} or newer, and name its library");
        let builder = ort::init_from(library).map_err(|error| wrong(error.to_string(), &help))?;
        let environment = builder
            .with_name("textgen")
            .with_telemetry(false)
            .build()
            .map_err(|error| wrong(error.to_string(), &help))?;
        *loaded = Some((library.to_path_buf(), environment.clone()));
        Ok(Runtime { environment })
    }

    /// Registers a provider's plugin library under a name.
    ///
    /// # Errors
    /// When ONNX Runtime rejects it.
    pub fn register(&self, name: &str, library: &Path) -> Result<()> {
        // ONNX Runtime resolves relative paths against its own folder.
        let library = std::fs::canonicalize(library).map_err(|source| Error::File {
            path: library.to_path_buf(),
            source,
            help: "name the provider's library".to_owned(),
        })?;
        self.environment.register_ep_library(name, library).doing("registering the provider's library")
    }

    /// The environment in which sessions are created.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }
}
