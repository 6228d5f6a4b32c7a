//! What a sanitizer or a profiler sees of a run.

use crate::access::Access;
use crate::inst::Inst;
use crate::program::{Line, Program};
use crate::{Fault, Space, Wave};

/// Where an event happened.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// The program that the wave runs.
    pub program: &'a Program,
    /// The instruction's index in it.
    pub index: usize,
    /// The workgroup's id.
    pub group: [u32; 3],
    /// The wave's number in its workgroup.
    pub wave: u32,
}

impl Site<'_> {
    /// Text and address of the instruction.
    pub fn line(&self) -> &Line {
        self.program.line(self.index)
    }
}

/// Something that happens in a wave.
pub enum Event<'a> {
    /// The wave is about to start.
    Start(&'a Wave),
    /// An instruction is about to run.
    Instruction(&'a Inst, &'a Wave),
    /// Active lanes are about to access memory. `bytes` is the size of one lane's access.
    Access {
        /// The instruction's decoded form.
        access: &'a Access,
        /// Which memory; flat accesses are already resolved to one of global, LDS and scratch.
        space: Space,
        /// One address for each lane.
        addresses: &'a [u64],
        /// The lanes that take part.
        mask: u64,
        /// Bytes of one lane.
        bytes: u32,
        /// The wave, with the values that a store writes.
        wave: &'a Wave,
    },
    /// The wave arrives at a barrier.
    Arrive(&'a Wave),
    /// All waves have arrived: the wave goes on.
    Pass,
    /// The wave ends.
    End,
}

/// Sees a run. Each thread that runs workgroups has its own, made by `fork` and given back to `join`.
pub trait Observer: Send {
    /// False: events are not even made.
    const ACTIVE: bool = true;

    /// An observer for one more thread.
    #[must_use]
    fn fork(&self) -> Self;

    /// Takes the results of a thread's observer.
    fn join(&mut self, other: Self);

    /// Sees an event.
    ///
    /// # Errors
    /// A reason to stop the dispatch.
    fn event(&mut self, site: &Site<'_>, event: Event<'_>) -> Result<(), Fault>;
}

/// Sees nothing and costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    const ACTIVE: bool = false;

    fn fork(&self) -> NoObserver {
        NoObserver
    }

    fn join(&mut self, _: NoObserver) {}

    #[inline(always)]
    fn event(&mut self, _: &Site<'_>, _: Event<'_>) -> Result<(), Fault> {
        Ok(())
    }
}
