//! Reads the models we write with the `onnx` package.

use std::process::Command;

use testkit::onnx::{Attribute, Dim, ElementType, Graph, Model, Node, Tensor, ValueInfo, ValueType};
use testkit::place;

/// Runs `script` with the model's path as its argument; `None`, with a printed reason, if there is no Python.
fn python(script: &str, model: &std::path::Path) -> anyhow::Result<Option<String>> {
    let interpreter = match place::python() {
        Ok(interpreter) => interpreter,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(None);
        }
    };
    let output = Command::new(interpreter).args(["-c", script]).arg(model).output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    Ok(Some(stdout.into_owned()))
}

fn matrix(name: &str) -> ValueInfo {
    ValueInfo::tensor(name, ElementType::Float, [Dim::from("rows"), Dim::from(2)])
}

#[test]
fn checker_accepts_and_reference_evaluates_a_model_with_branches() {
    let branch = |name: &str, constant: f32| {
        Graph::new(name)
            .initializer(Tensor::floats(&format!("{name}_c"), [2], &[constant, 2.0 * constant]))
            .node(Node::new("Add", ["x", &format!("{name}_c")], [format!("{name}_y").as_str()]))
            .output(matrix(&format!("{name}_y")))
    };
    let graph = Graph::new("choice")
        .input(matrix("x"))
        .input(ValueInfo::tensor("flag", ElementType::Bool, []))
        .node(
            Node::new("If", ["flag"], ["chosen"])
                .name("if")
                .attribute("then_branch", Attribute::Graph(branch("yes", 1.0)))
                .attribute("else_branch", Attribute::Graph(branch("no", -1.0))),
        )
        .value(matrix("chosen"))
        .node(Node::new("Transpose", ["chosen"], ["y"]).attribute("perm", Attribute::Ints(vec![1, 0])))
        .output(ValueInfo::tensor("y", ElementType::Float, [Dim::from(2), Dim::from("rows")]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("choice.onnx");
    std::fs::write(&path, Model::new(graph).opset("", 17).metadata("made", "here").to_bytes()).unwrap();
    let script = r#"
import sys, numpy as np, onnx
from onnx.reference import ReferenceEvaluator
model = onnx.load(sys.argv[1])
onnx.checker.check_model(model, full_check=True)
assert {entry.key: entry.value for entry in model.metadata_props} == {"made": "here"}
assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
run = ReferenceEvaluator(model)
x = np.arange(6, dtype=np.float32).reshape(3, 2)
for flag, sign in ((True, 1), (False, -1)):
    (y,) = run.run(None, {"x": x, "flag": np.array(flag)})
    np.testing.assert_array_equal(y, (x + sign * np.array([1, 2], np.float32)).T)
print("evaluated")
"#;
    if let Some(output) = python(script, &path).unwrap() {
        assert_eq!(output.trim(), "evaluated");
    }
}

#[test]
fn every_attribute_type_reads_back_as_written() {
    let constant = || Tensor::int64s("t", [2], &[-7, i64::MAX]);
    let body = || Graph::new("body").node(Node::new("Identity", ["a"], ["b"])).output(matrix("b"));
    let tensor_type = || ValueType::Tensor(ElementType::Bfloat16, Some(vec![Dim::Unknown, Dim::from(4)]));
    let node = Node::new("Anything", ["a", "", "c"], ["y"])
        .domain("test.domain")
        .attribute("float", Attribute::Float(1.5))
        .attribute("int", Attribute::Int(-3))
        .attribute("string", Attribute::String("wört".into()))
        .attribute("tensor", Attribute::Tensor(constant()))
        .attribute("graph", Attribute::Graph(body()))
        .attribute("floats", Attribute::Floats(vec![0.0, -2.5]))
        .attribute("ints", Attribute::Ints(vec![i64::MIN, 0, 1]))
        .attribute("strings", Attribute::Strings(vec!["a".into(), String::new()]))
        .attribute("tensors", Attribute::Tensors(vec![constant(), Tensor::strings("s", [1], &["x"])]))
        .attribute("graphs", Attribute::Graphs(vec![body()]))
        .attribute("type", Attribute::Type(ValueType::Sequence(Box::new(tensor_type()))))
        .attribute("types", Attribute::Types(vec![ValueType::Optional(Box::new(tensor_type()))]));
    let graph =
        Graph::new("attributes").node(node).output(ValueInfo::of("y", ValueType::Tensor(ElementType::Float, None)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("attributes.onnx");
    std::fs::write(&path, Model::new(graph).opset("", 17).opset("test.domain", 1).to_bytes()).unwrap();
    let script = r#"
import sys, numpy as np, onnx
from onnx import helper, numpy_helper, AttributeProto
model = onnx.load(sys.argv[1])
(node,) = model.graph.node
assert list(node.input) == ["a", "", "c"] and node.domain == "test.domain"
got = {a.name: (a.type, helper.get_attribute_value(a)) for a in node.attribute}
plain = {"float": (AttributeProto.FLOAT, 1.5), "int": (AttributeProto.INT, -3),
         "string": (AttributeProto.STRING, "wört".encode()), "floats": (AttributeProto.FLOATS, [0.0, -2.5]),
         "ints": (AttributeProto.INTS, [-2**63, 0, 1]), "strings": (AttributeProto.STRINGS, [b"a", b""])}
for name, (kind, value) in plain.items():
    assert got[name][0] == kind and (list(got[name][1]) if isinstance(value, list) else got[name][1]) == value, name
np.testing.assert_array_equal(numpy_helper.to_array(got["tensor"][1]), [-7, 2**63 - 1])
assert got["graph"][1].node[0].op_type == "Identity" and got["graphs"][1][0].name == "body"
assert numpy_helper.to_array(got["tensors"][1][1]).tolist() in (["x"], [b"x"])
assert got["type"][0] == AttributeProto.TYPE_PROTO and got["types"][0] == AttributeProto.TYPE_PROTOS
tensor = got["type"][1].sequence_type.elem_type.tensor_type
assert tensor.elem_type == onnx.TensorProto.BFLOAT16
assert [d.WhichOneof("value") for d in tensor.shape.dim] == [None, "dim_value"]
assert got["types"][1][0].optional_type.elem_type.HasField("tensor_type")
assert not model.graph.output[0].type.tensor_type.HasField("shape")
print("equal")
"#;
    if let Some(output) = python(script, &path).unwrap() {
        assert_eq!(output.trim(), "equal");
    }
}

#[test]
fn external_data_is_found_beside_the_model() {
    let graph = Graph::new("external")
        .input(matrix("x"))
        .initializer(Tensor::external("w", ElementType::Float, [2], "weights.bin", 4, 8))
        .node(Node::new("Mul", ["x", "w"], ["y"]))
        .output(matrix("y"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("external.onnx");
    let weights: Vec<u8> = [0.0f32, 3.0, 5.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.path().join("weights.bin"), weights).unwrap();
    std::fs::write(&path, Model::new(graph).opset("", 17).to_bytes()).unwrap();
    let script = r#"
import sys, onnx
onnx.checker.check_model(sys.argv[1])
model = onnx.load(sys.argv[1])
print(onnx.numpy_helper.to_array(model.graph.initializer[0]).tolist())
"#;
    if let Some(output) = python(script, &path).unwrap() {
        assert_eq!(output.trim(), "[3.0, 5.0]");
    }
}
