//! Some operations of a graph as one cuDNN graph, with the engine configurations that cuDNN offers for it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use hipdnn_abi::{Fault, Outcome};

use crate::fused;
use crate::graph::{Graph, Operation, Storage, View};
use crate::layout;
use crate::plan_cache::Entry;
use crate::safe::{Descriptor, Setting};
use crate::sys::{AttributeName as A, AttributeType as T, DataType, DescriptorType as D, HeurMode, NumericalNote};
use crate::worker::Worker;

/// How many configurations of each heuristic mode are offered.
const MAX_CHOICES: [(HeurMode, usize); 2] = [(HeurMode::A, 12), (HeurMode::FALLBACK, 4)];

/// Operations that cuDNN runs together.
pub struct CudnnGraph {
    /// Engine configurations, best first; never empty.
    pub configs: Vec<Descriptor>,
    /// The tensors whose addresses it takes.
    pub bound: Vec<usize>,
    /// Descriptors that the configurations refer to.
    _parts: Vec<Descriptor>,
    /// A plan on the first configuration, for the first request.
    first: Mutex<Option<(Descriptor, usize)>>,
}

impl CudnnGraph {
    /// Asks cuDNN for engines that run these operations.
    ///
    /// # Errors
    /// There are none, or cuDNN rejects the operations.
    pub fn new(worker: &Worker, graph: &Graph, range: Range<usize>) -> Outcome<Self> {
        let as_given = Self::of(worker, graph, &range, &graph.operations[range.clone()]);
        as_given.or_else(|fault| match layout::canonical(graph, &range) {
            Some(operations) => Self::of(worker, graph, &range, &operations),
            None => Err(fault),
        })
    }

    fn of(worker: &Worker, graph: &Graph, range: &Range<usize>, operations: &[Operation]) -> Outcome<Self> {
        trusted(graph, range, operations)?;
        if graph.is_attention {
            fused::trusted(graph, worker.cudnn.release())?;
        }
        let (mut nodes, mut parts) = (Vec::new(), Vec::new());
        let mut tensors: HashMap<usize, (&View, Descriptor)> = HashMap::new();
        let mut bound = Vec::new();
        for (_, view) in operations.iter().flat_map(Operation::views) {
            if let Some((known, _)) = tensors.get(&view.tensor) {
                if *known != view {
                    return Err(Fault::unsupported("operations use one tensor with different extents"));
                }
                continue;
            }
            let is_bound = graph.is_bound(view.tensor, range);
            if is_bound {
                // Some engines accept strides with gaps, but read or write in the gaps; those for attention support
                // gaps.
                if !view.is_dense() && !graph.is_attention {
                    return Err(Fault::unsupported("cuDNN's engines require tensors without gaps"));
                }
                bound.push(view.tensor);
            }
            tensors.insert(view.tensor, (view, tensor(worker, graph, view, !is_bound)?));
        }
        for each in operations {
            nodes.push(operation(worker, each, &tensors, &mut parts)?);
        }
        let whole = Descriptor::new(worker.cudnn, D::OPERATIONGRAPH_DESCRIPTOR)?;
        worker.place_graph(&whole)?;
        whole.set_descriptors(A::OPERATIONGRAPH_OPS, &nodes.iter().collect::<Vec<_>>())?;
        whole.finalize()?;
        let configs = choices(worker, &whole, graph.multiplies_single_precision(operations))?;
        parts.push(whole);
        parts.extend(nodes);
        parts.extend(tensors.into_values().map(|(_, descriptor)| descriptor));
        Ok(Self { configs, bound, _parts: parts, first: Mutex::default() })
    }

    /// The graph without the configurations before the first one that builds a plan: heuristics also offer
    /// configurations that fail to build.
    ///
    /// # Errors
    /// None builds a plan: the last one's reason.
    pub fn proved(mut self, worker: &Worker) -> Outcome<Self> {
        let mut last = Fault::unsupported("cuDNN has no engine for it");
        for choice in 0..self.configs.len() {
            match self.make(worker, choice) {
                Ok(made) => {
                    self.configs.drain(..choice);
                    self.first = Mutex::new(Some(made));
                    return Ok(self);
                }
                Err(fault) => last = fault,
            }
        }
        Err(Fault::unsupported(last.text))
    }

    /// The plan on the first configuration, to be cached.
    pub fn entry(&self) -> Option<Entry> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        Entry::of(&first.as_ref()?.0, self.configs.len(), &self.bound)
    }

    /// A plan on one of the configurations, and its workspace size.
    pub fn plan(&self, worker: &Worker, choice: usize) -> Outcome<(Descriptor, usize)> {
        let taken = (choice == 0).then(|| self.first.lock().unwrap_or_else(PoisonError::into_inner).take()).flatten();
        taken.map_or_else(|| self.make(worker, choice), Ok)
    }

    fn make(&self, worker: &Worker, choice: usize) -> Outcome<(Descriptor, usize)> {
        let config = self.configs.get(choice).ok_or_else(|| Fault::bad("no such engine"))?;
        let plan = Descriptor::new(worker.cudnn, D::EXECUTION_PLAN_DESCRIPTOR)?;
        worker.place_plan(&plan)?;
        plan.set_descriptors(A::EXECUTION_PLAN_ENGINE_CONFIG, &[config])?;
        plan.finalize()?;
        let workspace = plan.i64(A::EXECUTION_PLAN_WORKSPACE_SIZE)?;
        Ok((plan, usize::try_from(workspace).unwrap_or(0)))
    }
}

/// Rejects what cuDNN accepts but computes wrongly, as seen with cuDNN 9.19 on an H200.
fn trusted(graph: &Graph, range: &Range<usize>, operations: &[Operation]) -> Outcome {
    let refuse = |reason: &str| Err(Fault::unsupported(reason));
    let has = |kinds: &[D]| operations.iter().any(|operation| kinds.contains(&operation.kind));
    for operation in operations {
        if operation.code(A::CONVOLUTION_COMP_TYPE) == Some(DataType::INT32.0) {
            // cuDNN reads the factor 1.0 as an integer.
            return refuse("cuDNN's integer convolutions scale their results");
        }
        let reads_brain = |(_, view): &(A, View)| graph.tensors[view.tensor].data_type == DataType::BFLOAT16;
        if POOLING.contains(&operation.kind) && operation.views().any(reads_brain) {
            return refuse("cuDNN's bfloat16 pooling writes past its results");
        }
        let is_last = |view: &View| view.dims.get(1) != Some(&1) && view.strides.get(1) == Some(&1);
        if operation.kind == D::OPERATION_RESAMPLE_BWD_DESCRIPTOR && !operation.views().all(|(_, view)| is_last(view)) {
            return refuse("cuDNN needs the pooled data too, unless channels are last");
        }
    }
    let single = |(_, view): &(A, View)| graph.tensors[view.tensor].data_type == DataType::FLOAT;
    let is_product = |operation: &&Operation| operation.kind == D::OPERATION_MATMUL_DESCRIPTOR;
    if operations.iter().filter(is_product).any(|product| product.reads.iter().any(single)) {
        return refuse("cuDNN multiplies single-precision matrices in TF32");
    }
    let is_elementwise = !has(&CONVOLUTIONS) && !has(&[D::OPERATION_MATMUL_DESCRIPTOR]);
    let may_reduce = has(&[D::OPERATION_REDUCTION_DESCRIPTOR]) || has(&POOLING);
    if is_elementwise && !may_reduce && repeats_in_part(operations) {
        return refuse("cuDNN reads past operands that are broadcast along some of the axes");
    }
    if operations.len() > 1 && is_elementwise {
        let writes = operations.iter().flat_map(|operation| &operation.writes);
        if writes.clone().filter(|(_, view)| graph.is_bound(view.tensor, range)).count() > 1 {
            return refuse("cuDNN writes only one of several results");
        }
        let most =
            operations.iter().flat_map(Operation::views).map(|(_, view)| view.dims.iter().product::<i64>()).max();
        let inner = writes.filter(|(_, view)| !graph.is_bound(view.tensor, range));
        if inner.into_iter().any(|(_, view)| Some(view.dims.iter().product()) != most) {
            return refuse("cuDNN does not broadcast intermediate results");
        }
    }
    let is_checked = |operation: &&Operation| {
        let other = [
            D::OPERATION_MATMUL_DESCRIPTOR,
            D::OPERATION_NORM_FORWARD_DESCRIPTOR,
            D::OPERATION_NORM_BACKWARD_DESCRIPTOR,
        ];
        !other.contains(&operation.kind)
    };
    let views = operations.iter().filter(is_checked).flat_map(Operation::views).map(|(_, view)| view);
    let views: Vec<&View> = views.filter(|view| graph.is_bound(view.tensor, range)).collect();
    let Some(rank) = views.first().map(|view| view.dims.len()) else { return Ok(()) };
    let rows: Vec<usize> = (0..rank).collect();
    let last: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let orders = match rank {
        0..=3 => vec![rows],
        _ if has(&[D::OPERATION_MATMUL_DESCRIPTOR]) => vec![rows],
        _ if has(&POOLING) || has(&CONVOLUTIONS) => vec![rows, last],
        _ => vec![last],
    };
    let fits = |order: &Vec<usize>| views.iter().all(|view| view.dims.len() == rank && view.is_packed(order));
    if orders.iter().any(fits) { Ok(()) } else { refuse("cuDNN's engines require tensors of one common layout") }
}

/// True if an operand with more than one number is broadcast, other than one number per channel of data with four axes
/// or more.
fn repeats_in_part(operations: &[Operation]) -> bool {
    let views = || operations.iter().flat_map(Operation::views).map(|(_, view)| view);
    let rank = views().map(|view| view.dims.len()).max().unwrap_or(0);
    let extent = |view: &View, axis: usize| view.dims.get(axis).copied().unwrap_or(1);
    let full: Vec<i64> = (0..rank).map(|axis| views().map(|view| extent(view, axis)).max().unwrap_or(1)).collect();
    let is_by_channel = |view: &View| rank >= 4 && (0..rank).all(|axis| axis == 1 || extent(view, axis) == 1);
    let is_repeated = |view: &View| (0..rank).any(|axis| extent(view, axis) < full[axis]);
    views().any(|view| is_repeated(view) && view.dims.iter().any(|&extent| extent > 1) && !is_by_channel(view))
}

const POOLING: [D; 2] = [D::OPERATION_RESAMPLE_FWD_DESCRIPTOR, D::OPERATION_RESAMPLE_BWD_DESCRIPTOR];
const CONVOLUTIONS: [D; 3] = [
    D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
    D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
    D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
];

fn tensor(worker: &Worker, graph: &Graph, view: &View, is_virtual: bool) -> Outcome<Descriptor> {
    let known = &graph.tensors[view.tensor];
    let made = Descriptor::new(worker.cudnn, D::TENSOR_DESCRIPTOR)?;
    made.set_i64s(A::TENSOR_UNIQUE_ID, &[number(view.tensor)])?;
    made.set(A::TENSOR_DATA_TYPE, &Setting::Code(T::DATA_TYPE, known.data_type.0))?;
    made.set_i64s(A::TENSOR_BYTE_ALIGNMENT, &[known.alignment])?;
    made.set_i64s(A::TENSOR_DIMENSIONS, &view.dims)?;
    made.set_i64s(A::TENSOR_STRIDES, &view.strides)?;
    if is_virtual {
        made.set(A::TENSOR_IS_VIRTUAL, &Setting::Flag(true))?;
    }
    if matches!(known.home, Storage::Host | Storage::Value(_)) {
        made.set(A::TENSOR_IS_BY_VALUE, &Setting::Flag(true))?;
    }
    made.finalize()?;
    Ok(made)
}

/// cuDNN's uid of a tensor.
pub fn number(tensor: usize) -> i64 {
    tensor as i64 + 1
}

fn operation(
    worker: &Worker,
    operation: &Operation,
    tensors: &HashMap<usize, (&View, Descriptor)>,
    parts: &mut Vec<Descriptor>,
) -> Outcome<Descriptor> {
    let made = Descriptor::new(worker.cudnn, operation.kind)?;
    if let Some(parameters) = &operation.parameters {
        let held = Descriptor::new(worker.cudnn, parameters.kind)?;
        for (name, value) in &parameters.settings {
            held.set(*name, value)?;
        }
        held.finalize()?;
        made.set_descriptors(parameters.held_by, &[&held])?;
        parts.push(held);
    }
    for (name, value) in &operation.settings {
        made.set(*name, value)?;
    }
    for (name, view) in operation.views() {
        if let Some((_, tensor)) = tensors.get(&view.tensor) {
            made.set_descriptors(*name, &[tensor])?;
        }
    }
    made.finalize()?;
    Ok(made)
}

/// The configurations that cuDNN offers, without those that reduce the requested precision.
fn choices(worker: &Worker, graph: &Descriptor, is_strict: bool) -> Outcome<Vec<Descriptor>> {
    let mut all = Vec::new();
    let mut refused = None;
    for (mode, most) in MAX_CHOICES {
        match offered(worker, graph, mode) {
            Ok(offered) => {
                let taken = offered.into_iter().filter(|config| !is_strict || !lowers_precision(worker, config));
                all.extend(taken.take(most));
            }
            // One mode may find no engine where another does.
            Err(fault) => refused = Some(fault),
        }
    }
    match refused {
        _ if !all.is_empty() => Ok(all),
        Some(fault) => Err(fault),
        None if is_strict => Err(Fault::unsupported("cuDNN has no engine that computes it in full single precision")),
        None => Err(Fault::unsupported("cuDNN has no engine for it")),
    }
}

fn offered(worker: &Worker, graph: &Descriptor, mode: HeurMode) -> Outcome<Vec<Descriptor>> {
    let heuristic = Descriptor::new(worker.cudnn, D::ENGINEHEUR_DESCRIPTOR)?;
    heuristic.set_descriptors(A::ENGINEHEUR_OPERATION_GRAPH, &[graph])?;
    heuristic.set(A::ENGINEHEUR_MODE, &Setting::Code(T::HEUR_MODE, mode.0))?;
    worker.place_heuristic(&heuristic)?;
    heuristic.finalize()?;
    let count = heuristic.count(A::ENGINEHEUR_RESULTS)?;
    let mut configs =
        (0..count).map(|_| Descriptor::new(worker.cudnn, D::ENGINECFG_DESCRIPTOR)).collect::<Outcome<Vec<_>>>()?;
    if count > 0 {
        let filled = heuristic.fill(A::ENGINEHEUR_RESULTS, &configs)?;
        configs.truncate(filled);
    }
    Ok(configs)
}

/// True if the engine reduces single precision before it multiplies.
fn lowers_precision(worker: &Worker, config: &Descriptor) -> bool {
    let notes = || -> Outcome<Vec<i32>> {
        let engine = Descriptor::new(worker.cudnn, D::ENGINE_DESCRIPTOR)?;
        config.fill(A::ENGINECFG_ENGINE, std::slice::from_ref(&engine))?;
        engine.codes(A::ENGINE_NUMERICAL_NOTE, T::NUMERICAL_NOTE)
    };
    let lower = [NumericalNote::TENSOR_CORE.0, NumericalNote::DOWN_CONVERT_INPUTS.0];
    notes().is_ok_and(|notes| notes.iter().any(|note| lower.contains(note)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PointwiseMode;

    const CHANNELS_FIRST: &[usize] = &[0, 1, 2, 3];
    const CHANNELS_LAST: &[usize] = &[0, 2, 3, 1];

    /// A sum of two tensors with their axes in these orders in memory.
    fn sum(dims: &[i64], orders: [&[usize]; 3], data_type: DataType) -> Graph {
        let mut graph = Graph::default();
        let [a, b, to] = orders.map(|order| graph.add_inside(data_type, dims, order));
        graph.tensors.iter_mut().for_each(|tensor| tensor.home = Storage::Device);
        graph.operations.push(Operation::pointwise(PointwiseMode::ADD, &[&a, &b], &to, DataType::FLOAT, Vec::new()));
        graph
    }

    fn refusal(graph: &Graph) -> Option<String> {
        trusted(graph, &(0..graph.operations.len()), &graph.operations).err().map(|fault| fault.text)
    }

    #[test]
    fn operands_are_repeated_by_channel_or_as_one_number() {
        let with_bias = |data: &[i64], bias: &[i64], order: &[usize]| {
            let mut graph = Graph::default();
            let [x, y] = [data, data].map(|dims| graph.add_inside(DataType::FLOAT, dims, order));
            let b = graph.add_inside(DataType::FLOAT, bias, order);
            graph.tensors.iter_mut().for_each(|tensor| tensor.home = Storage::Device);
            let sum = Operation::pointwise(PointwiseMode::ADD, &[&x, &b], &y, DataType::FLOAT, Vec::new());
            graph.operations.push(sum);
            refusal(&graph)
        };
        assert!(with_bias(&[2, 3, 4], &[1, 3, 1], &[0, 1, 2]).unwrap().contains("broadcast"));
        assert!(with_bias(&[2, 3, 4, 5], &[1, 1, 4, 1], CHANNELS_LAST).is_some());
        assert_eq!(with_bias(&[2, 3, 4], &[1, 1, 1], &[0, 1, 2]), None);
        assert_eq!(with_bias(&[2, 3, 4, 5], &[1, 3, 1, 1], CHANNELS_LAST), None);
    }

    #[test]
    fn tensors_of_different_layouts_are_refused() {
        let (first, last) = (CHANNELS_FIRST, CHANNELS_LAST);
        let of = |orders| refusal(&sum(&[2, 3, 4, 5], orders, DataType::FLOAT));
        assert_eq!(of([last, last, last]), None);
        assert!(of([last, first, last]).unwrap().contains("common layout"));
        assert!(of([first, first, first]).is_some(), "engines for elementwise operations support channels last only");
        assert_eq!(refusal(&sum(&[2, 3, 4], [&[0, 1, 2]; 3], DataType::FLOAT)), None);
        assert!(refusal(&sum(&[2, 3, 4], [&[0, 2, 1]; 3], DataType::FLOAT)).is_some());
    }

    #[test]
    fn gaps_are_detected() {
        let mut graph = sum(&[2, 3, 4, 5], [CHANNELS_LAST; 3], DataType::FLOAT);
        graph.operations[0].reads[0].1.strides[0] += 1;
        assert!(refusal(&graph).is_some());
    }

    #[test]
    fn pooling_of_bfloat16_is_rejected() {
        let mut graph = sum(&[2, 3, 4, 5], [CHANNELS_LAST; 3], DataType::BFLOAT16);
        graph.operations[0].kind = D::OPERATION_RESAMPLE_FWD_DESCRIPTOR;
        assert!(refusal(&graph).unwrap().contains("bfloat16"));
        graph.tensors.iter_mut().for_each(|tensor| tensor.data_type = DataType::HALF);
        assert_eq!(refusal(&graph), None);
    }
}
