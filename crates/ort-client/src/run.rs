//! Repeated runs with the same inputs and outputs, and their options.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use ort_ep_sys::{Api, OrtRunOptions, OrtValue};

use crate::error::check;
use crate::text::{Texts, c_string};
use crate::{Element, Error, HostTensor, Result, Runtime, Session, Tensor, Value};

/// Options of runs. Clones are the same options.
#[derive(Clone, Debug)]
pub struct RunOptions(Arc<Options>);

#[derive(Debug)]
struct Options {
    raw: NonNull<OrtRunOptions>,
    api: Api,
}

// SAFETY: other threads only set the termination flag, which ONNX Runtime allows.
unsafe impl Send for Options {}
// SAFETY: as above; entries are added before the options are shared.
unsafe impl Sync for Options {}

impl RunOptions {
    /// Options with these run-config entries.
    ///
    /// # Errors
    /// When ONNX Runtime rejects one.
    pub fn new(runtime: &Runtime, entries: &[(impl AsRef<str>, impl AsRef<str>)]) -> Result<RunOptions> {
        let (api, mut raw) = (runtime.api, ptr::null_mut());
        // SAFETY: `raw` is written if the call succeeds, and is then ours to release.
        check(&api, unsafe { api.CreateRunOptions(&mut raw) })?;
        let options = Options { raw: NonNull::new(raw).ok_or(Error::Nothing("run options"))?, api };
        for (key, value) in entries {
            let (key, value) = (c_string(key.as_ref())?, c_string(value.as_ref())?);
            // SAFETY: the options are not shared yet; the strings are copied.
            check(&api, unsafe { api.AddRunConfigEntry(options.raw.as_ptr(), key.as_ptr(), value.as_ptr()) })?;
        }
        Ok(RunOptions(Arc::new(options)))
    }

    /// Makes runs with these options fail: those in progress soon, later ones at once. Any thread may call this.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn terminate(&self) -> Result<()> {
        // SAFETY: the options are alive, and the flag may be set during a run.
        check(&self.0.api, unsafe { self.0.api.RunOptionsSetTerminate(self.as_ptr()) })
    }

    /// Withdraws [`terminate`](Self::terminate).
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn resume(&self) -> Result<()> {
        // SAFETY: the options are alive, and the flag may be cleared during a run.
        check(&self.0.api, unsafe { self.0.api.RunOptionsUnsetTerminate(self.as_ptr()) })
    }

    fn as_ptr(&self) -> *mut OrtRunOptions {
        self.0.raw.as_ptr()
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: created in `RunOptions::new`, and the last owner is gone.
        unsafe { self.api.ReleaseRunOptions(self.raw.as_ptr()) };
    }
}

/// The names of a run's inputs and outputs, and buffers for its arguments: runs allocate nothing of their own.
#[derive(Debug)]
pub struct Call {
    input_names: Texts,
    output_names: Texts,
    inputs: Vec<*const OrtValue>,
    outputs: Vec<*mut OrtValue>,
}

// SAFETY: values are only stored during a run.
unsafe impl Send for Call {}
// SAFETY: runs take it by `&mut`.
unsafe impl Sync for Call {}

impl Call {
    /// A call with these inputs and outputs, in this order.
    ///
    /// # Errors
    /// When a name contains a NUL character.
    pub fn new<'a>(
        inputs: impl IntoIterator<Item = &'a str>,
        outputs: impl IntoIterator<Item = &'a str>,
    ) -> Result<Call> {
        let (input_names, output_names) = (Texts::new(inputs)?, Texts::new(outputs)?);
        let (inputs, outputs) = (Vec::with_capacity(input_names.len()), Vec::with_capacity(output_names.len()));
        Ok(Call { input_names, output_names, inputs, outputs })
    }

    /// Runs the session. The other outputs may also be inputs, if the model supports that.
    ///
    /// # Errors
    /// When the number of tensors is wrong, the run fails, or the options were terminated.
    pub fn run<'a>(
        &mut self,
        session: &Session,
        options: &RunOptions,
        inputs: impl IntoIterator<Item = &'a Tensor>,
        first: &mut Output,
        others: impl IntoIterator<Item = &'a Tensor>,
    ) -> Result<()> {
        self.fill(inputs, first.before_run(), others);
        let Call { input_names, output_names, inputs, outputs } = self;
        // SAFETY: options and values are alive during the call. Every output is a tensor, which ONNX Runtime writes in
        // place without taking ownership, or null if it allocates one. The first one is borrowed mutably, and no code
        // in this process can access the elements of the others (`Tensor` gives no access to them).
        let ran = unsafe { session.run_raw(options.as_ptr(), input_names, inputs, output_names, outputs) };
        // SAFETY: the first entry belongs to `first`, and the caller owns the value that a run leaves there.
        let taken = unsafe { first.after_run(session, outputs[0]) };
        ran.and(taken)
    }

    /// Like [`run`](Self::run), with a first output that stays where it is, such as on a device.
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub fn run_in_place<'a>(
        &mut self,
        session: &Session,
        options: &RunOptions,
        inputs: impl IntoIterator<Item = &'a Tensor>,
        first: &Tensor,
        others: impl IntoIterator<Item = &'a Tensor>,
    ) -> Result<()> {
        self.fill(inputs, first.as_ptr().cast_mut(), others);
        let Call { input_names, output_names, inputs, outputs } = self;
        // SAFETY: as in `run`; no output is null, and no code in this process can access the elements of any.
        unsafe { session.run_raw(options.as_ptr(), input_names, inputs, output_names, outputs) }
    }

    fn fill<'a>(
        &mut self,
        inputs: impl IntoIterator<Item = &'a Tensor>,
        first: *mut OrtValue,
        others: impl IntoIterator<Item = &'a Tensor>,
    ) {
        self.inputs.clear();
        self.inputs.extend(inputs.into_iter().map(Tensor::as_ptr));
        self.outputs.clear();
        self.outputs.push(first);
        self.outputs.extend(others.into_iter().map(|tensor| tensor.as_ptr().cast_mut()));
    }
}

/// Where a run writes an output.
#[derive(Debug)]
pub enum Output {
    /// Into existing memory, whose shape the result must have.
    Given(HostTensor),
    /// Into a tensor that the run allocates, of any shape.
    Made(MadeTensor),
}

impl Output {
    /// The type of the elements.
    pub fn element(&self) -> Element {
        match self {
            Output::Given(tensor) => tensor.element(),
            Output::Made(made) => made.element,
        }
    }

    /// The elements as bytes; empty before the first run into an allocated tensor.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Output::Given(tensor) => tensor.bytes_mut(),
            Output::Made(made) => made.bytes_mut(),
        }
    }

    /// The value to pass to a run: null if the run allocates the tensor.
    fn before_run(&mut self) -> *mut OrtValue {
        match self {
            Output::Given(tensor) => tensor.tensor().as_ptr().cast_mut(),
            Output::Made(made) => {
                made.made = None;
                ptr::null_mut()
            }
        }
    }

    /// Takes the value that a run left in the output array.
    ///
    /// # Safety
    /// `value` is what the run of this session left where [`before_run`](Self::before_run) was written to, and has no
    /// other owner.
    unsafe fn after_run(&mut self, session: &Session, value: *mut OrtValue) -> Result<()> {
        let Output::Made(made) = self else { return Ok(()) };
        // SAFETY: the caller guarantees the value.
        let Some(value) = (unsafe { Value::from_run(session, value) }) else { return Ok(()) };
        let (element, shape) = value.tensor()?;
        if element != made.element {
            let found = format!("a tensor of {}", element.name());
            return Err(Error::Type { expected: made.element.name(), found });
        }
        let (data, bytes) = value.host_data(element, &shape)?;
        made.made = Some(Made { shape, bytes, data, _value: value });
        Ok(())
    }
}

/// A tensor that runs allocate, in host memory.
#[derive(Debug)]
pub struct MadeTensor {
    element: Element,
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    shape: Vec<i64>,
    bytes: usize,
    data: *mut u8,
    _value: Value,
}

// SAFETY: the value is owned, and its elements are host memory that moves with it.
unsafe impl Send for Made {}
// SAFETY: elements are only accessed through `&mut`.
unsafe impl Sync for Made {}

impl MadeTensor {
    /// An empty tensor, before the first run.
    pub fn new(element: Element) -> MadeTensor {
        MadeTensor { element, made: None }
    }

    /// The shape of the last run's tensor; empty before the first run.
    pub fn shape(&self) -> &[i64] {
        self.made.as_ref().map_or(&[], |made| &made.shape)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.made {
            // SAFETY: these are the elements of the value in host memory, whose type and shape give this size. The
            // value lives in `self`, which is borrowed mutably.
            Some(made) if made.bytes > 0 => unsafe { std::slice::from_raw_parts_mut(made.data, made.bytes) },
            _ => &mut [],
        }
    }
}
