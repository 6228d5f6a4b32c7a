//! A session of our own on ONNX Runtime's CPU provider, for work that the device turns out not to support.
use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr;

use ort_ep_sys as sys;

use super::tensor::OwnedTensor;
use crate::ffi::runtime::c_string;
use crate::{ElementType, Error, Result, Runtime};

/// A tensor in host memory.
#[derive(Clone, Copy, Debug)]
pub struct HostTensor<'a> {
    /// The name of the model's input.
    pub name: &'a str,
    /// The element type.
    pub element: ElementType,
    /// The length of every axis.
    pub shape: &'a [i64],
    /// The elements.
    pub bytes: &'a [u8],
}

/// A model that runs on the CPU provider of the runtime that loaded us.
#[derive(Debug)]
pub struct HostSession {
    runtime: Runtime,
    environment: *mut sys::OrtEnv,
    session: *mut sys::OrtSession,
}

// SAFETY: the runtime's sessions and environments may be used from any thread.
unsafe impl Send for HostSession {}
// SAFETY: as above; `Run` may be called concurrently.
unsafe impl Sync for HostSession {}

impl HostSession {
    /// Loads a serialised model whose external weights are in `folder`.
    ///
    /// # Errors
    /// If the runtime rejects the model.
    pub fn new(runtime: Runtime, model: &[u8], folder: Option<&Path>) -> Result<Self> {
        // Released by `drop` from here on, even on failure.
        let mut made = Self { runtime, environment: ptr::null_mut(), session: ptr::null_mut() };
        // SAFETY: the name is copied; the out-pointer is ours. A process has one environment: this adds a reference to
        // it.
        unsafe {
            call!(runtime, CreateEnv(sys::ORT_LOGGING_LEVEL_WARNING, c"fallback".as_ptr(), &mut made.environment))?
        };
        let options = Options::new(runtime)?;
        if let Some(folder) = folder {
            let (key, value) =
                (c"session.model_external_initializers_file_folder_path", c_string(&folder.to_string_lossy()));
            // SAFETY: the options are ours; both texts are copied.
            unsafe { call!(runtime, AddSessionConfigEntry(options.raw, key.as_ptr(), value.as_ptr()))? };
        }
        // SAFETY: the model is read during the call; everything else is alive.
        unsafe {
            call!(
                runtime,
                CreateSessionFromArray(
                    made.environment,
                    model.as_ptr().cast(),
                    model.len(),
                    options.raw,
                    &mut made.session,
                )
            )?
        };
        Ok(made)
    }

    /// Runs the model; the outputs are in the order of their names.
    ///
    /// # Errors
    /// If the run fails.
    pub fn run(&self, inputs: &[HostTensor<'_>], outputs: &[&str]) -> Result<Vec<OwnedTensor>> {
        let memory = CpuMemory::new(self.runtime)?;
        let values = inputs.iter().map(|input| memory.tensor(input)).collect::<Result<Vec<_>>>()?;
        let values: Vec<_> = values.iter().map(|value| value.as_tensor().as_ptr()).collect();
        let texts = |names: &mut dyn Iterator<Item = &str>| names.map(c_string).collect::<Vec<CString>>();
        let input_names = texts(&mut inputs.iter().map(|input| input.name));
        let output_names = texts(&mut outputs.iter().copied());
        let pointers = |names: &[CString]| names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let (input_names, output_names) = (pointers(&input_names), pointers(&output_names));
        let mut made = vec![ptr::null_mut(); outputs.len()];
        // SAFETY: the session is alive; all lists have the given length; values and names outlive the call.
        unsafe {
            call!(
                self.runtime,
                Run(
                    self.session,
                    ptr::null(),
                    input_names.as_ptr(),
                    values.as_ptr(),
                    values.len(),
                    output_names.as_ptr(),
                    output_names.len(),
                    made.as_mut_ptr(),
                )
            )?
        };
        // SAFETY: the runtime made the values for us.
        Ok(made.into_iter().map(|value| unsafe { OwnedTensor::from_raw(self.runtime, value) }).collect())
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        // SAFETY: both are ours alone; null is allowed.
        unsafe {
            self.runtime.api.ReleaseSession(self.session);
            self.runtime.api.ReleaseEnv(self.environment);
        }
    }
}

struct Options {
    runtime: Runtime,
    raw: *mut sys::OrtSessionOptions,
}

impl Options {
    fn new(runtime: Runtime) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is ours.
        unsafe { call!(runtime, CreateSessionOptions(&mut raw))? };
        Ok(Self { runtime, raw })
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: the options are ours alone.
        unsafe { self.runtime.api.ReleaseSessionOptions(self.raw) }
    }
}

struct CpuMemory {
    runtime: Runtime,
    raw: *mut sys::OrtMemoryInfo,
}

impl CpuMemory {
    fn new(runtime: Runtime) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is ours.
        unsafe { call!(runtime, CreateCpuMemoryInfo(sys::ORT_ALLOCATOR_DEVICE, sys::ORT_MEM_DEFAULT, &mut raw))? };
        Ok(Self { runtime, raw })
    }

    /// A value over the caller's bytes, which must outlive it.
    fn tensor(&self, input: &HostTensor<'_>) -> Result<OwnedTensor> {
        let bits = input.element.bits().unwrap_or(0);
        let elems = input.shape.iter().try_fold(1_usize, |elems, &dim| elems.checked_mul(usize::try_from(dim).ok()?));
        if bits == 0
            || elems.and_then(|elems| elems.checked_mul(bits)).is_none_or(|bits| bits.div_ceil(8) != input.bytes.len())
        {
            let (name, shape, bytes) = (input.name, input.shape, input.bytes.len());
            return Err(Error::invalid_argument(format!(
                "{bytes} bytes do not fit the {:?} tensor {name:?} of shape {shape:?}",
                input.element
            )));
        }
        let mut raw = ptr::null_mut();
        let data = input.bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the runtime does not write to inputs; there are as many bytes as given, and shape and elements agree.
        unsafe {
            call!(
                self.runtime,
                CreateTensorWithDataAsOrtValue(
                    self.raw,
                    data,
                    input.bytes.len(),
                    input.shape.as_ptr(),
                    input.shape.len(),
                    input.element.to_raw(),
                    &mut raw,
                )
            )?;
            Ok(OwnedTensor::from_raw(self.runtime, raw))
        }
    }
}

impl Drop for CpuMemory {
    fn drop(&mut self) {
        // SAFETY: the description is ours alone.
        unsafe { self.runtime.api.ReleaseMemoryInfo(self.raw) }
    }
}
