//! Runs shapes that MIGraphX cannot compile on ONNX Runtime's CPU provider.
use ort_ep::view::{HostSession, HostTensor, KernelContext};
use ort_ep::{Error, Result};

use super::MgxPartition;
use super::memory::{Buffer, Mover};
use super::run::Tensors;

/// Runs a partition on the CPU. `reason` says why MIGraphX could not compile it.
pub(super) fn run(
    partition: &MgxPartition,
    context: &KernelContext<'_>,
    inputs: &Tensors<'_>,
    mover: Mover<'_>,
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
    for (result, &at) in results.iter().zip(&partition.positions.outputs) {
        let result = result.as_tensor();
        if let Some(mut output) = context.output(at, result.shape()?)? {
            let bytes = result.bytes()?;
            // SAFETY: the output was created with the result's shape. The result lives until after the wait.
            unsafe { mover.copy(output.address()?, bytes.as_ptr(), bytes.len())? };
        }
    }
    mover.wait()
}
