//! Sessions.

use std::ffi::CString;
use std::ptr::{self, NonNull};

use anyhow::{Context, Result};
use ort_ep_sys::{OrtSession, OrtSessionOptions};

use super::{Device, Environment, Value};

/// A session on some devices, with the CPU provider as fallback.
pub struct Session<'e> {
    environment: &'e Environment,
    raw: NonNull<OrtSession>,
}

impl<'e> Session<'e> {
    /// A session from a model's bytes. Without devices it runs on the CPU provider only.
    ///
    /// # Errors
    /// When ONNX Runtime or the provider reports an error.
    pub fn new(
        environment: &'e Environment,
        model: &[u8],
        devices: &[Device<'_>],
        options: &[(&str, &str)],
    ) -> Result<Self> {
        let settings = Settings::new(environment)?;
        if !devices.is_empty() {
            settings.append(devices, options)?;
        }
        let runtime = &environment.runtime;
        let mut raw = ptr::null_mut();
        // SAFETY: environment and options are alive, the model's bytes are valid for the call.
        let status = unsafe {
            runtime.api.CreateSessionFromArray(
                environment.raw.as_ptr(),
                model.as_ptr().cast(),
                model.len(),
                settings.raw.as_ptr(),
                &mut raw,
            )
        };
        runtime.check(status)?;
        Ok(Self { environment, raw: NonNull::new(raw).context("ONNX Runtime returned no session")? })
    }

    /// Runs the model; the outputs are CPU tensors.
    ///
    /// # Errors
    /// When a name is unknown, a shape does not match, or the run fails.
    pub fn run(&self, inputs: &[(&str, &Value<'_>)], outputs: &[&str]) -> Result<Vec<Value<'e>>> {
        let runtime = &self.environment.runtime;
        let input_names = Texts::new(inputs.iter().map(|(name, _)| *name))?;
        let output_names = Texts::new(outputs.iter().copied())?;
        let values: Vec<_> = inputs.iter().map(|(_, value)| value.raw.as_ptr().cast_const()).collect();
        let mut results = vec![ptr::null_mut(); outputs.len()];
        // SAFETY: the session is alive, every array has as many valid entries as its count says, and null results ask
        // ONNX Runtime to allocate.
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
        results.into_iter().map(|raw| Value::from_raw(runtime, raw)).collect()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        // SAFETY: the session is ours and nothing borrows it any more.
        unsafe { self.environment.runtime.api.ReleaseSession(self.raw.as_ptr()) }
    }
}

struct Settings<'e> {
    environment: &'e Environment,
    raw: NonNull<OrtSessionOptions>,
}

impl<'e> Settings<'e> {
    fn new(environment: &'e Environment) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is valid.
        environment.runtime.check(unsafe { environment.runtime.api.CreateSessionOptions(&mut raw) })?;
        Ok(Self { environment, raw: NonNull::new(raw).context("ONNX Runtime returned no session options")? })
    }

    fn append(&self, devices: &[Device<'_>], options: &[(&str, &str)]) -> Result<()> {
        let runtime = &self.environment.runtime;
        let devices: Vec<_> = devices.iter().map(|device| device.raw.as_ptr().cast_const()).collect();
        let keys = Texts::new(options.iter().map(|(key, _)| *key))?;
        let values = Texts::new(options.iter().map(|(_, value)| *value))?;
        // SAFETY: everything is alive for the call, and the counts are those of the arrays.
        let status = unsafe {
            runtime.api.SessionOptionsAppendExecutionProvider_V2(
                self.raw.as_ptr(),
                self.environment.raw.as_ptr(),
                devices.as_ptr(),
                devices.len(),
                keys.pointers.as_ptr(),
                values.pointers.as_ptr(),
                options.len(),
            )
        };
        runtime.check(status)
    }
}

impl Drop for Settings<'_> {
    fn drop(&mut self) {
        // SAFETY: the options are ours; a session copies what it needs.
        unsafe { self.environment.runtime.api.ReleaseSessionOptions(self.raw.as_ptr()) }
    }
}

/// C strings, and pointers to them.
struct Texts {
    _texts: Vec<CString>,
    pointers: Vec<*const std::ffi::c_char>,
}

impl Texts {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Self> {
        let texts = texts.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let pointers = texts.iter().map(|text| text.as_ptr()).collect();
        Ok(Self { _texts: texts, pointers })
    }
}
