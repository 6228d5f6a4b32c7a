//! Graphs and plans as bytes, in the backend's own format. Not every backend supports each of them: check
//! [`Error::is_not_supported`](crate::Error::is_not_supported).

use std::ptr;
use std::sync::Arc;

use crate::Result;
use crate::descriptor::Descriptor;
use crate::handle::{Handle, check, require, require_same, until_nul};
use crate::operation_graph::OperationGraph;
use crate::plan::Plan;
use crate::sys::{self, AttributeName as A, Backend, CONTENT_EXECUTION_PLAN, CONTENT_GRAPH, DescriptorType, Status};

/// The contents of serialised bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// A graph.
    pub has_graph: bool,
    /// An execution plan.
    pub has_plan: bool,
}

impl Contents {
    /// Inspects bytes without reading all of them.
    ///
    /// # Errors
    /// The backend cannot tell.
    pub fn of(backend: &dyn Backend, bytes: &[u8]) -> Result<Self> {
        require(backend, "hipdnnBackendGetSerializedBinaryContents_ext")?;
        let mut flags = 0;
        // SAFETY: there are as many bytes as given, and the out-pointer is valid.
        let status = unsafe { backend.serialized_contents(bytes.as_ptr(), bytes.len(), &mut flags) };
        check(backend, || "inspecting serialised contents".into(), status)?;
        Ok(Self { has_graph: flags & CONTENT_GRAPH != 0, has_plan: flags & CONTENT_EXECUTION_PLAN != 0 })
    }
}

impl OperationGraph {
    /// The graph as bytes.
    ///
    /// # Errors
    /// The backend does not support it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let backend = self.descriptor().backend();
        let graph = self.descriptor().raw();
        // SAFETY: the graph is alive; `two_calls` provides a buffer of the given size.
        two_calls(
            backend,
            "hipdnnBackendGetSerializedBinaryGraph_ext",
            "serialising a graph",
            |room, size, to| unsafe { backend.serialized_graph(graph, room, size, to) },
        )
    }

    /// The graph as JSON.
    ///
    /// # Errors
    /// The backend does not support it.
    pub fn to_json(&self) -> Result<String> {
        let backend = self.descriptor().backend();
        let graph = self.descriptor().raw();
        let (function, attempted) = ("hipdnnBackendGetSerializedJsonGraph_ext", "writing a graph as JSON");
        // SAFETY: the graph is alive; `two_calls` provides a buffer of the given size.
        let ask = |room, size, to: *mut u8| unsafe { backend.serialized_json_graph(graph, room, size, to.cast()) };
        Ok(until_nul(&two_calls(backend, function, attempted, ask)?))
    }

    /// The graph and one of its plans as bytes, for [`from_bytes`](Self::from_bytes) and [`Plan::from_bytes`].
    ///
    /// # Errors
    /// The backend or the engine does not support it.
    pub fn to_bytes_with_plan(&self, plan: &Plan) -> Result<Vec<u8>> {
        let backend = self.descriptor().backend();
        require_same(backend, plan.descriptor().backend())?;
        let (graph, plan) = (self.descriptor().raw(), plan.descriptor().raw());
        let (function, attempted) =
            ("hipdnnBackendGetSerializedBinaryGraphAndPlan_ext", "serialising a graph and its plan");
        // SAFETY: graph and plan are alive; `two_calls` provides a buffer of the given size.
        let ask = |room, size, to| unsafe { backend.serialized_graph_and_plan(graph, plan, room, size, to) };
        two_calls(backend, function, attempted, ask)
    }

    /// Reads a graph from bytes.
    ///
    /// # Errors
    /// The bytes are not a graph, or not one that the backend can read.
    pub fn from_bytes(handle: &Handle, bytes: &[u8]) -> Result<Self> {
        let backend = handle.backend();
        require(&**backend, "hipdnnBackendCreateAndDeserializeGraph_ext")?;
        let mut raw = ptr::null_mut();
        // SAFETY: there are as many bytes as given, and the out-pointer is valid.
        let status = unsafe { backend.deserialize_graph(&mut raw, bytes.as_ptr(), bytes.len()) };
        Self::read(handle, "reading a serialised graph", status, raw)
    }

    /// Reads a graph from JSON.
    ///
    /// # Errors
    /// The text is not a graph, or not one that the backend can read.
    pub fn from_json(handle: &Handle, text: &str) -> Result<Self> {
        let backend = handle.backend();
        require(&**backend, "hipdnnBackendCreateAndDeserializeJsonGraph_ext")?;
        let mut raw = ptr::null_mut();
        // SAFETY: there are as many characters as given, and the out-pointer is valid.
        let status = unsafe { backend.deserialize_json_graph(&mut raw, text.as_ptr().cast(), text.len()) };
        Self::read(handle, "reading a graph from JSON", status, raw)
    }

    /// Completes a graph that the backend has read: its handle is not set yet.
    fn read(handle: &Handle, attempted: &str, status: Status, raw: sys::Descriptor) -> Result<Self> {
        let graph = adopted(handle.backend(), DescriptorType::OPERATIONGRAPH_DESCRIPTOR, attempted, status, raw)?;
        // A graph without a name is fine, and so is a backend that does not report it.
        let name = graph.text(A::OPERATIONGRAPH_NAME_EXT).unwrap_or_default();
        let preferred = graph.i64s(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT).unwrap_or_default();
        graph.set_handle(A::OPERATIONGRAPH_HANDLE, handle)?;
        graph.finalize()?;
        Ok(Self::new(graph, name, preferred.first().copied(), handle))
    }
}

impl Plan {
    /// The plan as bytes.
    ///
    /// # Errors
    /// The backend or the engine does not support it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let backend = self.descriptor().backend();
        let plan = self.descriptor().raw();
        let (function, attempted) = ("hipdnnBackendGetSerializedExecutionPlan_ext", "serialising a plan");
        // SAFETY: the plan is alive; `two_calls` provides a buffer of the given size.
        two_calls(backend, function, attempted, |room, size, to| unsafe {
            backend.serialized_plan(plan, room, size, to)
        })
    }

    /// Reads a plan from its own bytes, or from those of a graph and its plan.
    ///
    /// # Errors
    /// The bytes are not a plan, or not one that the backend can read.
    pub fn from_bytes(handle: &Handle, bytes: &[u8]) -> Result<Self> {
        let backend = handle.backend();
        require(&**backend, "hipdnnBackendCreateAndDeserializeExecutionPlan_ext")?;
        let mut raw = ptr::null_mut();
        // SAFETY: the handle is alive; there are as many bytes as given, and the out-pointer is valid.
        let status = unsafe { backend.deserialize_plan(handle.raw(), &mut raw, bytes.as_ptr(), bytes.len()) };
        let kind = DescriptorType::EXECUTION_PLAN_DESCRIPTOR;
        let plan = adopted(backend, kind, "reading a serialised plan", status, raw)?;
        let engine = plan.i64(A::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT)?;
        Self::new(plan, engine, handle.shared())
    }
}

fn adopted(
    backend: &Arc<dyn Backend>,
    kind: DescriptorType,
    attempted: &str,
    status: Status,
    raw: sys::Descriptor,
) -> Result<Descriptor> {
    check(&**backend, || attempted.into(), status)?;
    // SAFETY: the backend created it for the caller, who destroys it.
    Ok(unsafe { Descriptor::adopt(backend, kind, raw) })
}

/// Asks for the size, then for the bytes.
fn two_calls(
    backend: &Arc<dyn Backend>,
    function: &'static str,
    attempted: &str,
    ask: impl Fn(usize, *mut usize, *mut u8) -> Status,
) -> Result<Vec<u8>> {
    require(&**backend, function)?;
    let mut size = 0;
    check(&**backend, || attempted.into(), ask(0, &mut size, ptr::null_mut()))?;
    let mut bytes = vec![0u8; size];
    check(&**backend, || attempted.into(), ask(bytes.len(), &mut size, bytes.as_mut_ptr()))?;
    bytes.truncate(size);
    Ok(bytes)
}
