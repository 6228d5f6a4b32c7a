"""The tools of `cargo xtask families`: the rule that judges tokens and scores, and experts as plain nodes."""
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).resolve().parent.parent))

from families import plain  # noqa: E402
from families.judge import verdict  # noqa: E402


def scored(rows):
    return {"tokens": [[int(np.argmax(row)) for row in rows]], "scores": rows}


def moved(rows, by):
    return [[score + by * (-1) ** at for at, score in enumerate(row)] for row in rows]


ROWS = [[0.0, 3.0, 1.0, 2.0], [5.0, 0.0, 1.0, 4.0], [1.0, 2.0, 8.0, 0.0], [2.0, 0.0, 1.0, 7.0], [0.0, 6.0, 1.0, 2.0]]
TOKENS = [1, 0, 2, 3, 1]


@pytest.mark.parametrize("by, near, is_right", [(0.01, 0.1, True), (0.5, 0.1, False), (float("nan"), 0.1, False)])
def test_scores_must_be_close(by, near, is_right):
    assert verdict(scored(ROWS), TOKENS, moved(ROWS, by), near, False)[0] == is_right


def test_other_tokens_are_right_only_at_a_near_tie():
    tied = [*ROWS[:3], [7.0 - 0.001, 0.0, 1.0, 7.0], ROWS[4]]
    other = [1, 0, 2, 0, 2]
    assert verdict(scored(tied), other, moved(tied, 0.01), 0.1, False) == (True, "parts at step 3")
    assert verdict(scored(tied), other, None, 0.1, False)[0]
    assert not verdict(scored(ROWS), other, moved(ROWS, 0.01), 0.1, False)[0]
    assert not verdict(scored(ROWS), other, None, 0.1, False)[0]
    assert not verdict(scored(ROWS), TOKENS[:4], moved(ROWS, 0.0), 0.1, False)[0]


def test_single_steps_of_a_mixture_may_choose_another_expert():
    found = [*ROWS[:4], [9.0, 0.0, 1.0, 2.0]]
    other = [*TOKENS[:4], 0]
    assert verdict(scored(ROWS), other, found, 0.1, True)[0]
    assert not verdict(scored(ROWS), other, found, 0.1, False)[0]
    far = moved(ROWS[:4], 1.0) + [found[4]]
    assert not verdict(scored(ROWS), other, far, 0.1, True)[0]


EXPERTS, HIDDEN, INNER, TOKENS_IN = 3, 64, 32, 5
FORMS = {
    "4 bits, interleaved": (4, dict(activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0,
                                    swiglu_limit=1.5)),
    "8 bits, apart": (8, dict(activation_type="silu")),
}


@pytest.mark.parametrize("form", FORMS)
def test_experts_as_plain_nodes_equal_the_cpu_providers_kernel(form):
    bits, attributes = FORMS[form]
    rng = np.random.default_rng(3)
    columns = INNER * (2 if attributes["activation_type"] == "swiglu" else 1)
    held = []

    def layer(number, rows, depth):
        weights = rng.integers(0, 256, (EXPERTS, rows, depth * bits // 8), np.uint8)
        scales = rng.uniform(0.5, 1.5, (EXPERTS, rows)).astype(np.float32) * 2.0 ** (1 - bits) / 4
        bias = rng.standard_normal((EXPERTS, rows)).astype(np.float32)
        for kind, array in (("w", weights), ("s", scales), ("b", bias)):
            held.append(numpy_helper.from_array(array, f"{kind}{number}"))
        return [f"w{number}", f"s{number}", f"b{number}"]

    inputs = ["x", "r", *layer(1, columns, HIDDEN), *layer(2, HIDDEN, INNER)]
    node = helper.make_node("QMoE", inputs, ["y"], domain="com.microsoft", k=2, expert_weight_bits=bits,
                            normalize_routing_weights=1, **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "experts",
        [value("x", TensorProto.FLOAT, [TOKENS_IN, HIDDEN]), value("r", TensorProto.FLOAT, [TOKENS_IN, EXPERTS])],
        [value("y", TensorProto.FLOAT, [TOKENS_IN, HIDDEN])], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    feeds = {"x": rng.standard_normal((TOKENS_IN, HIDDEN)).astype(np.float32),
             "r": rng.standard_normal((TOKENS_IN, EXPERTS)).astype(np.float32)}

    def run():
        return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]

    wanted = run()
    plain.expand_experts(model.graph)
    assert all(node.op_type != "QMoE" for node in model.graph.node)
    onnx.checker.check_model(model)
    np.testing.assert_allclose(run(), wanted, atol=1e-4 * np.abs(wanted).max())
