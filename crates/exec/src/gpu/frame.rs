//! The memory of one run.
use graph::plan::{ALIGNMENT, BufferPlace};
use graph::prim::BufferId;
use graph::{Plan, shape};

use super::blas::PRODUCT;
use super::weights::Resident;

/// The layout of a run's block: values that live between steps, scratch memory, counters (initially zero), then copies
/// of inputs and outputs that kernels cannot access in place. Before the counters there is space for the fault words of
/// runs that have none on the host.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub scratch_at: usize,
    pub faults_at: usize,
    pub fault_bytes: usize,
    pub counters_at: usize,
    pub counter_bytes: usize,
    pub bytes: usize,
}

impl Layout {
    pub fn new(arena_bytes: usize, scratch_bytes: usize, faults: usize, counters: usize) -> Self {
        let scratch_at = arena_bytes.next_multiple_of(ALIGNMENT);
        let faults_at = (scratch_at + scratch_bytes).next_multiple_of(ALIGNMENT);
        let fault_bytes = faults * size_of::<u32>();
        let counters_at = faults_at + fault_bytes;
        let counter_bytes = counters * size_of::<u32>();
        Self {
            scratch_at,
            faults_at,
            fault_bytes,
            counters_at,
            counter_bytes,
            bytes: (counters_at + counter_bytes).next_multiple_of(ALIGNMENT),
        }
    }
}

/// The addresses that change from run to run: inputs, then outputs, then the fault words, then the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bases(pub Vec<usize>);

impl Bases {
    /// How many addresses a plan has.
    pub fn count(inputs: usize, outputs: usize) -> usize {
        inputs + outputs + 2
    }
}

/// The base of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An offset in bytes from one of the [`Bases`].
    Base(usize, isize),
    /// An address that is the same in all runs.
    Fixed(usize),
}

/// The locations of a plan's buffers.
pub(super) struct Buffers<'a> {
    pub plan: &'a Plan,
    pub inputs: usize,
    pub layout: Layout,
    /// The plan's constants on the device, if kernels read them.
    pub constants: &'a [Option<Resident>],
    /// The offset in scratch memory of a product whose epilogue is a separate pass.
    pub product_at: usize,
}

impl Buffers<'_> {
    /// The index of the block among the bases.
    pub fn block(&self) -> usize {
        Bases::count(self.inputs, self.plan.outputs.len()) - 1
    }

    /// The index of the fault words among the bases.
    pub fn faults(&self) -> usize {
        self.block() - 1
    }

    /// The location of a byte of a buffer.
    pub fn origin(&self, buffer: BufferId, bytes: isize) -> Origin {
        if buffer == PRODUCT {
            let place = self.layout.scratch_at + self.product_at;
            return Origin::Base(self.block(), place.cast_signed() + bytes);
        }
        if buffer == kernels::UNPACKED {
            return Origin::Base(self.block(), self.layout.scratch_at.cast_signed() + bytes);
        }
        match &self.plan.places[buffer.0 as usize] {
            BufferPlace::Input(number) => Origin::Base(*number, bytes),
            BufferPlace::Output(number) => Origin::Base(self.inputs + *number, bytes),
            BufferPlace::Arena(offset) => Origin::Base(self.block(), offset.cast_signed() + bytes),
            BufferPlace::Constant(number) => {
                let start = self.constants[*number].as_ref().map_or(0, |resident| resident.address().addr());
                Origin::Fixed(start.wrapping_add_signed(bytes))
            }
            BufferPlace::Unused => Origin::Fixed(0),
        }
    }

    /// The address of a buffer in a run.
    pub fn address(&self, buffer: BufferId, bases: &Bases) -> *mut u8 {
        match self.origin(buffer, 0) {
            Origin::Base(base, bytes) => {
                std::ptr::with_exposed_provenance_mut(bases.0[base].wrapping_add_signed(bytes))
            }
            Origin::Fixed(address) => std::ptr::with_exposed_provenance_mut(address),
        }
    }
}

/// The size of an output in bytes.
pub(super) fn output_bytes(plan: &Plan, number: usize) -> usize {
    let output = &plan.outputs[number];
    shape::elems(&output.shape).unwrap_or(0) * output.dtype.bytes()
}
