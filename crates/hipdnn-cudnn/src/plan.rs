//! A graph on cuDNN's engines, ready to run: one request, or several in a row.

use std::sync::{Arc, Mutex, PoisonError};

use hipdnn_abi::{Arguments, Fault, Handle, Outcome};

use crate::cudnn_graph::{CudnnGraph, number};
use crate::graph::{Graph, Storage};
use crate::older::Call;
use crate::safe::{self, Descriptor};
use crate::sys::{AttributeName as A, Cudnn, DescriptorType as D};
use crate::worker::Worker;

/// The alignment that cuDNN requires of workspaces; no tensor needs more.
const ALIGNMENT: usize = 256;

/// A graph that can run.
pub struct Plan {
    steps: Vec<Step>,
    uids: Vec<i64>,
    workspace: usize,
    /// Keeps the values alive whose addresses the steps use.
    _graph: Arc<Graph>,
}

/// A request to cuDNN.
enum Request {
    /// Execute a plan.
    Plan(Descriptor),
    /// Call the older interface.
    Call(Call),
}

/// A request to cuDNN.
struct Step {
    request: Request,
    /// cuDNN's uids of its tensors.
    numbers: Vec<i64>,
    /// Where each of these tensors is.
    sources: Vec<Source>,
    /// Where this step's part of the workspace starts.
    workspace: usize,
    /// The variant pack of the last run, reused as long as no address changes.
    last: Mutex<Option<Pack>>,
}

/// Where a step finds a tensor.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The caller provides it, with this uid.
    Caller(i64),
    /// At this address.
    Value(usize),
    /// At this offset in the workspace.
    Scratch(usize),
}

struct Pack {
    addresses: Vec<usize>,
    workspace: usize,
    descriptor: Descriptor,
}

/// A request to cuDNN, before its step is placed among others in a plan.
pub struct UnplacedStep {
    request: Request,
    workspace: usize,
    bound: Vec<usize>,
}

impl UnplacedStep {
    /// A cuDNN graph on one of its configurations.
    pub fn new(worker: &Worker, cudnn_graph: &CudnnGraph, choice: usize) -> Outcome<Self> {
        let (plan, workspace) = cudnn_graph.plan(worker, choice)?;
        Ok(Self { request: Request::Plan(plan), workspace, bound: cudnn_graph.bound.clone() })
    }

    /// A cached plan.
    pub fn restored(plan: Descriptor, workspace: usize, bound: &[usize]) -> Self {
        Self { request: Request::Plan(plan), workspace, bound: bound.to_vec() }
    }

    /// An operation through the older interface.
    fn older(worker: &Worker, graph: &Graph, operation: usize) -> Outcome<Self> {
        let call = Call::new(worker, graph, &graph.operations[operation])?;
        Ok(Self { workspace: call.workspace, bound: call.tensors.to_vec(), request: Request::Call(call) })
    }
}

/// Splits a graph into its operations, if cuDNN does not run it as a whole.
///
/// # Errors
/// The reason for an operation that cuDNN does not run even alone.
pub fn cut(worker: &Worker, graph: &Graph) -> Outcome<Vec<UnplacedStep>> {
    (0..graph.operations.len()).map(|at| alone(worker, graph, at)).collect()
}

/// One operation. Several are not combined: some of those that cuDNN 9.19 fused left results unwritten.
fn alone(worker: &Worker, graph: &Graph, at: usize) -> Outcome<UnplacedStep> {
    let cudnn_graph = CudnnGraph::new(worker, graph, at..at + 1).and_then(|cudnn_graph| cudnn_graph.proved(worker));
    cudnn_graph.and_then(|cudnn_graph| UnplacedStep::new(worker, &cudnn_graph, 0)).or_else(|fault| {
        UnplacedStep::older(worker, graph, at).map_err(|_| {
            let kind = format!("{:?}", graph.operations[at].kind);
            let kind = kind.trim_start_matches("CUDNN_BACKEND_OPERATION_").trim_end_matches("_DESCRIPTOR");
            Fault::new(fault.status, format!("{kind}: {}", fault.text))
        })
    })
}

impl Plan {
    /// Places steps one after the other.
    ///
    /// # Errors
    /// An intermediate tensor cannot be stored.
    pub fn new(graph: Arc<Graph>, unplaced: Vec<UnplacedStep>) -> Outcome<Self> {
        let mut scratch = vec![None; graph.tensors.len()];
        let mut used = 0;
        for step in &unplaced {
            for &tensor in step.bound.iter().filter(|&&tensor| graph.tensors[tensor].home == Storage::Inside) {
                if scratch[tensor].is_none() {
                    let bytes = graph.tensors[tensor].bytes;
                    let bytes =
                        bytes.ok_or_else(|| Fault::unsupported("elements smaller than a byte cannot be stored"))?;
                    scratch[tensor] = Some(used);
                    used += bytes.next_multiple_of(ALIGNMENT);
                }
            }
        }
        let own = unplaced.iter().map(|step| step.workspace).max().unwrap_or(0);
        let mut uids = Vec::new();
        let mut steps = Vec::with_capacity(unplaced.len());
        for step in unplaced {
            let source = |&tensor: &usize| {
                let known = &graph.tensors[tensor];
                match (&known.home, known.uid, scratch[tensor]) {
                    (Storage::Value(value), ..) => Ok(Source::Value((&raw const value.0).addr())),
                    (Storage::Inside, _, Some(offset)) => Ok(Source::Scratch(offset)),
                    (_, Some(uid), _) => Ok(Source::Caller(uid)),
                    _ => Err(Fault::bad("a tensor has no memory")),
                }
            };
            let sources = step.bound.iter().map(source).collect::<Outcome<Vec<_>>>()?;
            for source in &sources {
                if let Source::Caller(uid) = source
                    && !uids.contains(uid)
                {
                    uids.push(*uid);
                }
            }
            let numbers = step.bound.iter().map(|&tensor| number(tensor)).collect();
            steps.push(Step { request: step.request, numbers, sources, workspace: used, last: Mutex::default() });
        }
        Ok(Self { steps, uids, workspace: used + own, _graph: graph })
    }
}

impl hipdnn_abi::Plan for Plan {
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    fn uids(&self) -> Vec<i64> {
        self.uids.clone()
    }

    unsafe fn execute(&self, handle: &Handle, arguments: &Arguments<'_>) -> Outcome {
        let worker =
            handle.own::<Arc<Worker>>().ok_or_else(|| Fault::bad("the handle is not from the cuDNN bridge"))?;
        if self.workspace > 0 && arguments.workspace == 0 {
            return Err(Fault::bad(format!("a workspace of {} bytes is required", self.workspace)));
        }
        worker.on_stream(handle.stream(), |handle| {
            // SAFETY: guaranteed by the caller.
            self.steps.iter().try_for_each(|step| unsafe { step.run(worker.cudnn, handle, arguments) })
        })
    }
}

impl Step {
    /// # Safety
    /// The same as for [`Plan::execute`](hipdnn_abi::Plan::execute).
    unsafe fn run(&self, cudnn: &'static Cudnn, handle: &safe::Handle, arguments: &Arguments<'_>) -> Outcome {
        let address = |source: &Source| match *source {
            Source::Caller(uid) => arguments
                .address(uid)
                .ok_or_else(|| Fault::bad(format!("the variant pack has no address for tensor {uid}"))),
            Source::Value(address) => Ok(address),
            Source::Scratch(offset) => Ok(arguments.workspace + offset),
        };
        let workspace = if arguments.workspace == 0 { 0 } else { arguments.workspace + self.workspace };
        let plan = match &self.request {
            Request::Plan(plan) => plan,
            Request::Call(call) => {
                let [Some(from), Some(to)] = [0, 1].map(|at| self.sources.get(at)) else {
                    return Err(Fault::bad("a call lacks its tensors"));
                };
                // SAFETY: guaranteed by the caller.
                return unsafe { call.run(handle, address(from)?, address(to)?, workspace) };
            }
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_same = last.as_ref().is_some_and(|pack| pack.workspace == workspace);
        if let Some(pack) = last.as_ref().filter(|_| is_same) {
            for (source, &known) in self.sources.iter().zip(&pack.addresses) {
                is_same &= address(source)? == known;
            }
        }
        if !is_same {
            let addresses = self.sources.iter().map(address).collect::<Outcome<Vec<_>>>()?;
            let descriptor = Descriptor::new(cudnn, D::VARIANT_PACK_DESCRIPTOR)?;
            descriptor.set_i64s(A::VARIANT_PACK_UNIQUE_IDS, &self.numbers)?;
            descriptor.set_addresses(A::VARIANT_PACK_DATA_POINTERS, &addresses)?;
            descriptor.set_addresses(A::VARIANT_PACK_WORKSPACE, &[workspace])?;
            descriptor.finalize()?;
            *last = Some(Pack { addresses, workspace, descriptor });
        }
        let Some(pack) = last.as_ref() else { return Err(Fault::bad("there is no variant pack")) };
        // SAFETY: the caller guarantees the addresses.
        unsafe { handle.execute(plan, &pack.descriptor) }
    }
}
