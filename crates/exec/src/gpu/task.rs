//! Who runs a step.
//!
//! Candidates are asked in turn: BLASLt for products, hipDNN, our kernels, and the host, which takes everything. The reasons
//! of those that declined are kept for `explain`.
use std::sync::Arc;

use graph::Step;
use kernels::{Kernel, Launch, Work};

use super::{GpuSettings, Shared, blas::Product, code::Outcome};
use crate::{device::RunBy, dnn::DnnStep};

/// Who runs a step.
pub(super) enum Task {
    /// Nobody: it has no elements.
    Nothing,
    /// hipDNN.
    Dnn(DnnStep),
    /// BLASLt, and our kernels for an epilogue that it does not have.
    Blas { product: Box<Product>, behind: Vec<ReadyLaunch> },
    /// Our kernels, one after the other.
    Kernels {
        launches: Vec<ReadyLaunch>,
        /// Why hipDNN does not, where it was asked.
        why: Option<String>,
    },
    /// The host, between copies.
    Host {
        /// Why no kernel does.
        why: String,
    },
}

/// A launch whose code is on the device.
pub(super) struct ReadyLaunch {
    pub function: Arc<hip::Function>,
    pub launch: Launch,
    /// The word of the plan's arguments that its own begin at.
    pub args: usize,
}

impl Task {
    /// As it is shown.
    pub fn run_by(&self) -> RunBy<'_> {
        match self {
            Self::Nothing => RunBy::Own { why: None },
            Self::Dnn(step) => RunBy::HipDnn { engine: step.engine() },
            Self::Blas { .. } => RunBy::BlasLt { why: None },
            Self::Kernels { why, .. } => RunBy::Own { why: why.as_deref() },
            Self::Host { why } => RunBy::Host { why },
        }
    }

    /// Where in the scratch memory a product lies whose epilogue comes behind it.
    pub fn product_at(&self) -> usize {
        match self {
            Self::Blas { product, .. } => product.product_at(),
            _ => 0,
        }
    }

    /// The launches of our kernels, with the step that their arguments are of, if it is not the plan's own.
    pub fn launches(&mut self) -> (&mut [ReadyLaunch], Option<&Step>) {
        match self {
            Self::Kernels { launches, .. } => (launches, None),
            Self::Blas { product, behind } => (behind, product.behind.as_ref().map(|(step, _)| step)),
            _ => (&mut [], None),
        }
    }
}

/// A step's way to its task, before anything is compiled.
enum Choice {
    Nothing,
    Dnn(DnnStep),
    Blas(Box<Product>, Option<Work>),
    Kernels(Work, Option<String>),
    Host(String),
}

/// Finds who runs each step, compiles what has to be, and gives the scratch memory that the steps need.
pub(super) fn tasks(steps: &[Step], settings: &GpuSettings, device: &Shared) -> (Vec<Task>, usize) {
    let choices: Vec<Choice> = steps.iter().map(|step| choose(step, settings, device)).collect();
    let works = choices.iter().filter_map(|choice| match choice {
        Choice::Kernels(work, _) | Choice::Blas(_, Some(work)) => Some(work),
        _ => None,
    });
    let wanted: Vec<&Kernel> = works.flat_map(|work| work.launches.iter().map(|launch| &launch.kernel)).collect();
    let mut functions = device.code.functions(&wanted).into_iter();
    let mut scratch_bytes = 0;
    let tasks = choices.into_iter().map(|choice| match choice {
        Choice::Nothing => Task::Nothing,
        Choice::Host(why) => Task::Host { why },
        Choice::Dnn(step) => {
            scratch_bytes = scratch_bytes.max(step.workspace_bytes());
            Task::Dnn(step)
        }
        Choice::Blas(product, work) => {
            scratch_bytes = scratch_bytes.max(product.scratch_bytes());
            match ready(work.map_or_else(Vec::new, |work| work.launches), &mut functions) {
                Ok(behind) => Task::Blas { product, behind },
                Err(why) => Task::Host { why: why.to_string() },
            }
        }
        Choice::Kernels(work, why) => {
            scratch_bytes = scratch_bytes.max(work.scratch_bytes);
            match ready(work.launches, &mut functions) {
                Ok(launches) => Task::Kernels { launches, why },
                Err(why) => Task::Host { why: why.to_string() },
            }
        }
    });
    let tasks = tasks.collect();
    (tasks, scratch_bytes)
}

/// Launches with their code, which comes in the same order.
fn ready(launches: Vec<Launch>, code: &mut impl Iterator<Item = Outcome>) -> Result<Vec<ReadyLaunch>, Arc<str>> {
    // All of them are taken, also behind one that failed: the next step's come after.
    let outcomes: Vec<Outcome> = code.take(launches.len()).collect();
    let pairs = launches.into_iter().zip(outcomes);
    pairs.map(|(launch, outcome)| Ok(ReadyLaunch { function: outcome?, launch, args: 0 })).collect()
}

fn choose(step: &Step, settings: &GpuSettings, device: &Shared) -> Choice {
    if step.outputs.iter().all(|view| view.elems() == 0) {
        return Choice::Nothing;
    }
    let arch = &device.code.arch;
    let mut reasons: Vec<String> = Vec::new();
    match device.blas.offer(step, settings.tf32) {
        Some(Ok(product)) => match product.behind.as_ref().map(|(step, _)| kernels::work(step, arch)) {
            None => return Choice::Blas(Box::new(product), None),
            Some(Ok(work)) if work.scratch_bytes == 0 => return Choice::Blas(Box::new(product), Some(work)),
            Some(Ok(_)) => reasons.push("its epilogue needs scratch memory".to_owned()),
            Some(Err(declined)) => reasons.push(declined.0),
        },
        Some(Err(declined)) => reasons.push(declined.0),
        None => {}
    }
    match settings.dnn.as_ref().and_then(|offering| offering.offer(step)) {
        Some(Ok(step)) => return Choice::Dnn(step),
        Some(Err(declined)) => reasons.push(declined.0),
        None => {}
    }
    match kernels::work(step, arch) {
        Ok(work) => Choice::Kernels(work, (!reasons.is_empty()).then(|| reasons.join("; "))),
        Err(declined) => Choice::Host(declined.0),
    }
}
