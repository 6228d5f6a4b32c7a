//! A compiled program and the memory it runs on.
use std::collections::HashMap;
use std::ops::Range;

use ort_ep::{ElementType, Error, Result};

use super::boxes::{each_run, row_major};
use super::memory::{Buffer, Mover};
use super::padding::{Padding, PaddingKind};
use crate::mgx::{Parameter, Program, Results, Role, Shape};
use crate::status;

/// A compiled program, with staging memory for tensors that cannot be bound directly.
pub(super) struct Loaded {
    program: Program,
    parameters: Vec<Parameter>,
    /// The shapes of the outputs, before trimming.
    pub outputs: Vec<Shape>,
    /// Staging buffers by parameter index.
    staging: HashMap<usize, Buffer>,
    replay: Replay,
    /// True after the first successful run.
    pub has_run: bool,
}

/// HIP-graph replay of a program.
enum Replay {
    Off,
    /// Not recorded yet.
    Wanted,
    Recorded {
        capture: hip::GraphExec,
        outputs: Vec<Placed>,
    },
}

/// Where an output is after a run.
#[derive(Clone)]
struct Placed {
    address: usize,
    shape: Shape,
}

/// An input of a run.
pub(super) struct Input<'a> {
    pub name: &'a str,
    pub element: ElementType,
    pub address: *const u8,
    /// The tensor's shape, before padding.
    pub shape: &'a [usize],
    pub bytes: usize,
    /// True if the tensor is in host memory that a GPU program cannot read.
    pub needs_upload: bool,
}

/// An output of a run; the address is null if the output is unused.
pub(super) struct Output {
    pub address: *mut u8,
    /// The requested shape, after trimming.
    pub shape: Vec<usize>,
    pub bytes: usize,
}

/// A run of a program.
pub(super) struct Call<'a> {
    pub inputs: &'a [Input<'a>],
    pub outputs: &'a [Output],
    pub padding: &'a Padding,
    pub mover: Mover<'a>,
    /// The stream that a GPU program runs on; `None` for programs on the host.
    pub stream: Option<*mut std::ffi::c_void>,
    /// The device to allocate staging memory on; `None` for the host.
    pub device: Option<&'a hip::Device>,
    /// True if the program can access the tensors' memory directly.
    pub same_memory: bool,
}

impl Loaded {
    /// # Errors
    /// MIGraphX's description of the program cannot be used.
    pub fn new(program: Program, replay: bool) -> Result<Self> {
        let (parameters, outputs) = (program.parameters().map_err(status::of)?, program.outputs().map_err(status::of)?);
        let replay = if replay { Replay::Wanted } else { Replay::Off };
        Ok(Self { program, parameters, outputs, staging: HashMap::new(), replay, has_run: false })
    }

    /// The program, for saving.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs the program. All outputs are complete when this returns.
    ///
    /// # Errors
    /// A shape does not match, memory is exhausted, or MIGraphX fails.
    ///
    /// # Safety
    /// The addresses of inputs and outputs are valid for their shapes and element types, and nothing else uses the
    /// outputs' memory during the call. With [`Call::same_memory`] the program's target can access them; without it,
    /// the mover can.
    pub unsafe fn run(&mut self, call: &Call<'_>) -> Result<()> {
        let replays = call.stream.is_some() && call.device.is_some() && !matches!(self.replay, Replay::Off);
        // SAFETY: guaranteed by the caller.
        let bindings = unsafe { self.bind(call, replays)? };
        let Self { program, parameters, replay, .. } = self;
        let named: Vec<_> = parameters.iter().map(|parameter| parameter.name.as_str()).zip(bindings).collect();
        if call.stream.is_none() {
            // A program on the host reads its inputs immediately.
            call.mover.wait()?;
        }
        if replays && let (Some(device), Mover::Stream(_, stream)) = (call.device, call.mover) {
            // SAFETY: the bindings are staging memory that lives as long as the program and its capture.
            match unsafe { replay.run(program, &named, device, stream) } {
                Ok(outputs) => {
                    // SAFETY: guaranteed by the caller; the sources are the program's own memory or staging memory.
                    unsafe { deliver(call, &outputs)? };
                    return call.mover.wait();
                }
                Err(error) => {
                    tracing::warn!(target: "amdgpu_ep::run", "HIP graphs are off for this program: {error}");
                    *replay = Replay::Off;
                }
            }
        }
        // SAFETY: each binding has the parameter's shape: it is staging memory, or a tensor whose shape was compared
        // with it.
        let results = unsafe { program.run(&named, call.stream) }.map_err(status::of)?;
        let outputs = placed(&results)?;
        // SAFETY: guaranteed by the caller; the results live until after the wait.
        unsafe { deliver(call, &outputs)? };
        call.mover.wait()?;
        drop(results);
        Ok(())
    }

    /// Determines an address for every parameter.
    unsafe fn bind(&mut self, call: &Call<'_>, replays: bool) -> Result<Vec<*mut u8>> {
        let Self { parameters, staging, .. } = self;
        let mut addresses = Vec::with_capacity(parameters.len());
        for (at, parameter) in parameters.iter().enumerate() {
            let shape = &parameter.shape;
            let direct = match parameter.role {
                Role::Input => {
                    let (input, padded) = find(call, &parameter.name)?;
                    check(parameter, input, padded)?;
                    let fits = call.same_memory && !replays && !input.needs_upload;
                    let plain = padded == input.shape && shape.is_row_major();
                    (fits && plain).then_some(input.address.cast_mut())
                }
                Role::Output(index) => {
                    let output = call.outputs.get(index).filter(|output| {
                        let plain = shape.is_row_major() && same_lengths(&shape.lengths, &output.shape);
                        call.same_memory && !replays && plain && !shares(call, output)
                    });
                    output.map(|output| output.address).filter(|address| !address.is_null())
                }
                Role::Scratch => None,
            };
            if let Some(address) = direct {
                addresses.push(address);
                continue;
            }
            let buffer = match staging.entry(at) {
                std::collections::hash_map::Entry::Occupied(kept) => kept.into_mut(),
                std::collections::hash_map::Entry::Vacant(empty) => {
                    empty.insert(Buffer::new(shape.bytes, call.device)?)
                }
            };
            match parameter.role {
                Role::Input => {
                    let (input, padded) = find(call, &parameter.name)?;
                    // SAFETY: the caller vouches for the input; the buffer has the parameter's size.
                    unsafe { stage(call, input, padded, shape, buffer)? };
                }
                // SAFETY: the buffer has this size, and the mover orders all its uses.
                Role::Scratch => unsafe { call.mover.zero(buffer, shape.bytes)? },
                Role::Output(_) => {}
            }
            addresses.push(buffer.address());
        }
        Ok(addresses)
    }
}

impl Replay {
    /// Launches the capture. The first call records it.
    ///
    /// # Safety
    /// As for [`Program::run`], for as long as the capture lives.
    unsafe fn run(
        &mut self,
        program: &mut Program,
        bindings: &[(&str, *mut u8)],
        device: &hip::Device,
        stream: hip::RawStream<'_>,
    ) -> Result<Vec<Placed>> {
        if let Self::Recorded { capture, outputs } = self {
            capture.launch(stream).map_err(status::of)?;
            return Ok(outputs.clone());
        }
        let raw = Some(stream.as_ptr());
        // Lazy initialisation in MIGraphX cannot be captured, so run it twice first.
        for _ in 0..2 {
            // SAFETY: guaranteed by the caller.
            unsafe { program.run(bindings, raw) }.map_err(status::of)?;
            device.stream_synchronize(stream).map_err(status::of)?;
        }
        device.begin_capture(stream, hip::CaptureMode::Relaxed).map_err(status::of)?;
        // SAFETY: as above.
        let outcome = unsafe { program.run(bindings, raw) }.map_err(status::of).and_then(|results| placed(&results));
        let graph = device.end_capture(stream).map_err(status::of);
        let (outputs, graph) = (outcome?, graph?);
        let capture = graph.instantiate().map_err(status::of)?;
        tracing::debug!(target: "amdgpu_ep::run", nodes = graph.node_count().unwrap_or(0), "captured");
        capture.launch(stream).map_err(status::of)?;
        *self = Self::Recorded { capture, outputs: outputs.clone() };
        Ok(outputs)
    }
}

fn placed(results: &Results<'_>) -> Result<Vec<Placed>> {
    let place = |index| {
        let address = results.address(index).map_err(status::of)?.expose_provenance();
        Ok(Placed { address, shape: results.shape(index).map_err(status::of)? })
    };
    (0..results.len()).map(place).collect()
}

fn find<'a>(call: &Call<'a>, name: &str) -> Result<(&'a Input<'a>, &'a [usize])> {
    let at = call.inputs.iter().position(|input| input.name == name);
    let at =
        at.ok_or_else(|| Error::fail(format!("the program expects {name:?}, which is not an input of the partition")))?;
    Ok((&call.inputs[at], &call.padding.shapes[at]))
}

/// ONNX Runtime gives a scalar no axes, MIGraphX one axis of length 1.
fn same_lengths(program: &[usize], tensor: &[usize]) -> bool {
    program == tensor || (tensor.is_empty() && program == [1])
}

fn check(parameter: &Parameter, input: &Input<'_>, padded: &[usize]) -> Result<()> {
    let shape = &parameter.shape;
    if same_lengths(&shape.lengths, padded) && shape.element == input.element {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "input {:?} is {:?} {padded:?}, but the program was compiled for {:?} {:?}",
        input.name, input.element, shape.element, shape.lengths
    )))
}

/// True if an output overlaps an input: a program may write before it has finished reading.
fn shares(call: &Call<'_>, output: &Output) -> bool {
    let range = |address: *const u8, bytes: usize| -> Range<usize> { address.addr()..address.addr() + bytes };
    let own = range(output.address, output.bytes);
    call.inputs.iter().any(|input| {
        let other = range(input.address, input.bytes);
        own.start < other.end && other.start < own.end
    })
}

/// Copies an input into staging memory, padded to the parameter's shape.
unsafe fn stage(
    call: &Call<'_>,
    input: &Input<'_>,
    padded: &[usize],
    shape: &Shape,
    buffer: &mut Buffer,
) -> Result<()> {
    let bytes = element_bytes(shape)?;
    if padded != input.shape && matches!(call.padding.along, Some(PaddingKind::Sequence { .. })) {
        // SAFETY: the buffer has the shape's size, and the mover orders all its uses.
        unsafe { call.mover.zero(buffer, shape.bytes)? };
    }
    let (lengths, to): (&[usize], &[usize]) =
        if input.shape.is_empty() { (&[], &[]) } else { (input.shape, &shape.strides) };
    let (base, from) = (buffer.address(), row_major(lengths));
    let copy = |to: usize, from: usize, bytes: usize| {
        // SAFETY: offsets stay within the shapes, which the caller vouches for. The buffer has the parameter's shape.
        unsafe { call.mover.copy(base.wrapping_add(to), input.address.wrapping_add(from), bytes) }
    };
    each_run(lengths, to, &from, bytes, copy)?;
    if let Some(PaddingKind::Batch { rows, .. }) = &call.padding.along
        && padded != lengths
    {
        let last = (rows - 1) * from[0] * bytes;
        for row in *rows..padded[0] {
            let start = row * to[0] * bytes;
            each_run(&lengths[1..], &to[1..], &from[1..], bytes, |to, from, bytes| {
                copy(start + to, last + from, bytes)
            })?;
        }
    }
    Ok(())
}

/// Copies outputs that are not in place yet, without the padding.
unsafe fn deliver(call: &Call<'_>, results: &[Placed]) -> Result<()> {
    if results.len() != call.outputs.len() {
        let (found, wanted) = (results.len(), call.outputs.len());
        return Err(Error::fail(format!("the program returned {found} outputs, expected {wanted}")));
    }
    for (result, output) in results.iter().zip(call.outputs) {
        if output.address.is_null() || output.bytes == 0 || result.address == output.address.addr() {
            continue;
        }
        let from: &[usize] = if output.shape.is_empty() { &[] } else { &result.shape.strides };
        let base = std::ptr::with_exposed_provenance::<u8>(result.address);
        let (to, bytes) = (row_major(&output.shape), element_bytes(&result.shape)?);
        each_run(&output.shape, &to, from, bytes, |to, from, bytes| {
            // SAFETY: the result has its declared shape, and the output covers one corner of it. The caller vouches for
            // the output.
            unsafe { call.mover.copy(output.address.wrapping_add(to), base.wrapping_add(from), bytes) }
        })?;
    }
    Ok(())
}

fn element_bytes(shape: &Shape) -> Result<usize> {
    match shape.element.bits() {
        Some(bits) if bits >= 8 => Ok(bits / 8),
        _ => Err(Error::not_implemented(format!("partitions cannot have {:?} inputs or outputs", shape.element))),
    }
}
