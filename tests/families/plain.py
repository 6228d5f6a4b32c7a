"""Copies of GenAI folders that ONNX Runtime's CPU provider computes as they are meant.

Tensors of bfloat16 become floats of the same values, and QMoE becomes plain nodes whose weights NumPy unpacks.
"""
import shutil

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# The layers of QMoE: weights, scales, bias.
LAYERS = [(2, 3, 4), (5, 6, 7), (8, 9, 10)]
STEPS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
ROUTER_WEIGHTS = 14


def copy(folder, to, as_floats, plain_experts):
    """Writes the copy to `to`."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("model.onnx*"))
    model = onnx.load(folder / "model.onnx")
    if as_floats:
        widen(model.graph)
    if plain_experts:
        expand_experts(model.graph)
    onnx.save(model, to / "model.onnx")


def widen(graph):
    """Turns bfloat16 into float32."""
    old, new = TensorProto.BFLOAT16, TensorProto.FLOAT
    held = [attribute for node in graph.node for attribute in node.attribute]
    for tensor in [*graph.initializer, *(attribute.t for attribute in held if attribute.HasField("t"))]:
        if tensor.data_type == old:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type == old:
            value.type.tensor_type.elem_type = new
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == old:
                attribute.i = new


def fields(packed, bits):
    """Numbers of a few bits, the first one in the lowest bits of a byte."""
    each = 8 // bits
    parts = [packed >> (bits * at) & (2**bits - 1) for at in range(each)]
    return np.stack(parts, -1).reshape(*packed.shape[:-1], -1)


def integers(weights, scales, bits):
    """Weights `[experts, columns, depth]` from bytes around the middle, and a scale for each block of a column."""
    numbers = fields(weights, bits).astype(np.float32) - 2 ** (bits - 1)
    blocks = scales.reshape(*numbers.shape[:2], -1).astype(np.float32)
    return numbers * np.repeat(blocks, numbers.shape[2] // blocks.shape[2], axis=2)


def floats(weights, scales, of_expert):
    """The same from 4-bit floats `[experts, depth, columns / 2]` with scales that are powers of two."""
    codes = fields(weights, 4)
    numbers = np.where(codes > 7, -STEPS[codes & 7], STEPS[codes & 7]).transpose(0, 2, 1)
    blocks = scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    return numbers * np.repeat(blocks, numbers.shape[2] // blocks.shape[2], axis=2) * of_expert.reshape(-1, 1, 1)


class Nodes:
    """Nodes that replace one."""

    def __init__(self, graph, prefix):
        self.graph, self.prefix, self.made = graph, prefix, []

    def constant(self, array):
        name = f"{self.prefix}/constant_{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def number(self, value):
        return self.constant(np.array(value, np.float32))

    def add(self, op, *inputs, outputs=1, domain="", **attributes):
        names = [f"{self.prefix}/{op}_{len(self.made)}_{at}" for at in range(outputs)]
        self.made.append(helper.make_node(op, inputs, names, f"{self.prefix}/{op}_{len(self.made)}", domain=domain, **attributes))
        return names[0] if outputs == 1 else names


def expand_experts(graph):
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        nodes += expanded(graph, node, constants) if node.op_type == "QMoE" else [node]
    del graph.node[:]
    graph.node.extend(nodes)


def expanded(graph, node, constants):
    """All experts for all tokens, and a weight of zero for those that were not chosen."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    array = lambda at: numpy_helper.to_array(constants[node.input[at]])
    has = lambda at: at < len(node.input) and node.input[at] != ""
    is_float4 = given.get("quant_type", b"int") != b"int"
    made = Nodes(graph, node.output[0])

    def product(x, layer):
        weights, scales, bias = LAYERS[layer]
        if is_float4:
            dense = floats(array(weights), array(scales), array(15 + layer))
        else:
            dense = integers(array(weights), array(scales), given.get("expert_weight_bits", 4))
        y = made.add("MatMul", x, made.constant(dense.transpose(0, 2, 1)))
        return made.add("Add", y, made.constant(array(bias).astype(np.float32)[:, None])) if has(bias) else y

    shape = made.add("Shape", node.input[0])
    x = made.add("Cast", node.input[0], to=TensorProto.FLOAT)
    columns = made.add("Shape", node.input[0], start=-1)
    x = made.add("Reshape", x, made.add("Concat", made.constant(np.array([-1])), columns, axis=0))
    share = made.add("Unsqueeze", made.add("Transpose", routes(made, node, given, has), perm=[1, 0]),
                     made.constant(np.array([2])))
    first = product(x, 0)
    middle = activated(made, first, product(x, 2) if has(LAYERS[2][0]) else None, given)
    sums = made.add("ReduceSum", made.add("Mul", product(middle, 1), share), made.constant(np.array([0])), keepdims=0)
    result = made.add("Reshape", sums, shape)
    made.add("CastLike", result, node.input[0])
    made.made[-1].output[0] = node.output[0]
    return made.made


def routes(made, node, given, has):
    """The weight of each expert for each token."""
    scores = made.add("Cast", node.input[1], to=TensorProto.FLOAT)
    k = made.constant(np.array([given["k"]]))
    best, chosen = made.add("TopK", scores, k, outputs=2, axis=1)
    normalised = given.get("normalize_routing_weights", 0)
    if has(ROUTER_WEIGHTS):
        weights = made.add("GatherElements", made.add("Cast", node.input[ROUTER_WEIGHTS], to=TensorProto.FLOAT), chosen, axis=1)
        if normalised:
            weights = made.add("Div", weights, made.add("ReduceSum", weights, made.constant(np.array([1])), keepdims=1))
    elif normalised:
        weights = made.add("Softmax", best, axis=1)
    else:
        weights = made.add("GatherElements", made.add("Softmax", scores, axis=1), chosen, axis=1)
    none = made.add("Mul", scores, made.number(0))
    return made.add("ScatterElements", none, chosen, weights, axis=1)


def activated(made, first, third, given):
    """What happens between the layers."""
    kind = given["activation_type"].decode()
    if third is None and kind in ("swiglu", "geglu"):
        first, third = halves(made, first, given["swiglu_fusion"])
    limit = given.get("swiglu_limit")
    if limit is not None and kind == "swiglu":
        first = made.add("Min", first, made.number(limit))
        third = made.add("Max", made.add("Min", third, made.number(limit)), made.number(-limit))
    if kind in ("swiglu", "silu"):
        alpha = given.get("activation_alpha", 1.0) if kind == "swiglu" else 1.0
        gate = made.add("Mul", first, made.add("Sigmoid", made.add("Mul", first, made.number(alpha))))
    elif kind in ("geglu", "gelu"):
        gate = made.add("Gelu", first, approximate="tanh")
    else:
        gate = made.add("Relu", first)
    if third is None:
        return gate
    shift = given.get("activation_beta", 0.0) if kind == "swiglu" else 0.0
    return made.add("Mul", gate, made.add("Add", third, made.number(shift)))


def halves(made, both, fusion):
    """The gate and what it gates: every second column, or the first and the last ones."""
    if fusion == 2:
        return made.add("Split", both, outputs=2, axis=-1, num_outputs=2)
    return [
        made.add("Slice", both, *(made.constant(np.array([value])) for value in (start, 2**31, -1, 2))) for start in (0, 1)
    ]
