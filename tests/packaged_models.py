"""Public models that come with the Python packages of the tests: the networks of the onnx package, ONNX Runtime's example.

In the onnx package's networks, nearly every weight is one constant, so errors in channels would not show. They get
random weights, and lose a last Softmax, which would hide small differences. Their reference is ONNX Runtime's CPU
provider.
"""
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

NETWORKS = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19", "zfnet512",
)
# These also exist in half precision.
HALVED = ("squeezenet",)
EXACT, HALF = {"rel": 0.001, "cos": 0.9999}, {"rel": 0.02, "cos": 0.999}
FLOWERS = np.array([[5.1, 3.5], [6.7, 3.1], [6.3, 3.3]], np.float32)

# The role of a constant, by the operator that reads it and the index of the input.
ROLES = {
    ("Conv", 1): "weight", ("Gemm", 1): "weight", ("MatMul", 1): "weight",
    ("Conv", 2): "offset", ("Gemm", 2): "offset", ("Add", 0): "offset", ("Add", 1): "offset",
    ("Mul", 0): "factor", ("Mul", 1): "factor",
    ("BatchNormalization", 1): "factor", ("BatchNormalization", 2): "offset",
    ("BatchNormalization", 3): "offset", ("BatchNormalization", 4): "factor",
}


def models(folder, only):
    """Returns the models, or only those with these ids: id, path, inputs and tolerance of each. Files that do not come
    with a package are written to `folder` once."""
    import onnxruntime

    folder.mkdir(parents=True, exist_ok=True)
    forms = [(name, "", np.float32, EXACT) for name in NETWORKS] + [(name, "_fp16", np.float16, HALF) for name in HALVED]
    found = []
    for name, suffix, dtype, tolerance in forms:
        path = folder / f"light_{name}{suffix}.onnx"
        if only and path.stem not in only:
            continue
        if not path.exists():
            network = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"
            draft = path.with_suffix(".draft")
            onnx.save(with_weights(onnx.load(network), dtype), draft)
            draft.rename(path)
        found.append({"id": path.stem, "path": path, "feeds": picture(path, dtype), "tol": tolerance})
    if not only or "logreg_iris" in only:
        example = Path(onnxruntime.__file__).parent / "datasets" / "logreg_iris.onnx"
        found.append({"id": "logreg_iris", "path": example, "feeds": {"float_input": FLOWERS}, "tol": EXACT})
    return found


def random(name, shape, low, high):
    """Numbers that depend only on the name and the shape: the stream of this generator is frozen. Large arrays repeat
    them with a period that divides no row."""
    period = np.random.RandomState(zlib.crc32(name.encode())).uniform(low, high, 65537).astype(np.float32)
    return np.resize(period, shape)


def picture(path, dtype):
    graph = onnx.load(path, load_external_data=False).graph
    constants = {constant.name for constant in graph.initializer}
    (given,) = (value for value in graph.input if value.name not in constants)
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    return {given.name: random("picture", shape, 0, 1).astype(dtype)}


class Readers:
    """The nodes that read each value."""

    def __init__(self, graph):
        self.of = {}
        for node in graph.node:
            for at, name in enumerate(node.input):
                self.of.setdefault(name, []).append((node, at))

    def role(self, name):
        """The role of a constant and the node that reads it, also through nodes that change only its shape; `None` for
        other constants, such as shapes."""
        for node, at in self.of.get(name, []):
            if node.op_type in ("Reshape", "Unsqueeze") and at == 0:
                return self.role(node.output[0])
            if (node.op_type, at) in ROLES:
                return ROLES[node.op_type, at], node
        return None


def numbers(readers, name, shape):
    """Random values for a constant, so that the size of activations stays about the same from layer to layer."""
    kind, node = readers.role(name) or (None, None)
    if kind is None:
        return None
    if kind != "weight":
        return random(name, shape, *((-0.1, 0.1) if kind == "offset" else (0.8, 1.2)))
    is_turned = node.op_type == "Conv" or any(given.name == "transB" and given.i for given in node.attribute)
    bound = np.sqrt(6 / np.prod(shape[1:] if is_turned else shape[:1]))
    return random(name, shape, -bound, bound)


def with_weights(model, dtype):
    """The model with random weights of this type, and without a last Softmax."""
    graph, readers, made = model.graph, Readers(model.graph), {}
    shapes = {constant.name: numpy_helper.to_array(constant) for constant in graph.initializer}
    for constant in graph.initializer:
        if constant.data_type == TensorProto.FLOAT:
            made[constant.name] = numbers(readers, constant.name, list(constant.dims))
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            made[node.output[0]] = numbers(readers, node.output[0], shapes[node.input[0]].tolist())
    made = {name: values for name, values in made.items() if values is not None}
    nodes = [node for node in graph.node if node.output[0] not in made]
    if nodes[-1].op_type == "Softmax":
        graph.output[0].name = nodes.pop().input[0]
    others = [constant for constant in graph.initializer if constant.name not in made]
    assert dtype == np.float32 or all(constant.data_type != TensorProto.FLOAT for constant in others)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*others, *(numpy_helper.from_array(each.astype(dtype), name) for name, each in made.items())])
    if dtype == np.float16:
        for value in [*graph.input, *graph.output, *graph.value_info]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model
