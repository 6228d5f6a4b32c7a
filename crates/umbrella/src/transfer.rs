//! Copies between host, pinned and device memory.
use std::sync::Arc;

use hip::{DriverKind, HipError, PointerKind};
use ort_ep::view::RawStream;
use ort_ep::{DataTransfer, DeviceKind, Error, MemoryDevice, MemoryKind, Result, TensorCopy};

use crate::AMD_VENDOR_ID;
use crate::context::DeviceContext;
use crate::copy_plan::{CopyPlan, MemoryLocation, Mover};
use crate::ffi::{self, Bytes};
use crate::ownership::{self, Owner};
use crate::status::hip_error;

/// Copies tensors for ONNX Runtime. Holds no session state: the environment's instance serves all sessions.
pub(crate) struct Transfer {
    contexts: Vec<Arc<DeviceContext>>,
}

impl Transfer {
    pub fn new(contexts: Vec<Arc<DeviceContext>>) -> Self {
        Self { contexts }
    }

    fn context(&self, ordinal: usize) -> Result<&DeviceContext> {
        self.contexts.iter().find(|context| context.device.ordinal() == ordinal).map(|context| &**context).ok_or_else(
            || {
                Error::invalid_argument(format!(
                    "a copy refers to device {ordinal}, but there are {} devices",
                    self.contexts.len()
                ))
            },
        )
    }

    fn owns(&self, memory: MemoryDevice) -> bool {
        memory.device == DeviceKind::Gpu
            && memory.vendor_id == AMD_VENDOR_ID
            && matches!(memory.memory, MemoryKind::Default | MemoryKind::HostAccessible)
            && self.contexts.iter().any(|context| context.id() == memory.device_id)
    }

    /// The location of the `bytes` bytes at `address`. Our own records are exact. For memory that others allocated,
    /// we ask the driver; if it does not know the address, we rely on the tensor's description.
    fn location(&self, memory: MemoryDevice, address: usize, bytes: usize) -> Result<MemoryLocation> {
        if let Some(found) = ownership::find(address) {
            if found.bytes_left < bytes {
                let left = found.bytes_left;
                return Err(Error::invalid_argument(format!(
                    "a copy of {bytes} bytes at {address:#x} exceeds its buffer, which has only {left} bytes left from there"
                )));
            }
            return Ok(match found.owner {
                Owner::Device(ordinal) => MemoryLocation::Device(ordinal),
                Owner::Pinned => MemoryLocation::Pinned,
            });
        }
        if memory.device == DeviceKind::Cpu {
            return Ok(MemoryLocation::Host);
        }
        let claimed = memory.device_id as usize;
        let device = &self.context(claimed)?.device;
        Ok(match device.driver().pointer_info(address).kind {
            PointerKind::Device(ordinal) => MemoryLocation::Device(ordinal),
            PointerKind::PinnedHost => MemoryLocation::Pinned,
            // A backend's allocator: memory that the host driver did not allocate is RAM all the same.
            _ if device.kind() == DriverKind::Host => MemoryLocation::Host,
            _ if memory.memory == MemoryKind::HostAccessible => MemoryLocation::Host,
            _ => MemoryLocation::Device(claimed),
        })
    }

    /// Waits so that a synchronous copy comes after everything queued on the devices it uses.
    fn settle(&self, plan: CopyPlan) -> Result<()> {
        let settle = |ordinal| self.context(ordinal)?.synchronize();
        match plan.mover {
            Mover::Driver(device, _) => settle(device),
            Mover::Peer { from, to } => settle(from).and_then(|()| settle(to)),
            Mover::Host => self.contexts.iter().try_for_each(|context| context.synchronize()),
        }
    }

    /// Starts a copy, and records in `pending` what has to be waited for.
    fn start(&self, copy: &mut TensorCopy<'_>, pending: &mut Pending) -> Result<()> {
        let bytes = copy.src.size_bytes()?;
        let room = copy.dst.size_bytes()?;
        if bytes != room {
            return Err(Error::invalid_argument(format!(
                "cannot copy a tensor of {bytes} bytes into one of {room} bytes"
            )));
        }
        if bytes == 0 {
            return Ok(());
        }
        let Some(ends) = Bytes::new(copy.src.address()?, copy.dst.address()?, bytes) else {
            return Err(Error::invalid_argument(format!("a tensor of {bytes} bytes has no address")));
        };
        let src = self.location(copy.src.memory(), ends.src_address(), bytes)?;
        let dst = self.location(copy.dst.memory(), ends.dst_address(), bytes)?;
        let plan = CopyPlan::new(src, dst);
        // Copies on our own streams are not ordered before any others.
        if copy.stream.is_some() || !matches!(plan.mover, Mover::Driver(..)) {
            self.finish_queued(pending)?;
        }
        match (plan.mover, copy.stream) {
            (Mover::Driver(ordinal, kind), Some(stream)) => {
                ffi::copy_on_stream(&self.context(ordinal)?.device, ends, kind, stream).map_err(hip_error)?;
                if !plan.in_stream_order && !pending.waits.contains(&(ordinal, stream)) {
                    pending.waits.push((ordinal, stream));
                }
                Ok(())
            }
            (Mover::Driver(ordinal, kind), None) => {
                // The copies of a call wait for the device once, before the first one.
                if !pending.queued.contains(&ordinal) {
                    self.settle(plan)?;
                    pending.queued.push(ordinal);
                }
                let stream = self.context(ordinal)?.copy_stream().map_err(hip_error)?;
                ffi::queue_copy(stream, ends, kind).map_err(hip_error)
            }
            (Mover::Peer { from, to }, _) => {
                self.settle(plan)?;
                let stream = self.context(to)?.copy_stream().map_err(hip_error)?;
                ffi::copy_between(&self.context(from)?.device, stream, ends).map_err(hip_error)
            }
            (Mover::Host, _) => {
                self.settle(plan)?;
                ffi::copy_on_host(ends);
                Ok(())
            }
        }
    }

    /// Waits for the copies on our own streams.
    fn finish_queued(&self, pending: &mut Pending) -> Result<()> {
        let wait = |ordinal| self.context(ordinal)?.copy_stream().and_then(hip::Stream::synchronize).map_err(hip_error);
        pending.queued.drain(..).map(wait).fold(Ok(()), Result::and)
    }
}

/// Copies of one call that are not complete.
#[derive(Default)]
struct Pending {
    /// Devices whose copy stream has some.
    queued: Vec<usize>,
    /// Streams of ONNX Runtime that have some, with their device.
    waits: Vec<(usize, RawStream)>,
}

/// We only wait for copies to or from ordinary host memory, and none of these can be part of a capture.
fn wait_error(error: HipError) -> Error {
    if error.is_capture() {
        return Error::invalid_argument(
            "the run is being captured, but one of its tensors is in CPU memory, which a replay would not copy\n  help: bind all inputs and outputs to device memory (IOBinding), or set the run option gpu_graph_id to -1",
        );
    }
    hip_error(error)
}

impl DataTransfer for Transfer {
    fn can_copy(&self, src: MemoryDevice, dst: MemoryDevice) -> bool {
        let host = |memory: MemoryDevice| memory.device == DeviceKind::Cpu;
        match (self.owns(src), self.owns(dst)) {
            (true, true) => true,
            (true, false) => host(dst),
            (false, true) => host(src),
            (false, false) => false,
        }
    }

    fn copy(&self, copies: &mut [TensorCopy<'_>]) -> Result<()> {
        let mut pending = Pending::default();
        let started = copies.iter_mut().try_for_each(|copy| self.start(copy, &mut pending));
        // Waits for all of them, even after a failure: copies already started still use the caller's memory.
        let finished = self.finish_queued(&mut pending);
        let waited = pending
            .waits
            .into_iter()
            .map(|(ordinal, stream)| ffi::wait(&self.context(ordinal)?.device, stream).map_err(wait_error))
            .fold(Ok(()), Result::and);
        started.and(finished).and(waited)
    }
}
