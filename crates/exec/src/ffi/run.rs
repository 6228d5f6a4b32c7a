//! The guarantee that a run's addresses are valid.
use std::sync::Arc;

use hip::DeviceBuffer;
use host_ops::{Parallel, Serial};

use crate::ExecError;
use crate::device::{Observer, Order, Prepared, Run};
use crate::gpu::view_range;

impl dyn Prepared {
    /// Runs the plan, ordered with other work.
    ///
    /// # Errors
    /// Errors known when the call returns. Later ones are reported through the [`Ledger`](crate::Ledger) or by
    /// [`Captured::replay`](crate::Captured::replay).
    ///
    /// # Safety
    /// `run` holds one address for each of the plan's inputs and outputs. Each points to memory that the device can
    /// access, has as many bytes as the plan was made for, and is aligned to its element type. Outputs overlap nothing,
    /// except caches that are updated in place ([`Append`](graph::prim::Append)). Addresses of empty tensors may be
    /// anything. All this must hold, and nothing else may change the memory, until the call returns, the stream has
    /// passed this point, or the capture is dropped, depending on `order`.
    pub unsafe fn run(self: Arc<Self>, run: Run<'_>, order: Order<'_>) -> Result<(), ExecError> {
        let Run { inputs, outputs, parallel, observer } = run;
        // SAFETY: guaranteed by the caller.
        let memory = unsafe { RunMemory::new(inputs, outputs) };
        self.start(GuaranteedRun { memory, parallel, observer }, order)
    }
}

/// A run with valid addresses, for the plan that it was passed to and for as long as its order says.
pub struct GuaranteedRun<'a> {
    pub memory: RunMemory<'a>,
    /// Threads for host work that runs before the call returns.
    pub parallel: &'a dyn Parallel,
    /// Notified of every step.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Proof that a run's addresses are valid: only this module makes one, from a caller's guarantee.
#[derive(Clone, Copy)]
pub struct RunMemory<'a> {
    inputs: &'a [*const u8],
    outputs: &'a [*mut u8],
}

impl<'a> RunMemory<'a> {
    /// The addresses of the inputs.
    pub fn inputs(self) -> &'a [*const u8] {
        self.inputs
    }

    /// The addresses of the outputs.
    pub fn outputs(self) -> &'a [*mut u8] {
        self.outputs
    }

    /// Returns an error if the number of addresses differs from the number of inputs and outputs.
    pub fn check(self, inputs: usize, outputs: usize) -> Result<(), ExecError> {
        for (what, found, wanted) in [("inputs", self.inputs.len(), inputs), ("outputs", self.outputs.len(), outputs)] {
            if found != wanted {
                return Err(ExecError::Count { what, found, wanted });
            }
        }
        Ok(())
    }

    /// The same addresses for work that happens after the call, within the time that the caller guarantees: it is
    /// queued on the run's stream or recorded in its capture.
    pub fn keep(self) -> KeptRun {
        KeptRun { inputs: self.inputs.to_vec(), outputs: self.outputs.to_vec() }
    }

    /// # Safety
    /// The conditions of `run` hold for the plan that the addresses are used with.
    pub(super) unsafe fn new(inputs: &'a [*const u8], outputs: &'a [*mut u8]) -> Self {
        Self { inputs, outputs }
    }
}

/// The addresses of a run whose work happens later.
pub struct KeptRun {
    inputs: Vec<*const u8>,
    outputs: Vec<*mut u8>,
}

// SAFETY: addresses are numbers; the caller of the run guarantees the memory behind them, for any thread.
unsafe impl Send for KeptRun {}
// SAFETY: as above.
unsafe impl Sync for KeptRun {}

impl KeptRun {
    pub fn memory(&self) -> RunMemory<'_> {
        RunMemory { inputs: &self.inputs, outputs: &self.outputs }
    }
}

/// Runs a plan without outputs on buffers of its device, one for each input, and waits for it. Steps may also write to
/// the buffers.
///
/// # Errors
/// A buffer is too small for the steps, or the run fails.
pub fn run_on_buffers(
    prepared: Arc<dyn Prepared>,
    buffers: &[DeviceBuffer],
    observer: Option<Arc<dyn Observer>>,
) -> Result<(), ExecError> {
    let plan = prepared.plan();
    for view in plan.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs)) {
        if let graph::plan::BufferPlace::Input(number) = plan.place(view) {
            let (wanted, found) = (view_range(view).end, buffers.get(*number).map_or(0, DeviceBuffer::bytes));
            if found < wanted {
                return Err(ExecError::Count { what: "bytes of an input", found, wanted });
            }
        }
    }
    let inputs: Vec<*const u8> = buffers.iter().map(|buffer| buffer.address().as_ptr().cast_const()).collect();
    let run = Run { inputs: &inputs, outputs: &[], parallel: &Serial, observer };
    // SAFETY: every buffer is device memory, is large enough for all views of its input, as checked above, and is
    // borrowed until the call returns, which waits for the run.
    unsafe { prepared.run(run, Order::Now) }
}
