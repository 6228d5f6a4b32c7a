//! The one engine, and what descriptors of graphs, engines and plans do beyond holding attributes.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use hipdnn::engine_id_of;
use hipdnn::sys::{AttributeName as A, AttributeType as T, BehaviorNote, DescriptorType as D, Status};

use crate::descriptor::Descriptor;
use crate::fault::{Fault, Outcome};
use crate::program::Program;
use crate::registry::{DESCRIPTORS, HANDLES};
use crate::value::Value;

/// The engine's name.
pub const NAME: &str = "HOST_CPU_ENGINE";

/// The engine's id.
pub fn id() -> i64 {
    engine_id_of(NAME)
}

/// Checks a descriptor whose attributes are all there; a graph gets its program, or the reason it has none.
pub fn finalize(descriptor: &Arc<Descriptor>) -> Outcome<Option<Result<Arc<Program>, String>>> {
    match descriptor.kind.descriptor {
        D::TENSOR_DESCRIPTOR => finalize_tensor(descriptor).map(|()| None),
        D::OPERATIONGRAPH_DESCRIPTOR => finalize_graph(descriptor).map(Some),
        D::ENGINE_DESCRIPTOR => {
            let graph = descriptor.descriptor(A::ENGINE_OPERATION_GRAPH);
            let runs = graph.and_then(|graph| graph.program()).is_some_and(|program| program.is_ok());
            if !runs || descriptor.i64s(A::ENGINE_GLOBAL_INDEX) != [id()] {
                return Err(Fault::bad("EngineDescriptor::finalize() failed: no such engine runs the graph"));
            }
            Ok(None)
        }
        D::VARIANT_PACK_DESCRIPTOR => {
            let uids = descriptor.i64s(A::VARIANT_PACK_UNIQUE_IDS).len();
            let addresses = descriptor.value(A::VARIANT_PACK_DATA_POINTERS).map_or(0, |value| value.len());
            if uids != addresses {
                let text = format!("VariantPackDescriptor::finalize() failed: {uids} ids for {addresses} pointers");
                return Err(Fault::bad(text));
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

fn finalize_tensor(tensor: &Descriptor) -> Outcome {
    let (dims, strides) = (tensor.i64s(A::TENSOR_DIMENSIONS), tensor.i64s(A::TENSOR_STRIDES));
    let refuse = |reason: String| Err(Fault::bad(format!("TensorDescriptor::finalize() failed: {reason}")));
    if dims.len() != strides.len() {
        return refuse(format!("{} strides for {} dimensions", strides.len(), dims.len()));
    }
    if dims.iter().any(|&extent| extent <= 0) || strides.iter().any(|&stride| stride < 0) {
        return refuse(format!("dimensions {dims:?} with strides {strides:?}"));
    }
    let elems = dims.iter().try_fold(1i64, |all, &extent| all.checked_mul(extent));
    let reach = dims.iter().zip(&strides).try_fold(0i64, |reach, (&extent, &stride)| {
        (extent - 1).checked_mul(stride).and_then(|step| reach.checked_add(step))
    });
    if elems.is_none_or(|elems| elems > MOST_ELEMENTS) || reach.is_none_or(|reach| reach > MOST_ELEMENTS) {
        return refuse(format!("dimensions {dims:?} with strides {strides:?} are too large"));
    }
    Ok(())
}

/// Sixteen bytes for each of these still fit an address.
const MOST_ELEMENTS: i64 = 1 << 59;

fn finalize_graph(graph: &Arc<Descriptor>) -> Outcome<Result<Arc<Program>, String>> {
    if let Some(Value::Addresses(handles)) = graph.value(A::OPERATIONGRAPH_HANDLE) {
        HANDLES.get("the graph's handle", std::ptr::without_provenance_mut(handles[0]))?;
    }
    let mut tensors: HashMap<i64, Arc<Descriptor>> = HashMap::new();
    let operations = graph.descriptors(A::OPERATIONGRAPH_OPS);
    for operation in &operations {
        for row in operation.kind.rows.iter().filter(|row| row.kind == T::BACKEND_DESCRIPTOR) {
            for tensor in operation.descriptors(row.name) {
                let uid = uid_of(&tensor);
                let known = tensors.entry(uid).or_insert_with(|| tensor.clone());
                if !Arc::ptr_eq(known, &tensor) {
                    let text = format!("GraphDescriptor::finalize() failed: uid {uid} belongs to two tensors");
                    return Err(Fault::bad(text));
                }
            }
        }
    }
    Ok(Program::compile(&operations).map(Arc::new))
}

/// A tensor's number.
pub fn uid_of(tensor: &Descriptor) -> i64 {
    tensor.i64s(A::TENSOR_UNIQUE_ID).first().copied().unwrap_or(0)
}

/// Attributes that are worked out, not set: the type and the value, if there is one. `None` if it is none of these.
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
        (D::ENGINE_DESCRIPTOR, A::ENGINE_NAME_EXT) => Some((T::CHAR, Some(Value::Bytes(NAME.into())))),
        (D::ENGINE_DESCRIPTOR, A::ENGINE_KNOB_INFO) => Some((T::BACKEND_DESCRIPTOR, None)),
        (D::ENGINE_DESCRIPTOR, A::ENGINE_BEHAVIOR_NOTE) => {
            Some((T::BEHAVIOR_NOTE, Some(Value::I32s(vec![BehaviorNote::SUPPORTS_GRAPH_CAPTURE.0]))))
        }
        (D::ENGINECFG_DESCRIPTOR, A::ENGINECFG_WORKSPACE_SIZE) => one(0),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_WORKSPACE_SIZE) => one(0),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT) => one(id()),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_IS_OVERRIDE_SHAPE_ENABLED_EXT) => flag(false),
        (D::EXECUTION_PLAN_DESCRIPTOR, A::EXECUTION_PLAN_TENSOR_UIDS_EXT) => {
            Some((T::INT64, Some(Value::I64s(program_of(descriptor)?.uids()))))
        }
        _ => None,
    })
}

/// `ENGINEHEUR_RESULTS`: fills in the engine of configurations that the caller made.
///
/// # Safety
/// As for [`Descriptor::get`].
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
    let found = i64::from(graph.program().is_some_and(|program| program.is_ok()));
    if !elements.is_null() && requested > 0 && found > 0 {
        // SAFETY: the caller's promise: an array of at least one descriptor.
        let number = unsafe { elements.cast::<*mut c_void>().read_unaligned() };
        let config = DESCRIPTORS.get("a configuration", number)?;
        if config.kind.descriptor != D::ENGINECFG_DESCRIPTOR || config.is_finalized() {
            return Err(Fault::bad("EngineHeuristicDescriptor::getAttribute() failed: results are new configurations"));
        }
        let engine = Arc::new(Descriptor::new(D::ENGINE_DESCRIPTOR)?);
        engine.put(A::ENGINE_OPERATION_GRAPH, Value::Descriptors(vec![graph]));
        engine.put(A::ENGINE_GLOBAL_INDEX, Value::I64s(vec![id()]));
        engine.finalize()?;
        config.put(A::ENGINECFG_ENGINE, Value::Descriptors(vec![engine]));
    } else if count.is_null() {
        return Err(Fault::null("the count of results"));
    }
    if !count.is_null() {
        // SAFETY: the caller's promise.
        unsafe { count.write(found) };
    }
    Ok(())
}

/// The program behind an execution plan.
pub fn program_of(plan: &Descriptor) -> Outcome<Arc<Program>> {
    let config = plan.descriptor(A::EXECUTION_PLAN_ENGINE_CONFIG);
    let engine = config.and_then(|config| config.descriptor(A::ENGINECFG_ENGINE));
    let graph = engine.and_then(|engine| engine.descriptor(A::ENGINE_OPERATION_GRAPH));
    match graph.and_then(|graph| graph.program()) {
        Some(Ok(program)) => Ok(program),
        Some(Err(reason)) => Err(Fault::unsupported(reason)),
        None => Err(Fault::new(Status::BAD_PARAM_NOT_FINALIZED, "the plan has no graph")),
    }
}
