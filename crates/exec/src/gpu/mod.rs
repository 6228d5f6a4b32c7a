//! The GPU device: plans as launches on a stream of a driver.
//!
//! | | |
//! |---|---|
//! | `code` | compiles kernels once per device, in parallel |
//! | `task` | assigns each step to a backend: BLASLt, hipDNN, our kernels, or the host if there is no other |
//! | `candidate`, `tune`, `tuned` | the candidates for a step, measuring them, and the results so far |
//! | `blas`, `sum` | products by the vendor's library, and the epilogues it supports |
//! | `weights` | uploads constants once for all plans of a partition; large ones are then kept nowhere else |
//! | `frame` | the block of device memory of a run, and where operands are in it |
//! | `blocks` | allocates and reuses these blocks in stream order |
//! | `bind` | the arguments of all launches of a plan, and where addresses go in them |
//! | `host_step` | runs a step on the host, between copies |
//! | `lost` | reports a device that stopped working |
//! | `flight` | outcomes of asynchronous runs |
//! | `replay` | plans as captured graphs |
//! | `plan`, `run` | a prepared plan, and running it |
//! | `progress` | progress of the work that a new plan waits for |
//!
//! This module does not depend on a particular vendor: the driver and the compiler handle the differences.
mod bind;
mod blas;
mod blocks;
mod candidate;
mod code;
mod early;
mod flight;
mod frame;
mod host_step;
mod lost;
mod plan;
mod progress;
mod replay;
mod run;
mod sum;
mod task;
mod tune;
mod tuned;
mod weights;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use graph::plan::{Budget, Capabilities, Capability};
use graph::{Graph, Plan, Tensor};
use kernels::{Arch, Compiler, Counts, Peak};

use crate::ExecError;
use crate::device::{Device, Loaded, Prepared};
use crate::dnn::Offering;
use crate::host::{Folded, WALKED};
use blas::Blas;
use blocks::Blocks;
use candidate::Candidate;
use code::Code;
pub(crate) use host_step::view_range;
use lost::Lost;
use plan::GpuPlan;
use weights::Weights;

pub use crate::policy::{BlasMode, UnknownBlasMode};
pub use progress::{Activity, OnProgress};
pub use replay::{ReplayMode, UnknownReplayMode};
pub use tuned::{TuneMode, Tuned, UnknownTuneMode};

/// A GPU, with the kernels and the memory for runs that its sessions share. Clones share them too.
#[derive(Clone)]
pub struct GpuDevice {
    shared: Arc<Shared>,
    settings: GpuSettings,
}

/// A session's settings for the device.
#[derive(Clone, Default)]
pub struct GpuSettings {
    /// The steps that are offered to hipDNN, and its library.
    pub dnn: Option<Arc<Offering>>,
    /// Which products may run on BLASLt.
    pub blas: BlasMode,
    /// Whether plans are captured and replayed.
    pub graphs: ReplayMode,
    /// Whether single-precision products may round their operands to TF32.
    pub tf32: bool,
    /// Tuning results, and whether to measure more.
    pub tuned: Option<Arc<Tuned>>,
    /// Notified of the progress of a new plan.
    pub progress: Option<OnProgress>,
}

/// What all sessions on a device share.
struct Shared {
    name: String,
    code: Code,
    blas: Blas,
    blocks: Blocks,
    lost: Lost,
    /// Warn only once that captures do not work and that events have no times.
    warned_of_graphs: Once,
    warned_of_times: Once,
    /// Streams for runs that come without one and for uploads.
    streams: Mutex<Vec<hip::Stream>>,
    /// Queried once.
    memory_bytes: OnceLock<Option<usize>>,
    device: hip::Device,
}

impl GpuDevice {
    /// A device of a driver, with the compiler that builds code for it.
    pub fn new(device: hip::Device, arch: Arch, compiler: Arc<dyn Compiler>) -> Self {
        let name = arch.target.split(':').next().unwrap_or_default().to_owned();
        let code = Code::new(device.clone(), arch, compiler);
        let (blas, blocks) = (Blas::new(device.clone()), Blocks::new(device.clone()));
        Self {
            shared: Arc::new(Shared {
                name,
                code,
                blas,
                blocks,
                lost: Lost::default(),
                warned_of_graphs: Once::new(),
                warned_of_times: Once::new(),
                streams: Mutex::default(),
                memory_bytes: OnceLock::new(),
                device,
            }),
            settings: GpuSettings::default(),
        }
    }

    /// The same device for a session with these settings.
    #[must_use]
    pub fn with(&self, settings: GpuSettings) -> Self {
        Self { shared: self.shared.clone(), settings }
    }

    /// The driver's device.
    pub fn device(&self) -> &hip::Device {
        &self.shared.device
    }

    /// The architecture, with its capabilities.
    pub fn arch(&self) -> &Arch {
        &self.shared.code.arch
    }

    /// The number of kernels compiled, or found precompiled, so far. A plan for new shapes usually adds none, because
    /// shapes are arguments.
    pub fn kernels(&self) -> usize {
        self.shared.code.len()
    }

    /// Where the code came from, if the compiler counts that.
    pub fn counts(&self) -> Option<Counts> {
        self.shared.code.counts()
    }
}

impl Shared {
    /// The size of the device's memory, if the driver reports it.
    fn memory_bytes(&self) -> Option<usize> {
        *self.memory_bytes.get_or_init(|| {
            let total = self.device.memory_info().ok()?.total;
            (total > 0).then_some(total)
        })
    }

    fn stream(&self) -> Result<hip::Stream, ExecError> {
        let idle = self.streams.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| Ok(self.device.stream()?), Ok)
    }

    fn give_back(&self, stream: hip::Stream) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Code must outlive the work that runs it.
        self.blocks.wait();
    }
}

impl Device for GpuDevice {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> Capabilities {
        // Without matrix instructions, separate products by vendor libraries are faster than our attention.
        let has_matrix = self.shared.code.arch.matrix != kernels::Matrix::None;
        Capabilities::NONE
            // Vendor libraries and our kernels multiply runs of adjacent channels.
            .with(Capability::ChannelsLast)
            .with_if(has_matrix, Capability::Attention)
            // A launch costs more than normalising a few rows, which every block of a product can do itself.
            .with(Capability::NormedProducts)
            // A separate launch would read again what blocks already hold in LDS.
            .with(Capability::GatedProducts)
            // A launch costs as much as attention over a short cache.
            .with(Capability::AppendAttention)
    }

    /// Compiles kernels, asks libraries and uploads weights.
    fn plans_ahead(&self) -> bool {
        true
    }

    fn peak(&self) -> Option<Peak> {
        self.shared.code.arch.peak(&self.shared.device.info().name)
    }

    fn load(&self, graph: Arc<Graph>) -> Result<Box<dyn Loaded>, ExecError> {
        let partition = Arc::new(PartitionState {
            graph: Arc::new(graph.without_constants()),
            weights: Weights::default(),
            warned: Some(Mutex::default()),
            settings: self.settings.clone(),
            forced: None,
            device: self.shared.clone(),
        });
        Ok(Box::new(GpuPartition { folded: Folded::default(), partition }))
    }
}

/// The state that the plans of a partition share.
struct PartitionState {
    /// Used for names. The planner keeps the constants for as long as they are needed.
    graph: Arc<Graph>,
    weights: Weights,
    /// Primitives that run on the host, and why. Each is logged once.
    warned: Option<Mutex<HashSet<(&'static str, String)>>>,
    settings: GpuSettings,
    /// The single candidate for all steps while it is measured.
    forced: Option<Candidate>,
    device: Arc<Shared>,
}

/// A partition on a GPU. Work on constants runs once, on the host.
struct GpuPartition {
    folded: Folded,
    partition: Arc<PartitionState>,
}

impl Loaded for GpuPartition {
    fn evaluate(&self, prologue: &Plan) -> Option<Vec<Tensor>> {
        self.folded.evaluate(&self.partition.graph, prologue)
    }

    /// All of the device's memory. How much is free is known only when memory is allocated, and a failed allocation
    /// does no harm.
    fn budget(&self) -> Budget {
        let total = self.partition.device.memory_bytes();
        total.map_or_else(Budget::default, |total| Budget {
            held: total,
            arena: total,
            walked: total.saturating_mul(WALKED),
        })
    }

    fn prepare(&self, plan: Plan) -> Result<Arc<dyn Prepared>, ExecError> {
        let device = &self.partition.device;
        device.lost.check()?;
        self.folded.forget_unused();
        let plan = match &self.partition.settings.dnn {
            Some(offering) => {
                offering.make_ready(&plan.steps);
                offering.parted(plan, &|step| task::is_blas(step, &self.partition.settings, device))
            }
            None => plan,
        };
        let count = plan.steps.len();
        let reported = |error| device.lost.reported(error, &device.name, || format!("a new plan of {count} steps"));
        let plan = GpuPlan::new(plan, &self.partition).map_err(reported)?;
        self.folded.replace(|tensor| self.stored(tensor));
        Ok(Arc::new(plan))
    }

    fn stored(&self, constant: &Tensor) -> Option<Tensor> {
        self.partition.weights.stored(constant, &self.partition.device)
    }
}
