//! Runs of a session into given outputs, and their cancellation.

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

// SAFETY: the one thing done from another thread is to set the termination flag, which ONNX Runtime allows.
unsafe impl Send for Handle {}
// SAFETY: as above; entries are added before the options are shared.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made in `RunOptions::new`, and the last owner is gone.
        unsafe { (ort::api().ReleaseRunOptions)(self.0.as_ptr()) };
    }
}

impl RunOptions {
    /// Options with entries.
    pub fn new(entries: &[(String, String)]) -> Result<RunOptions> {
        let mut options = ptr::null_mut();
        // SAFETY: `options` is written when the call succeeds, and then ours to release.
        let handle = check(unsafe { (ort::api().CreateRunOptions)(&mut options) })
            .and_then(|()| NonNull::new(options).ok_or_else(|| ort::Error::new("ONNX Runtime returned nothing")))
            .map(Handle)
            .doing("making options of a run")?;
        for (key, value) in entries {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: the options are ours alone still; the texts are copied.
            check(unsafe { (ort::api().AddRunConfigEntry)(handle.0.as_ptr(), key.as_ptr(), value.as_ptr()) })
                .doing("setting an entry of a run")?;
        }
        Ok(RunOptions { options: Arc::new(handle) })
    }
}

/// Stops a generation from anywhere: another thread, or a signal's handler thread.
#[derive(Clone, Debug)]
pub struct Canceller {
    /// Locked while the options are told too: a run that ends by their flag finds the wish here, and taking it back leaves
    /// none of them behind.
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
            // SAFETY: the options are alive; setting the flag during a run is what it is for. It cannot fail.
            drop(check(unsafe { (ort::api().RunOptionsSetTerminate)(options.0.as_ptr()) }));
        }
        *asked = true;
    }

    /// Whether it was asked for, and not yet obeyed.
    pub fn is_cancelled(&self) -> bool {
        *self.asked()
    }

    /// Takes back what was asked for and has not been obeyed: the next run goes on.
    pub fn reset(&self) {
        let mut asked = self.asked();
        for options in &*self.options {
            // SAFETY: the options are alive. During a run this would only take the wish back, as asked.
            drop(check(unsafe { (ort::api().RunOptionsUnsetTerminate)(options.0.as_ptr()) }));
        }
        *asked = false;
    }

    fn asked(&self) -> MutexGuard<'_, bool> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of a run's inputs and outputs, and room for its arguments.
#[derive(Debug)]
pub(crate) struct Call {
    /// Own the texts that the pointers name.
    _names: Vec<CString>,
    input_names: Vec<*const c_char>,
    output_names: Vec<*const c_char>,
    inputs: Vec<*const OrtValue>,
    outputs: Vec<*mut OrtValue>,
}

// SAFETY: the pointers name texts that move with it, and values that are only there during a run.
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

    /// Runs the session. The first output is the logits; the others may be inputs too, where the model is made for that.
    ///
    /// # Errors
    /// When the numbers of tensors are wrong, ONNX Runtime refuses, or `canceller` was used.
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
        // SAFETY: names and values have the lengths given and are alive over the call. Every output is a tensor, which ONNX
        // Runtime writes in place and does not take, or null where it makes one: the logits are borrowed mutably, and of the
        // others nobody in this process can see the elements (`Tensor` gives no access to them).
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
        // SAFETY: the first place is the logits', and what a run leaves there is the caller's.
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
