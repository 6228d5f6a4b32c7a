//! Runs a session into given outputs, with cancellation.

use std::ffi::{CString, c_char};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ort::AsPointer;
use ort::session::Session;
use ort::sys::{OrtRunOptions, OrtValue};

use super::{Output, Tensor, check};
use crate::error::Doing;
use crate::{Error, Result};

/// Options of runs.
#[derive(Debug)]
pub(crate) struct RunOptions {
    options: Arc<Handle>,
}

#[derive(Debug)]
struct Handle(NonNull<OrtRunOptions>);

// SAFETY: other threads only set the termination flag, which ONNX Runtime allows.
unsafe impl Send for Handle {}
// SAFETY: as above; entries are added before the options are shared.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created in `RunOptions::new`, and the last owner is gone.
        unsafe { (ort::api().ReleaseRunOptions)(self.0.as_ptr()) };
    }
}

impl RunOptions {
    /// Creates options with these entries.
    pub fn new(entries: &[(String, String)]) -> Result<RunOptions> {
        let mut options = ptr::null_mut();
        // SAFETY: `options` is written if the call succeeds, and is then ours to release.
        let handle = check(unsafe { (ort::api().CreateRunOptions)(&mut options) })
            .and_then(|()| NonNull::new(options).ok_or_else(|| ort::Error::new("ONNX Runtime returned nothing")))
            .map(Handle)
            .doing("making options of a run")?;
        for (key, value) in entries {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: the options are not shared yet; the strings are copied.
            check(unsafe { (ort::api().AddRunConfigEntry)(handle.0.as_ptr(), key.as_ptr(), value.as_ptr()) })
                .doing("setting an entry of a run")?;
        }
        Ok(RunOptions { options: Arc::new(handle) })
    }
}

/// Cancels a generation from any thread, such as a signal handler's.
#[derive(Clone, Debug)]
pub struct Canceller {
    /// Also locked while the flag of the options is set or cleared. So a run that ends by the flag finds the request
    /// here, and a reset clears all flags.
    asked: Arc<Mutex<bool>>,
    options: Arc<[Arc<Handle>]>,
}

impl Canceller {
    pub(crate) fn new(options: &[&RunOptions]) -> Canceller {
        Canceller {
            asked: Arc::new(Mutex::new(false)),
            options: options.iter().map(|options| Arc::clone(&options.options)).collect(),
        }
    }

    /// Makes the run in progress, or the next one, end with [`Error::Cancelled`].
    pub fn cancel(&self) {
        let mut asked = self.asked();
        for options in &*self.options {
            // SAFETY: the options are alive, and the flag may be set during a run. This cannot fail.
            drop(check(unsafe { (ort::api().RunOptionsSetTerminate)(options.0.as_ptr()) }));
        }
        *asked = true;
    }

    /// Whether a cancellation is pending.
    pub fn is_cancelled(&self) -> bool {
        *self.asked()
    }

    /// Withdraws a pending cancellation, so that the next run is not cancelled.
    pub fn reset(&self) {
        let mut asked = self.asked();
        for options in &*self.options {
            // SAFETY: the options are alive. During a run this only withdraws the request, as intended.
            drop(check(unsafe { (ort::api().RunOptionsUnsetTerminate)(options.0.as_ptr()) }));
        }
        *asked = false;
    }

    fn asked(&self) -> MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of a run's inputs and outputs, and buffers for its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    /// Owns the strings that the pointers refer to.
    _names: Vec<CString>,
    input_names: Vec<*const c_char>,
    output_names: Vec<*const c_char>,
    inputs: Vec<*const OrtValue>,
    outputs: Vec<*mut OrtValue>,
}

// SAFETY: the pointers refer to strings that move with it, and to values that are only stored during a run.
unsafe impl Send for Call {}
// SAFETY: runs take it by `&mut`.
unsafe impl Sync for Call {}

impl Call {
    pub fn new<'a>(
        inputs: impl IntoIterator<Item = &'a str>,
        outputs: impl IntoIterator<Item = &'a str>,
    ) -> Result<Call> {
        let mut names: Vec<CString> = inputs.into_iter().map(text).collect::<Result<_>>()?;
        let input_count = names.len();
        for name in outputs {
            names.push(text(name)?);
        }
        let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let (input_names, output_names) = pointers.split_at(input_count);
        Ok(Call {
            input_names: input_names.to_vec(),
            output_names: output_names.to_vec(),
            inputs: Vec::with_capacity(input_count),
            outputs: Vec::with_capacity(output_names.len()),
            _names: names,
        })
    }

    /// Runs the session. The first output is the logits; the others may also be inputs, if the model supports that.
    ///
    /// # Errors
    /// When the number of tensors is wrong, ONNX Runtime fails, or `canceller` was used.
    pub fn run<'a>(
        &mut self,
        session: &Session,
        options: &RunOptions,
        canceller: &Canceller,
        inputs: impl IntoIterator<Item = &'a Tensor>,
        logits: &mut Output,
        others: impl IntoIterator<Item = &'a Tensor>,
    ) -> Result<()> {
        self.inputs.clear();
        self.inputs.extend(inputs.into_iter().map(Tensor::as_ptr));
        self.outputs.clear();
        self.outputs.push(logits.before_run());
        self.outputs.extend(others.into_iter().map(|tensor| tensor.as_ptr().cast_mut()));
        if self.inputs.len() != self.input_names.len() || self.outputs.len() != self.output_names.len() {
            return Err(Error::request("the wrong number of tensors", "this is a mistake in textgen"));
        }
        // SAFETY: names and values have the given lengths and are alive during the call. Every output is a tensor,
        // which ONNX Runtime writes in place without taking ownership, or null if it allocates one. The logits are
        // borrowed mutably, and no code in this process can access the elements of the others (`Tensor` gives no access
        // to them).
        let status = unsafe {
            (ort::api().Run)(
                session.ptr().cast_mut(),
                options.options.0.as_ptr(),
                self.input_names.as_ptr(),
                self.inputs.as_ptr(),
                self.inputs.len(),
                self.output_names.as_ptr(),
                self.output_names.len(),
                self.outputs.as_mut_ptr(),
            )
        };
        let ran = check(status);
        // SAFETY: the first entry belongs to the logits, and the caller owns the value that a run leaves there.
        let taken = unsafe { logits.after_run(self.outputs[0]) };
        match ran {
            Err(_) if canceller.is_cancelled() => Err(Error::Cancelled),
            other => other.doing("running the model").and(taken),
        }
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::request(format!("{text:?} has a zero byte in it"), "use a text without one"))
}
