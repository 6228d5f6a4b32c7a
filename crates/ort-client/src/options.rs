//! The settings of a session.

use std::ptr::{self, NonNull};

use ort_ep_sys::{self as sys, Api, OrtSessionOptions, Status};

use crate::error::check;
use crate::text::{Texts, c_string};
use crate::{Device, Environment, Error, LogLevel, Registration, Result};

/// Makes ONNX Runtime read weights from the caller's bytes while the session lives.
const KEEPS_MODEL_BYTES: &str = "session.use_ort_model_bytes_directly";

/// How much ONNX Runtime changes a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Optimization {
    Disabled,
    Basic,
    Extended,
    Layout,
    All,
}

/// The settings of sessions. A session copies them.
#[derive(Debug)]
pub struct SessionOptions {
    raw: NonNull<OrtSessionOptions>,
    /// The libraries of the devices in the settings.
    registrations: Vec<Registration>,
    environment: Environment,
}

// SAFETY: the settings are owned, and only changed through `&mut`.
unsafe impl Send for SessionOptions {}

impl SessionOptions {
    /// ONNX Runtime's defaults: only the CPU provider.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn new(environment: &Environment) -> Result<SessionOptions> {
        let (api, mut raw) = (environment.api(), ptr::null_mut());
        // SAFETY: the out-pointer is valid.
        check(api, unsafe { api.CreateSessionOptions(&mut raw) })?;
        let raw = NonNull::new(raw).ok_or(Error::Nothing("session options"))?;
        Ok(SessionOptions { raw, registrations: Vec::new(), environment: environment.clone() })
    }

    /// Adds a session-config entry, or replaces it.
    ///
    /// # Errors
    /// When ONNX Runtime rejects it.
    pub fn config(&mut self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: the options are alive; both strings are valid during the call and copied.
        self.set(|api, raw| unsafe { api.AddSessionConfigEntry(raw, key.as_ptr(), value.as_ptr()) })
    }

    /// Fixes a dynamic dimension, by its name.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn fix_dim(&mut self, name: &str, extent: i64) -> Result<()> {
        let name = c_string(name)?;
        // SAFETY: the options are alive; the name is valid during the call and copied.
        self.set(|api, raw| unsafe { api.AddFreeDimensionOverrideByName(raw, name.as_ptr(), extent) })
    }

    /// Threads within an operator; 0 lets ONNX Runtime choose.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn intra_threads(&mut self, threads: usize) -> Result<()> {
        // SAFETY: the options are alive.
        self.set(|api, raw| unsafe { api.SetIntraOpNumThreads(raw, clamped(threads)) })
    }

    /// Threads for operators that run at the same time; 0 lets ONNX Runtime choose.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn inter_threads(&mut self, threads: usize) -> Result<()> {
        // SAFETY: the options are alive.
        self.set(|api, raw| unsafe { api.SetInterOpNumThreads(raw, clamped(threads)) })
    }

    /// The name of the session in log messages.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn log_id(&mut self, id: &str) -> Result<()> {
        let id = c_string(id)?;
        // SAFETY: the options are alive; the string is valid during the call and copied.
        self.set(|api, raw| unsafe { api.SetSessionLogId(raw, id.as_ptr()) })
    }

    /// Which messages of the session are printed.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn log_level(&mut self, level: LogLevel) -> Result<()> {
        // SAFETY: the options are alive.
        self.set(|api, raw| unsafe { api.SetSessionLogSeverityLevel(raw, level.raw()) })
    }

    /// Whether memory is planned ahead for shapes that were seen before.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn memory_pattern(&mut self, enabled: bool) -> Result<()> {
        // SAFETY: the options are alive.
        self.set(|api, raw| unsafe {
            match enabled {
                true => api.EnableMemPattern(raw),
                false => api.DisableMemPattern(raw),
            }
        })
    }

    /// How much the graph is changed.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn optimization(&mut self, level: Optimization) -> Result<()> {
        let level = match level {
            Optimization::Disabled => sys::ORT_DISABLE_ALL,
            Optimization::Basic => sys::ORT_ENABLE_BASIC,
            Optimization::Extended => sys::ORT_ENABLE_EXTENDED,
            Optimization::Layout => sys::ORT_ENABLE_LAYOUT,
            Optimization::All => sys::ORT_ENABLE_ALL,
        };
        // SAFETY: the options are alive.
        self.set(|api, raw| unsafe { api.SetSessionGraphOptimizationLevel(raw, level) })
    }

    /// Uses these devices of one provider before the CPU provider; `options` are the provider's.
    ///
    /// # Errors
    /// When ONNX Runtime rejects the devices. The provider checks its options when a session is created.
    pub fn devices(&mut self, devices: &[Device], options: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<()> {
        let (keys, values) = texts(options)?;
        let raws: Vec<_> = devices.iter().map(Device::as_ptr).collect();
        let environment = self.environment.as_ptr();
        // SAFETY: everything is alive for the call, and the counts are those of the arrays.
        self.set(|api, raw| unsafe {
            api.SessionOptionsAppendExecutionProvider_V2(
                raw,
                environment,
                raws.as_ptr(),
                raws.len(),
                keys.as_ptr(),
                values.as_ptr(),
                keys.len(),
            )
        })?;
        self.registrations.extend(devices.iter().map(|device| device.registration().clone()));
        Ok(())
    }

    /// Uses a provider inside ONNX Runtime, by its name there, before the CPU provider.
    ///
    /// # Errors
    /// When this ONNX Runtime does not have the provider, or the provider rejects an option.
    pub fn provider(&mut self, name: &str, options: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<()> {
        let (name, (keys, values)) = (c_string(name)?, texts(options)?);
        // SAFETY: everything is alive for the call, and the count is that of the arrays.
        self.set(|api, raw| unsafe {
            api.SessionOptionsAppendExecutionProvider(raw, name.as_ptr(), keys.as_ptr(), values.as_ptr(), keys.len())
        })
    }

    /// Makes a session copy what it needs of a model in memory.
    pub(crate) fn copy_model_bytes(&mut self) -> Result<()> {
        self.config(KEEPS_MODEL_BYTES, "0")
    }

    fn set(&mut self, set: impl FnOnce(&Api, *mut OrtSessionOptions) -> Status) -> Result<()> {
        let api = self.environment.api();
        check(api, set(api, self.raw.as_ptr()))
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(crate) fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    pub(crate) fn as_ptr(&self) -> *const OrtSessionOptions {
        self.raw.as_ptr()
    }
}

impl Drop for SessionOptions {
    fn drop(&mut self) {
        // SAFETY: the options are ours; sessions have copied what they need.
        unsafe { self.environment.api().ReleaseSessionOptions(self.raw.as_ptr()) }
    }
}

fn texts(options: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<(Texts, Texts)> {
    let keys = Texts::new(options.iter().map(|(key, _)| key.as_ref()))?;
    Ok((keys, Texts::new(options.iter().map(|(_, value)| value.as_ref()))?))
}

fn clamped(threads: usize) -> i32 {
    i32::try_from(threads).unwrap_or(i32::MAX)
}
