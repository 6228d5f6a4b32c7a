//! Graphs of the runtime.
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::ptr;

use ort_ep_sys as sys;

use super::node::Node;
use super::os_path;
use super::read::{self, non_null, utf8};
use super::value_info::ValueInfo;
use crate::ffi::runtime::text;
use crate::{Error, Result, Runtime};

view! {
    /// A model's graph, the graph inside a control-flow node, or the part of one that is to be compiled.
    Graph(OrtGraph)
}

impl<'a> Graph<'a> {
    /// The graph's name.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn name(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: `from_raw`'s caller vouches for the graph, of which the name is a part.
        unsafe {
            call!(self.runtime, Graph_GetName(self.raw, &mut name))?;
            utf8("Graph_GetName", name)
        }
    }

    /// The model's file; none if it was loaded from memory.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn model_path(self) -> Result<Option<PathBuf>> {
        let mut path = ptr::null();
        // SAFETY: as above.
        let path = unsafe {
            call!(self.runtime, Graph_GetModelPath(self.raw, &mut path))?;
            os_path::path(path)
        };
        Ok((!path.as_os_str().is_empty()).then_some(path))
    }

    /// The version of the ONNX format.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn ir_version(self) -> Result<i64> {
        let mut version = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, Graph_GetOnnxIRVersion(self.raw, &mut version))? };
        Ok(version)
    }

    /// Domain and version of every operator set of the model; the domain of ONNX itself is empty.
    ///
    /// # Errors
    /// If a domain is not UTF-8.
    pub fn opsets(self) -> Result<Vec<(String, i64)>> {
        let api = self.runtime.api;
        let mut versions = Vec::new();
        let domains = read::list(
            self.runtime,
            ["Graph_GetNumOperatorSets", "Graph_GetOperatorSets"],
            ptr::null(),
            // SAFETY: as above; the out-pointer is `list`'s.
            |count| unsafe { api.Graph_GetNumOperatorSets(self.raw, count) },
            |domains, len| {
                versions.resize(len, 0);
                // SAFETY: as above; both lists have `len` entries.
                unsafe { api.Graph_GetOperatorSets(self.raw, domains, versions.as_mut_ptr(), len) }
            },
        )?;
        let named = domains.into_iter().zip(versions).map(|(domain, version)| {
            // SAFETY: domains are parts of the graph.
            let domain = unsafe { utf8("Graph_GetOperatorSets", domain)? };
            Ok((domain.to_owned(), version))
        });
        named.collect()
    }

    /// The version of one operator set; `""` and `"ai.onnx"` both mean ONNX itself.
    ///
    /// # Errors
    /// Same as for [`opsets`](Self::opsets).
    pub fn opset(self, domain: &str) -> Result<Option<i64>> {
        let plain = |domain: &str| if domain == "ai.onnx" { String::new() } else { domain.to_owned() };
        let wanted = plain(domain);
        Ok(self.opsets()?.into_iter().find(|(domain, _)| plain(domain) == wanted).map(|(_, version)| version))
    }

    /// The graph's inputs, including initializers that are listed as inputs.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn inputs(self) -> Result<Vec<ValueInfo<'a>>> {
        Ok(self.values(parts!(self, Graph_GetNumInputs, Graph_GetInputs)?))
    }

    /// The graph's outputs.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn outputs(self) -> Result<Vec<ValueInfo<'a>>> {
        Ok(self.values(parts!(self, Graph_GetNumOutputs, Graph_GetOutputs)?))
    }

    /// The initializers of this graph, constant and overridable. `Constant` nodes are not included.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn initializers(self) -> Result<Vec<ValueInfo<'a>>> {
        Ok(self.values(parts!(self, Graph_GetNumInitializers, Graph_GetInitializers)?))
    }

    /// The nodes in topological order.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn nodes(self) -> Result<Vec<Node<'a>>> {
        let nodes = parts!(self, Graph_GetNumNodes, Graph_GetNodes)?;
        // SAFETY: nodes are parts of the graph.
        Ok(nodes.into_iter().filter_map(non_null).map(|node| unsafe { Node::from_raw(self.runtime, node) }).collect())
    }

    /// The control-flow node that contains this graph; `None` for a model's main graph.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn parent_node(self) -> Result<Option<Node<'a>>> {
        let mut node = ptr::null();
        // SAFETY: as above.
        unsafe { call!(self.runtime, Graph_GetParentNode(self.raw, &mut node))? };
        // SAFETY: the node contains this graph, so it outlives it.
        Ok(non_null(node).map(|node| unsafe { Node::from_raw(self.runtime, node) }))
    }

    /// A graph of some of the nodes; its outputs are in the order of the nodes.
    ///
    /// # Errors
    /// If the nodes are not from this graph.
    pub fn view(self, nodes: &[Node<'a>]) -> Result<OwnedGraph<'a>> {
        let mut nodes: Vec<_> = nodes.iter().map(|node| node.as_ptr()).collect();
        let mut raw = ptr::null_mut();
        // SAFETY: as above; the list has the given length, and we own the new graph.
        unsafe { call!(self.runtime, Graph_GetGraphView(self.raw, nodes.as_mut_ptr(), nodes.len(), &mut raw))? };
        Ok(OwnedGraph { runtime: self.runtime, raw, source: PhantomData })
    }

    /// The model's own key-value pairs.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn model_metadata(self) -> Result<BTreeMap<String, String>> {
        let mut raw = ptr::null_mut();
        // SAFETY: as above; the function does not write through the graph. We own the metadata.
        unsafe { call!(self.runtime, Graph_GetModelMetadata(self.raw.cast_mut(), &mut raw))? };
        let metadata = ModelMetadata { runtime: self.runtime, raw };
        metadata.custom_map()
    }

    fn values(self, values: Vec<*const sys::OrtValueInfo>) -> Vec<ValueInfo<'a>> {
        let values = values.into_iter().filter_map(non_null);
        // SAFETY: value infos are parts of the graph.
        values.map(|value| unsafe { ValueInfo::from_raw(self.runtime, value) }).collect()
    }
}

/// A graph made of another one's nodes, released on drop.
#[derive(Debug)]
pub struct OwnedGraph<'a> {
    runtime: Runtime,
    raw: *mut sys::OrtGraph,
    source: PhantomData<&'a ()>,
}

impl OwnedGraph<'_> {
    /// A view of the graph.
    pub fn graph(&self) -> Graph<'_> {
        // SAFETY: the graph is live while `self` is, and the graph it was created from lives for `'a`.
        unsafe { Graph::from_raw(self.runtime, self.raw) }
    }
}

impl Drop for OwnedGraph<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph came from `Graph::view` and is ours alone.
        unsafe { self.runtime.api.ReleaseGraph(self.raw) }
    }
}

struct ModelMetadata {
    runtime: Runtime,
    raw: *mut sys::OrtModelMetadata,
}

impl ModelMetadata {
    fn custom_map(&self) -> Result<BTreeMap<String, String>> {
        let runtime = self.runtime;
        let mut allocator = ptr::null_mut();
        let (mut keys, mut len) = (ptr::null_mut::<*mut c_char>(), 0);
        // SAFETY: the default allocator is the runtime's and lives as long as it; the keys are allocated for us.
        unsafe {
            call!(runtime, GetAllocatorWithDefaultOptions(&mut allocator))?;
            call!(runtime, ModelMetadataGetCustomMetadataMapKeys(self.raw, allocator, &mut keys, &mut len))?;
        }
        let len = usize::try_from(len).map_err(|_| Error::fail("the model's metadata has a negative length"))?;
        let free = |memory: *mut c_void| {
            // SAFETY: everything passed to `free` below came from this allocator and is freed once.
            let status = unsafe { runtime.api.AllocatorFree(allocator, memory) };
            runtime.check("AllocatorFree", status)
        };
        let mut map = BTreeMap::new();
        let mut outcome = Ok(());
        for index in 0..len {
            // SAFETY: the list has `len` keys, each a NUL-terminated text.
            let key = unsafe { *keys.add(index) };
            let mut value = ptr::null_mut();
            // SAFETY: as above; the value is allocated for us, or stays null.
            let found =
                unsafe { call!(runtime, ModelMetadataLookupCustomMetadataMap(self.raw, allocator, key, &mut value)) };
            if found.is_ok() {
                // SAFETY: both are NUL-terminated or null, and freed only below.
                unsafe { map.insert(text(key).into_owned(), text(value).into_owned()) };
            }
            let freed = if value.is_null() { Ok(()) } else { free(value.cast()) };
            outcome = outcome.and(found).and(freed).and(free(key.cast()));
        }
        if !keys.is_null() {
            outcome = outcome.and(free(keys.cast()));
        }
        outcome.map(|()| map)
    }
}

impl Drop for ModelMetadata {
    fn drop(&mut self) {
        // SAFETY: the metadata came from `Graph_GetModelMetadata` and is ours alone.
        unsafe { self.runtime.api.ReleaseModelMetadata(self.raw) }
    }
}
