//! A partition that runs compiled programs.
mod boxes;
#[allow(unsafe_code)]
mod fallback;
#[allow(unsafe_code)]
mod loaded;
#[allow(unsafe_code)]
mod memory;
mod padding;
mod programs;
#[allow(unsafe_code)]
mod run;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use ort_ep::view::{HostSession, KernelContext};
use ort_ep::{Partition, Result, Runtime};

use crate::mgx::Program;
use crate::onnx::Model;
use crate::toolchain::Toolchain;
use loaded::Loaded;
use padding::{Padding, Sequences};
use programs::{Programs, State};

/// Maps a partition's tensors to positions in the fused node.
pub(crate) struct Positions {
    /// The position of each input of the model.
    pub inputs: Vec<usize>,
    /// The position of each output of the model.
    pub outputs: Vec<usize>,
}

/// A partition: its model, and programs compiled from it.
pub(crate) struct MgxPartition {
    shared: Arc<Shared>,
    positions: Positions,
    runtime: Runtime,
    /// Runs the shapes that MIGraphX cannot compile or run.
    fallback: OnceLock<HostSession>,
    background: Mutex<Vec<JoinHandle<()>>>,
}

/// State shared with background compilations.
struct Shared {
    tools: Arc<Toolchain>,
    model: Model,
    programs: Programs,
    /// The sequence axes, if sequences are padded.
    sequences: Option<Sequences>,
}

impl MgxPartition {
    /// A partition that compiles a program when it first sees new shapes. `symbol` is the session graph's name for the
    /// length of sequences to pad.
    pub fn new(
        tools: Arc<Toolchain>,
        model: Model,
        positions: Positions,
        runtime: Runtime,
        symbol: Option<&str>,
    ) -> Self {
        let programs = Programs::new(tools.options.max_programs);
        let pad = tools.options.static_pad.as_ref();
        let sequences = pad.and_then(|pad| Sequences::of(&model.inputs, &model.outputs, pad, symbol));
        if pad.is_some() && sequences.is_none() {
            tracing::info!(
                target: "amdgpu_ep::partition",
                "a partition is compiled again for each sequence length: its values do not show where padding could be removed"
            );
        }
        let shared = Arc::new(Shared { tools, model, programs, sequences });
        Self { shared, positions, runtime, fallback: OnceLock::new(), background: Mutex::default() }
    }

    /// Adds a compiled program.
    ///
    /// # Errors
    /// MIGraphX's description of the program cannot be used.
    pub fn add(&self, shapes: &[Vec<usize>], program: Program) -> Result<()> {
        let loaded = Loaded::new(program, self.shared.tools.options.hip_graph)?;
        *self.shared.programs.slot(shapes).lock() = State::Ready(Box::new(loaded));
        Ok(())
    }

    /// Calls `work` with a program that was added before.
    pub fn with_program<T>(&self, shapes: &[Vec<usize>], work: impl FnOnce(&Program) -> T) -> Option<T> {
        match &*self.shared.programs.slot(shapes).lock() {
            State::Ready(loaded) => Some(work(loaded.program())),
            _ => None,
        }
    }

    /// Compiles the next larger batch size in the background.
    fn look_ahead(&self, padding: &Padding) {
        let shared = &self.shared;
        let options = &shared.tools.options;
        if !options.background_compile {
            return;
        }
        let Some(next) = padding::next_batch(padding, &shared.model.inputs, options) else { return };
        if shared.programs.has(&next) {
            return;
        }
        let slot = shared.programs.slot(&next);
        let shared = shared.clone();
        let thread = std::thread::spawn(move || shared.ensure(&mut slot.lock(), &next));
        let mut background = self.background.lock().unwrap_or_else(PoisonError::into_inner);
        background.retain(|thread| !thread.is_finished());
        background.push(thread);
    }
}

impl Shared {
    /// Compiles the slot's program, if it has none yet.
    fn ensure(&self, state: &mut State, shapes: &[Vec<usize>]) {
        if !matches!(state, State::Empty) {
            return;
        }
        let current = self.tools.device.as_ref().map(hip::Device::enter).transpose();
        let made = current.map_err(|error| error.to_string()).and_then(|_current| {
            // MIGraphX does not support empty tensors.
            if shapes.iter().flatten().any(|extent| *extent == 0) {
                return Err("an input has no elements".to_owned());
            }
            let program = self.tools.program(&self.model, shapes).map_err(|error| error.to_string())?;
            Loaded::new(program, self.tools.options.hip_graph).map_err(|error| error.to_string())
        });
        *state = match made {
            Ok(loaded) => State::Ready(Box::new(loaded)),
            Err(reason) => State::failed(reason, shapes),
        };
    }
}

impl Partition for MgxPartition {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        run::compute(self, context)
    }
}

impl Drop for MgxPartition {
    /// Joins the background threads, because none may outlive the library.
    fn drop(&mut self) {
        for thread in self.background.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if thread.join().is_err() {
                tracing::warn!(target: "amdgpu_ep::lifetime", "a background compilation panicked");
            }
        }
    }
}
