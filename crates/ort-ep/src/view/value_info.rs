//! Values of a graph.
use std::ptr;

use ort_ep_sys as sys;

use super::external_data::ExternalData;
use super::node::Node;
use super::read::{self, non_null, utf8};
use super::tensor::Tensor;
use super::value_type::ValueType;
use crate::{Result, Runtime};

view! {
    /// One value of a graph: an input, an initializer, or a node's output.
    ValueInfo(OrtValueInfo)
}

/// A use of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumer<'a> {
    /// The node that uses it; `None` if the runtime does not say.
    pub node: Option<Node<'a>>,
    /// The position among the node's inputs; `None` if only its inner graphs use the value.
    pub input: Option<usize>,
}

type Flag = unsafe fn(Runtime, *const sys::OrtValueInfo, *mut bool) -> Result<()>;

macro_rules! flag {
    ($self:ident, $function:ident) => {
        // SAFETY: `flag` passes the view's own pointer, for which `from_raw`'s caller vouches, and an out-pointer.
        $self.flag(|runtime, raw, out| unsafe { call!(runtime, $function(raw, out)) })
    };
}

impl<'a> ValueInfo<'a> {
    /// The value's name.
    ///
    /// # Errors
    /// If the name is not UTF-8.
    pub fn name(self) -> Result<&'a str> {
        let mut name = ptr::null();
        // SAFETY: `from_raw`'s caller vouches for the value, of which the name is a part.
        unsafe {
            call!(self.runtime, GetValueInfoName(self.raw, &mut name))?;
            utf8("GetValueInfoName", name)
        }
    }

    /// The type of the value.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn value_type(self) -> Result<ValueType> {
        let mut info = ptr::null();
        // SAFETY: as above; the description is part of the value.
        unsafe {
            call!(self.runtime, GetValueInfoTypeInfo(self.raw, &mut info))?;
            ValueType::from_raw(self.runtime, info)
        }
    }

    /// The node that produces the value and the position among its outputs; `None` for inputs and initializers.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn producer(self) -> Result<Option<(Node<'a>, usize)>> {
        let (mut node, mut output) = (ptr::null(), 0);
        // SAFETY: as above; the out-pointers are ours.
        unsafe { call!(self.runtime, ValueInfo_GetValueProducer(self.raw, &mut node, &mut output))? };
        // SAFETY: the node is part of the same graph.
        Ok(non_null(node).map(|node| (unsafe { Node::from_raw(self.runtime, node) }, output)))
    }

    /// Every use of the value by a node.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn consumers(self) -> Result<Vec<Consumer<'a>>> {
        let api = self.runtime.api;
        let mut inputs = Vec::new();
        let nodes = read::list(
            self.runtime,
            ["ValueInfo_GetValueNumConsumers", "ValueInfo_GetValueConsumers"],
            ptr::null(),
            // SAFETY: as above.
            |count| unsafe { api.ValueInfo_GetValueNumConsumers(self.raw, count) },
            |nodes, len| {
                inputs.resize(len, -1);
                // SAFETY: as above; both lists have `len` entries.
                unsafe { api.ValueInfo_GetValueConsumers(self.raw, nodes, inputs.as_mut_ptr(), len) }
            },
        )?;
        let uses = nodes.into_iter().zip(inputs).map(|(node, input)| Consumer {
            // SAFETY: the node is part of the same graph.
            node: non_null(node).map(|node| unsafe { Node::from_raw(self.runtime, node) }),
            input: usize::try_from(input).ok(),
        });
        Ok(uses.collect())
    }

    /// True for a graph input that every run must provide.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn is_required_graph_input(self) -> Result<bool> {
        flag!(self, ValueInfo_IsRequiredGraphInput)
    }

    /// True for a graph input with an initializer that a run may override.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn is_optional_graph_input(self) -> Result<bool> {
        flag!(self, ValueInfo_IsOptionalGraphInput)
    }

    /// True for an output of the graph.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn is_graph_output(self) -> Result<bool> {
        flag!(self, ValueInfo_IsGraphOutput)
    }

    /// True for an initializer that no run can override.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn is_constant_initializer(self) -> Result<bool> {
        flag!(self, ValueInfo_IsConstantInitializer)
    }

    /// True for a value that an inner graph takes from an enclosing one.
    ///
    /// # Errors
    /// If the runtime reports an error.
    pub fn is_from_outer_scope(self) -> Result<bool> {
        flag!(self, ValueInfo_IsFromOuterScope)
    }

    /// The initializer's data, also from an outer graph or an external file; `None` for other values.
    ///
    /// # Errors
    /// If external data cannot be read.
    pub fn initializer(self) -> Result<Option<Tensor<'a>>> {
        let mut value = ptr::null();
        // SAFETY: as above.
        unsafe { call!(self.runtime, ValueInfo_GetInitializerValue(self.raw, &mut value))? };
        // SAFETY: the runtime keeps initializers as long as the graph is valid.
        Ok(non_null(value).map(|value| unsafe { Tensor::from_raw(self.runtime, value) }))
    }

    /// The location of an initializer's external data; `None` if the model file holds it.
    ///
    /// # Errors
    /// If the location is invalid.
    pub fn external_data(self) -> Result<Option<ExternalData>> {
        let mut info = ptr::null_mut();
        // SAFETY: as above; we own the description.
        unsafe { call!(self.runtime, ValueInfo_GetExternalInitializerInfo(self.raw, &mut info))? };
        if info.is_null() {
            return Ok(None);
        }
        // SAFETY: the runtime just made the description for us.
        unsafe { ExternalData::take(self.runtime, info) }.map(Some)
    }

    fn flag(self, read: Flag) -> Result<bool> {
        let mut flag = false;
        // SAFETY: `from_raw`'s caller vouches for the value; the out-pointer is ours.
        unsafe { read(self.runtime, self.raw, &mut flag)? };
        Ok(flag)
    }
}
