//! Builds graphs of several nodes.
#![allow(dead_code, clippy::unwrap_used)]
use graph::ops::{self, Attribute, Attributes, InputInfo, NodeInfo};
use graph::{DType, Graph, Node, Tensor, ValueId};

use crate::common::tensor;

/// A graph under construction, in single precision unless stated otherwise.
#[derive(Default)]
pub struct Build {
    graph: Graph,
    inputs: Vec<ValueId>,
}

impl Build {
    /// A single-precision input.
    pub fn input(&mut self) -> ValueId {
        self.input_of(DType::F32)
    }

    /// An input of the given type.
    pub fn input_of(&mut self, dtype: DType) -> ValueId {
        let id = self.graph.add_value(format!("in{}", self.inputs.len()), dtype, None);
        self.inputs.push(id);
        id
    }

    /// A constant.
    pub fn constant(&mut self, value: Tensor) -> ValueId {
        self.graph.add_value(format!("c{}", self.graph.values().len()), value.dtype(), Some(value))
    }

    /// A scalar constant.
    pub fn number(&mut self, value: f64) -> ValueId {
        self.constant(tensor(DType::F32, &[], &[value]))
    }

    /// A node of opset 18 with one output of the same type as its first input.
    pub fn node(&mut self, op_type: &str, inputs: &[ValueId]) -> ValueId {
        self.with(op_type, inputs, &[])
    }

    /// Like `node`, with attributes.
    pub fn with(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        let dtype = self.graph.value(inputs[0]).dtype;
        self.typed(op_type, inputs, attributes, dtype)
    }

    /// Like `with`, with another output type.
    pub fn typed(
        &mut self,
        op_type: &str,
        inputs: &[ValueId],
        attributes: &[(&str, Attribute)],
        dtype: DType,
    ) -> ValueId {
        self.add("", op_type, inputs, attributes, dtype)
    }

    /// Like `with`, in ONNX Runtime's contrib domain.
    pub fn contrib(&mut self, op_type: &str, inputs: &[ValueId], attributes: &[(&str, Attribute)]) -> ValueId {
        let dtype = self.graph.value(inputs[0]).dtype;
        self.add("com.microsoft", op_type, inputs, attributes, dtype)
    }

    fn add(
        &mut self,
        domain: &str,
        op_type: &str,
        inputs: &[ValueId],
        attributes: &[(&str, Attribute)],
        dtype: DType,
    ) -> ValueId {
        let inputs: Vec<_> = inputs.iter().map(|&id| Some(id)).collect();
        self.outputs_of(domain, op_type, &inputs, attributes, &[Some(dtype)])[0]
    }

    /// Like `with`, for any domain, with optional inputs and outputs. Returns the outputs that are present.
    pub fn outputs_of(
        &mut self,
        domain: &str,
        op_type: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, Attribute)],
        dtypes: &[Option<DType>],
    ) -> Vec<ValueId> {
        let attributes = Attributes::from(attributes);
        let infos: Vec<_> = inputs.iter().map(|id| id.map(|id| InputInfo::from(self.graph.value(id)))).collect();
        let info =
            NodeInfo { domain, op_type, since_version: 18, attributes: &attributes, inputs: &infos, outputs: dtypes };
        let op = ops::parse(&info).unwrap().into();
        let mut add = |dtype: DType| self.graph.add_value(format!("v{}", self.graph.values().len()), dtype, None);
        let outputs: Vec<_> = dtypes.iter().map(|dtype| dtype.map(&mut add)).collect();
        let made: Vec<ValueId> = outputs.iter().copied().flatten().collect();
        self.graph.add_node(Node { name: format!("{op_type} {}", made[0].0), op, inputs: inputs.to_vec(), outputs });
        made
    }

    /// A mean over axes, which are kept with extent 1.
    pub fn mean(&mut self, x: ValueId, axes: &[i64]) -> ValueId {
        let axes = self.constant(Tensor::from_i64s(axes));
        self.node("ReduceMean", &[x, axes])
    }

    /// The finished graph.
    pub fn outputs(&self, outputs: &[ValueId]) -> Graph {
        let mut graph = self.graph.clone();
        graph.set_inputs(self.inputs.clone());
        graph.set_outputs(outputs.to_vec());
        graph.verify().unwrap();
        graph
    }
}
