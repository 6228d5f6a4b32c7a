"""Contrib operators on MIGraphX: every form that the backend takes agrees with ONNX Runtime's CPU provider. Forms that
MIGraphX computes wrongly, or that crash the process, are left to other providers.

The table is in `crates/backend-migraphx/src/claim/contrib.rs`. Each case runs in its own process, like every test, so a
form that crashes MIGraphX fails only one test.
"""
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from migraphx_support import close, needs_migraphx, on_the_real_one, ours, session_on
from onnx import helper
from support import registered

pytestmark = needs_migraphx

MICROSOFT = "com.microsoft"
TABLE = Path(__file__).resolve().parents[2] / "crates/backend-migraphx/src/claim/contrib.rs"
HALF = np.float16


def floats(*shape, kind=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(kind)


def integers(kind, *shape):
    limits = np.iinfo(kind)
    return np.random.default_rng(8).integers(limits.min, limits.max + 1, shape).astype(kind)


def scalar(number, kind=np.float32):
    return np.array(number, kind)


def model_of(nodes, inputs, constants, outputs, opset=21):
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
        if name not in constants
    ]
    weights = [onnx.numpy_helper.from_array(inputs[name], name) for name in constants]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph(nodes, "g", values, results, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class Case:
    """A model of one node. `constants` are weights; all other inputs are fed. An input that is None is absent."""

    def __init__(self, op, inputs, constants=(), outputs=("y",), domain=MICROSOFT, reference=None, tolerance=1e-4, **attributes):
        names = [name if array is not None else "" for name, array in inputs.items()]
        # Trailing absent inputs are omitted, as exporters do.
        while not names[-1]:
            names.pop()
        given = {name: array for name, array in inputs.items() if array is not None}
        constants = [name for name in constants if name in given]
        node = helper.make_node(op, names, outputs, "node", domain=domain, **attributes)
        self.op = op
        self.model = model_of([node], given, constants, outputs)
        # Operators without a CPU kernel are expressed in ONNX's own operators.
        self.reference = model_of(reference, given, constants, outputs) if reference else self.model
        self.feeds = {name: array for name, array in given.items() if name not in constants}
        half = any(array.dtype == HALF for array in given.values())
        self.tolerance = 2e-2 if half else tolerance

    def wanted(self):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return ort.InferenceSession(self.reference, options, providers=["CPUExecutionProvider"]).run(None, self.feeds)


def group_query(heads=2, shared=2, tokens=4, past=0, batch=1, cache=None, rotary=1, **attributes):
    size, kind = 16, np.float32
    length = past if cache is None else cache
    inputs = {
        "query": floats(batch, tokens, (heads + 2 * shared) * size),
        "key": None,
        "value": None,
        "past_key": floats(batch, shared, length, size, seed=1),
        "past_value": floats(batch, shared, length, size, seed=2),
        "seqlens_k": np.full(batch, past + tokens - 1, np.int32),
        "total_sequence_length": np.array(past + tokens, np.int32),
    }
    if rotary:
        angles = np.outer(np.arange(32), 1 / 10000 ** (np.arange(size // 2) * 2 / size))
        inputs |= {"cos_cache": np.cos(angles).astype(kind), "sin_cache": np.sin(angles).astype(kind)}
    attributes |= {"num_heads": heads, "kv_num_heads": shared, "do_rotary": rotary}
    case = Case("GroupQueryAttention", inputs, ["cos_cache", "sin_cache"], ["y", "key_out", "value_out"], **attributes)
    case.used = past + tokens
    return case


def four_bits(rows=(3,), columns=6, depth=32, block=16, kind=np.float32, bits=4, zero_points=None, extra=None, **attributes):
    blocks = -(-depth // block)
    inputs = {
        "a": floats(*rows, depth, kind=kind),
        "b": integers(np.uint8, columns, blocks, block * bits // 8),
        "scales": np.abs(floats(columns * blocks, kind=kind)) * kind(0.1),
        "zero_points": zero_points,
        **(extra or {}),
    }
    return Case("MatMulNBits", inputs, list(inputs)[1:], bits=bits, N=columns, K=depth, block_size=block, **attributes)


def many_heads(tokens=3, keys=3, batch=2, heads=2, size=4, kind=np.float32, crossed=False, outputs=("y",), extra=None, **attributes):
    width = heads * size
    shape = (batch, heads, keys, size) if crossed else (batch, keys, width)
    inputs = {
        "query": floats(batch, tokens, width, kind=kind),
        "key": floats(*shape, kind=kind, seed=1),
        "value": floats(*shape, kind=kind, seed=2),
        **dict.fromkeys(["bias", "mask", "attention_bias", "past_key", "past_value"]),
        **(extra or {}),
    }
    return Case("MultiHeadAttention", inputs, outputs=outputs, num_heads=heads, **attributes)


MASK = np.array([[1, 1, 0], [1, 1, 1]], np.int32)


def attention(width=8, heads=2, size=4, kind=np.float32, mask=None, past=None, bias=None, outputs=("y",), **attributes):
    inner = heads * size
    inputs = {
        "x": floats(2, 3, width, kind=kind),
        "weights": floats(width, 3 * inner, kind=kind, seed=1),
        "bias": floats(3 * inner, kind=kind, seed=2),
        "mask": mask,
        "past": past,
        "attention_bias": bias,
    }
    return Case("Attention", inputs, ["weights", "bias"], outputs, num_heads=heads, **attributes)


def rotary(shape=(2, 3, 16), positions=None, size=8, kind=np.float32, constants=("cos", "sin"), **attributes):
    angles = np.outer(np.arange(16), 1 / 10000 ** (np.arange(size // 2) * 2 / size))
    tokens = shape[1] if len(shape) == 3 else shape[2]
    default = np.tile(np.arange(1, tokens + 1), (shape[0], 1)).astype(np.int64)
    inputs = {
        "x": floats(*shape, kind=kind),
        "positions": default if positions is None else positions,
        "cos": np.cos(angles).astype(kind),
        "sin": np.sin(angles).astype(kind),
    }
    return Case("RotaryEmbedding", inputs, constants, **attributes)


def skip(op="SkipLayerNormalization", shape=(2, 3, 8), other=None, beta=True, bias=False, kind=np.float32, outputs=("y",), **attributes):
    width = shape[-1]
    inputs = {
        "x": floats(*shape, kind=kind),
        "skip": floats(*(other or shape), kind=kind, seed=1),
        "gamma": floats(width, kind=kind, seed=2),
    }
    if op == "SkipLayerNormalization":
        inputs["beta"] = floats(width, kind=kind, seed=3) if beta else None
    inputs["bias"] = floats(width, kind=kind, seed=4) if bias else None
    return Case(op, inputs, ["gamma", "beta", "bias"], outputs, **attributes)


def skip_simplified(**attributes):
    return skip("SkipSimplifiedLayerNormalization", **attributes)


def simplified(shape=(2, 3, 8), gamma=(8,), kind=np.float32, outputs=("y",), **attributes):
    inputs = {"x": floats(*shape, kind=kind), "gamma": floats(*gamma, kind=kind, seed=1)}
    return Case("SimplifiedLayerNormalization", inputs, ["gamma"], outputs, domain="", **attributes)


def activation(op, kind=np.float32, bias=False, **attributes):
    inputs = {"x": floats(2, 3, 8, kind=kind) * kind(3)}
    if bias:
        inputs["bias"] = floats(8, kind=kind, seed=1)
    return Case(op, inputs, ["bias"], **attributes)


def group_norm(activation):
    nodes = [
        helper.make_node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node("GroupNormalization", ["first", "gamma", "beta"], ["normal"], num_groups=4, epsilon=1e-5),
        helper.make_node("Sigmoid", ["normal"], ["gate"]),
        helper.make_node("Mul", ["normal", "gate"], ["swish"]),
        helper.make_node("Transpose", ["swish" if activation else "normal"], ["y"], perm=[0, 2, 3, 1]),
    ]
    inputs = {"x": floats(2, 3, 3, 8), "gamma": floats(8, seed=1), "beta": floats(8, seed=2)}
    return Case(
        "GroupNorm", inputs, ["gamma", "beta"], reference=nodes, groups=4, activation=activation, channels_last=1
    )


def quantize(kind, axis=None, data=np.float32):
    scale = scalar(0.02, data) if axis is None else np.array([0.02, 0.03, 0.04], data)
    zero = scalar(7, kind) if axis is None else np.array([7, 2, 3], kind)
    attributes = {} if axis is None else {"axis": axis}
    inputs = {"x": floats(3, 4, kind=data) * data(2), "scale": scale, "zero": zero}
    return Case("QuantizeLinear", inputs, ["scale", "zero"], **attributes)


def dequantize(kind, axis=None):
    scale = scalar(0.02) if axis is None else np.array([0.02, 0.03, 0.04], np.float32)
    zero = scalar(7, kind) if axis is None else np.array([7, 2, 3], kind)
    attributes = {} if axis is None else {"axis": axis}
    inputs = {"x": integers(kind, 3, 4), "scale": scale, "zero": zero}
    return Case("DequantizeLinear", inputs, ["scale", "zero"], **attributes)


def quantized_sum(kind, shape=(3, 4)):
    inputs = {
        "a": integers(kind, 3, 4), "a_scale": scalar(0.02), "a_zero": scalar(9, kind),
        "b": integers(kind, *shape), "b_scale": scalar(0.03), "b_zero": scalar(3, kind),
        "scale": scalar(0.05), "zero": scalar(11, kind),
    }
    return Case("QLinearAdd", inputs, [name for name in inputs if name not in "ab"])


def quantized_pool(op, kind, **attributes):
    inputs = {
        "x": integers(kind, 1, 2, 4, 4), "x_scale": scalar(0.02), "x_zero": scalar(9, kind),
        "scale": scalar(0.025), "zero": scalar(3, kind),
    }
    return Case(op, inputs, list(inputs)[1:], **attributes)


SUM = ("y", "", "", "sum")
RIGHT = {
    "attention": attention,
    "attention in half precision": lambda: attention(kind=HALF),
    "attention with a mask": lambda: attention(mask=MASK),
    "attention with a scale": lambda: attention(width=6, scale=0.3),
    "attention with a scale and a mask": lambda: attention(mask=MASK, scale=0.4),
    "many heads": many_heads,
    "many heads in half precision": lambda: many_heads(kind=HALF),
    "many heads, more keys": lambda: many_heads(keys=5),
    "many heads, keys by heads": lambda: many_heads(keys=5, crossed=True),
    "many heads with a scale": lambda: many_heads(scale=0.3),
    "rotary": rotary,
    "rotary in half precision": lambda: rotary(kind=HALF),
    "rotary, interleaved": lambda: rotary(interleaved=1),
    "rotary, part of a head": lambda: rotary(size=4, num_heads=2, rotary_embedding_dim=4),
    "rotary, computed caches": lambda: rotary(constants=()),
    "rotary, one token": lambda: rotary(shape=(2, 1, 16)),
    "rotary from an offset": lambda: rotary(positions=np.array([2], np.int64)),
    "rotary, each row elsewhere": lambda: rotary(positions=np.array([[0, 1, 2], [4, 5, 6]], np.int64)),
    "four bits": four_bits,
    "four bits in half precision": lambda: four_bits(kind=HALF),
    "four bits, batch of three": lambda: four_bits(rows=(3, 2)),
    "four bits, blocks of 32": lambda: four_bits(depth=64, block=32),
    "four bits, blocks of 128": lambda: four_bits(depth=128, block=128),
    "four bits, a part of a block": lambda: four_bits(depth=40, block=32),
    "four bits, zero points": lambda: four_bits(zero_points=integers(np.uint8, 6)),
    "four bits, zero points of odd blocks": lambda: four_bits(depth=48, zero_points=integers(np.uint8, 12)),
    # At this level the CPU provider rounds its operands to 8 bits.
    "four bits, accuracy level": lambda: four_bits(accuracy_level=4, tolerance=5e-2),
    "skip": skip,
    "skip in half precision": lambda: skip(kind=HALF, outputs=SUM),
    "skip without beta": lambda: skip(beta=False),
    "skip with a bias": lambda: skip(bias=True, outputs=SUM),
    "skip with an epsilon": lambda: skip(epsilon=0.5),
    "skip for all rows": lambda: skip(other=(1, 3, 8)),
    "skip, simplified": skip_simplified,
    "skip, simplified, in half precision": lambda: skip_simplified(kind=HALF, outputs=SUM),
    "skip, simplified, with the sum": lambda: skip_simplified(outputs=SUM),
    "skip, simplified, of rank 2": lambda: skip_simplified(shape=(3, 8)),
    "skip, simplified, with an epsilon": lambda: skip_simplified(epsilon=0.5),
    "simplified": lambda: simplified(axis=-1),
    "simplified in half precision": lambda: simplified(kind=HALF, axis=-1),
    "simplified, last axis by number": lambda: simplified(shape=(2, 3, 2, 8), axis=3),
    "simplified, no axis": simplified,
    "group norm": lambda: group_norm(0),
    "group norm and swish": lambda: group_norm(1),
    "bias gelu": lambda: activation("BiasGelu", bias=True),
    "bias gelu in half precision": lambda: activation("BiasGelu", HALF, bias=True),
    "fast gelu": lambda: activation("FastGelu"),
    "fast gelu in half precision": lambda: activation("FastGelu", HALF),
    "fast gelu with a bias": lambda: activation("FastGelu", bias=True),
    "gelu": lambda: activation("Gelu"),
    "gelu in half precision": lambda: activation("Gelu", HALF),
    "quick gelu": lambda: activation("QuickGelu"),
    "quick gelu in half precision": lambda: activation("QuickGelu", HALF),
    "quick gelu with an alpha": lambda: activation("QuickGelu", alpha=0.5),
    **{f"quantize to {kind.__name__}": lambda kind=kind: quantize(kind) for kind in (np.uint8, np.int8, np.uint16, np.int16)},
    "quantize along an axis": lambda: quantize(np.uint8, axis=0),
    "quantize half precision": lambda: quantize(np.uint8, data=HALF),
    **{f"dequantize {kind.__name__}": lambda kind=kind: dequantize(kind) for kind in (np.uint8, np.int8, np.uint16, np.int16)},
    "dequantize along an axis": lambda: dequantize(np.int8, axis=0),
    **{f"sum of {kind.__name__}": lambda kind=kind: quantized_sum(kind) for kind in (np.uint8, np.int8)},
    "sum of uint8 and a row": lambda: quantized_sum(np.uint8, (4,)),
    **{
        f"average of all {kind.__name__}": lambda kind=kind: quantized_pool("QLinearGlobalAveragePool", kind)
        for kind in (np.uint8, np.int8)
    },
    **{
        f"averages of {kind.__name__}": lambda kind=kind: quantized_pool(
            "QLinearAveragePool", kind, kernel_shape=[2, 2], strides=[2, 2]
        )
        for kind in (np.uint8, np.int8)
    },
    "averages with padding": lambda: quantized_pool(
        "QLinearAveragePool", np.uint8, kernel_shape=[2, 2], pads=[1, 1, 1, 1]
    ),
    "averages with counted padding": lambda: quantized_pool(
        "QLinearAveragePool", np.int8, kernel_shape=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    ),
}

DECLINED = {
    # Wrong in every row after the first.
    "shared key heads, prompt": lambda: group_query(heads=4, shared=2, cache=8),
    # Wrong in every row of the batch but one.
    "grouped queries, batch of three": lambda: group_query(batch=3, cache=8),
    "grouped queries, a step of a batch": lambda: group_query(batch=3, tokens=1, past=5, cache=8),
    "grouped queries, a second prompt": lambda: group_query(tokens=3, past=5, cache=10),
    "grouped queries in a window": lambda: group_query(cache=8, local_window_size=2),
    # These crash the process.
    "grouped queries without rotary embedding": lambda: group_query(rotary=0, cache=8),
    "grouped queries, a step, a growing cache": lambda: group_query(tokens=1, past=5),
    "attention, heads of another width": lambda: attention(width=6),
    "attention, causal": lambda: attention(unidirectional=1),
    "attention, another mask value": lambda: attention(mask=MASK, mask_filter_value=-1.0),
    "attention, mask of lengths": lambda: attention(mask=np.array([2, 3], np.int32)),
    "attention after a past": lambda: attention(past=floats(2, 2, 2, 4, 4), outputs=("y", "present")),
    "attention with a bias of scores": lambda: attention(bias=floats(2, 2, 3, 3)),
    "many heads, causal": lambda: many_heads(unidirectional=1),
    "many heads with a bias": lambda: many_heads(extra={"bias": floats(24)}),
    "many heads with a mask": lambda: many_heads(extra={"mask": MASK}),
    "many heads with a bias of scores": lambda: many_heads(extra={"attention_bias": floats(2, 2, 3, 3)}),
    "many heads with a present": lambda: many_heads(outputs=("y", "key_out", "value_out")),
    "rotary of rank 4": lambda: rotary(shape=(2, 2, 3, 8)),
    "rotary, heads without a size": lambda: rotary(num_heads=2),
    "eight bits": lambda: four_bits(bits=8),
    "four bits, float zero points": lambda: four_bits(zero_points=floats(12)),
    "four bits with a bias": lambda: four_bits(extra={"g_idx": None, "bias": floats(6)}),
    "skip of rank 2": lambda: skip(shape=(3, 8)),
    "skip with a bias without beta": lambda: skip(bias=True, beta=False),
    "skip, simplified, with a bias": lambda: skip_simplified(bias=True),
    "skip, simplified, lower rank": lambda: skip_simplified(other=(3, 8)),
    "simplified, two axes": lambda: simplified(gamma=(3, 8), axis=1),
    "simplified, two outputs": lambda: simplified(outputs=("y", "deviation"), axis=-1),
    "averages, channels last": lambda: quantized_pool(
        "QLinearAveragePool", np.uint8, kernel_shape=[2, 2], channels_last=1
    ),
    "fused product": lambda: Case("FusedMatMul", {"a": floats(3, 4), "b": floats(4, 5)}),
}


def used(case, outputs):
    """Returns the filled part of caches: the rest has no meaning and is not compared."""
    return [array[:, :, : case.used] if hasattr(case, "used") and array.ndim == 4 else array for array in outputs]


@on_the_real_one
@pytest.mark.parametrize("form", RIGHT)
def test_forms_of_the_table_agree_with_the_cpu_provider(form):
    case = RIGHT[form]()
    with registered() as devices:
        session = session_on(devices, case.model)
        assert ours(session) == [case.op]
        close(session.run(None, case.feeds), case.wanted(), case.tolerance)
        del session


@pytest.mark.parametrize("form", DECLINED)
def test_other_forms_are_left_to_the_cpu_provider(form):
    case = DECLINED[form]()
    with registered() as devices:
        session = session_on(devices, case.model)
        assert ours(session) == []
        close(used(case, session.run(None, case.feeds)), used(case, case.wanted()), case.tolerance)
        del session


def test_every_operator_of_the_table_has_a_case():
    text = TABLE.read_text()
    table = text[text.index("const FORMS") : text.index("const NEVER")]
    operators = set(re.findall(r'microsoft\(\s*"(\w+)"', table)) | set(re.findall(r'op: "(\w+)"', table))
    assert "Attention" in operators and "SimplifiedLayerNormalization" in operators
    assert {case().op for case in RIGHT.values()} == operators


@pytest.mark.environment(AMDGPU_EP_LOG="info")
def test_the_log_says_why_a_form_is_declined(capfd):
    with registered() as devices:
        for case in (group_query(cache=8), rotary(shape=(2, 2, 3, 8))):
            session = session_on(devices, case.model)
            assert ours(session) == []
            del session
    text = capfd.readouterr().err
    assert "GroupQueryAttention: MIGraphX computes it wrongly for batches" in text
    assert "RotaryEmbedding: its input rank is 4; MIGraphX is verified only for 3" in text
