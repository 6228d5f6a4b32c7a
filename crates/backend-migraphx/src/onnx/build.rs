//! Converts ONNX Runtime graphs to ONNX models.
use std::collections::{BTreeMap, BTreeSet, HashSet};

use ort_ep::view::{AttributeValue, Graph, Node, ValueInfo};
use ort_ep::{Error, Result};
use prost::Message as _;

use super::proto::{self, attribute_type};
use super::weights::Weights;
use super::{Model, Value};

/// The size limit of a protobuf message.
const LARGEST_MODEL_BYTES: usize = i32::MAX as usize;

/// The inputs and outputs of a partition.
pub(crate) struct Boundary<'a> {
    /// Values from outside, with or without constants.
    pub inputs: Vec<ValueInfo<'a>>,
    /// Values used outside.
    pub outputs: Vec<ValueInfo<'a>>,
}

/// Why no model was built.
#[derive(Debug)]
pub(crate) enum Stop {
    /// ONNX or MIGraphX cannot represent something.
    Declined(String),
    /// ONNX Runtime returned an error.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Builds a model from some nodes of `graph`. With `external`, weights in external files stay there.
///
/// # Errors
/// ONNX cannot represent a value or attribute, or ONNX Runtime failed to describe one.
pub(crate) fn build<'a>(
    graph: Graph<'a>,
    nodes: &[Node<'a>],
    boundary: &Boundary<'a>,
    external: bool,
) -> Result<Model, Stop> {
    let folder = if external { graph.model_path()?.and_then(|path| path.parent().map(Into::into)) } else { None };
    let mut builder =
        Builder { weights: Weights::new(folder), domains: BTreeSet::from([String::new()]), outer: BTreeMap::new() };
    let inputs = values(boundary.inputs.iter().copied().filter(|value| !is_constant(*value)))?;
    let outputs = values(boundary.outputs.iter().copied())?;
    let node = nodes.iter().map(|node| builder.node(*node, &HashSet::new())).collect::<Result<_, Stop>>()?;
    let constants = std::mem::take(&mut builder.outer);
    let initializer = constants.into_values().map(|value| builder.weights.constant(value)).collect::<Result<_>>()?;
    if builder.weights.inline_bytes > LARGEST_MODEL_BYTES {
        return Err(Stop::Declined(format!(
            "its weights of {} bytes are too large for one ONNX file, and are not in external files",
            builder.weights.inline_bytes
        )));
    }
    let protos = |values: &[Value]| values.iter().map(Value::to_proto).collect();
    let name = "partition".to_owned();
    let model = proto::Model {
        ir_version: graph.ir_version()?,
        producer_name: "amdgpu-ep".to_owned(),
        opset_import: builder.opsets(graph)?,
        graph: Some(proto::Graph { node, name, initializer, input: protos(&inputs), output: protos(&outputs) }),
    };
    let bytes = model.encode_to_vec();
    if bytes.len() > LARGEST_MODEL_BYTES {
        return Err(Stop::Declined(format!("its model of {} bytes is too large for one ONNX file", bytes.len())));
    }
    let mut digest = blake3::Hasher::new();
    digest.update(&bytes).update(builder.weights.outside.finalize().as_bytes());
    Ok(Model { bytes, digest: digest.finalize(), folder: builder.weights.folder(), inputs, outputs })
}

fn is_constant(value: ValueInfo<'_>) -> bool {
    value.is_constant_initializer().unwrap_or(false)
}

/// The tensors among the values, sorted by name and without duplicates.
fn values<'a>(all: impl Iterator<Item = ValueInfo<'a>>) -> Result<Vec<Value>, Stop> {
    let mut sorted = BTreeMap::new();
    for value in all {
        let name = value.name()?;
        sorted.insert(name, self::value(name, value)?);
    }
    Ok(sorted.into_values().collect())
}

fn value(name: &str, value: ValueInfo<'_>) -> Result<Value, Stop> {
    match value.value_type()?.tensor() {
        Some(tensor) => Ok(Value::new(name, tensor.clone())),
        None => Err(Stop::Declined(format!("{name:?} is not a tensor"))),
    }
}

struct Builder<'a> {
    weights: Weights,
    /// The operator domains in use. ONNX's own is always included.
    domains: BTreeSet<String>,
    /// Constants of the partition's graph or of an enclosing one.
    outer: BTreeMap<&'a str, ValueInfo<'a>>,
}

impl<'a> Builder<'a> {
    /// Converts a node. `inner` names the constants that the surrounding graph defines itself.
    fn node(&mut self, node: Node<'a>, inner: &HashSet<&str>) -> Result<proto::Node, Stop> {
        let domain = node.domain()?;
        // Both spellings mean the ONNX domain.
        let domain = if domain == "ai.onnx" { "" } else { domain };
        self.domains.insert(domain.to_owned());
        for value in node.inputs()?.into_iter().flatten().chain(node.implicit_inputs()?) {
            let name = value.name()?;
            if !inner.contains(name) && is_constant(value) {
                self.outer.insert(name, value);
            }
        }
        let mut attribute = self.attributes(node)?;
        for (name, graph) in node.subgraphs()? {
            let g = Some(self.graph(graph)?);
            attribute.push(proto::Attribute { name, g, r#type: attribute_type::GRAPH, ..Default::default() });
        }
        attribute.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(proto::Node {
            input: names(node.inputs()?)?,
            output: names(node.outputs()?)?,
            name: node.name()?.to_owned(),
            op_type: node.op_type()?.to_owned(),
            attribute,
            domain: domain.to_owned(),
        })
    }

    /// Converts the body of a control-flow node. Captured outer values keep their names, so they need not be passed in.
    fn graph(&mut self, graph: Graph<'a>) -> Result<proto::Graph, Stop> {
        let (mut own, mut initializer) = (HashSet::new(), Vec::new());
        for value in graph.initializers()? {
            if is_constant(value) && own.insert(value.name()?) {
                initializer.push(self.weights.constant(value)?);
            }
        }
        initializer.sort_by(|a, b| a.name.cmp(&b.name));
        let node = graph.nodes()?.into_iter().map(|node| self.node(node, &own)).collect::<Result<_, Stop>>()?;
        // A body's inputs and outputs are matched by position.
        let protos = |values: Vec<ValueInfo<'_>>| {
            let values = values.into_iter().map(|item| Ok(value(item.name()?, item)?.to_proto()));
            values.collect::<Result<Vec<_>, Stop>>()
        };
        let inputs = graph.inputs()?.into_iter().filter(|value| !is_constant(*value)).collect();
        let (input, output) = (protos(inputs)?, protos(graph.outputs()?)?);
        Ok(proto::Graph { node, name: "body".to_owned(), initializer, input, output })
    }

    fn attributes(&mut self, node: Node<'_>) -> Result<Vec<proto::Attribute>, Stop> {
        let mut all = Vec::new();
        for attribute in node.attributes()? {
            let name = attribute.name()?.to_owned();
            let mut made = proto::Attribute { name, ..Default::default() };
            made.r#type = match attribute.value()? {
                AttributeValue::Int(value) => {
                    made.i = Some(value);
                    attribute_type::INT
                }
                AttributeValue::Ints(values) => {
                    made.ints = values;
                    attribute_type::INTS
                }
                AttributeValue::Float(value) => {
                    made.f = Some(value);
                    attribute_type::FLOAT
                }
                AttributeValue::Floats(values) => {
                    made.floats = values;
                    attribute_type::FLOATS
                }
                AttributeValue::String(bytes) => {
                    made.s = Some(bytes);
                    attribute_type::STRING
                }
                AttributeValue::Strings(list) => {
                    made.strings = list;
                    attribute_type::STRINGS
                }
                AttributeValue::Tensor(tensor) => {
                    made.t = Some(self.weights.inline(tensor.as_tensor())?);
                    attribute_type::TENSOR
                }
                AttributeValue::Graph => continue,
                other => return Err(Stop::Declined(format!("its attribute {:?} is {other:?}", made.name))),
            };
            all.push(made);
        }
        Ok(all)
    }

    /// Lists only the operator sets in use: MIGraphX takes the highest version in the list as the version of ONNX
    /// itself.
    fn opsets(&self, graph: Graph<'_>) -> Result<Vec<proto::OperatorSet>> {
        let versions = self.domains.iter().map(|domain| {
            let version = graph.opset(domain)?.unwrap_or(1);
            Ok(proto::OperatorSet { domain: domain.clone(), version })
        });
        versions.collect()
    }
}

fn names(values: Vec<Option<ValueInfo<'_>>>) -> Result<Vec<String>> {
    let name = |value: Option<ValueInfo<'_>>| value.map_or(Ok(String::new()), |value| Ok(value.name()?.to_owned()));
    values.into_iter().map(name).collect()
}
