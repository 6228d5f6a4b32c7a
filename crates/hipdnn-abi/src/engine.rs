//! What descriptors of graphs, engines and plans do beyond holding attributes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use hipdnn::sys::{AttributeName as A, AttributeType as T, DescriptorType as D, Severity, Status};

use crate::descriptor::{Descriptor, Finalized};
use crate::fault::{self, Fault, Outcome};
use crate::implementation::{CompiledGraph, Engine, Implementation, Plan};
use crate::log;
use crate::registry::{DESCRIPTORS, HANDLES, Handle};
use crate::value::Value;

/// Checks a descriptor whose attributes are all set, and creates what its kind stands for.
pub fn finalize(descriptor: &Arc<Descriptor>, library: &dyn Implementation) -> Outcome<Finalized> {
    match descriptor.kind.descriptor {
        D::TENSOR_DESCRIPTOR => finalize_tensor(descriptor).map(|()| Finalized::Nothing),
        D::OPERATIONGRAPH_DESCRIPTOR => finalize_graph(descriptor, library).map(Finalized::Graph),
        D::ENGINE_DESCRIPTOR => match engine_of(descriptor) {
            Ok(_) => Ok(Finalized::Nothing),
            Err(_) => Err(Fault::bad("EngineDescriptor::finalize() failed: this engine cannot run the graph")),
        },
        D::EXECUTION_PLAN_DESCRIPTOR => {
            let (compiled, engine) = choice_of(descriptor)?;
            let plan = compiled.plan(&engine)?;
            log::line(Severity::INFO, || format!("{} created a plan", engine.name));
            Ok(Finalized::Plan(plan))
        }
        D::VARIANT_PACK_DESCRIPTOR => {
            let (uids, addresses) = descriptor.with_arguments(|pack| (pack.uids.len(), pack.addresses.len()));
            if uids != addresses {
                let text = format!("VariantPackDescriptor::finalize() failed: {uids} ids for {addresses} pointers");
                return Err(Fault::bad(text));
            }
            finalize_overrides(descriptor).map(|()| Finalized::Nothing)
        }
        _ => finalize_operation(descriptor).map(|()| Finalized::Nothing),
    }
}

/// One rank per tensor, and as many extents and strides as the ranks say.
fn finalize_overrides(pack: &Descriptor) -> Outcome {
    let count = |name| pack.i64s(name).len();
    let ranks = pack.i64s(A::VARIANT_PACK_OVERRIDE_LENGTHS_EXT);
    let all = ranks.iter().try_fold(0usize, |all, &rank| all.checked_add(usize::try_from(rank).ok()?));
    let fits = ranks.len() == count(A::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT)
        && all == Some(count(A::VARIANT_PACK_OVERRIDE_SHAPES_EXT))
        && all == Some(count(A::VARIANT_PACK_OVERRIDE_STRIDES_EXT));
    if fits { Ok(()) } else { Err(Fault::bad("VariantPackDescriptor::finalize() failed: overrides do not match")) }
}

/// Checks an operation's attributes together, independent of the library.
fn finalize_operation(operation: &Descriptor) -> Outcome {
    let refuse = |reason: &str| Err(Fault::bad(format!("{}::finalize() failed: {reason}", operation.kind.class)));
    let is_set = |name| operation.value(name).is_some();
    match operation.kind.descriptor {
        D::OPERATION_LAYERNORM_DESCRIPTOR_EXT
            if is_set(A::OPERATION_LAYERNORM_MEAN_EXT) != is_set(A::OPERATION_LAYERNORM_INV_VARIANCE_EXT) =>
        {
            refuse("mean and inverse variance must be set together")
        }
        D::OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR
            if operation.number(A::OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE).is_some_and(|block| block <= 0) =>
        {
            refuse("a block has at least one element")
        }
        _ => Ok(()),
    }
}

fn finalize_tensor(tensor: &Descriptor) -> Outcome {
    let (dims, strides) = (tensor.i64s(A::TENSOR_DIMENSIONS), tensor.i64s(A::TENSOR_STRIDES));
    let refuse = |reason: String| Err(Fault::bad(format!("TensorDescriptor::finalize() failed: {reason}")));
    if dims.len() != strides.len() {
        return refuse(format!("got {} strides for {} dimensions", strides.len(), dims.len()));
    }
    if dims.iter().any(|&extent| extent <= 0) || strides.iter().any(|&stride| stride < 0) {
        return refuse(format!("invalid dimensions {dims:?} with strides {strides:?}"));
    }
    let elems = dims.iter().try_fold(1i64, |all, &extent| all.checked_mul(extent));
    let reach = dims.iter().zip(&strides).try_fold(0i64, |reach, (&extent, &stride)| {
        (extent - 1).checked_mul(stride).and_then(|step| reach.checked_add(step))
    });
    if elems.is_none_or(|elems| elems > MAX_ELEMENTS) || reach.is_none_or(|reach| reach > MAX_ELEMENTS) {
        return refuse(format!("dimensions {dims:?} with strides {strides:?} are too large"));
    }
    Ok(())
}

/// Sixteen bytes per element still fit in an address.
const MAX_ELEMENTS: i64 = 1 << 59;

fn finalize_graph(
    graph: &Arc<Descriptor>,
    library: &dyn Implementation,
) -> Outcome<Result<Arc<dyn CompiledGraph>, String>> {
    let number = match graph.value(A::OPERATIONGRAPH_HANDLE) {
        Some(Value::Addresses(handles)) => handles.first().copied().unwrap_or(0),
        _ => 0,
    };
    let handle = HANDLES.get("the graph's handle", std::ptr::without_provenance_mut(number))?;
    let mut tensors: HashMap<i64, Arc<Descriptor>> = HashMap::new();
    let operations = graph.descriptors(A::OPERATIONGRAPH_OPS);
    for operation in &operations {
        for row in operation.kind.rows.iter().filter(|row| row.kind == T::BACKEND_DESCRIPTOR) {
            for tensor in operation.descriptors(row.name) {
                let uid = uid_of(&tensor);
                let known = tensors.entry(uid).or_insert_with(|| tensor.clone());
                if !Arc::ptr_eq(known, &tensor) {
                    let text = format!("GraphDescriptor::finalize() failed: two tensors have uid {uid}");
                    return Err(Fault::bad(text));
                }
            }
        }
    }
    let compiled = library.compile(&handle, &operations);
    match &compiled {
        Ok(_) => log::line(Severity::INFO, || format!("a graph of {} operations was compiled", operations.len())),
        Err(reason) => log::line(Severity::WARN, || format!("no engine runs a graph: {reason}")),
    }
    Ok(compiled)
}

/// A tensor's uid.
pub fn uid_of(tensor: &Descriptor) -> i64 {
    tensor.i64s(A::TENSOR_UNIQUE_ID).first().copied().unwrap_or(0)
}

/// Attributes that are computed, not set: the type and the value, if there is one. `None` for other attributes.
pub fn derived(descriptor: &Descriptor, name: A) -> Outcome<Option<(T, Option<Value>)>> {
    let one = |value: i64| Some((T::INT64, Some(Value::I64s(vec![value]))));
    let flag = |value: bool| Some((T::BOOLEAN, Some(Value::Bytes(vec![u8::from(value)]))));
    let is_unset = descriptor.value(name).is_none();
    Ok(match (descriptor.kind.descriptor, name) {
        (_, A::OPERATION_TYPE_EXT) if descriptor.kind.is_operation() => {
            Some((T::OPERATION_TYPE_EXT, Some(Value::I32s(vec![descriptor.kind.operation.0]))))
        }
        (D::TENSOR_DESCRIPTOR, A::TENSOR_IS_BY_VALUE) => flag(descriptor.value(A::TENSOR_VALUE_EXT).is_some()),
        (D::TENSOR_DESCRIPTOR, A::TENSOR_VALUE_EXT) if is_unset => {
            return Err(Fault::bad("TensorDescriptor::getAttribute() failed: it has no value"));
        }
        (D::TENSOR_DESCRIPTOR, A::TENSOR_UNIQUE_ID) => one(uid_of(descriptor)),
        (D::TENSOR_DESCRIPTOR, A::TENSOR_IS_VIRTUAL | A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT) => {
            flag(descriptor.flag(name))
        }
        (D::TENSOR_DESCRIPTOR, A::TENSOR_BYTE_ALIGNMENT) if is_unset => one(16),
        (D::TENSOR_DESCRIPTOR, A::TENSOR_RAGGED_OFFSET_MULTIPLIER) if is_unset => one(1),
        (D::OPERATIONGRAPH_DESCRIPTOR, A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT) => flag(descriptor.flag(name)),
        (D::ENGINE_DESCRIPTOR, A::ENGINE_NAME_EXT) => {
            let (_, engine) = engine_of(descriptor)?;
            Some((T::CHAR, Some(Value::Bytes(engine.name.into()))))
        }
        (D::ENGINE_DESCRIPTOR, A::ENGINE_KNOB_INFO) => Some((T::BACKEND_DESCRIPTOR, None)),
        (D::ENGINE_DESCRIPTOR, A::ENGINE_BEHAVIOR_NOTE) => {
            let (_, engine) = engine_of(descriptor)?;
            Some((T::BEHAVIOR_NOTE, Some(Value::I32s(engine.notes.iter().map(|note| note.0).collect()))))
        }
        (D::ENGINECFG_DESCRIPTOR, A::ENGINECFG_WORKSPACE_SIZE) => {
            let engine = descriptor.descriptor(A::ENGINECFG_ENGINE).ok_or_else(|| Fault::bad("it has no engine"))?;
            let (compiled, engine) = engine_of(&engine)?;
            one(compiled.workspace_bytes(&engine) as i64)
        }
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_WORKSPACE_SIZE) => {
            one(plan_of(descriptor)?.workspace_bytes() as i64)
        }
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT) => one(choice_of(descriptor)?.1.id()),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT) => flag(false),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_TENSOR_UIDS_EXT) => {
            Some((T::INT64, Some(Value::I64s(plan_of(descriptor)?.uids()))))
        }
        _ => None,
    })
}

/// `ENGINEHEUR_RESULTS`: fills in the engines of configurations that the caller created.
///
/// # Safety
/// The same as for [`Descriptor::get`].
pub unsafe fn results(
    heuristic: &Descriptor,
    kind: T,
    requested: i64,
    count: *mut i64,
    elements: *mut c_void,
) -> Outcome {
    if kind != T::BACKEND_DESCRIPTOR {
        return Err(Fault::bad("EngineHeuristicDescriptor::getAttribute() failed: results are descriptors"));
    }
    let graph = heuristic.descriptor(A::ENGINEHEUR_OPERATION_GRAPH).ok_or_else(|| Fault::bad("no graph"))?;
    let engines = match graph.finalized() {
        Finalized::Graph(Ok(compiled)) => compiled.engines(),
        Finalized::Graph(Err(reason)) => {
            // No engine is a result, not a failure; the caller can still ask why.
            fault::remember(reason);
            Vec::new()
        }
        _ => Vec::new(),
    };
    let mut filled = engines.len();
    if !elements.is_null() && requested > 0 {
        filled = filled.min(usize::try_from(requested).unwrap_or(0));
        for (at, engine) in engines.iter().take(filled).enumerate() {
            // SAFETY: guaranteed by the caller: an array of `requested` descriptors.
            let number = unsafe { elements.cast::<*mut c_void>().add(at).read_unaligned() };
            let config = DESCRIPTORS.get("a configuration", number)?;
            if config.kind.descriptor != D::ENGINECFG_DESCRIPTOR || config.is_finalized() {
                let reason = "results must be new configurations";
                return Err(Fault::bad(format!("EngineHeuristicDescriptor::getAttribute() failed: {reason}")));
            }
            let descriptor = Arc::new(Descriptor::new(D::ENGINE_DESCRIPTOR)?);
            descriptor.put(A::ENGINE_OPERATION_GRAPH, Value::Descriptors(vec![graph.clone()]));
            descriptor.put(A::ENGINE_GLOBAL_INDEX, Value::I64s(vec![engine.id()]));
            descriptor.seal(Finalized::Nothing);
            config.put(A::ENGINECFG_ENGINE, Value::Descriptors(vec![descriptor]));
        }
    } else if count.is_null() {
        return Err(Fault::null("the count of results"));
    }
    if !count.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { count.write(filled as i64) };
    }
    Ok(())
}

/// Enqueues a plan on the handle's stream.
///
/// # Safety
/// The same as for [`Plan::execute`], with the addresses in the pack.
pub unsafe fn execute(handle: &Handle, plan: &Descriptor, pack: &Descriptor) -> Outcome {
    plan.require(D::EXECUTION_PLAN_DESCRIPTOR)?;
    pack.require(D::VARIANT_PACK_DESCRIPTOR)?;
    let plan = plan_of(plan)?;
    if pack.value(A::VARIANT_PACK_OVERRIDE_UNIQUE_IDS_EXT).is_some() {
        return Err(Fault::unsupported("a plan cannot run with other shapes"));
    }
    // SAFETY: guaranteed by the caller.
    pack.with_arguments(|arguments| unsafe { plan.execute(handle, arguments) })
}

/// The plan of a finalized execution plan descriptor.
pub fn plan_of(plan: &Descriptor) -> Outcome<Arc<dyn Plan>> {
    match plan.finalized() {
        Finalized::Plan(plan) => Ok(plan),
        _ => Err(Fault::new(Status::BAD_PARAM_NOT_FINALIZED, "the plan is not finalized")),
    }
}

/// The graph and the id of the engine that an execution plan is for.
pub fn origin_of(plan: &Descriptor) -> Outcome<(Arc<Descriptor>, i64)> {
    let config = plan.descriptor(A::EXECUTION_PLAN_ENGINE_CONFIG);
    let engine = config.and_then(|config| config.descriptor(A::ENGINECFG_ENGINE));
    let graph = engine.as_ref().and_then(|engine| engine.descriptor(A::ENGINE_OPERATION_GRAPH));
    let id = engine.and_then(|engine| engine.i64s(A::ENGINE_GLOBAL_INDEX).first().copied());
    graph.zip(id).ok_or_else(|| Fault::new(Status::BAD_PARAM_NOT_FINALIZED, "the plan has no engine"))
}

/// The compiled graph and the engine of an execution plan.
fn choice_of(plan: &Descriptor) -> Outcome<(Arc<dyn CompiledGraph>, Engine)> {
    let config = plan.descriptor(A::EXECUTION_PLAN_ENGINE_CONFIG);
    let engine = config.and_then(|config| config.descriptor(A::ENGINECFG_ENGINE));
    engine_of(&*engine.ok_or_else(|| Fault::new(Status::BAD_PARAM_NOT_FINALIZED, "the plan has no engine"))?)
}

/// The compiled graph of an engine descriptor, and which of the library's engines it is.
fn engine_of(engine: &Descriptor) -> Outcome<(Arc<dyn CompiledGraph>, Engine)> {
    let graph = engine.descriptor(A::ENGINE_OPERATION_GRAPH);
    let compiled = match graph.map(|graph| graph.finalized()) {
        Some(Finalized::Graph(Ok(compiled))) => compiled,
        Some(Finalized::Graph(Err(reason))) => return Err(Fault::unsupported(reason)),
        _ => return Err(Fault::new(Status::BAD_PARAM_NOT_FINALIZED, "the engine has no graph")),
    };
    let id = engine.i64s(A::ENGINE_GLOBAL_INDEX).first().copied().unwrap_or(0);
    let found = compiled.engines().into_iter().find(|engine| engine.id() == id);
    let engine = found.ok_or_else(|| Fault::bad(format!("engine {id} does not run the graph")))?;
    Ok((compiled, engine))
}
