//! Who runs a step.
//!
//! Candidates are asked in turn: hipDNN, our kernels, and the host, which takes everything. The reasons of those that
//! declined are kept for `explain`.
use std::sync::Arc;

use graph::Step;
use kernels::{Kernel, Launch, Work};

use super::{
    GpuSettings,
    code::{Code, Outcome},
};
use crate::{device::RunBy, dnn::DnnStep};

/// Who runs a step.
pub(super) enum Task {
    /// Nobody: it has no elements.
    Nothing,
    /// hipDNN.
    Dnn(DnnStep),
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
            Self::Kernels { why, .. } => RunBy::Own { why: why.as_deref() },
            Self::Host { why } => RunBy::Host { why },
        }
    }
}

/// A step's way to its task, before anything is compiled.
enum Choice {
    Nothing,
    Dnn(DnnStep),
    Kernels(Work, Option<String>),
    Host(String),
}

/// Finds who runs each step, compiles what has to be, and gives the scratch memory that the steps need.
pub(super) fn tasks(steps: &[Step], settings: &GpuSettings, code: &Code) -> (Vec<Task>, usize) {
    let choices: Vec<Choice> = steps.iter().map(|step| choose(step, settings, code)).collect();
    let wanted: Vec<&Kernel> = choices
        .iter()
        .filter_map(|choice| match choice {
            Choice::Kernels(work, _) => Some(work),
            _ => None,
        })
        .flat_map(|work| work.launches.iter().map(|launch| &launch.kernel))
        .collect();
    let mut functions = code.functions(&wanted).into_iter();
    let mut scratch_bytes = 0;
    let tasks = choices.into_iter().map(|choice| match choice {
        Choice::Nothing => Task::Nothing,
        Choice::Host(why) => Task::Host { why },
        Choice::Dnn(step) => {
            scratch_bytes = scratch_bytes.max(step.workspace_bytes());
            Task::Dnn(step)
        }
        Choice::Kernels(work, why) => {
            let outcomes: Vec<Outcome> = functions.by_ref().take(work.launches.len()).collect();
            scratch_bytes = scratch_bytes.max(work.scratch_bytes);
            let ready = work
                .launches
                .into_iter()
                .zip(outcomes)
                .map(|(launch, outcome)| Ok(ReadyLaunch { function: outcome?, launch, args: 0 }));
            match ready.collect::<Result<Vec<_>, Arc<str>>>() {
                Ok(launches) => Task::Kernels { launches, why },
                Err(why) => Task::Host { why: why.to_string() },
            }
        }
    });
    let tasks = tasks.collect();
    (tasks, scratch_bytes)
}

fn choose(step: &Step, settings: &GpuSettings, code: &Code) -> Choice {
    if step.outputs.iter().all(|view| view.elems() == 0) {
        return Choice::Nothing;
    }
    let offer = settings.dnn.as_ref().and_then(|offering| offering.offer(step));
    let why = match offer {
        Some(Ok(step)) => return Choice::Dnn(step),
        Some(Err(declined)) => Some(declined.0),
        None => None,
    };
    match kernels::work(step, &code.arch) {
        Ok(work) => Choice::Kernels(work, why),
        Err(declined) => Choice::Host(declined.0),
    }
}
