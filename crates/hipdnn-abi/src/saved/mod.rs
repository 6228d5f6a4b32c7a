//! Serialised graphs and plans.
//!
//! A graph is a document (`graph`), which is written as a FlatBuffer (`write`, `read`) with the tables of hipDNN's own
//! schema (`schema`), or as JSON with the same names. A plan is its graph and its engine: reading one plans the graph
//! again. AMD's JSON spelling, and its table for the backward product of experts, are not published; ours are our own.

mod graph;
mod read;
mod schema;
mod schema_attention;
mod write;

use std::ffi::c_int;
use std::sync::Arc;

use hipdnn::sys::{AttributeName as A, CONTENT_EXECUTION_PLAN, CONTENT_GRAPH, DescriptorType as D};
use serde_json::{Map, Value as Json};

use crate::descriptor::Descriptor;
use crate::engine;
use crate::fault::{Fault, Outcome};
use crate::implementation::Implementation;
use crate::value::Value;

/// The identifier of a container with a graph and a plan.
const IDENTIFIER: &[u8; 4] = b"HDGP";

fn number(value: Option<&Json>) -> Option<i64> {
    match value? {
        Json::Bool(value) => Some(i64::from(*value)),
        other => other.as_i64(),
    }
}

fn require_graph(graph: &Descriptor) -> Outcome {
    if graph.kind.descriptor == D::OPERATIONGRAPH_DESCRIPTOR {
        return Ok(());
    }
    Err(Fault::bad(format!("expected a graph, found a {}", graph.kind.class)))
}

/// A graph as bytes.
pub fn graph_bytes(graph: &Descriptor) -> Outcome<Vec<u8>> {
    require_graph(graph)?;
    Ok(write::document(schema::GRAPH, &graph::document(graph)?, None))
}

/// A graph as JSON.
pub fn graph_json(graph: &Descriptor) -> Outcome<String> {
    require_graph(graph)?;
    let document = Json::Object(graph::document(graph)?);
    serde_json::to_string_pretty(&document).map_err(|error| Fault::bad(error.to_string()))
}

/// A finalized plan as bytes.
pub fn plan_bytes(plan: &Descriptor) -> Outcome<Vec<u8>> {
    plan.require(D::EXECUTION_PLAN_DESCRIPTOR)?;
    let (graph, engine) = engine::origin_of(plan)?;
    let made = engine::plan_of(plan)?;
    let object = [
        ("version", Json::from(1)),
        ("engine_id", engine.into()),
        ("workspace_size", (made.workspace_bytes() as i64).into()),
        ("tensor_uids", made.uids().into()),
        ("plugin_payload", graph_bytes(&graph)?.into()),
    ];
    let object: Map<String, Json> = object.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    Ok(write::document(schema::PLAN, &object, None))
}

/// A graph and an optional plan as bytes.
pub fn container_bytes(graph: &Descriptor, plan: Option<&Descriptor>) -> Outcome<Vec<u8>> {
    let mut object = Map::new();
    object.insert("graph_blob".into(), graph_bytes(graph)?.into());
    if let Some(plan) = plan {
        object.insert("plan_blob".into(), plan_bytes(plan)?.into());
    }
    Ok(write::document(schema::CONTAINER, &object, Some(IDENTIFIER)))
}

/// The parts of a container; other bytes are a graph, or a plan if that is `wanted`.
struct Parts {
    graph: Option<Vec<u8>>,
    plan: Option<Vec<u8>>,
}

impl Parts {
    fn of(bytes: &[u8], wanted: c_int) -> Outcome<Self> {
        if bytes.get(4..8) != Some(IDENTIFIER) {
            let whole = Some(bytes.to_vec());
            let is_plan = wanted == CONTENT_EXECUTION_PLAN;
            return Ok(if is_plan { Self { graph: None, plan: whole } } else { Self { graph: whole, plan: None } });
        }
        let object = read::document(schema::CONTAINER, bytes).map_err(unreadable)?;
        let part = |name| object.get(name).map(blob).filter(|bytes| !bytes.is_empty());
        Ok(Self { graph: part("graph_blob"), plan: part("plan_blob") })
    }
}

fn blob(value: &Json) -> Vec<u8> {
    value.as_array().into_iter().flatten().filter_map(|byte| byte.as_u64()).map(|byte| byte as u8).collect()
}

fn unreadable(reason: &str) -> Fault {
    Fault::bad(format!("cannot read the bytes: {reason}"))
}

/// What bytes contain, as flags.
pub fn contents(bytes: &[u8]) -> Outcome<c_int> {
    let parts = Parts::of(bytes, CONTENT_GRAPH)?;
    let graph = if parts.graph.is_some() { CONTENT_GRAPH } else { 0 };
    Ok(graph | if parts.plan.is_some() { CONTENT_EXECUTION_PLAN } else { 0 })
}

/// A graph from its own bytes or from a container; its handle is missing.
pub fn graph_of(bytes: &[u8], library: &dyn Implementation) -> Outcome<Arc<Descriptor>> {
    let bytes = Parts::of(bytes, CONTENT_GRAPH)?.graph.ok_or_else(|| unreadable("there is no graph"))?;
    let object = read::document(schema::GRAPH, &bytes).map_err(unreadable)?;
    graph::descriptor(&object, library)
}

/// A graph from JSON; its handle is missing.
pub fn graph_of_json(text: &[u8], library: &dyn Implementation) -> Outcome<Arc<Descriptor>> {
    // The string may include its NUL.
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let object: Map<String, Json> =
        serde_json::from_slice(text).map_err(|error| Fault::bad(format!("cannot read the graph: {error}")))?;
    graph::descriptor(&object, library)
}

/// A finalized plan from its own bytes or from a container.
pub fn plan_of(bytes: &[u8], handle: usize, library: &dyn Implementation) -> Outcome<Arc<Descriptor>> {
    let bytes = Parts::of(bytes, CONTENT_EXECUTION_PLAN)?.plan.ok_or_else(|| unreadable("there is no plan"))?;
    let object = read::document(schema::PLAN, &bytes).map_err(unreadable)?;
    let payload = object.get("plugin_payload").map(blob).ok_or_else(|| unreadable("the plan has no graph"))?;
    let graph = graph_of(&payload, library)?;
    graph.put(A::OPERATIONGRAPH_HANDLE, Value::Addresses(vec![handle]));
    graph.finalize(library)?;
    let made = [D::ENGINE_DESCRIPTOR, D::ENGINECFG_DESCRIPTOR, D::EXECUTION_PLAN_DESCRIPTOR]
        .map(|kind| Descriptor::new(kind).map(Arc::new));
    let [engine, config, plan] = made;
    let (engine, config, plan) = (engine?, config?, plan?);
    engine.put(A::ENGINE_OPERATION_GRAPH, Value::Descriptors(vec![graph]));
    let id = number(object.get("engine_id")).ok_or_else(|| unreadable("the plan has no engine"))?;
    engine.put(A::ENGINE_GLOBAL_INDEX, Value::I64s(vec![id]));
    engine.finalize(library)?;
    config.put(A::ENGINECFG_ENGINE, Value::Descriptors(vec![engine]));
    config.finalize(library)?;
    plan.put(A::EXECUTION_PLAN_ENGINE_CONFIG, Value::Descriptors(vec![config]));
    plan.finalize(library)?;
    Ok(plan)
}
