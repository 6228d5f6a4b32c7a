//! Sessions.

use std::ffi::CString;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::rc::Rc;

use anyhow::{Context, Result};
use ort_ep_sys::{OrtSession, OrtSessionOptions, Status};

use super::{Environment, Provider, Texts, Value, assignment, os_path, port};
use crate::ort::{Assigned, Port, SessionSettings};

/// A session of one model.
pub struct Session {
    environment: Rc<Environment>,
    /// Keeps the library registered for as long as the session may call it.
    _provider: Option<Rc<Provider>>,
    raw: NonNull<OrtSession>,
}

impl Session {
    /// Loads a model.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider rejects it.
    pub fn new(environment: &Rc<Environment>, model: &Path, settings: &SessionSettings<'_>) -> Result<Self> {
        let path = os_path(model)?;
        Self::create(environment, settings, |options, raw| {
            let env = environment.raw.as_ptr();
            // SAFETY: environment and options are alive; the path is valid during the call.
            unsafe { environment.runtime.api.CreateSession(env, path.as_ptr(), options, raw) }
        })
    }

    /// Loads a model from memory.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn from_bytes(environment: &Rc<Environment>, model: &[u8], settings: &SessionSettings<'_>) -> Result<Self> {
        Self::create(environment, settings, |options, raw| {
            let (env, bytes) = (environment.raw.as_ptr(), model.as_ptr().cast());
            // SAFETY: environment and options are alive; the bytes are valid during the call and copied.
            unsafe { environment.runtime.api.CreateSessionFromArray(env, bytes, model.len(), options, raw) }
        })
    }

    fn create(
        environment: &Rc<Environment>,
        settings: &SessionSettings<'_>,
        create: impl FnOnce(*const OrtSessionOptions, *mut *mut OrtSession) -> Status,
    ) -> Result<Self> {
        let options = Options::new(environment)?;
        for (key, value) in &settings.config {
            options.config(key, value)?;
        }
        for (name, extent) in settings.dims {
            options.fix_dim(name, *extent)?;
        }
        if let Some(threads) = settings.threads {
            options.threads(threads)?;
        }
        if !settings.devices.is_empty() {
            options.append(settings)?;
        }
        let mut raw = ptr::null_mut();
        environment.runtime.check(create(options.raw.as_ptr(), &mut raw))?;
        let raw = NonNull::new(raw).context("ONNX Runtime gave no session")?;
        let provider = settings.devices.first().map(|device| Rc::clone(&device.provider));
        Ok(Self { environment: Rc::clone(environment), _provider: provider, raw })
    }

    /// The inputs, without those that have a default value in the model.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn inputs(&self) -> Result<Vec<Port>> {
        // SAFETY: the session is alive for the call.
        unsafe { port::inputs(&self.environment.runtime, self.raw) }
    }

    /// The outputs.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn outputs(&self) -> Result<Vec<Port>> {
        // SAFETY: the session is alive for the call.
        unsafe { port::outputs(&self.environment.runtime, self.raw) }
    }

    /// Which provider took which nodes. The session must have been created with
    /// `session.record_ep_graph_assignment_info`.
    ///
    /// # Errors
    /// When it was not, or ONNX Runtime fails.
    pub fn assignment(&self) -> Result<Vec<Assigned>> {
        // SAFETY: the session is alive for the call.
        unsafe { assignment::read(&self.environment.runtime, self.raw) }
    }

    /// Runs the model. The outputs are in host memory.
    ///
    /// # Errors
    /// When a name is unknown, a shape does not match, or the run fails.
    pub fn run(&self, inputs: &[(&str, &Value<'_>)], outputs: &[&str]) -> Result<Vec<Value<'_>>> {
        let runtime = &self.environment.runtime;
        let input_names = Texts::new(inputs.iter().map(|(name, _)| *name))?;
        let output_names = Texts::new(outputs.iter().copied())?;
        let values: Vec<_> = inputs.iter().map(|(_, value)| value.as_ptr()).collect();
        let mut results = vec![ptr::null_mut(); outputs.len()];
        // SAFETY: the session is alive, every array has as many valid entries as its count says, and null results make
        // ONNX Runtime allocate them.
        let status = unsafe {
            runtime.api.Run(
                self.raw.as_ptr(),
                ptr::null(),
                input_names.pointers.as_ptr(),
                values.as_ptr(),
                values.len(),
                output_names.pointers.as_ptr(),
                results.len(),
                results.as_mut_ptr(),
            )
        };
        runtime.check(status)?;
        // SAFETY: after success every entry is a value that we own, and it is dropped before the session.
        results.into_iter().map(|raw| unsafe { Value::from_raw(runtime, raw) }).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the session is ours, and its outputs borrow it.
        unsafe { self.environment.runtime.api.ReleaseSession(self.raw.as_ptr()) }
    }
}

struct Options<'e> {
    environment: &'e Environment,
    raw: NonNull<OrtSessionOptions>,
}

impl<'e> Options<'e> {
    fn new(environment: &'e Environment) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        environment.runtime.check(unsafe { environment.runtime.api.CreateSessionOptions(&mut raw) })?;
        Ok(Self { environment, raw: NonNull::new(raw).context("ONNX Runtime gave no session options")? })
    }

    fn config(&self, key: &str, value: &str) -> Result<()> {
        let (runtime, c_key, c_value) = (&self.environment.runtime, CString::new(key)?, CString::new(value)?);
        // SAFETY: the options are alive; both strings are valid during the call and copied.
        let status = unsafe { runtime.api.AddSessionConfigEntry(self.raw.as_ptr(), c_key.as_ptr(), c_value.as_ptr()) };
        runtime.check(status).with_context(|| format!("{key}={value} was refused"))
    }

    fn fix_dim(&self, name: &str, extent: usize) -> Result<()> {
        let (runtime, c_name, extent) = (&self.environment.runtime, CString::new(name)?, i64::try_from(extent)?);
        // SAFETY: the options are alive; the name is valid during the call and copied.
        runtime.check(unsafe { runtime.api.AddFreeDimensionOverrideByName(self.raw.as_ptr(), c_name.as_ptr(), extent) })
    }

    fn threads(&self, threads: u16) -> Result<()> {
        let runtime = &self.environment.runtime;
        // SAFETY: the options are alive.
        runtime.check(unsafe { runtime.api.SetIntraOpNumThreads(self.raw.as_ptr(), i32::from(threads)) })
    }

    fn append(&self, settings: &SessionSettings<'_>) -> Result<()> {
        let runtime = &self.environment.runtime;
        let devices: Vec<_> = settings.devices.iter().map(|device| device.raw.as_ptr().cast_const()).collect();
        let keys = Texts::new(settings.options.iter().map(|(key, _)| key.as_str()))?;
        let values = Texts::new(settings.options.iter().map(|(_, value)| value.as_str()))?;
        // SAFETY: everything is alive for the call, and the counts are those of the arrays.
        let status = unsafe {
            runtime.api.SessionOptionsAppendExecutionProvider_V2(
                self.raw.as_ptr(),
                self.environment.raw.as_ptr(),
                devices.as_ptr(),
                devices.len(),
                keys.pointers.as_ptr(),
                values.pointers.as_ptr(),
                settings.options.len(),
            )
        };
        runtime.check(status)
    }
}

impl Drop for Options<'_> {
    fn drop(&mut self) {
        // SAFETY: the options are ours; a session copies what it needs.
        unsafe { self.environment.runtime.api.ReleaseSessionOptions(self.raw.as_ptr()) }
    }
}
