//! The execution provider of one session.
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use exec::{CompiledPartition, Device, Input, Planned, Settings};
use ort_ep::saved::Save;
use ort_ep::view::{Dim, Graph, RunOptions};
use ort_ep::{
    Claims, Compiled, CompiledModels, Ep, Error, ErrorCode, FusedPartition, GraphCapture, Profiling, Result, declined,
};
use reports::{Explain, Profile, ReportFile};

use crate::claim::{self, Placement};
use crate::import::import;
use crate::memory::MemoryReport;
use crate::partition::{DevicePartition, Watched};
use crate::profile::Profiles;
use crate::runs::Runs;
use crate::tuning::Tuning;
use crate::{ahead, control_flow, convert, cpu_provider, explain, saved, status, steps};

/// A session on a device.
pub(crate) struct HipEp {
    /// The device that runs the session's partitions.
    pub device: Arc<dyn Device>,
    /// State shared by the session's runs.
    pub runs: Arc<Runs>,
    /// Records why each node was placed or declined, if requested.
    pub explain: Option<Arc<ReportFile<Explain>>>,
    /// The name under which ONNX Runtime registered this provider. Nodes saved by it carry this name.
    pub name: String,
    /// Whether nodes with subgraphs are claimed, not only their bodies.
    pub takes_control_flow: bool,
    /// The type of the model, if the application named it.
    pub family: Option<String>,
    /// The minor version of ONNX Runtime.
    pub release: Option<u32>,
    /// Why there can be no session, after a graph has been offered.
    pub refused: Mutex<Option<Error>>,
    /// How partitions are saved while a compiled model is being created.
    pub save: Option<Save>,
    /// Where to look for saved partitions if the model has no path.
    pub folder: Option<PathBuf>,
    /// The profilers of this session.
    pub profiles: Profiles,
    /// Where step times are written, if requested.
    pub timed: Option<Arc<ReportFile<Profile>>>,
    /// How partitions are prepared.
    pub tuning: Tuning,
    /// Writes the memory usage to a file when dropped, if requested.
    #[expect(dead_code, reason = "it acts when dropped")]
    pub memory: Option<MemoryReport>,
}

impl Ep for HipEp {
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        self.tuning.see(graph)?;
        let mut placement = claim::place(graph, &self.name, self.tuning.padded_masks())?;
        if self.takes_control_flow && claim::refused(graph)?.is_none() {
            control_flow::take(&mut placement, claims, &self.name)?;
        }
        let unrunnable = cpu_provider::check(&mut placement.declined, self.family.as_deref(), self.release)?;
        report(&placement, self.device.name())?;
        if let Some(file) = &self.explain {
            file.append(&explain::graph(graph.name()?, &placement)?);
        }
        if let Some((node, error)) = unrunnable {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            claims.fuse(&[node], true)?;
        }
        claim::claim(&placement, claims)
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        if let Some(error) = &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(error.clone());
        }
        partitions.iter().map(|partition| self.compile_one(partition)).collect()
    }

    fn on_run_start(&self, options: RunOptions<'_>) -> Result<()> {
        self.runs.start(options)
    }

    fn on_run_end(&self, _: RunOptions<'_>, sync: bool) -> Result<()> {
        self.runs.end(sync)
    }

    /// Replays and direct work are already complete when they return, so this only waits for queued work.
    fn sync(&self) -> Result<()> {
        self.runs.wait();
        Ok(())
    }

    fn graph_capture(&self) -> Option<&dyn GraphCapture> {
        self.runs.captures().map(|captures| captures as &dyn GraphCapture)
    }

    fn profiling(&self) -> Option<&dyn Profiling> {
        Some(&self.profiles)
    }

    fn compiled_models(&self) -> Option<&dyn CompiledModels> {
        Some(self)
    }
}

impl CompiledModels for HipEp {
    fn compatibility_info(&self, _: Graph<'_>) -> String {
        saved::info()
    }
}

impl HipEp {
    /// Plans a partition now for shapes that are known or likely if planning is slow on this device, so that the first
    /// runs do not pay for it. A session that only compiles a model makes no plan. Errors are reported by the first run.
    fn plan_ahead(&self, compiled: &CompiledPartition, shapes: &[Vec<Vec<usize>>]) {
        if !self.device.plans_ahead() || self.save.is_some() {
            return;
        }
        for shapes in shapes {
            let inputs: Vec<_> = shapes.iter().map(|shape| Input { shape, value: None }).collect();
            if let Err(error) = compiled.plan(&inputs) {
                tracing::debug!(target: "amdgpu_ep::compile", %error, "could not compile a plan ahead of the first run");
            }
        }
    }

    /// The axes of a partition's inputs; `None` if a rank is unknown, or a shape depends on an input's value.
    fn input_axes(compiled: &CompiledPartition, partition: &FusedPartition<'_>) -> Result<Option<Vec<Vec<Dim>>>> {
        let mut known = HashMap::new();
        for value in partition.node.inputs()?.into_iter().flatten() {
            if let Some(axes) = convert::value_axes(value)? {
                known.insert(value.name()?.to_owned(), axes);
            }
        }
        let graph = compiled.graph();
        let axes = graph.inputs().iter().enumerate().map(|(at, id)| match compiled.needs_value(at) {
            true => None,
            false => known.get(&graph.value(*id).name).cloned(),
        });
        Ok(axes.collect())
    }

    /// Compiles one partition. Runs with shapes that were not planned ahead make their plans.
    fn compile_one(&self, partition: &FusedPartition<'_>) -> Result<Compiled> {
        let start = Instant::now();
        let record = match partition.graph.nodes()?[..] {
            [node] if saved::is_ours(node, &self.name)? => saved::load(partition, node, self.folder.as_deref())?,
            _ => import(partition)?,
        };
        let context_node = self.save.as_ref().map(|save| saved::node(save, &record, partition)).transpose()?;
        let mut graph = record.into_graph().map_err(|reason| Error::new(ErrorCode::InvalidGraph, reason))?;
        self.tuning.mark(&mut graph);
        let (name, imported) = (partition.node.name()?, start.elapsed());
        let settings = Settings { planned: Some(self.planned(name)), ..self.tuning.settings(name) };
        let compiled = CompiledPartition::with(graph, &*self.device, settings);
        let compiled = compiled.map_err(|error| status::of(&error))?;
        if let Some(file) = &self.explain {
            file.append(&explain::passes(name, compiled.fired()));
        }
        let passed = start.elapsed() - imported;
        let axes = Self::input_axes(&compiled, partition)?;
        let axes: Option<Vec<&[Dim]>> = axes.as_ref().map(|axes| axes.iter().map(Vec::as_slice).collect());
        let is_fixed = axes.iter().flatten().copied().flatten().all(|axis| axis.fixed().is_some()) && axes.is_some();
        self.plan_ahead(&compiled, &axes.map_or_else(Vec::new, |axes| ahead::shapes(&axes)));
        let (took, planned) = (start.elapsed(), start.elapsed() - imported - passed);
        tracing::debug!(
            target: "amdgpu_ep::compile",
            "{name} compiled in {took:.1?}: import {imported:.1?}, passes {passed:.1?}, ahead-of-time plan {planned:.1?}"
        );
        let watched = Watched {
            profiles: self.profiles.clone(),
            timed: self.timed.clone().map(|file| (file, name.into())),
            peak: self.device.peak(),
        };
        let partition = DevicePartition::new(compiled, is_fixed, self.runs.clone(), watched);
        Ok(Compiled { partition: Box::new(partition), context_node })
    }

    /// A callback that reports which code runs each step of a partition's plans.
    fn planned(&self, partition: &str) -> Planned {
        let (partition, explain) = (partition.to_owned(), self.explain.clone());
        Arc::new(move |graph, prepared| {
            explain.iter().for_each(|file| file.append(&steps::report(&partition, graph, prepared)));
            tracing::debug!(target: "amdgpu_ep::compile", "plan of {partition}: {}", steps::summary(prepared));
        })
    }
}

/// Logs one line per graph: how many nodes run here, and why the others do not.
fn report(placement: &Placement<'_>, device: &str) -> Result<()> {
    let taken = placement.partitions.iter().map(Vec::len).sum::<usize>() + placement.alone.len();
    let total = taken + placement.declined.len();
    for (node, reason) in &placement.declined {
        tracing::debug!(target: "amdgpu_ep::partition", node = node.name()?, op = node.op_type()?, %reason, "declined");
    }
    let rest = declined::reasons(&placement.declined)?;
    let partitions = placement.partitions.len();
    tracing::info!(target: "amdgpu_ep::partition", "{taken} of {total} nodes in {partitions} partitions on the {device} device{rest}");
    Ok(())
}
