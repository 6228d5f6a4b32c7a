//! The addresses of a plan's buffers in one run.

use graph::Plan;
use graph::plan::BufferPlace;
use graph::prim::BufferId;

/// A plan with memory for its inputs, outputs and arena.
#[derive(Clone, Copy)]
pub struct Bound<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// One address for each input.
    pub inputs: &'a [*const u8],
    /// One address for each output.
    pub outputs: &'a [*mut u8],
    /// The memory of all other buffers.
    pub arena: *mut u8,
}

impl Bound<'_> {
    /// The address of a buffer; null if nothing uses it.
    pub fn address(&self, buffer: BufferId) -> *mut u8 {
        match &self.plan.places[buffer.0 as usize] {
            BufferPlace::Input(number) => self.inputs[*number].cast_mut(),
            BufferPlace::Output(number) => self.outputs[*number],
            BufferPlace::Constant(number) => self.plan.constants[*number].bytes().as_ptr().cast_mut(),
            BufferPlace::Arena(offset) => self.arena.wrapping_add(*offset),
            BufferPlace::Unused => std::ptr::null_mut(),
        }
    }
}
