//! Asks backends to run the steps of a plan, as the policy says, and gets the code for those that do.
//!
//! The reasons of those that declined are kept for `explain`.
use std::sync::Arc;
use std::time::{Duration, Instant};

use graph::prim::ProductKind;
use graph::{Declined, Step, pointwise};
use kernels::{Kernel, Launch, Launches};

use super::blas::{BlasRequest, Product};
use super::candidate::Candidate;
use super::code::Outcome;
use super::tuned::Entry;
use super::{GpuSettings, PartitionState, Shared};
use crate::device::RunBy;
use crate::dnn::DnnStep;
use crate::policy::{self, Backend};

/// The backend that runs a step.
pub(super) enum Task {
    /// None: the step has no elements.
    Nothing,
    /// hipDNN.
    Dnn(DnnStep),
    /// BLASLt, with our kernels before it for packed weights and after it for an epilogue that it does not support.
    Blas { before: Vec<ReadyLaunch>, product: Box<Product>, behind: Vec<ReadyLaunch> },
    /// Our kernels, one after the other.
    Kernels {
        launches: Vec<ReadyLaunch>,
        /// Why hipDNN does not run it, if it was asked.
        why: Option<String>,
    },
    /// The host, between copies.
    Host {
        /// Why no kernel runs it.
        why: String,
    },
}

/// A launch whose code is on the device.
pub(super) struct ReadyLaunch {
    pub function: Arc<hip::Function>,
    pub launch: Launch,
    /// The word at which this launch's arguments start among those of the plan.
    pub args: usize,
    /// True if its blocks may begin before the previous launch has ended.
    pub is_early: bool,
}

impl Task {
    /// The backend as shown to users.
    pub fn run_by(&self) -> RunBy<'_> {
        match self {
            Self::Nothing => RunBy::Own { why: None },
            Self::Dnn(step) => step.run_by(),
            Self::Blas { .. } => RunBy::BlasLt { why: None },
            Self::Kernels { why, .. } => RunBy::Own { why: why.as_deref() },
            Self::Host { why } => RunBy::Host { why },
        }
    }

    /// The offset in scratch memory of a product whose epilogue is a separate pass.
    pub fn product_at(&self) -> usize {
        match self {
            Self::Blas { product, .. } => product.product_at(),
            _ => 0,
        }
    }

    /// The launches of our kernels, each with the step its arguments belong to, unless that is the plan's own step.
    pub fn launches(&mut self) -> impl Iterator<Item = (&mut ReadyLaunch, Option<&Step>)> {
        let (first, second, own): (&mut [ReadyLaunch], &mut [ReadyLaunch], _) = match self {
            Self::Kernels { launches, .. } => (launches, &mut [], None),
            Self::Blas { before, product, behind } => (before, behind, product.behind.as_ref().map(|(step, _)| step)),
            _ => (&mut [], &mut [], None),
        };
        first.iter_mut().map(|ready| (ready, None)).chain(second.iter_mut().map(move |ready| (ready, own)))
    }
}

/// The backend chosen for a step, before anything is compiled.
enum Choice {
    Nothing,
    Dnn(DnnStep),
    Blas(Box<Blas>),
    Kernels(Launches, Option<String>),
    Host(String),
}

/// A product by BLASLt, with our launches around it.
struct Blas {
    /// The launch that unpacks its weights, and where these end in scratch memory.
    before: Option<(Launch, usize)>,
    product: Product,
    behind: Option<Launches>,
}

impl Blas {
    fn launches(&self) -> impl Iterator<Item = &Launch> {
        let before = self.before.iter().map(|(launch, _)| launch);
        before.chain(self.behind.iter().flat_map(|work| &work.launches))
    }
}

/// The tasks of a plan.
pub(super) struct Tasks {
    pub tasks: Vec<Task>,
    /// The measurements of each step, if they chose its backend.
    pub tuned: Vec<Option<Entry>>,
    /// The scratch memory that the tasks need.
    pub scratch_bytes: usize,
    /// How long it took to choose backends and to get their code.
    pub asked: Duration,
    pub coded: Duration,
}

/// Chooses the backend of each step and compiles the kernels that are needed.
pub(super) fn tasks(steps: &[Step], partition: &PartitionState) -> Tasks {
    let (device, start) = (&partition.device, Instant::now());
    let (choices, tuned): (Vec<Choice>, Vec<Option<Entry>>) = steps.iter().map(|step| choose(step, partition)).unzip();
    let asked = start.elapsed();
    let launches = choices.iter().flat_map(|choice| -> Vec<&Launch> {
        match choice {
            Choice::Kernels(work, _) => work.launches.iter().collect(),
            Choice::Blas(blas) => blas.launches().collect(),
            _ => Vec::new(),
        }
    });
    let wanted: Vec<&Kernel> = launches.map(|launch| &launch.kernel).collect();
    let mut functions = device.code.functions(&wanted, partition.settings.progress.as_ref()).into_iter();
    let coded = start.elapsed() - asked;
    let mut scratch_bytes = 0;
    let tasks = choices.into_iter().map(|choice| match choice {
        Choice::Nothing => Task::Nothing,
        Choice::Host(why) => Task::Host { why },
        Choice::Dnn(step) => {
            scratch_bytes = scratch_bytes.max(step.workspace_bytes());
            Task::Dnn(step)
        }
        Choice::Blas(blas) => {
            let Blas { before, product, behind } = *blas;
            let end = before.as_ref().map_or(0, |(_, end)| *end);
            scratch_bytes = scratch_bytes.max(product.scratch_bytes()).max(end);
            let before = ready(before.into_iter().map(|(launch, _)| launch).collect(), &mut functions);
            let behind = ready(behind.map_or_else(Vec::new, |work| work.launches), &mut functions);
            match before.and_then(|before| Ok((before, behind?))) {
                Ok((before, behind)) => Task::Blas { before, product: Box::new(product), behind },
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
    Tasks { tasks, tuned, scratch_bytes, asked, coded }
}

/// Pairs launches with their code, which comes in the same order.
fn ready(launches: Vec<Launch>, code: &mut impl Iterator<Item = Outcome>) -> Result<Vec<ReadyLaunch>, Arc<str>> {
    // Takes the code of all launches even if one failed: the next step's code follows.
    let outcomes: Vec<Outcome> = code.take(launches.len()).collect();
    let pairs = launches.into_iter().zip(outcomes);
    pairs.map(|(launch, outcome)| Ok(ReadyLaunch { function: outcome?, launch, args: 0, is_early: false })).collect()
}

fn choose(step: &Step, partition: &PartitionState) -> (Choice, Option<Entry>) {
    let (settings, device) = (&partition.settings, &*partition.device);
    if is_empty(step) {
        return (Choice::Nothing, None);
    }
    if let Some(candidate) = partition.forced {
        let choice = choice_of(step, candidate, settings, device);
        return (choice.unwrap_or_else(|declined| Choice::Host(declined.0)), None);
    }
    let known = settings.tuned.as_ref().and_then(|tuned| tuned.find(step, settings.tf32));
    if let Some(entry) = known
        && let Ok(choice) = choice_of(step, entry.candidate, settings, device)
    {
        return (choice, Some(entry));
    }
    (usual_choice(step, settings, device), None)
}

fn is_empty(step: &Step) -> bool {
    step.outputs.iter().all(|view| view.elems() == 0)
}

/// True if BLASLt runs a step. No other backend is asked then.
pub(super) fn is_blas(step: &Step, settings: &GpuSettings, device: &Shared) -> bool {
    matches!(worth_blas(step, settings, device), Some(Ok(_)))
}

/// A step on BLASLt, if that is worthwhile; `None` if it is not a product.
fn worth_blas(step: &Step, settings: &GpuSettings, device: &Shared) -> Option<Result<Choice, Declined>> {
    let pointwise = pointwise::as_matmul(step);
    let step = pointwise.as_ref().unwrap_or(step);
    if let Err(declined) = policy::check_blas(step) {
        return Some(Err(declined));
    }
    offered(step, None, settings, device)
}

/// The backend that runs a step without tuning results.
fn usual_choice(step: &Step, settings: &GpuSettings, device: &Shared) -> Choice {
    let mut reasons: Vec<String> = Vec::new();
    for backend in policy::order(&step.prim) {
        let answer = match backend {
            Backend::BlasLt => worth_blas(step, settings, device),
            Backend::HipDnn => {
                let offering = settings.dnn.as_ref();
                offering.and_then(|offering| offering.offer(step)).map(|answer| answer.map(Choice::Dnn))
            }
            Backend::Kernels => {
                let why = (!reasons.is_empty()).then(|| reasons.join("; "));
                Some(kernels::work(step, &device.code.arch).map(|work| Choice::Kernels(work, why)))
            }
        };
        match answer {
            Some(Ok(choice)) => return choice,
            Some(Err(declined)) => reasons.push(declined.0),
            None => {}
        }
    }
    // The last reason is that of our kernels, which are asked for every step.
    Choice::Host(reasons.pop().unwrap_or_default())
}

/// A step on BLASLt, with the algorithm of this rank or the best; `None` if it is not a product.
fn offered(
    step: &Step,
    rank: Option<usize>,
    settings: &GpuSettings,
    device: &Shared,
) -> Option<Result<Choice, Declined>> {
    let arch = &device.code.arch;
    let request = BlasRequest { tf32: settings.tf32, rank };
    let pointwise = pointwise::as_matmul(step);
    let step = pointwise.as_ref().unwrap_or(step);
    let (kind, _) = step.prim.product_and_epilogue()?;
    if let Err(declined) = settings.blas.check() {
        let is_asked =
            !matches!(kind, ProductKind::Conv(_) | ProductKind::ConvTranspose(_) | ProductKind::IntegerConv { .. });
        return is_asked.then_some(Err(declined));
    }
    let Some(unpacked) = kernels::unpacked(step, arch, 0) else {
        return Some(device.blas.offer(step, request)?.and_then(|product| with_launches(None, product, device)));
    };
    let first = match device.blas.offer(&unpacked.step, request)? {
        Ok(product) => product,
        Err(declined) => return Some(Err(declined)),
    };
    // The weights are placed after the memory that the library and the epilogue use.
    let unpacked = kernels::unpacked(step, arch, first.scratch_bytes())?;
    let before = Some((unpacked.launch, unpacked.end));
    Some(device.blas.offer(&unpacked.step, request)?.and_then(|product| with_launches(before, product, device)))
}

/// A product, with its launches before and the map after it, if any.
fn with_launches(before: Option<(Launch, usize)>, product: Product, device: &Shared) -> Result<Choice, Declined> {
    let behind = product.behind.as_ref().map(|(step, _)| kernels::work(step, &device.code.arch)).transpose()?;
    if behind.as_ref().is_some_and(|work| work.scratch_bytes > 0) {
        return Err(Declined::new("its epilogue needs scratch memory"));
    }
    Ok(Choice::Blas(Box::new(Blas { before, product, behind })))
}

/// A step on one candidate.
fn choice_of(step: &Step, candidate: Candidate, settings: &GpuSettings, device: &Shared) -> Result<Choice, Declined> {
    match candidate {
        Candidate::Own(number) => {
            let work = kernels::variants(step, &device.code.arch)?.into_iter().nth(number);
            let work = work.ok_or_else(|| Declined::new(format!("variant {number} does not exist")))?;
            Ok(Choice::Kernels(work, None))
        }
        Candidate::BlasLt(rank) => {
            let choice = offered(step, Some(rank), settings, device);
            choice.ok_or_else(|| Declined::new("it is not a product"))?
        }
        Candidate::HipDnn(rank) => {
            let offering = settings.dnn.as_ref().ok_or_else(|| Declined::new("hipDNN is turned off"))?;
            offering.offer_at(step, rank).map(Choice::Dnn)
        }
    }
}

/// The candidate used without tuning results; `None` for empty steps and for the host.
pub(super) fn usual(step: &Step, settings: &GpuSettings, device: &Shared) -> Option<Candidate> {
    if is_empty(step) {
        return None;
    }
    match usual_choice(step, settings, device) {
        Choice::Nothing | Choice::Host(_) => None,
        Choice::Dnn(_) => Some(Candidate::HipDnn(0)),
        Choice::Blas(..) => Some(Candidate::BlasLt(0)),
        Choice::Kernels(..) => Some(Candidate::Own(0)),
    }
}

/// All candidates for a step.
pub(super) fn candidates(step: &Step, settings: &GpuSettings, device: &Shared) -> Vec<Candidate> {
    let own = kernels::variants(step, &device.code.arch).map_or(0, |variants| variants.len());
    let others = (0..policy::BLAS_ALGORITHMS)
        .map(Candidate::BlasLt)
        .take_while(|&way| choice_of(step, way, settings, device).is_ok());
    let engines = (0..policy::DNN_ENGINES).map(Candidate::HipDnn);
    let engines = engines.take_while(|&way| choice_of(step, way, settings, device).is_ok());
    (0..own).map(Candidate::Own).chain(others).chain(engines).collect()
}
