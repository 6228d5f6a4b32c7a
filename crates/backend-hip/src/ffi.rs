//! The backend's only unsafe code: streams, tensors and files of ONNX Runtime for the engine.
use std::{
    borrow::Cow,
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use exec::{Capture, ExecError, Observer, Order, Parallel, Prepared, Run};
use hip::{CopyKind, DriverKind, RawStream};
use ort_ep::{
    DeviceKind, Error, Result,
    view::{KernelContext, Tensor, TensorMut},
};

use crate::{partition::PerValue, runs::Place, status};

/// The stream of a call.
pub(crate) fn stream<'a>(context: &'a KernelContext<'_>) -> Result<Option<RawStream<'a>>> {
    // SAFETY: only the umbrella makes streams for this backend's sessions, on the driver that it named when the session was
    // made. The stream lives for the run.
    Ok(context.stream()?.map(|stream| unsafe { RawStream::from_ptr(stream.as_ptr()) }))
}

/// The name of a stream, kept beyond the run that showed it: only to compare, and for [`begin_capture`].
pub(crate) fn outlive(stream: RawStream<'_>) -> RawStream<'static> {
    // SAFETY: a name is not used with the driver except as `begin_capture` says.
    unsafe { RawStream::from_ptr(stream.as_ptr()) }
}

/// Starts recording the stream that this thread's last run of the session had.
pub(crate) fn begin_capture(device: &hip::Device, stream: RawStream<'static>) -> Result<Capture, ExecError> {
    // SAFETY: ONNX Runtime keeps a session's streams by thread (since 1.26, the first release with captures) and closes
    // them when the thread or the session ends. This thread is in a run of the session, at whose end the recording ends.
    unsafe { Capture::begin(device, stream) }
}

/// The bytes of an input whose value decides about shapes. The work of the call's stream has been waited for.
pub(crate) fn value<'a>(tensor: &Tensor<'a>, place: &Place<'_>) -> Result<Cow<'a, [u8]>> {
    let bytes = tensor.size_bytes()?;
    if bytes == 0 {
        return Ok(Cow::Borrowed(&[]));
    }
    let address = tensor.address()?;
    if address.is_null() {
        return Err(Error::invalid_argument("an input has no address"));
    }
    match place {
        Place::Stream(device, stream) if !is_readable(device, tensor) => {
            let mut copy = vec![0; bytes];
            // SAFETY: ONNX Runtime keeps inputs alive for the run, and the copy has as many bytes until the wait is over.
            let copied =
                unsafe { device.copy_raw_async(copy.as_mut_ptr(), address, bytes, CopyKind::DeviceToHost, *stream) };
            let done = copied.and_then(|()| device.stream_synchronize(*stream));
            done.map_err(|error| status::of_driver(&error))?;
            Ok(Cow::Owned(copy))
        }
        // SAFETY: the memory is RAM, whoever allocated it, and ONNX Runtime keeps inputs alive for the run.
        _ => Ok(Cow::Borrowed(unsafe { std::slice::from_raw_parts(address, bytes) })),
    }
}

/// Whether the host can read a tensor where it is. All memory of the host driver is RAM.
fn is_readable(device: &hip::Device, tensor: &Tensor<'_>) -> bool {
    device.kind() == DriverKind::Host || tensor.memory().device == DeviceKind::Cpu
}

/// A file of the model, mapped to be read.
pub(crate) fn map(file: &Path) -> io::Result<memmap2::Mmap> {
    // SAFETY: nobody changes the model's files while a session uses them. That is the user's part, and docs/security.md says so:
    // ONNX Runtime maps the same files.
    unsafe { memmap2::Mmap::map(&File::open(file)?) }
}

/// Runs a plan on tensors of ONNX Runtime.
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
    // SAFETY: the plan was made for the shapes of these inputs, and the outputs were made in the shapes it names. The host
    // device reaches all memory of the host driver; the GPU device asks its driver about each address. ONNX Runtime gives outputs that share memory with inputs only
    // to caches updated in place, which plans allow for. It keeps the memory until the call returns, or, with a
    // stream, orders its reuse behind the stream; for a capture its caller keeps it (that is the protocol's contract).
    unsafe { prepared.run(run, order) }.map_err(|error| status::of(&error))?;
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
