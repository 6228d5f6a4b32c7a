//! Runs shapes that MIGraphX cannot compile, or whose program fails, on ONNX Runtime's CPU provider.
use ort_ep::view::{HostSession, HostTensor, KernelContext, TensorMut};
use ort_ep::{Error, Result};

use super::MgxPartition;
use super::memory::{Buffer, Mover};
use super::run::Tensors;

/// Runs a partition on the CPU. `reason` says why MIGraphX cannot run it. `requested` are the outputs, if they
/// have been requested from ONNX Runtime already: a call may do that only once.
pub(super) fn run(
    partition: &MgxPartition,
    context: &KernelContext<'_>,
    inputs: &Tensors<'_>,
    mover: Mover<'_>,
    requested: Option<Vec<Option<TensorMut<'_>>>>,
    reason: &str,
) -> Result<()> {
    let model = &partition.shared.model;
    if model.bytes.is_empty() {
        return Err(Error::not_implemented(format!("a compiled partition cannot run: {reason}")));
    }
    let session = match partition.fallback.get() {
        Some(session) => session,
        None => {
            let made = HostSession::new(partition.runtime, &model.bytes, model.folder.as_deref());
            let made = made.map_err(|error| {
                Error::new(error.code(), format!("{reason}; the CPU fallback also failed: {error}"))
            })?;
            partition.fallback.get_or_init(|| made)
        }
    };
    let mut copies = Vec::with_capacity(inputs.tensors.len());
    for tensor in &inputs.tensors {
        let bytes = tensor.size_bytes()?;
        let mut copy = Buffer::new(bytes, None)?;
        // SAFETY: ONNX Runtime keeps the input for the run. The copy has the same size and is kept until after the
        // wait.
        unsafe { mover.copy(copy.address(), tensor.address()?, bytes)? };
        copies.push((copy, bytes));
    }
    mover.wait()?;
    let mut tensors = Vec::with_capacity(copies.len());
    for ((copy, bytes), (tensor, value)) in copies.iter_mut().zip(inputs.tensors.iter().zip(&model.inputs)) {
        // SAFETY: the copy is host memory of at least this size, and nothing writes to it any more.
        let bytes = unsafe { std::slice::from_raw_parts(copy.address(), *bytes) };
        let (element, shape) = (tensor.element_type()?, tensor.shape()?);
        tensors.push(HostTensor { name: &value.name, element, shape, bytes });
    }
    let names: Vec<_> = model.outputs.iter().map(|output| output.name.as_str()).collect();
    let results = session.run(&tensors, &names)?;
    let mut requested = requested.map(Vec::into_iter);
    for (result, &at) in results.iter().zip(&partition.positions.outputs) {
        let result = result.as_tensor();
        let output = match &mut requested {
            Some(requested) => requested.next().flatten(),
            None => context.output(at, result.shape()?)?,
        };
        if let Some(mut output) = output {
            let bytes = result.bytes()?;
            if output.size_bytes()? != bytes.len() {
                return Err(Error::fail(format!("output {at} has another size on the CPU; {reason}")));
            }
            // SAFETY: the output has the result's size. The result lives until after the wait.
            unsafe { mover.copy(output.address()?, bytes.as_ptr(), bytes.len())? };
        }
    }
    mover.wait()
}
