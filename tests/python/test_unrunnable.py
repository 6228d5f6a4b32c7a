"""Nodes that this provider declines and that ONNX Runtime's CPU provider cannot run either: the session says so."""
import json

import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import options_for, registered, session_on


def model_of(node, inputs, outputs):
    graph = helper.make_graph([node], "one", inputs, outputs)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def determinant(element):
    """A node that this provider declines in every type."""
    value = helper.make_tensor_value_info
    node = helper.make_node("Det", ["x"], ["y"])
    return model_of(node, [value("x", element, [2, 2])], [value("y", element, [])])


def test_a_node_without_any_kernel_is_named_with_our_reason():
    with registered() as found:
        with pytest.raises(Exception) as error:
            session_on(found[:1], determinant(TensorProto.BFLOAT16))
    text = str(error.value)
    for part in ("1 node cannot run", "Det: ", "CPU provider has no kernel for it with bfloat16", "help: "):
        assert part in text, text
    assert "transformer_memcpy" not in text


def test_the_type_of_the_model_is_named():
    with registered() as found:
        options = options_for(found[:1], model_arch="qwen3_5_text")
        with pytest.raises(Exception, match='of this "qwen3_5_text" model cannot run'):
            ort.InferenceSession(determinant(TensorProto.BFLOAT16), sess_options=options)


def test_what_the_cpu_provider_has_is_left_to_it():
    with registered() as found:
        session_on(found[:1], determinant(TensorProto.FLOAT))


def packed_for_cuda(op):
    """A node whose weights are packed for CUDA, in a form that this provider declines."""
    value = helper.make_tensor_value_info
    if op == "MatMulNBits":
        shapes = {"a": [1, 64], "b": [16, 2, 16], "s": [16, 2], "z": [16, 1]}
        attributes = dict(K=64, N=16, bits=4, block_size=32, weight_prepacked=1)
    else:
        # Nothing says so but the shapes: 128 rows, and 64 columns.
        shapes = {"x": [1, 128], "r": [1, 2], "w": [2, 128, 32], "s": [2, 64], "": None, "v": [2, 64, 64], "t": [2, 128]}
        attributes = dict(k=1, expert_weight_bits=4, use_sparse_mixer=1)
    element = {name: TensorProto.UINT8 if name in "bzwv" else TensorProto.FLOAT for name in shapes}
    node = helper.make_node(op, list(shapes), ["y"], domain="com.microsoft", **attributes)
    inputs = [value(name, element[name], shape) for name, shape in shapes.items() if name]
    return model_of(node, inputs, [value("y", TensorProto.FLOAT, None)])


@pytest.mark.since("1.28")
@pytest.mark.parametrize("op", ["MatMulNBits", "QMoE"])
def test_weights_that_the_cpu_provider_would_misread_are_refused(op):
    with registered() as found:
        with pytest.raises(Exception, match="reads its weights, which are packed for CUDA, as if they were not"):
            session_on(found[:1], packed_for_cuda(op))


@pytest.mark.since("1.28")
def test_a_kernel_that_refuses_its_inputs_is_reported_before_the_run(tmp_path):
    """GroupQueryAttention that returns its scores, which is declined, and with norms, which the CPU provider refuses."""
    value, heads, size = helper.make_tensor_value_info, 2, 16
    names = ["q", "k", "v", "", "", "lengths", "total", *[""] * 7, "q_norm", "k_norm"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "keys", "values", "scores"], "attention", domain="com.microsoft",
        num_heads=heads, kv_num_heads=heads, qk_output=1,
    )
    rows = [value(name, TensorProto.FLOAT, [1, 3, heads * size]) for name in "qkv"]
    lengths = [value("lengths", TensorProto.INT32, [1]), value("total", TensorProto.INT32, [])]
    norms = [value(name, TensorProto.FLOAT, [size]) for name in ("q_norm", "k_norm")]
    outputs = [value("y", TensorProto.FLOAT, [1, 3, heads * size])]
    outputs += [value(name, TensorProto.FLOAT, [1, heads, 3, size]) for name in ("keys", "values")]
    outputs += [value("scores", TensorProto.FLOAT, [1, heads, 3, 3])]
    record = tmp_path / "explain"
    with registered() as found:
        options = options_for(found[:1])
        options.add_session_config_entry("ep.hip.explain_file", str(record))
        session = ort.InferenceSession(model_of(node, rows + lengths + norms, outputs), sess_options=options)
        del session
    (offered,) = [json.loads(line) for line in record.read_text().splitlines()]
    (attention,) = offered["nodes"]
    assert not attention["placed"]
    assert "CPU provider refuses q_norm_weight and k_norm_weight when it runs" in attention["reason"]
