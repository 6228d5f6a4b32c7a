//! A compiled partition on the host device.
use std::sync::{Mutex, OnceLock, PoisonError};

use exec::{
    Input, Program,
    host::{Observer, RunState},
};
use graph::{Graph, Step};
use ort_ep::{
    Error, Partition, Result,
    view::{KernelContext, Tensor},
};

use crate::{ffi, profile::Profiles};

/// A partition and the memory of runs that have ended, for the next ones.
pub(crate) struct HostPartition {
    program: Program,
    idle: Mutex<Vec<RunState>>,
    profiles: Profiles,
    /// Whose streams runs are ordered by; looked up when a run first brings one.
    device: OnceLock<hip::Device>,
}

impl HostPartition {
    pub fn new(graph: Graph, profiles: Profiles) -> Self {
        Self { program: Program::new(graph), idle: Mutex::default(), profiles, device: OnceLock::new() }
    }

    fn inputs<'a>(&self, context: &KernelContext<'a>) -> Result<Vec<Tensor<'a>>> {
        let count = self.program.graph().inputs().len();
        (0..count)
            .map(|at| context.input(at)?.ok_or_else(|| Error::invalid_argument(format!("input {at} is missing"))))
            .collect()
    }
}

impl Partition for HostPartition {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        ffi::wait_for_inputs(context, &self.device)?;
        let tensors = self.inputs(context)?;
        let mut shapes: Vec<graph::Shape> = Vec::with_capacity(tensors.len());
        for tensor in &tensors {
            let shape = tensor.shape()?.iter().map(|&extent| usize::try_from(extent)).collect::<Result<_, _>>();
            shapes.push(shape.map_err(|_| Error::invalid_argument("an input has a negative extent"))?);
        }
        let mut inputs = Vec::with_capacity(tensors.len());
        for (at, (tensor, shape)) in tensors.iter().zip(&shapes).enumerate() {
            let value = if self.program.needs_value(at) { Some(ffi::value(tensor)?) } else { None };
            inputs.push(Input { shape, value });
        }
        let plan = self.program.plan(&inputs).map_err(|error| Error::invalid_argument(error.to_string()))?;
        let mut outputs = Vec::with_capacity(plan.outputs.len());
        for (at, output) in plan.outputs.iter().enumerate() {
            let shape: Vec<i64> = output.shape.iter().map(|&extent| extent as i64).collect();
            let made = context.output(at, &shape)?;
            outputs.push(made.ok_or_else(|| Error::invalid_argument(format!("output {at} is not wanted")))?);
        }
        let mut state = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let watching = self.profiles.watching();
        let mut record = |step: &Step, start, took| {
            watching.iter().for_each(|recorder| recorder.add(self.program.graph(), step, start, took));
        };
        let observer: Option<&mut Observer<'_>> = if watching.is_empty() { None } else { Some(&mut record) };
        let done = ffi::run(&self.program, &plan, &tensors, &mut outputs, &mut state, context, observer);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        done
    }
}
