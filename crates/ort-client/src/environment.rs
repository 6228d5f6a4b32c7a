//! The environment.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{self as sys, Api, OrtEnv, OrtValue};

use crate::error::check;
use crate::text::c_string;
use crate::{Error, HostTensor, Result, Runtime, Tensor, Value};

/// Which messages ONNX Runtime prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum LogLevel {
    Verbose,
    Info,
    Warning,
    Error,
    Fatal,
}

impl LogLevel {
    pub(crate) fn raw(self) -> i32 {
        match self {
            LogLevel::Verbose => sys::ORT_LOGGING_LEVEL_VERBOSE,
            LogLevel::Info => sys::ORT_LOGGING_LEVEL_INFO,
            LogLevel::Warning => sys::ORT_LOGGING_LEVEL_WARNING,
            LogLevel::Error => sys::ORT_LOGGING_LEVEL_ERROR,
            LogLevel::Fatal => sys::ORT_LOGGING_LEVEL_FATAL,
        }
    }
}

/// ONNX Runtime's environment. A process has only one, however often it is opened. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Environment(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
    raw: NonNull<OrtEnv>,
}

// SAFETY: ONNX Runtime allows calls on an environment from any thread; changes of it lock internally.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Environment {
    /// Opens the environment. `name` appears in log messages.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn new(runtime: &Runtime, name: &str, log: LogLevel) -> Result<Environment> {
        let (api, name) = (&runtime.api, c_string(name)?);
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers are valid for the call; the name is copied.
        check(api, unsafe { api.CreateEnv(log.raw(), name.as_ptr(), &mut raw) })?;
        let raw = NonNull::new(raw).ok_or(Error::Nothing("environment"))?;
        Ok(Environment(Arc::new(Inner { runtime: runtime.clone(), raw })))
    }

    /// Stops ONNX Runtime from sending telemetry.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn disable_telemetry(&self) -> Result<()> {
        // SAFETY: the environment is alive.
        check(self.api(), unsafe { self.api().DisableTelemetryEvents(self.as_ptr()) })
    }

    /// The library that the environment belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Copies the contents of each source to the destination with the same index, and waits for it.
    ///
    /// # Errors
    /// When the numbers of values differ, or a copy fails.
    pub fn copy(&self, sources: &[&Value], destinations: &mut [&mut Value]) -> Result<()> {
        if sources.len() != destinations.len() {
            return Err(Error::Count { expected: sources.len(), found: destinations.len() });
        }
        let sources: Vec<_> = sources.iter().map(|value| value.as_ptr()).collect();
        let mut destinations: Vec<_> = destinations.iter().map(|value| value.as_ptr()).collect();
        // SAFETY: the values are borrowed for the call, the destinations mutably.
        unsafe { self.copy_raw(&sources, &mut destinations) }
    }

    /// Like [`copy`](Self::copy), between views of memory. The pairs are copied in any order.
    ///
    /// # Errors
    /// When the tensors of a pair have different sizes or overlap, or a copy fails.
    pub fn copy_tensors(&self, pairs: &[(Tensor, Tensor)]) -> Result<()> {
        for (from, to) in pairs {
            if !from.can_be_copied_to(to) {
                return Err(Error::Copy { from: from.bytes(), to: to.bytes() });
            }
        }
        // ONNX Runtime copies to and from devices only.
        let others: Vec<_> = pairs.iter().filter(|(from, to)| !from.copied_on_host(to)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let sources: Vec<_> = others.iter().map(|(from, _)| from.as_ptr()).collect();
        let mut destinations: Vec<_> = others.iter().map(|(_, to)| to.as_ptr()).collect();
        // SAFETY: the values are borrowed for the call. No code in this process can access the elements of tensors that
        // share a block (`Tensor` gives no access to them).
        unsafe { self.copy_raw(&sources, &mut destinations) }
    }

    /// Copies each tensor to host memory, and waits for it.
    ///
    /// # Errors
    /// When the tensors of a pair have different sizes, or a copy fails.
    pub fn copy_to_host<'a>(&self, pairs: impl IntoIterator<Item = (&'a Tensor, &'a mut HostTensor)>) -> Result<()> {
        let (mut sources, mut destinations) = (Vec::new(), Vec::new());
        for (from, to) in pairs {
            let to = to.tensor();
            if !from.can_be_copied_to(to) {
                return Err(Error::Copy { from: from.bytes(), to: to.bytes() });
            }
            // ONNX Runtime copies to and from devices only.
            if !from.copied_on_host(to) {
                sources.push(from.as_ptr());
                destinations.push(to.as_ptr());
            }
        }
        if sources.is_empty() {
            return Ok(());
        }
        // SAFETY: the values are borrowed for the call, the destinations mutably.
        unsafe { self.copy_raw(&sources, &mut destinations) }
    }

    /// # Safety
    /// Both lists have the same length and hold live values. Nothing else uses the elements of the destinations.
    pub(crate) unsafe fn copy_raw(&self, from: &[*const OrtValue], to: &mut [*const OrtValue]) -> Result<()> {
        // SAFETY: the caller guarantees the values; without a stream, the copy is complete on return.
        let status = unsafe {
            self.api().CopyTensors(self.as_ptr(), from.as_ptr(), to.as_mut_ptr(), ptr::null_mut(), from.len())
        };
        check(self.api(), status)
    }

    pub(crate) fn api(&self) -> &Api {
        &self.0.runtime.api
    }

    pub(crate) fn as_ptr(&self) -> *mut OrtEnv {
        self.0.raw.as_ptr()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: everything created from the environment holds it, so nothing that uses it is left.
        unsafe { self.runtime.api.ReleaseEnv(self.raw.as_ptr()) }
    }
}
