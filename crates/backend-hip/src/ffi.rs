//! The backend's only unsafe code: passes ONNX Runtime's streams, tensors and files to the engine.
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use exec::{Capture, ExecError, Observer, Order, Parallel, Prepared, Run};
use hip::{CopyKind, DriverKind, RawStream};
use ort_ep::view::{KernelContext, Tensor, TensorMut};
use ort_ep::{DeviceKind, Error, Result};

use crate::partition::PerValue;
use crate::status;

/// The stream of a call.
pub(crate) fn stream<'a>(context: &'a KernelContext<'_>) -> Result<Option<RawStream<'a>>> {
    // SAFETY: only the umbrella creates streams for this backend's sessions, on the driver it named when the session
    // was created. The stream lives for the run.
    Ok(context.stream()?.map(|stream| unsafe { RawStream::from_ptr(stream.as_ptr()) }))
}

/// A stream handle that is kept beyond the run it came from, only for comparison and for [`begin_capture`].
pub(crate) fn outlive(stream: RawStream<'_>) -> RawStream<'static> {
    // SAFETY: the handle is not passed to the driver except as `begin_capture` describes.
    unsafe { RawStream::from_ptr(stream.as_ptr()) }
}

/// Starts recording the stream used by this thread's last run of the session.
pub(crate) fn begin_capture(device: &hip::Device, stream: RawStream<'static>) -> Result<Capture, ExecError> {
    // SAFETY: ONNX Runtime keeps a session's streams per thread (since 1.26, the first release with captures) and
    // closes them when the thread or the session ends. This thread is inside a run of the session, and the recording
    // ends when that run ends.
    unsafe { Capture::begin(device, stream) }
}

/// The bytes of an input whose value determines shapes. The caller has already synchronised the call's stream.
pub(crate) fn value<'a>(tensor: &Tensor<'a>, order: Order<'_>) -> Result<Cow<'a, [u8]>> {
    let bytes = tensor.size_bytes()?;
    if bytes == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    let address = tensor.address()?;
    if address.is_null() {
        return Err(Error::invalid_argument("an input has no address"));
    }
    match order {
        Order::Stream { device, stream, .. } if !is_readable(device, tensor) => {
            let mut copy = vec![0; bytes];
            // SAFETY: ONNX Runtime keeps inputs alive for the run. The copy has the same size and lives until the wait
            // is over.
            let copied =
                unsafe { device.copy_raw_async(copy.as_mut_ptr(), address, bytes, CopyKind::DeviceToHost, stream) };
            let done = copied.and_then(|()| device.stream_synchronize(stream));
            done.map_err(|error| status::of_driver(&error))?;
            Ok(Cow::Owned(copy))
        }
        // SAFETY: the memory is host RAM, whichever allocator it came from, and ONNX Runtime keeps inputs alive for the
        // run.
        _ => Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(address, bytes) })),
    }
}

/// Whether the host can read a tensor in place. All memory of the host driver is RAM.
fn is_readable(device: &hip::Device, tensor: &Tensor<'_>) -> bool {
    device.kind() == DriverKind::Host || tensor.memory().device == DeviceKind::Cpu
}

/// Maps a file of the model for reading.
pub(crate) fn map(file: &Path) -> io::Result<memmap2::Mmap> {
    // SAFETY: the user must not modify the model's files while a session uses them. docs/security.md says so: ONNX
    // Runtime maps the same files.
    unsafe { memmap2::Mmap::map(&File::open(file)?) }
}

/// Runs a plan on ONNX Runtime tensors.
pub(crate) fn run(
    prepared: Arc<dyn Prepared>,
    inputs: &[Tensor<'_>],
    outputs: &mut [TensorMut<'_>],
    context: &KernelContext<'_>,
    observer: Option<Arc<dyn Observer>>,
    order: Order<'_>,
) -> Result<()> {
    let inputs = inputs.iter().map(|tensor| tensor.address()).collect::<Result<PerValue<_>>>()?;
    let outputs = outputs.iter_mut().map(TensorMut::address).collect::<Result<PerValue<_>>>()?;
    let threads = OrtThreads { context, failure: Mutex::default() };
    let run = Run { inputs: &inputs, outputs: &outputs, parallel: &threads, observer };
    // SAFETY: the plan was made for the shapes of these inputs, and the outputs have the shapes it names. The host
    // device can access all memory of the host driver; the GPU device asks its driver about each address. ONNX Runtime
    // lets outputs share memory with inputs only for caches updated in place, and plans allow for that. It keeps the
    // memory until the call returns or, with a stream, reuses it only in stream order. For a capture, ONNX Runtime's
    // caller keeps the memory, as the protocol requires.
    unsafe { prepared.run(run, order) }.map_err(|error| status::of(&error))?;
    threads.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// ONNX Runtime's thread pool.
struct OrtThreads<'a> {
    context: &'a KernelContext<'a>,
    /// The error of a failed task. The run continues and fails at the end.
    failure: Mutex<Option<Error>>,
}

// SAFETY: the context is only used to start work, and only by the one thread that runs the partition. The pool's
// threads see the work, not the context.
unsafe impl Sync for OrtThreads<'_> {}

impl Parallel for OrtThreads<'_> {
    fn threads(&self) -> usize {
        // The query reads several files each time, so the result is cached.
        static THREADS: OnceLock<usize> = OnceLock::new();
        *THREADS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize) + Sync)) {
        if let Err(error) = self.context.parallel_for(tasks, 0, body) {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

/// Unsafe operations of the crate's tests.
#[cfg(test)]
pub(crate) mod tests {
    use exec::Serial;

    use super::*;

    /// Queues a run, as ONNX Runtime would. The tensors have the shapes of the plan, `out` is its output, and the test
    /// keeps them until the work is done.
    pub(crate) fn queue(prepared: Arc<dyn Prepared>, given: &[graph::Tensor], out: &mut [f32], order: Order<'_>) {
        let inputs: Vec<_> = given.iter().map(|tensor| tensor.bytes().as_ptr()).collect();
        let outputs = [out.as_mut_ptr().cast()];
        let run = Run { inputs: &inputs, outputs: &outputs, parallel: &Serial, observer: None };
        // SAFETY: guaranteed by the test.
        unsafe { prepared.run(run, order) }.unwrap();
    }
}
