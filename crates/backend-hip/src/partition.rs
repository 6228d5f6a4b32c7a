//! A compiled partition.
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use exec::{CompiledPartition, Input, Observer, Order, Peak, RunBy};
use graph::{Graph, Step};
use ort_ep::view::{KernelContext, Tensor};
use ort_ep::{Error, Partition, Result};
use reports::{Profile, ReportFile};
use smallvec::SmallVec;

use crate::profile::{Profiles, Recorder};
use crate::runs::Runs;
use crate::timed::TimedRun;
use crate::{ffi, status};

/// One entry per input or output; most partitions need no heap allocation for it.
pub(crate) type PerValue<T> = SmallVec<[T; 8]>;

/// A partition on a device.
pub(crate) struct DevicePartition {
    compiled: CompiledPartition,
    /// True if shapes depend on the values of some inputs.
    reads_values: bool,
    /// True if the model fixes all shapes, so that none depends on the request.
    is_fixed: bool,
    runs: Arc<Runs>,
    watched: Watched,
}

/// Where step times are reported.
pub(crate) struct Watched {
    /// ONNX Runtime's profilers.
    pub profiles: Profiles,
    /// The file for step times, and the partition's name in it.
    pub timed: Option<(Arc<ReportFile<Profile>>, Arc<str>)>,
    /// The chip's peak performance.
    pub peak: Option<Peak>,
}

impl DevicePartition {
    pub fn new(compiled: CompiledPartition, is_fixed: bool, runs: Arc<Runs>, watched: Watched) -> Self {
        let reads_values = (0..compiled.inputs()).any(|at| compiled.needs_value(at));
        Self { compiled, reads_values, is_fixed, runs, watched }
    }

    fn inputs<'a>(&self, context: &KernelContext<'a>) -> Result<PerValue<Tensor<'a>>> {
        (0..self.compiled.inputs())
            .map(|at| context.input(at)?.ok_or_else(|| Error::invalid_argument(format!("input {at} is missing"))))
            .collect()
    }

    /// Makes input values that determine shapes readable by the host.
    fn settle(&self, order: Order<'_>) -> Result<()> {
        match order {
            _ if !self.reads_values => Ok(()),
            Order::Now => Ok(()),
            Order::Stream { device, stream, .. } => {
                device.stream_synchronize(stream).map_err(|error| status::of_driver(&error))
            }
            Order::Record(_) => {
                let graph = self.compiled.graph();
                let mut inputs = graph.inputs().iter().enumerate();
                let named = inputs.find(|(at, _)| self.compiled.needs_value(*at)).map(|(_, id)| &graph.value(*id).name);
                let name = named.map_or("", String::as_str);
                Err(Error::invalid_argument(format!(
                    "the run cannot be captured: the values of input {name:?} determine shapes, and a replay does not read them\n  help: make {name:?} a constant of the model, or unset ep.hip.graph_capture"
                )))
            }
        }
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        let recorders = self.watched.profiles.watching();
        if recorders.is_empty() && self.watched.timed.is_none() {
            return None;
        }
        let timed = self.watched.timed.as_ref().map(|(file, partition)| TimedRun::new(file, partition));
        Some(Arc::new(Watch { graph: self.compiled.graph(), recorders, timed, peak: self.watched.peak }))
    }
}

impl Partition for DevicePartition {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let capture = self.runs.capture(context)?;
        let order = self.runs.order(context, capture.as_deref())?;
        self.settle(order)?;
        let tensors = self.inputs(context)?;
        let mut shapes: PerValue<graph::Shape> = SmallVec::with_capacity(tensors.len());
        for tensor in &tensors {
            let shape = tensor.shape()?.iter().map(|&extent| usize::try_from(extent)).collect::<Result<_, _>>();
            shapes.push(shape.map_err(|_| Error::invalid_argument("an input has a negative extent"))?);
        }
        let mut values: PerValue<Option<Cow<'_, [u8]>>> = SmallVec::with_capacity(tensors.len());
        for (at, tensor) in tensors.iter().enumerate() {
            values.push(self.compiled.needs_value(at).then(|| ffi::value(tensor, order)).transpose()?);
        }
        let inputs = shapes.iter().zip(&values).map(|(shape, value)| Input { shape, value: value.as_deref() });
        let inputs: PerValue<Input<'_>> = inputs.collect();
        let prepared = self.compiled.plan(&inputs).map_err(|error| status::of_plan(&error, self.is_fixed))?;
        let mut outputs = PerValue::new();
        for (at, output) in prepared.plan().outputs.iter().enumerate() {
            let shape = output.shown.as_ref().unwrap_or(&output.shape);
            let shape: PerValue<i64> = shape.iter().map(|&extent| extent as i64).collect();
            let made = context.output(at, &shape)?;
            outputs.push(made.ok_or_else(|| Error::invalid_argument(format!("output {at} was not requested")))?);
        }
        let mut run =
            |order: Order<'_>| ffi::run(prepared.clone(), &tensors, &mut outputs, context, self.observer(), order);
        match run(order) {
            Err(error) if self.runs.abandon_interrupted() => {
                let error = error.message();
                tracing::debug!(target: "amdgpu_ep::run", error, "the capture was interrupted; the run continues without it");
                drop(capture);
                let capture = self.runs.capture(context)?;
                run(self.runs.order(context, capture.as_deref())?)
            }
            done => done,
        }
    }
}

/// Reports steps to the profilers.
struct Watch {
    graph: Arc<Graph>,
    recorders: Vec<Arc<Recorder>>,
    timed: Option<TimedRun>,
    peak: Option<Peak>,
}

impl Observer for Watch {
    fn step(&self, step: &Step, by: RunBy<'_>, start: Instant, took: Duration) {
        self.recorders.iter().for_each(|recorder| recorder.add(&self.graph, step, by, start, took, self.peak));
        if let Some(timed) = &self.timed {
            timed.add(&self.graph, step, by, took, self.peak);
        }
    }
}
