//! Sessions.

use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{Api, OrtRunOptions, OrtSession, OrtSessionOptions, OrtValue, Status};

use crate::error::check;
use crate::text::{Texts, os_path};
use crate::{Assigned, Environment, Error, Port, Registration, Result, SessionOptions, Value, assignment, port};

/// A loaded model. Cheap to clone. Everything that uses the session holds it, so it may be dropped in any order.
#[derive(Clone, Debug)]
pub struct Session(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: Raw,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

/// Releases the session before what it uses.
#[derive(Debug)]
struct Raw {
    session: NonNull<OrtSession>,
    /// Keep the libraries registered for as long as the session may call them.
    _registrations: Vec<Registration>,
    environment: Environment,
}

// SAFETY: ONNX Runtime allows calls on a session from any thread.
unsafe impl Send for Raw {}
// SAFETY: as above; runs may overlap.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the session is ours; its outputs and allocators hold it, so none is left.
        unsafe { self.environment.api().ReleaseSession(self.session.as_ptr()) }
    }
}

impl Session {
    /// Loads a model from a file.
    ///
    /// # Errors
    /// When ONNX Runtime or a provider rejects it.
    pub fn from_file(options: &SessionOptions, model: &Path) -> Result<Session> {
        let path = os_path(model)?;
        let environment = options.environment();
        Self::create(options, |options, raw| {
            // SAFETY: environment and options are alive; the path is valid during the call.
            unsafe { environment.api().CreateSession(environment.as_ptr(), path.as_ptr(), options, raw) }
        })
    }

    /// Loads a model from memory.
    ///
    /// # Errors
    /// See [`from_file`](Self::from_file).
    pub fn from_bytes(options: &mut SessionOptions, model: &[u8]) -> Result<Session> {
        options.copy_model_bytes()?;
        let environment = options.environment();
        Self::create(options, |options, raw| {
            let (env, bytes) = (environment.as_ptr(), model.as_ptr().cast());
            // SAFETY: environment and options are alive; the bytes are valid during the call, and copied.
            unsafe { environment.api().CreateSessionFromArray(env, bytes, model.len(), options, raw) }
        })
    }

    fn create(
        options: &SessionOptions,
        create: impl FnOnce(*const OrtSessionOptions, *mut *mut OrtSession) -> Status,
    ) -> Result<Session> {
        let (environment, mut raw) = (options.environment().clone(), ptr::null_mut());
        check(environment.api(), create(options.as_ptr(), &mut raw))?;
        let session = NonNull::new(raw).ok_or(Error::Nothing("session"))?;
        let raw = Raw { session, _registrations: options.registrations().to_vec(), environment };
        // SAFETY: the session was just created.
        let (inputs, outputs) = unsafe { port::read(raw.environment.api(), session.as_ptr()) }?;
        Ok(Session(Arc::new(Inner { raw, inputs, outputs })))
    }

    /// The inputs, without those that have a default value in the model.
    pub fn inputs(&self) -> &[Port] {
        &self.0.inputs
    }

    /// The outputs.
    pub fn outputs(&self) -> &[Port] {
        &self.0.outputs
    }

    /// Which provider took which nodes. The session must have been created with
    /// `session.record_ep_graph_assignment_info`.
    ///
    /// # Errors
    /// When it was not, or ONNX Runtime fails.
    pub fn assignment(&self) -> Result<Vec<Assigned>> {
        // SAFETY: the session is alive for the call.
        unsafe { assignment::read(self.api(), self.as_ptr()) }
    }

    /// Runs the model. ONNX Runtime allocates the outputs, in host memory.
    ///
    /// # Errors
    /// When a name is unknown, a shape does not match, or the run fails.
    pub fn run(&self, inputs: &[(&str, &Value)], outputs: &[&str]) -> Result<Vec<Value>> {
        let input_names = Texts::new(inputs.iter().map(|(name, _)| *name))?;
        let output_names = Texts::new(outputs.iter().copied())?;
        let values: Vec<_> = inputs.iter().map(|(_, value)| value.as_ptr()).collect();
        let mut results = vec![ptr::null_mut(); outputs.len()];
        // SAFETY: the values are borrowed for the call, and null results make ONNX Runtime allocate them.
        let ran = unsafe { self.run_raw(ptr::null(), &input_names, &values, &output_names, &mut results) };
        // SAFETY: every entry is null or a value that we own; a failed run may leave some.
        let results = results.into_iter().map(|raw| unsafe { Value::from_run(self, raw) });
        let results: Vec<_> = results.collect();
        ran?;
        results.into_iter().map(|value| value.ok_or(Error::Nothing("output"))).collect()
    }

    /// # Safety
    /// The options are null or alive; all inputs are live values, and all outputs are null or live values whose
    /// elements nothing in this process uses during the call. Afterwards the caller owns what was null before.
    pub(crate) unsafe fn run_raw(
        &self,
        options: *const OrtRunOptions,
        input_names: &Texts,
        inputs: &[*const OrtValue],
        output_names: &Texts,
        outputs: &mut [*mut OrtValue],
    ) -> Result<()> {
        for (names, found) in [(input_names, inputs.len()), (output_names, outputs.len())] {
            if names.len() != found {
                return Err(Error::Count { expected: names.len(), found });
            }
        }
        // SAFETY: the session is alive, every array has as many entries as its count says, and the caller guarantees
        // the values.
        let status = unsafe {
            self.api().Run(
                self.as_ptr(),
                options,
                input_names.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                output_names.as_ptr(),
                outputs.len(),
                outputs.as_mut_ptr(),
            )
        };
        check(self.api(), status)
    }

    /// The environment in which it was created.
    pub fn environment(&self) -> &Environment {
        &self.0.raw.environment
    }

    pub(crate) fn api(&self) -> &Api {
        self.environment().api()
    }

    pub(crate) fn as_ptr(&self) -> *mut OrtSession {
        self.0.raw.session.as_ptr()
    }
}
