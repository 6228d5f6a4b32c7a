//! Graphs and plans as bytes.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]
mod common;

use hipdnn::sys::Status;
use hipdnn::{Contents, Handle, OperationGraph, Plan, engine_id_of};

use common::{backend, graph};

#[test]
fn graphs_and_plans_survive_a_round_trip_through_bytes() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let plan = graph.plan().unwrap();
    assert_eq!(graph.to_json().unwrap(), "{\"graph\":1}");
    let [alone, of_plan, both] =
        [graph.to_bytes(), plan.to_bytes(), graph.to_bytes_with_plan(&plan)].map(Result::unwrap);
    let contents = |bytes| Contents::of(&**handle.backend(), bytes).unwrap();
    assert_eq!(contents(&alone), Contents { has_graph: true, has_plan: false });
    assert_eq!(contents(&of_plan), Contents { has_graph: false, has_plan: true });
    assert_eq!(contents(&both), Contents { has_graph: true, has_plan: true });
    for bytes in [&alone, &both] {
        let read = OperationGraph::from_bytes(&handle, bytes).unwrap();
        assert_eq!(read.name(), "from bytes");
        assert_eq!(read.plan().unwrap().engine(), plan.engine());
    }
    assert!(OperationGraph::from_json(&handle, "{}").unwrap().is_supported().unwrap());
    for bytes in [&of_plan, &both] {
        let read = Plan::from_bytes(&handle, bytes).unwrap();
        assert_eq!((read.engine(), read.workspace_bytes()), (engine_id_of("FAST_ENGINE"), plan.workspace_bytes()));
    }
}

#[test]
fn serialisation_errors_say_why() {
    let handle = Handle::new(backend()).unwrap();
    let error = OperationGraph::from_bytes(&handle, b"rubbish").err().unwrap();
    assert_eq!(error.status(), Some(Status::BAD_PARAM));
    assert_eq!(error.to_string(), "reading a serialised graph: HIPDNN_STATUS_BAD_PARAM: no graph");
    let error = OperationGraph::from_json(&handle, "rubbish").err().unwrap();
    assert!(error.to_string().ends_with("malformed JSON"), "{error}");
    let error = Plan::from_bytes(&handle, b"graph!").err().unwrap();
    assert!(error.to_string().ends_with("no plan"), "{error}");
    let slow = graph(&handle).plan_on(engine_id_of("SLOW_ENGINE")).unwrap();
    let error = slow.to_bytes().unwrap_err();
    assert!(error.is_not_supported() && error.to_string().ends_with("this engine keeps its plans"), "{error}");
}
