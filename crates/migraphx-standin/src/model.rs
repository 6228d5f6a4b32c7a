//! The parts of an ONNX model that the stand-in needs.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::wire::{Field, fields, varint};

/// A graph with every dimension fixed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Graph {
    /// In topological order.
    pub nodes: Vec<Node>,
    /// Inputs that are not constants.
    pub inputs: Vec<Value>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Constants by name.
    pub constants: BTreeMap<String, Tensor>,
}

/// A node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Node {
    /// The operator, without its domain.
    pub op: String,
    /// Names of its inputs.
    pub inputs: Vec<String>,
    /// Names of its outputs.
    pub outputs: Vec<String>,
    /// Attributes with a single number.
    pub numbers: BTreeMap<String, f32>,
}

/// An input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Value {
    /// The name.
    pub name: String,
    /// The element type.
    pub element: Element,
    /// The size of each axis.
    pub dims: Vec<usize>,
}

/// A tensor with its contents in row-major order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// The element type.
    pub element: Element,
    /// The size of each axis.
    pub dims: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

/// The parser's options.
#[derive(Clone, Debug, Default)]
pub struct ParseOptions {
    /// Shapes of inputs.
    pub inputs: BTreeMap<String, Vec<usize>>,
    /// The folder of external data.
    pub external_data: String,
}

/// Reads a model. A dynamic dimension without a given size becomes 1, as in MIGraphX.
pub fn parse(model: &[u8], options: &ParseOptions) -> Result<Graph, String> {
    let graph = fields(model)?.into_iter().find_map(|field| match field {
        (7, Field::Bytes(graph)) => Some(graph),
        _ => None,
    });
    let mut found = Graph::default();
    for field in fields(graph.ok_or("the model has no graph")?)? {
        match field {
            (1, Field::Bytes(bytes)) => found.nodes.push(node(bytes)?),
            (5, Field::Bytes(bytes)) => {
                let (name, tensor) = tensor(bytes, &options.external_data)?;
                found.constants.insert(name, tensor);
            }
            (11, Field::Bytes(bytes)) => found.inputs.push(value(bytes, options)?),
            (12, Field::Bytes(bytes)) => found.outputs.push(value(bytes, options)?.name),
            _ => {}
        }
    }
    found.inputs.retain(|input| !found.constants.contains_key(&input.name));
    Ok(found)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn node(bytes: &[u8]) -> Result<Node, String> {
    let mut node = Node::default();
    for field in fields(bytes)? {
        match field {
            (1, Field::Bytes(name)) => node.inputs.push(text(name)),
            (2, Field::Bytes(name)) => node.outputs.push(text(name)),
            (4, Field::Bytes(op)) => node.op = text(op),
            (5, Field::Bytes(bytes)) => attribute(bytes, &mut node.numbers)?,
            _ => {}
        }
    }
    Ok(node)
}

fn attribute(bytes: &[u8], numbers: &mut BTreeMap<String, f32>) -> Result<(), String> {
    let (mut name, mut number) = (String::new(), None);
    for field in fields(bytes)? {
        match field {
            (1, Field::Bytes(bytes)) => name = text(bytes),
            (2, Field::Fixed32(bits)) => number = Some(f32::from_bits(bits)),
            (3, Field::Int(int)) => number = Some(int as f32),
            _ => {}
        }
    }
    numbers.extend(number.map(|number| (name, number)));
    Ok(())
}

fn size(dim: i64) -> Result<usize, String> {
    usize::try_from(dim).map_err(|_| format!("invalid dimension {dim}"))
}

fn tensor(bytes: &[u8], folder: &str) -> Result<(String, Tensor), String> {
    let mut name = String::new();
    let mut tensor = Tensor { element: Element(0), dims: Vec::new(), bytes: Vec::new() };
    let mut external = Vec::new();
    for field in fields(bytes)? {
        match field {
            (1, Field::Int(dim)) => tensor.dims.push(size(dim)?),
            (1, Field::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    tensor.dims.push(size(varint(&mut packed)?.cast_signed())?);
                }
            }
            (2, Field::Int(element)) => tensor.element = Element(element),
            (4, Field::Bytes(floats)) => tensor.bytes.extend(floats),
            (4, Field::Fixed32(float)) => tensor.bytes.extend(float.to_le_bytes()),
            (7, Field::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    tensor.bytes.extend(varint(&mut packed)?.to_le_bytes());
                }
            }
            (8, Field::Bytes(bytes)) => name = text(bytes),
            (9, Field::Bytes(raw)) => tensor.bytes.extend(raw),
            (13, Field::Bytes(entry)) => external.push(entry_value(entry)?),
            _ => {}
        }
    }
    // MIGraphX reads the entries by position and ignores their keys.
    if let [location, rest @ ..] = external.as_slice() {
        let file = Path::new(folder).join(location);
        let content = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let number = |index: usize| rest.get(index).and_then(|text| text.parse::<usize>().ok());
        let start = number(0).unwrap_or(0);
        let end = number(1).map_or(content.len(), |length| start.saturating_add(length));
        tensor.bytes = content.get(start..end).ok_or_else(|| format!("{} is too short", file.display()))?.to_vec();
    }
    let wanted = tensor.dims.iter().product::<usize>() * tensor.element.bytes().unwrap_or(0);
    if tensor.bytes.len() != wanted {
        return Err(format!("the constant {name} has {} bytes, expected {wanted}", tensor.bytes.len()));
    }
    Ok((name, tensor))
}

fn entry_value(entry: &[u8]) -> Result<String, String> {
    let value = fields(entry)?.into_iter().find_map(|field| match field {
        (2, Field::Bytes(value)) => Some(text(value)),
        _ => None,
    });
    Ok(value.unwrap_or_default())
}

fn value(bytes: &[u8], options: &ParseOptions) -> Result<Value, String> {
    let mut value = Value { name: String::new(), element: Element(0), dims: Vec::new() };
    for field in fields(bytes)? {
        match field {
            (1, Field::Bytes(name)) => value.name = text(name),
            (2, Field::Bytes(kind)) => {
                for field in fields(kind)? {
                    if let (1, Field::Bytes(tensor)) = field {
                        tensor_type(tensor, &mut value)?;
                    }
                }
            }
            _ => {}
        }
    }
    if let Some(given) = options.inputs.get(&value.name) {
        value.dims.clone_from(given);
    }
    Ok(value)
}

fn tensor_type(bytes: &[u8], value: &mut Value) -> Result<(), String> {
    for field in fields(bytes)? {
        match field {
            (1, Field::Int(element)) => value.element = Element(element),
            (2, Field::Bytes(shape)) => {
                for field in fields(shape)? {
                    if let (1, Field::Bytes(dim)) = field {
                        let fixed = fields(dim)?.into_iter().find_map(|field| match field {
                            (1, Field::Int(dim)) => Some(dim),
                            _ => None,
                        });
                        value.dims.push(size(fixed.unwrap_or(1))?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
