//! The backend's only unsafe code: tensors of ONNX Runtime as memory for a plan.
use std::sync::{Mutex, OnceLock, PoisonError};

use exec::{
    Parallel, Program,
    host::{self, Observer, RunState},
};
use graph::Plan;
use ort_ep::{
    Error, Result,
    view::{KernelContext, Tensor, TensorMut},
};

/// Waits for what is queued on the run's stream: copies of inputs, under the umbrella.
pub(crate) fn wait_for_inputs(context: &KernelContext<'_>, known: &OnceLock<hip::Device>) -> Result<()> {
    let Some(stream) = context.stream()? else { return Ok(()) };
    let failed = |error: &dyn std::fmt::Display| Error::ep_fail(error.to_string());
    let device = match known.get() {
        Some(device) => device,
        None => {
            let driver = hip::Driver::load(hip::DriverKind::Host).map_err(|error| failed(&error))?;
            let first = driver.devices().map_err(|error| failed(&error))?.into_iter().next();
            let Some(first) = first else { return Ok(()) };
            known.get_or_init(|| first)
        }
    };
    // SAFETY: only the umbrella makes streams for this backend's sessions, on the host driver: the factory refuses any
    // other. The stream lives for the run.
    let stream = unsafe { hip::RawStream::from_ptr(stream.as_ptr()) };
    device.stream_synchronize(stream).map_err(|error| failed(&error))
}

/// The bytes of an input whose value decides about shapes.
pub(crate) fn value<'a>(tensor: &Tensor<'a>) -> Result<&'a [u8]> {
    let bytes = tensor.size_bytes()?;
    if bytes == 0 {
        return Ok(&[]);
    }
    let address = tensor.address()?;
    if address.is_null() {
        return Err(Error::invalid_argument("an input has no address"));
    }
    // SAFETY: on the host device all memory is RAM, whoever allocated it, and ONNX Runtime keeps inputs alive for the run.
    Ok(unsafe { std::slice::from_raw_parts(address, bytes) })
}

/// Runs a plan on tensors of ONNX Runtime.
pub(crate) fn run(
    program: &Program,
    plan: &Plan,
    inputs: &[Tensor<'_>],
    outputs: &mut [TensorMut<'_>],
    state: &mut RunState,
    context: &KernelContext<'_>,
    observer: Option<&mut Observer<'_>>,
) -> Result<()> {
    let inputs = inputs.iter().map(|tensor| tensor.address()).collect::<Result<Vec<_>>>()?;
    let outputs = outputs.iter_mut().map(TensorMut::address).collect::<Result<Vec<_>>>()?;
    let threads = OrtThreads { context, failure: Mutex::default() };
    // SAFETY: the plan was made for the shapes of these inputs, and the outputs were made in the shapes it names. The host
    // device is offered without memory of its own, so ONNX Runtime keeps every tensor of a partition in host memory. It
    // gives outputs that share memory with inputs only to caches updated in place, which no operator here does.
    unsafe { host::run(program.graph(), plan, &inputs, &outputs, state, &threads, observer) }
        .map_err(|error| Error::ep_fail(error.to_string()))?;
    threads.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// ONNX Runtime's own threads.
struct OrtThreads<'a> {
    context: &'a KernelContext<'a>,
    /// What went wrong in a task: the run goes on, and fails at its end.
    failure: Mutex<Option<Error>>,
}

// SAFETY: the context is only used to start work, by the one thread that runs the partition; the pool's threads see the
// work and not the context.
unsafe impl Sync for OrtThreads<'_> {}

impl Parallel for OrtThreads<'_> {
    fn threads(&self) -> usize {
        // The question reads several files each time, so it is asked once.
        static THREADS: OnceLock<usize> = OnceLock::new();
        *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if let Err(error) = self.context.parallel_for(tasks, 0, body) {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}
