//! cuDNN as a library behind hipDNN's C ABI.

use std::any::Any;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hipdnn::sys::{BehaviorNote, DescriptorType, Status};
use hipdnn_abi::{CompiledGraph, Descriptor, Engine, Fault, Handle, Identity, Implementation, Outcome, Plan};

use crate::arrange;
use crate::cudnn_graph::CudnnGraph;
use crate::graph::Graph;
use crate::lower::{self, Variant};
use crate::plan::{self, UnplacedStep};
use crate::plan_cache::Entry;
use crate::safe::Descriptor as CudnnDescriptor;
use crate::worker::Worker;

const NOTES: &[BehaviorNote] = &[BehaviorNote::SUPPORTS_GRAPH_CAPTURE, BehaviorNote::EXTERNAL_LIBRARY_DEPENDENCY];

const fn engine(name: &'static str) -> Engine {
    Engine { name, notes: NOTES }
}

/// The configurations that cuDNN's heuristics offer for a graph, by rank; then the graph in pieces, one after the
/// other.
static ENGINES: [Engine; 17] = [
    engine("CUDNN_CHOICE_00"),
    engine("CUDNN_CHOICE_01"),
    engine("CUDNN_CHOICE_02"),
    engine("CUDNN_CHOICE_03"),
    engine("CUDNN_CHOICE_04"),
    engine("CUDNN_CHOICE_05"),
    engine("CUDNN_CHOICE_06"),
    engine("CUDNN_CHOICE_07"),
    engine("CUDNN_CHOICE_08"),
    engine("CUDNN_CHOICE_09"),
    engine("CUDNN_CHOICE_10"),
    engine("CUDNN_CHOICE_11"),
    engine("CUDNN_CHOICE_12"),
    engine("CUDNN_CHOICE_13"),
    engine("CUDNN_CHOICE_14"),
    engine("CUDNN_CHOICE_15"),
    engine("CUDNN_PIECES"),
];

/// The operations that run in pieces if cuDNN does not support them as a whole.
const PROVED_IN_PIECES: [DescriptorType; 8] = [
    DescriptorType::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    DescriptorType::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    DescriptorType::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
    DescriptorType::OPERATION_MATMUL_DESCRIPTOR,
    DescriptorType::OPERATION_POINTWISE_DESCRIPTOR,
    DescriptorType::OPERATION_REDUCTION_DESCRIPTOR,
    DescriptorType::OPERATION_RESAMPLE_FWD_DESCRIPTOR,
    DescriptorType::OPERATION_RESAMPLE_BWD_DESCRIPTOR,
];

const PIECES: &Engine = &ENGINES[16];

/// The library.
pub struct Bridge;

/// The library to export.
pub static BRIDGE: Bridge = Bridge;

impl Implementation for Bridge {
    fn identity(&self) -> Identity {
        Identity { version: c"0.4.0.cudnn", plugin: "hipdnn-cudnn", plugin_version: env!("CARGO_PKG_VERSION") }
    }

    fn engines(&self) -> &'static [Engine] {
        &ENGINES
    }

    fn open(&self) -> Outcome<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(Arc::new(Worker::new()?)))
    }

    fn compile(&self, handle: &Handle, operations: &[Arc<Descriptor>]) -> Result<Arc<dyn CompiledGraph>, String> {
        let worker = handle.own::<Arc<Worker>>().ok_or("the handle is not from the cuDNN bridge")?.clone();
        let whole = lower::lower(operations, Variant::Whole).map(Arc::new);
        let apart = lower::lower(operations, Variant::Apart);
        let arranged = apart.as_ref().map(arrange::arranged).ok();
        let mut refusals = Vec::new();
        let cudnn_graph = whole
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|graph| WholeGraph::new(&worker, graph.clone()).map_err(|fault| fault.text));
        let cudnn_graph = cudnn_graph.map_err(|reason| refusals.push(reason)).ok();
        if let Err(reason) = &apart
            && !refusals.contains(reason)
        {
            refusals.push(reason.clone());
        }
        // First the form that suits cuDNN best, then the ones that most of its engines support.
        let graphs: Vec<_> =
            whole.ok().into_iter().chain(apart.ok().map(Arc::new)).chain(arranged.map(Arc::new)).collect();
        // When expanded into many operations, norms and attention have given wrong results on a GPU.
        let is_proved = operations.iter().all(|operation| PROVED_IN_PIECES.contains(&operation.kind.descriptor));
        let graphs = if is_proved { graphs } else { Vec::new() };
        let compiled = Compiled { worker, whole: cudnn_graph, graphs, pieces: OnceLock::new() };
        // Whether the pieces run is only known once they are built.
        if compiled.whole.is_none()
            && let Err(fault) = compiled.pieces()
        {
            refusals.push(fault.text);
            refusals.retain(|refusal| !refusal.is_empty());
            return Err(refusals.join("; in pieces: "));
        }
        Ok(Arc::new(compiled))
    }
}

/// A graph that cuDNN runs as a whole.
struct WholeGraph {
    graph: Arc<Graph>,
    /// The plan on the first configuration, if it was cached.
    restored: Option<Restored>,
    /// All configurations, requested on first use.
    cudnn_graph: OnceLock<Option<CudnnGraph>>,
}

struct Restored {
    entry: Entry,
    workspace: usize,
    /// Taken by the first request.
    plan: Mutex<Option<CudnnDescriptor>>,
}

impl WholeGraph {
    fn new(worker: &Worker, graph: Arc<Graph>) -> Outcome<Self> {
        if let Some(entry) = worker.plan_cache.as_ref().and_then(|cache| cache.find(&graph)) {
            match entry.restore(worker, &graph) {
                Ok((plan, workspace)) => {
                    let restored = Some(Restored { entry, workspace, plan: Mutex::new(Some(plan)) });
                    return Ok(Self { graph, restored, cudnn_graph: OnceLock::new() });
                }
                Err(fault) => tracing::debug!(target: "hipdnn::cudnn", "rebuilding a cached plan: {}", fault.text),
            }
        }
        let cudnn_graph = Self::ask(worker, &graph)?;
        if let Some(plan_cache) = &worker.plan_cache
            && let Some(entry) = cudnn_graph.entry()
        {
            plan_cache.put(&graph, &entry);
        }
        Ok(Self { graph, restored: None, cudnn_graph: OnceLock::from(Some(cudnn_graph)) })
    }

    fn ask(worker: &Worker, graph: &Graph) -> Outcome<CudnnGraph> {
        CudnnGraph::new(worker, graph, 0..graph.operations.len()).and_then(|cudnn_graph| cudnn_graph.proved(worker))
    }

    fn cudnn_graph(&self, worker: &Worker) -> Option<&CudnnGraph> {
        self.cudnn_graph.get_or_init(|| Self::ask(worker, &self.graph).ok()).as_ref()
    }

    fn choices(&self) -> usize {
        let made = self.cudnn_graph.get().and_then(Option::as_ref).map(|cudnn_graph| cudnn_graph.configs.len());
        made.or(self.restored.as_ref().map(|restored| restored.entry.choices)).unwrap_or(0)
    }

    fn workspace_bytes(&self, worker: &Worker, choice: usize) -> Option<usize> {
        if let (0, Some(restored)) = (choice, &self.restored) {
            return Some(restored.workspace);
        }
        let config = self.cudnn_graph(worker)?.configs.get(choice)?;
        usize::try_from(config.i64(crate::sys::AttributeName::ENGINECFG_WORKSPACE_SIZE).ok()?).ok()
    }

    fn unplaced_step(&self, worker: &Worker, choice: usize) -> Outcome<UnplacedStep> {
        if let (0, Some(restored)) = (choice, &self.restored) {
            let first = restored.plan.lock().unwrap_or_else(PoisonError::into_inner).take();
            let plan = first.map_or_else(|| Ok(restored.entry.restore(worker, &self.graph)?.0), Ok)?;
            return Ok(UnplacedStep::restored(plan, restored.workspace, &restored.entry.bound));
        }
        let cudnn_graph = self.cudnn_graph(worker).ok_or_else(|| Fault::bad("this engine cannot run the graph"))?;
        UnplacedStep::new(worker, cudnn_graph, choice)
    }
}

/// A graph that cuDNN runs.
struct Compiled {
    worker: Arc<Worker>,
    /// The graph as a whole, if an engine supports that.
    whole: Option<WholeGraph>,
    /// The graphs to split into pieces, best first.
    graphs: Vec<Arc<Graph>>,
    pieces: OnceLock<Result<Arc<plan::Plan>, (Status, String)>>,
}

impl Compiled {
    fn pieces(&self) -> Outcome<Arc<plan::Plan>> {
        let made = self.pieces.get_or_init(|| {
            let mut refusal = String::from("running them in pieces is not supported");
            for graph in &self.graphs {
                match plan::cut(&self.worker, graph).and_then(|steps| plan::Plan::new(graph.clone(), steps)) {
                    Ok(plan) => return Ok(Arc::new(plan)),
                    Err(fault) => refusal = fault.text,
                }
            }
            Err((Status::NOT_SUPPORTED, refusal))
        });
        made.clone().map_err(|(status, text)| Fault::new(status, text))
    }
}

impl CompiledGraph for Compiled {
    fn engines(&self) -> Vec<Engine> {
        let choices = self.whole.as_ref().map_or(0, WholeGraph::choices);
        let is_alone = self.whole.as_ref().is_some_and(|whole| whole.graph.operations.len() == 1);
        let pieces = (!is_alone && !self.graphs.is_empty()).then_some(*PIECES);
        ENGINES[..ENGINES.len() - 1].iter().take(choices).copied().chain(pieces).collect()
    }

    fn workspace_bytes(&self, engine: &Engine) -> usize {
        if engine == PIECES {
            return self.pieces().map_or(0, |plan| plan.workspace_bytes());
        }
        self.whole.as_ref().and_then(|whole| whole.workspace_bytes(&self.worker, choice_of(engine))).unwrap_or(0)
    }

    fn plan(self: Arc<Self>, engine: &Engine) -> Outcome<Arc<dyn Plan>> {
        if engine == PIECES {
            return Ok(self.pieces()?);
        }
        let whole = self.whole.as_ref().ok_or_else(|| Fault::bad("this engine cannot run the graph"))?;
        let unplaced_step = whole.unplaced_step(&self.worker, choice_of(engine))?;
        Ok(Arc::new(plan::Plan::new(whole.graph.clone(), vec![unplaced_step])?))
    }
}

fn choice_of(engine: &Engine) -> usize {
    ENGINES.iter().position(|known| known == engine).unwrap_or(usize::MAX)
}
