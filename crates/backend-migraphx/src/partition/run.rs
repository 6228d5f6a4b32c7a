//! One run of a partition.
use ort_ep::view::{KernelContext, Tensor};
use ort_ep::{Error, ErrorCode, Result};

use super::loaded::{Call, Input, Output};
use super::memory::Mover;
use super::programs::State;
use super::{MgxPartition, padding};
use crate::status;

/// The inputs of a run.
pub(super) struct Tensors<'a> {
    pub tensors: Vec<Tensor<'a>>,
    pub shapes: Vec<Vec<usize>>,
}

/// Runs a partition on ONNX Runtime tensors.
pub(super) fn compute(partition: &MgxPartition, context: &KernelContext<'_>) -> Result<()> {
    let tools = &partition.shared.tools;
    let inputs = inputs(partition, context)?;
    let sequences = partition.shared.sequences.as_ref();
    let padding = padding::plan(&partition.shared.model.inputs, &inputs.shapes, &tools.options, sequences);
    let mover = mover(partition, context)?;
    let slot = partition.shared.programs.slot(&padding.shapes);
    let mut state = slot.lock();
    partition.shared.ensure(&mut state, &padding.shapes);
    let loaded = match &mut *state {
        State::Ready(loaded) => loaded,
        State::Empty => return Err(Error::fail("no program was compiled")),
        State::Failed(reason) => {
            let reason = reason.clone();
            drop(state);
            return super::fallback::run(partition, context, &inputs, mover, None, &reason);
        }
    };
    let bound = bind(partition, &inputs)?;
    let mut outputs = Vec::with_capacity(loaded.outputs.len());
    // The tensors are borrowed from the context, so keep them until the run is over.
    let mut held = Vec::with_capacity(loaded.outputs.len());
    for (at, (value, shape)) in partition.shared.model.outputs.iter().zip(&loaded.outputs).enumerate() {
        // MIGraphX gives a scalar one axis of length 1.
        let rank = value.shape.as_ref().map(Vec::len);
        let scalar = rank == Some(0) || (rank.is_none() && shape.lengths == [1] && shape.strides == [0]);
        let lengths: &[usize] = if scalar { &[] } else { &shape.lengths };
        let axis = sequences.and_then(|sequences| sequences.outputs[at]);
        let shape = padding::cut(&padding, value, axis, lengths);
        let dims: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        let mut tensor = context.output(partition.positions.outputs[at], &dims)?;
        let (address, bytes) = match &mut tensor {
            Some(tensor) => (tensor.address()?, tensor.size_bytes()?),
            None => (std::ptr::null_mut(), 0),
        };
        outputs.push(Output { address, shape, bytes });
        held.push(tensor);
    }
    let on_host = tools.runs_on_host();
    let call = Call {
        inputs: &bound,
        outputs: &outputs,
        padding: &padding,
        mover,
        stream: match mover {
            Mover::Stream(_, stream) if !on_host => Some(stream.as_ptr()),
            _ => None,
        },
        device: if on_host { None } else { tools.device.as_ref() },
        same_memory: !on_host || matches!(mover, Mover::Host),
    };
    let current =
        if on_host { None } else { tools.device.as_ref().map(hip::Device::enter).transpose().map_err(status::of)? };
    // SAFETY: ONNX Runtime keeps inputs and outputs for the call, in the shapes read above, and nothing else writes the
    // outputs. With the host driver, or without a driver, all memory is RAM. Otherwise tensors are in device memory,
    // which programs on the device access directly and others through the mover.
    let ran = unsafe { loaded.run(&call) };
    drop(current);
    if let Err(error) = ran {
        if loaded.has_run || !can_fall_back(partition, &error) {
            return Err(error);
        }
        // Work on the stream may still use the program's memory. A lost device fails here.
        mover.wait()?;
        let reason = error.to_string();
        *state = State::failed(reason.clone(), &padding.shapes);
        drop(state);
        return super::fallback::run(partition, context, &inputs, mover, Some(held), &reason);
    }
    loaded.has_run = true;
    drop((held, state));
    partition.look_ahead(&padding);
    Ok(())
}

/// Whether the CPU can take over from a program that failed at its first run: not if only this call failed, because
/// memory was short, and not if there is only the compiled program (fixed shapes, and compiled models).
fn can_fall_back(partition: &MgxPartition, error: &Error) -> bool {
    error.code() != ErrorCode::Fail && !partition.shared.model.bytes.is_empty()
}

fn inputs<'a>(partition: &MgxPartition, context: &KernelContext<'a>) -> Result<Tensors<'a>> {
    let (mut tensors, mut shapes) = (Vec::new(), Vec::new());
    for &at in &partition.positions.inputs {
        let tensor = context
            .input(at)?
            .ok_or_else(|| Error::invalid_argument(format!("input {at} of a partition is missing")))?;
        let shape = tensor.shape()?.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
        shapes.push(shape.map_err(|_| Error::invalid_argument("an input has a negative extent"))?);
        tensors.push(tensor);
    }
    Ok(Tensors { tensors, shapes })
}

fn bind<'a>(partition: &'a MgxPartition, inputs: &'a Tensors<'_>) -> Result<Vec<Input<'a>>> {
    let tools = &partition.shared.tools;
    // Only a real GPU has separate memory.
    let apart =
        !tools.runs_on_host() && tools.device.as_ref().is_some_and(|device| device.kind() != hip::DriverKind::Host);
    let values = partition.shared.model.inputs.iter().zip(inputs.tensors.iter().zip(&inputs.shapes));
    values
        .map(|(value, (tensor, shape))| {
            Ok(Input {
                name: &value.name,
                element: tensor.element_type()?,
                address: tensor.address()?,
                shape,
                bytes: tensor.size_bytes()?,
                needs_upload: apart && tensor.memory() == ort_ep::MemoryDevice::CPU,
            })
        })
        .collect()
}

/// How this run copies data. If all memory is RAM, this waits for the work queued on the run's stream.
fn mover<'a>(partition: &'a MgxPartition, context: &KernelContext<'_>) -> Result<Mover<'a>> {
    let tools = &partition.shared.tools;
    let given = context.stream()?;
    let Some(device) = &tools.device else {
        // Without the driver, there is no way to wait for work queued on the stream.
        return match given {
            None => Ok(Mover::Host),
            Some(_) => Err(Error::ep_fail("the run has a stream, but its driver could not be loaded")),
        };
    };
    let stream = match given {
        // SAFETY: only the umbrella creates streams for this backend's sessions, on the device it selected. The stream
        // lives for the run.
        Some(stream) => unsafe { hip::RawStream::from_ptr(stream.as_ptr()) },
        None => hip::RawStream::DEFAULT,
    };
    if tools.runs_on_host() && device.kind() == hip::DriverKind::Host {
        if given.is_some() {
            device.stream_synchronize(stream).map_err(status::of)?;
        }
        return Ok(Mover::Host);
    }
    Ok(Mover::Stream(device, stream))
}
