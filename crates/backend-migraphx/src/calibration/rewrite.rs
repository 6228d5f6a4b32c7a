//! Inserts pairs of `QuantizeLinear` and `DequantizeLinear` into a model.
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use prost::Message as _;

use super::{CalibrationError, Ranges};
use crate::onnx::proto;

/// ONNX's number for `FLOAT`.
const FLOAT: i32 = 1;

/// The type that values are quantised to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    /// Integers from -127 to 127.
    Int8,
    /// fp8 e4m3, up to 448.
    Fp8,
}

impl Narrow {
    fn largest(self) -> f32 {
        match self {
            Self::Int8 => 127.0,
            Self::Fp8 => 448.0,
        }
    }

    /// ONNX's number for the type.
    fn data_type(self) -> i32 {
        match self {
            Self::Int8 => 3,
            Self::Fp8 => 17,
        }
    }

    /// The first ONNX opset in which `QuantizeLinear` supports this type.
    fn opset(self) -> i64 {
        match self {
            Self::Int8 => 10,
            Self::Fp8 => 19,
        }
    }
}

/// Quantises a model's convolutions and matrix products by constants. Returns the model and the number of quantised
/// products. `folder` holds its external data.
///
/// # Errors
/// The model's opset is too old for `QuantizeLinear`, or external data cannot be read.
pub(crate) fn rewrite(
    model: &[u8],
    folder: Option<&Path>,
    ranges: &Ranges,
    narrow: Narrow,
) -> Result<(Vec<u8>, usize), CalibrationError> {
    let broken = |error: prost::DecodeError| CalibrationError::Model(error.to_string());
    let mut model = proto::Model::decode(model).map_err(broken)?;
    let opset = model.opset_import.iter().find(|set| set.domain.is_empty()).map_or(0, |set| set.version);
    if opset < narrow.opset() {
        let wanted = narrow.opset();
        return Err(CalibrationError::Model(format!(
            "the model uses opset {opset}, but calibration needs {wanted} or later"
        )));
    }
    let Some(graph) = &mut model.graph else { return Ok((model.encode_to_vec(), 0)) };
    let constants: BTreeMap<String, proto::Tensor> =
        graph.initializer.iter().map(|tensor| (tensor.name.clone(), tensor.clone())).collect();
    let mut pairs = Pairs { narrow, made: BTreeSet::new(), constants: Vec::new() };
    let mut narrowed = 0;
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        if let Some((value, weight, weight_range)) = operands(&node, &constants, folder)?
            && let Some(value_range) = ranges.get(&value)
        {
            node.input[0] = pairs.around(&value, value_range, &mut nodes);
            node.input[1] = pairs.around(&weight, weight_range, &mut nodes);
            narrowed += 1;
        }
        nodes.push(node);
    }
    graph.node = nodes;
    graph.initializer.extend(pairs.constants);
    Ok((model.encode_to_vec(), narrowed))
}

/// The value and the constant that a node multiplies, with the constant's range.
fn operands(
    node: &proto::Node,
    constants: &BTreeMap<String, proto::Tensor>,
    folder: Option<&Path>,
) -> Result<Option<(String, String, f32)>, CalibrationError> {
    if !node.domain.is_empty() || !["Conv", "Gemm", "MatMul"].contains(&node.op_type.as_str()) {
        return Ok(None);
    }
    let [value, weight, ..] = node.input.as_slice() else { return Ok(None) };
    // If the constant is of type float, so is the value.
    let Some(tensor) = constants.get(weight).filter(|tensor| tensor.data_type == FLOAT) else { return Ok(None) };
    let bytes = content(tensor, folder)?;
    let floats = bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let range = floats.fold(0f32, |range, value| range.max(value.abs()));
    let usable = range.is_finite() && range > 0.0 && !constants.contains_key(value);
    Ok(usable.then(|| (value.clone(), weight.clone(), range)))
}

fn content(tensor: &proto::Tensor, folder: Option<&Path>) -> Result<Vec<u8>, CalibrationError> {
    if tensor.data_location != proto::EXTERNAL {
        return Ok(tensor.raw_data.clone().unwrap_or_default());
    }
    let entry =
        |key: &str| tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let number = |key: &str| entry(key).and_then(|text| text.parse::<u64>().ok());
    let file = folder.unwrap_or(Path::new("")).join(entry("location").unwrap_or_default());
    let read = || {
        let mut open = File::open(&file)?;
        open.seek(SeekFrom::Start(number("offset").unwrap_or(0)))?;
        let mut bytes = Vec::new();
        open.take(number("length").unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error: std::io::Error| CalibrationError::Model(format!("{}: {error}", file.display())))
}

/// The inserted pairs, without duplicates.
struct Pairs {
    narrow: Narrow,
    made: BTreeSet<String>,
    constants: Vec<proto::Tensor>,
}

impl Pairs {
    /// Inserts a pair around a value and returns the name of the result.
    fn around(&mut self, value: &str, range: f32, nodes: &mut Vec<proto::Node>) -> String {
        let name = |what: &str| format!("{value}/{what}");
        let result = name("dequantized");
        if self.made.insert(value.to_owned()) {
            let scale = (range / self.narrow.largest()).to_le_bytes().to_vec();
            self.constants.push(scalar(name("scale"), FLOAT, scale));
            // Zero has the same bit pattern in both types.
            self.constants.push(scalar(name("zero"), self.narrow.data_type(), vec![0]));
            let node = |op_type: &str, input: &str, output: &str| proto::Node {
                input: vec![input.to_owned(), name("scale"), name("zero")],
                output: vec![output.to_owned()],
                name: format!("{value}/{op_type}"),
                op_type: op_type.to_owned(),
                ..proto::Node::default()
            };
            nodes.push(node("QuantizeLinear", value, &name("quantized")));
            nodes.push(node("DequantizeLinear", &name("quantized"), &result));
        }
        result
    }
}

fn scalar(name: String, data_type: i32, bytes: Vec<u8>) -> proto::Tensor {
    proto::Tensor { name, data_type, raw_data: Some(bytes), ..proto::Tensor::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::onnx::{Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo};

    /// Two products of `x` by a constant, a product of `x` by itself, and a sum.
    fn model(opset: i64) -> Vec<u8> {
        let value = |name: &str| ValueInfo::tensor(name, ElementType::Float, [Dim::from(2), Dim::from(2)]);
        let graph = Graph::new("two")
            .input(value("x"))
            .initializer(Tensor::floats("w", [2, 2], &[1.0, -4.0, 2.0, 0.5]))
            .node(Node::new("MatMul", ["x", "w"], ["a"]))
            .node(Node::new("MatMul", ["x", "x"], ["b"]))
            .node(Node::new("MatMul", ["x", "w"], ["c"]))
            .node(Node::new("Add", ["a", "w"], ["d"]))
            .output(value("b"))
            .output(value("c"))
            .output(value("d"));
        Model::new(graph).opset("", opset).to_bytes()
    }

    #[test]
    fn products_with_constants_get_one_pair_per_operand() {
        let (bytes, narrowed) = rewrite(&model(17), None, &Ranges::from([("x", 2.54)]), Narrow::Int8).unwrap();
        assert_eq!(narrowed, 2);
        let graph = proto::Model::decode(bytes.as_slice()).unwrap().graph.unwrap();
        let ops: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_str()).collect();
        let pair = ["QuantizeLinear", "DequantizeLinear"];
        assert_eq!(ops, [&pair[..], &pair, &["MatMul", "MatMul", "MatMul", "Add"]].concat());
        assert_eq!(graph.node[4].input, ["x/dequantized", "w/dequantized"]);
        assert_eq!(graph.node[5].input, ["x", "x"], "two values stay unchanged");
        assert_eq!(graph.node[7].input, ["a", "w"]);
        let scale = |name: &str| {
            let found = graph.initializer.iter().find(|tensor| tensor.name == name).unwrap();
            f32::from_le_bytes(found.raw_data.clone().unwrap().try_into().unwrap())
        };
        assert_eq!((scale("x/scale"), scale("w/scale")), (2.54 / 127.0, 4.0 / 127.0));
    }

    #[test]
    fn values_without_a_range_and_old_operators_are_left_alone() {
        let (bytes, narrowed) = rewrite(&model(17), None, &Ranges::from([("a", 1.0)]), Narrow::Int8).unwrap();
        assert_eq!(narrowed, 0);
        assert_eq!(proto::Model::decode(bytes.as_slice()).unwrap().graph.unwrap().node.len(), 4);
        assert!(rewrite(&model(9), None, &Ranges::from([("x", 1.0)]), Narrow::Int8).is_err());
        assert!(rewrite(&model(17), None, &Ranges::from([("x", 1.0)]), Narrow::Fp8).is_err());
    }
}
