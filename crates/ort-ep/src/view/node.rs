//! Nodes of the runtime.
use std::ptr;

use ort_ep_sys as sys;

use super::attribute::{Attribute, AttributeKind, AttributeValue};
use super::graph::Graph;
use super::read::{self, non_null, utf8};
use super::tensor::OwnedTensor;
use super::value_info::ValueInfo;
use crate::ffi::runtime::c_string;
use crate::{Error, ErrorCode, Result};

view! {
    /// One node of a graph.
    Node(OrtNode)
}

impl<'a> Node<'a> {
    /// An id that is unique within the node's graph; nodes of inner graphs may have the same id.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn id(self) -> Result<usize> {
        let mut id = 0;
        // SAFETY: `from_raw`'s caller vouches for the node; the out-pointer is ours.
        unsafe { call!(self.runtime, Node_GetId(self.raw, &mut id))? };
        Ok(id)
    }

    /// The node's name; may be empty.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn name(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: as above; the name is part of the node.
        unsafe {
            call!(self.runtime, Node_GetName(self.raw, &mut name))?;
            utf8("Node_GetName", name)
        }
    }

    /// The operator, such as `MatMul`.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn op_type(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: as above.
        unsafe {
            call!(self.runtime, Node_GetOperatorType(self.raw, &mut name))?;
            utf8("Node_GetOperatorType", name)
        }
    }

    /// The operator's domain; empty for ONNX itself.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn domain(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: as above.
        unsafe {
            call!(self.runtime, Node_GetDomain(self.raw, &mut name))?;
            utf8("Node_GetDomain", name)
        }
    }

    /// The opset version that introduced this version of the operator.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn since_version(self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: as above.
        unsafe { call!(self.runtime, Node_GetSinceVersion(self.raw, &mut version))? };
        Ok(version)
    }

    /// The inputs in the operator's order; `None` for absent optional ones.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn inputs(self) -> Result<Vec<Option<ValueInfo<'a>>>> {
        Ok(self.values(parts!(self, Node_GetNumInputs, Node_GetInputs)?))
    }

    /// The outputs in the operator's order; `None` for absent optional ones.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn outputs(self) -> Result<Vec<Option<ValueInfo<'a>>>> {
        Ok(self.values(parts!(self, Node_GetNumOutputs, Node_GetOutputs)?))
    }

    /// The values of the enclosing graphs that the node's inner graphs use.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn implicit_inputs(self) -> Result<Vec<ValueInfo<'a>>> {
        let values = parts!(self, Node_GetNumImplicitInputs, Node_GetImplicitInputs)?;
        Ok(self.values(values).into_iter().flatten().collect())
    }

    /// The inner graphs of a control-flow node, each with the name of its attribute.
    ///
    /// # Errors
    /// If a name is not UTF-8.
    pub fn subgraphs(self) -> Result<Vec<(String, Graph<'a>)>> {
        let api = self.runtime.api;
        let mut names = Vec::new();
        let graphs = read::list(
            self.runtime,
            ["Node_GetNumSubgraphs", "Node_GetSubgraphs"],
            ptr::null(),
            // SAFETY: as above.
            |count| unsafe { api.Node_GetNumSubgraphs(self.raw, count) },
            |graphs, len| {
                names.resize(len, ptr::null());
                // SAFETY: as above; both lists have `len` entries.
                unsafe { api.Node_GetSubgraphs(self.raw, graphs, len, names.as_mut_ptr()) }
            },
        )?;
        let named = graphs.into_iter().zip(names).filter(|(graph, _)| !graph.is_null()).map(|(graph, name)| {
            // SAFETY: names and graphs are parts of the node.
            unsafe { Ok((utf8("Node_GetSubgraphs", name)?.to_owned(), Graph::from_raw(self.runtime, graph))) }
        });
        named.collect()
    }

    /// The execution provider that already claimed the node.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn ep_name(self) -> Result<Option<&'a str>> {
        let mut name = ptr::null();
        // SAFETY: as above; the name is part of the node.
        let name = unsafe {
            call!(self.runtime, Node_GetEpName(self.raw, &mut name))?;
            utf8("Node_GetEpName", name)?
        };
        Ok((!name.is_empty()).then_some(name))
    }

    /// The graph that contains the node; `None` for fused nodes.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn graph(self) -> Result<Option<Graph<'a>>> {
        let mut graph = ptr::null();
        // SAFETY: as above.
        unsafe { call!(self.runtime, Node_GetGraph(self.raw, &mut graph))? };
        // SAFETY: the graph contains this node, so it lives as long.
        Ok(non_null(graph).map(|graph| unsafe { Graph::from_raw(self.runtime, graph) }))
    }

    /// The attributes that are set, and those for which the operator has a constant default.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn attributes(self) -> Result<Vec<Attribute<'a>>> {
        let attributes = parts!(self, Node_GetNumAttributes, Node_GetAttributes)?;
        let attributes = attributes.into_iter().filter_map(non_null);
        // SAFETY: attributes are parts of the node.
        Ok(attributes.map(|attribute| unsafe { Attribute::from_raw(self.runtime, attribute) }).collect())
    }

    /// One attribute; `None` if it is not set and has no default, or the operator has no such attribute.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn attribute(self, name: &str) -> Result<Option<Attribute<'a>>> {
        let name = c_string(name);
        let mut attribute = ptr::null();
        // SAFETY: as above.
        match unsafe { call!(self.runtime, Node_GetAttributeByName(self.raw, name.as_ptr(), &mut attribute)) } {
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(None),
            outcome => outcome?,
        }
        // SAFETY: attributes are parts of the node.
        Ok(non_null(attribute).map(|attribute| unsafe { Attribute::from_raw(self.runtime, attribute) }))
    }

    /// An integer attribute.
    ///
    /// # Errors
    /// If it has another type; the message names the node, the attribute and both types.
    pub fn int(self, name: &str) -> Result<Option<i64>> {
        self.typed(
            name,
            AttributeKind::Int,
            |value| if let AttributeValue::Int(v) = value { Ok(v) } else { Err(value) },
        )
    }

    /// A float attribute.
    ///
    /// # Errors
    /// Same as for [`int`](Self::int).
    pub fn float(self, name: &str) -> Result<Option<f32>> {
        self.typed(
            name,
            AttributeKind::Float,
            |value| {
                if let AttributeValue::Float(v) = value { Ok(v) } else { Err(value) }
            },
        )
    }

    /// A string attribute.
    ///
    /// # Errors
    /// Same as for [`int`](Self::int), and if it is not UTF-8.
    pub fn string(self, name: &str) -> Result<Option<String>> {
        let bytes = self.typed(name, AttributeKind::String, |value| {
            if let AttributeValue::String(v) = value { Ok(v) } else { Err(value) }
        })?;
        bytes.map(|bytes| self.text(name, bytes)).transpose()
    }

    /// A list-of-integers attribute.
    ///
    /// # Errors
    /// Same as for [`int`](Self::int).
    pub fn ints(self, name: &str) -> Result<Option<Vec<i64>>> {
        self.typed(
            name,
            AttributeKind::Ints,
            |value| {
                if let AttributeValue::Ints(v) = value { Ok(v) } else { Err(value) }
            },
        )
    }

    /// A list-of-floats attribute.
    ///
    /// # Errors
    /// Same as for [`int`](Self::int).
    pub fn floats(self, name: &str) -> Result<Option<Vec<f32>>> {
        self.typed(
            name,
            AttributeKind::Floats,
            |value| {
                if let AttributeValue::Floats(v) = value { Ok(v) } else { Err(value) }
            },
        )
    }

    /// A list-of-strings attribute.
    ///
    /// # Errors
    /// Same as for [`string`](Self::string).
    pub fn strings(self, name: &str) -> Result<Option<Vec<String>>> {
        let lists = self.typed(name, AttributeKind::Strings, |value| {
            if let AttributeValue::Strings(v) = value { Ok(v) } else { Err(value) }
        })?;
        lists.map(|list| list.into_iter().map(|bytes| self.text(name, bytes)).collect()).transpose()
    }

    /// A tensor attribute.
    ///
    /// # Errors
    /// Same as for [`int`](Self::int).
    pub fn tensor(self, name: &str) -> Result<Option<OwnedTensor>> {
        self.typed(
            name,
            AttributeKind::Tensor,
            |value| {
                if let AttributeValue::Tensor(v) = value { Ok(v) } else { Err(value) }
            },
        )
    }

    fn typed<T>(
        self,
        name: &str,
        wanted: AttributeKind,
        take: impl FnOnce(AttributeValue) -> Result<T, AttributeValue>,
    ) -> Result<Option<T>> {
        let Some(attribute) = self.attribute(name)? else { return Ok(None) };
        let found = attribute.kind()?;
        if found == wanted
            && let Ok(value) = take(attribute.value()?)
        {
            return Ok(Some(value));
        }
        Err(Error::invalid_argument(format!("{}: attribute `{name}` is {found}, expected {wanted}", self.label()?)))
    }

    fn text(self, name: &str, bytes: Vec<u8>) -> Result<String> {
        let label = self.label()?;
        String::from_utf8(bytes)
            .map_err(|_| Error::invalid_argument(format!("{label}: attribute `{name}` is not UTF-8 text")))
    }

    /// The node's label in messages.
    fn label(self) -> Result<String> {
        Ok(format!("node `{}` ({})", self.name()?, self.op_type()?))
    }

    fn values(self, values: Vec<*const sys::OrtValueInfo>) -> Vec<Option<ValueInfo<'a>>> {
        let view = |value| {
            // SAFETY: value infos are parts of the node's graph.
            non_null(value).map(|value| unsafe { ValueInfo::from_raw(self.runtime, value) })
        };
        values.into_iter().map(view).collect()
    }
}
