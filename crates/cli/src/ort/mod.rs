//! ONNX Runtime as this command uses it: errors without details for developers, and tensors as arrays.

pub mod array;
pub mod element;
pub mod message;

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ort_client::{
    Device, Dim, Environment, Kind, LoadError, LogLevel, Registration, Runtime, Session, SessionOptions, Value,
};

pub use array::Array;
pub use element::Numeric;

/// Turns a result of ONNX Runtime into one for users of the command.
pub trait Reported<T> {
    /// The result, with a plain message if it is an error.
    ///
    /// # Errors
    /// That of the call.
    fn reported(self) -> Result<T>;
}

impl<T> Reported<T> for ort_client::Result<T> {
    fn reported(self) -> Result<T> {
        self.map_err(|error| match &error {
            ort_client::Error::Call { message, .. } => anyhow!("ONNX Runtime: {}", message::plain(message)),
            _ => error.into(),
        })
    }
}

/// Dimensions as text: `[batch, 3, ?]`.
pub fn dims_text(dims: &[Dim]) -> String {
    format!("[{}]", dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", "))
}

/// Loads ONNX Runtime. It logs only fatal errors; all others are returned as results.
///
/// # Errors
/// When the library cannot be loaded, is not ONNX Runtime, or is too old.
pub fn environment(library: &Path) -> Result<Environment> {
    let path = library.display();
    let runtime = match Runtime::load(library) {
        Ok(runtime) => runtime,
        Err(LoadError::Open(reason)) => {
            let file = dylib::file_name("onnxruntime");
            bail!("ONNX Runtime could not be loaded from {path}: {reason}\n  help: name {file} with --ort")
        }
        Err(LoadError::NotOnnxRuntime) => bail!("{path} is not ONNX Runtime: it has no OrtGetApiBase"),
        Err(error) => return Err(error).with_context(|| format!("{path} cannot be used")),
    };
    Environment::new(&runtime, "amdgpu-ep", LogLevel::Fatal).reported()
}

/// Registers a provider's library, and lists its devices. It is unregistered once the last device and session are
/// dropped.
///
/// # Errors
/// When ONNX Runtime or the library rejects it.
pub fn devices(environment: &Environment, name: &str, library: &Path) -> Result<Vec<Device>> {
    // All options of these commands come from the command line, which is trusted.
    let registered = textgen::with_trusted_options(library, || Registration::new(environment, name, library));
    let registration =
        registered.reported().with_context(|| format!("{} could not be registered", library.display()))?;
    registration.devices().reported()
}

/// Settings for creating a session.
#[derive(Clone, Debug, Default)]
pub struct SessionSettings<'a> {
    /// The devices to use before the CPU provider; if empty, only the CPU provider is used.
    pub devices: &'a [Device],
    /// Options of the provider.
    pub options: &'a [(String, String)],
    /// Session-config entries.
    pub config: Vec<(String, String)>,
    /// Threads within an operator; `None` lets ONNX Runtime choose.
    pub threads: Option<u16>,
    /// Dynamic dimensions to fix, by name.
    pub dims: &'a [(String, usize)],
}

impl SessionSettings<'_> {
    /// Loads a model from a file.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider rejects it.
    pub fn open(&self, environment: &Environment, model: &Path) -> Result<Session> {
        Session::from_file(&self.options(environment)?, model).reported()
    }

    /// Loads a model from memory.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider rejects it.
    pub fn open_bytes(&self, environment: &Environment, model: &[u8]) -> Result<Session> {
        Session::from_bytes(&mut self.options(environment)?, model).reported()
    }

    fn options(&self, environment: &Environment) -> Result<SessionOptions> {
        let mut options = SessionOptions::new(environment).reported()?;
        for (key, value) in &self.config {
            options.config(key, value).reported().with_context(|| format!("{key}={value} was refused"))?;
        }
        for (name, extent) in self.dims {
            options.fix_dim(name, i64::try_from(*extent)?).reported()?;
        }
        if let Some(threads) = self.threads {
            options.intra_threads(threads.into()).reported()?;
        }
        if !self.devices.is_empty() {
            options.devices(self.devices, self.options).reported()?;
        }
        Ok(options)
    }
}

/// A tensor with a copy of an array's content.
///
/// # Errors
/// When the memory cannot be allocated.
pub fn value(environment: &Environment, array: &Array) -> Result<Value> {
    let shape = array.shape().iter().map(|&extent| i64::try_from(extent)).collect::<Result<Vec<_>, _>>()?;
    Value::from_bytes(environment.runtime(), array.element(), &shape, array.bytes()).reported()
}

/// A copy of a tensor of numbers, or a description of any other value.
///
/// # Errors
/// When ONNX Runtime fails, or the tensor is not in host memory.
pub fn array(value: &Value) -> Result<Result<Array, String>> {
    let extents = |dims: &[Dim]| -> Vec<usize> {
        dims.iter().map(|dim| if let Dim::Size(size) = dim { *size } else { 0 }).collect()
    };
    let kind = value.kind().reported()?;
    Ok(match &kind {
        Kind::Tensor(element, dims) => {
            let content = value.bytes().reported()?.to_vec();
            Ok(Array::new(*element, extents(dims), content).context("a tensor does not fill its shape")?)
        }
        Kind::Strings(dims) => Err(format!("strings {:?}", extents(dims))),
        Kind::OtherTensor(_, dims) => Err(format!("{kind} {:?}", extents(dims))),
        Kind::Other(what) => Err((*what).to_owned()),
    })
}
