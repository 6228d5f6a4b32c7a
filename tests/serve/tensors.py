"""Writes tiny ONNX models, and what ONNX Runtime's CPU provider answers. Needs `onnx` and `onnxruntime`.

usage: python tensors.py FOLDER

`FOLDER/cases.json` lists requests: the model, and its inputs and outputs with types, shapes, elements as numbers (`null`
for types that JSON has no form for) and elements as hexadecimal bytes.
"""
import json
import sys
from pathlib import Path

TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8",
    "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
}


def save(path, nodes, inputs, outputs, weights=()):
    import onnx
    from onnx import helper

    def infos(values):
        number = lambda name: helper.np_dtype_to_tensor_dtype(__import__("numpy").dtype(TYPES[name]))
        return [helper.make_tensor_value_info(name, number(kind), shape) for name, kind, shape in values]

    graph = helper.make_graph(nodes, "g", infos(inputs), infos(outputs), list(weights))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(path))


def classifier(path):
    import numpy
    from onnx import helper, numpy_helper

    table = numpy.sin(numpy.arange(12, dtype=numpy.float32)).reshape(4, 3)
    bias = numpy.array([0.1, -0.2, 0.3], numpy.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"]),
        helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=0),
    ]
    weights = [numpy_helper.from_array(table, "w"), numpy_helper.from_array(bias, "b")]
    outputs = [("probabilities", "FP32", ["batch", 3]), ("label", "INT64", ["batch"])]
    save(path, nodes, [("x", "FP32", ["batch", 4])], outputs, weights)


def twice(path):
    """A model with an input and an output of every type; outputs are inputs, twice."""
    from onnx import helper

    nodes = [helper.make_node("Concat", [f"{kind}_in"] * 2, [f"{kind}_out"], axis=0) for kind in TYPES]
    inputs = [(f"{kind}_in", kind, [f"n_{kind}", 2]) for kind in TYPES]
    save(path, nodes, inputs, [(f"{kind}_out", kind, [None, 2]) for kind in TYPES])


def picky(path):
    """A model that fails for some inputs: positions outside of the table, and lengths that do not fit."""
    import numpy
    from onnx import helper, numpy_helper

    nodes = [helper.make_node("Gather", ["table", "position"], ["found"]), helper.make_node("Add", ["found", "y"], ["sum"])]
    table = numpy_helper.from_array(numpy.arange(5, dtype=numpy.float32), "table")
    inputs = [("position", "INT64", ["n"]), ("y", "FP32", ["m"])]
    save(path, nodes, inputs, [("sum", "FP32", [None])], [table])


def described(name, kind, array):
    numbers = None if kind == "FP16" else array.ravel().tolist()
    return {"name": name, "datatype": kind, "shape": list(array.shape), "data": numbers, "bytes": array.tobytes().hex()}


def main(folder):
    import numpy
    import onnxruntime

    classifier(folder / "classifier" / "model.onnx")
    twice(folder / "twice.onnx")
    picky(folder / "picky.onnx")
    generator = numpy.random.default_rng(3)
    cases = []

    def case(model, path, inputs):
        session = onnxruntime.InferenceSession(str(folder / path), providers=["CPUExecutionProvider"])
        names = {dtype: kind for kind, dtype in TYPES.items()}
        results = zip(session.get_outputs(), session.run(None, inputs))
        tensors = lambda pairs: [described(name, names[str(array.dtype)], array) for name, array in pairs]
        outputs = [(output.name, array) for output, array in results]
        cases.append({"model": model, "inputs": tensors(inputs.items()), "outputs": tensors(outputs)})

    for rows in (1, 5, 0):
        case("classifier", "classifier/model.onnx", {"x": generator.normal(size=(rows, 4)).astype("float32")})
    values = {f"{kind}_in": generator.integers(0, 2 if kind == "BOOL" else 100, (3, 2)).astype(dtype) for kind, dtype in TYPES.items()}
    case("twice", "twice.onnx", values)
    (folder / "cases.json").write_text(json.dumps(cases))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
