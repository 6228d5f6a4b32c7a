//! Graphs and plans as bytes, in the backend's own format. Not every backend supports each of them: check
//! [`Error::is_not_supported`](crate::Error::is_not_supported).

use super::handle::require_same;
use super::{Descriptor, Handle, OperationGraph, Plan};
use crate::Result;
use crate::result::descriptor::RawDescriptor;
use crate::result::serialized as result;
use crate::sys::{AttributeName as A, Backend, CONTENT_EXECUTION_PLAN, CONTENT_GRAPH};

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
        let flags = result::contents(backend, bytes)?;
        Ok(Self { has_graph: flags & CONTENT_GRAPH != 0, has_plan: flags & CONTENT_EXECUTION_PLAN != 0 })
    }
}

impl OperationGraph {
    /// The graph as bytes.
    ///
    /// # Errors
    /// The backend does not support it.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let graph = self.descriptor();
        // SAFETY: the graph is alive.
        unsafe { result::graph(&**graph.backend(), graph.raw()) }
    }

    /// The graph as JSON.
    ///
    /// # Errors
    /// The backend does not support it.
    pub fn to_json(&self) -> Result<String> {
        let graph = self.descriptor();
        // SAFETY: the graph is alive.
        unsafe { result::json_graph(&**graph.backend(), graph.raw()) }
    }

    /// The graph and one of its plans as bytes, for [`from_bytes`](Self::from_bytes) and [`Plan::from_bytes`].
    ///
    /// # Errors
    /// The backend or the engine does not support it.
    pub fn to_bytes_with_plan(&self, plan: &Plan) -> Result<Vec<u8>> {
        let (graph, plan) = (self.descriptor(), plan.descriptor());
        require_same(graph.backend(), plan.backend())?;
        // SAFETY: graph and plan are alive, and of the same backend.
        unsafe { result::graph_and_plan(&**graph.backend(), graph.raw(), plan.raw()) }
    }

    /// Reads a graph from bytes.
    ///
    /// # Errors
    /// The bytes are not a graph, or not one that the backend can read.
    pub fn from_bytes(handle: &Handle, bytes: &[u8]) -> Result<Self> {
        Self::read(handle, result::read_graph(&**handle.backend(), bytes)?)
    }

    /// Reads a graph from JSON.
    ///
    /// # Errors
    /// The text is not a graph, or not one that the backend can read.
    pub fn from_json(handle: &Handle, text: &str) -> Result<Self> {
        Self::read(handle, result::read_json_graph(&**handle.backend(), text)?)
    }

    /// Completes a graph that the backend has read: its handle is not set yet.
    fn read(handle: &Handle, raw: RawDescriptor) -> Result<Self> {
        // SAFETY: the backend created it for the caller, who destroys it.
        let graph = unsafe { Descriptor::adopt(handle.backend(), raw) };
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
        let plan = self.descriptor();
        // SAFETY: the plan is alive.
        unsafe { result::plan(&**plan.backend(), plan.raw()) }
    }

    /// Reads a plan from its own bytes, or from those of a graph and its plan.
    ///
    /// # Errors
    /// The bytes are not a plan, or not one that the backend can read.
    pub fn from_bytes(handle: &Handle, bytes: &[u8]) -> Result<Self> {
        // SAFETY: the handle is alive.
        let raw = unsafe { result::read_plan(&**handle.backend(), handle.raw(), bytes)? };
        // SAFETY: the backend created it for the caller, who destroys it.
        let plan = unsafe { Descriptor::adopt(handle.backend(), raw) };
        let engine = plan.i64(A::EXECUTION_PLAN_ENGINE_GLOBAL_INDEX_EXT)?;
        Self::new(plan, engine, handle.shared())
    }
}
