"""The engine dequantises 4-bit weights, whatever the granularity of the scales."""
import json

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import options_for, registered

ROWS, COLUMNS = 7, 9


def model(element, scales, **attributes):
    """x @ dequantised weights; with an odd number of weights, half a byte is unused."""
    rng = np.random.default_rng(4)
    low, high = (-8, 8) if element == TensorProto.INT4 else (0, 16)
    weights = rng.integers(low, high, ROWS * COLUMNS).tolist()
    zeros = rng.integers(low, high, int(np.prod(scales))).tolist()
    scale = rng.uniform(0.1, 1, scales).astype(np.float32)
    initializers = [
        helper.make_tensor("w", element, [ROWS, COLUMNS], weights),
        helper.make_tensor("zero", element, scales, zeros),
        helper.make_tensor("scale", TensorProto.FLOAT, scales, scale.flatten()),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["dense"], **attributes),
        helper.make_node("MatMul", ["x", "dense"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", ROWS])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", COLUMNS])]
    graph = helper.make_graph(nodes, "weights", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


@pytest.mark.parametrize("element", [TensorProto.INT4, TensorProto.UINT4], ids=["int4", "uint4"])
@pytest.mark.parametrize(
    ("scales", "attributes"),
    [([], {}), ([COLUMNS], {"axis": 1}), ([3, COLUMNS], {"axis": 0, "block_size": 3})],
    ids=["tensor", "axis", "blocks"],
)
def test_results_equal_the_cpu_provider(element, scales, attributes, tmp_path):
    serialized = model(element, scales, **attributes)
    x = np.random.default_rng(1).standard_normal((5, ROWS)).astype(np.float32)
    plain = ort.SessionOptions()
    # If ONNX Runtime folded the weights, they would never reach a provider.
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = ort.InferenceSession(serialized, plain, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    record = tmp_path / "placement.json"
    with registered() as found:
        options = options_for(found[:1])
        options.graph_optimization_level = plain.graph_optimization_level
        options.add_session_config_entry("ep.hip.explain_file", str(record))
        session = ort.InferenceSession(serialized, sess_options=options, enable_fallback=0)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-5)
        del session
    nodes = json.loads(record.read_text().splitlines()[0])["nodes"]
    assert {node["op"]: node["reason"] for node in nodes} == {"DequantizeLinear": None, "MatMul": None}
