"""A bad request fails alone: the same session runs the next one on our provider.

ONNX Runtime's Python class reacts to `EP_FAIL` by recreating the session on the CPU, permanently. All tests here leave
that fallback on, which is the default.
"""
import json

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

from support import EP, bytes_of, options_for, registered, set_streams

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def ints(*numbers):
    return np.array(numbers, np.int64)


def floats(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def model_of(node, kinds, good, want):
    """A model of one node and a node after it, so that the first is not the output. Its inputs have ranks, but no
    sizes."""

    def value(name, kind, array):
        return helper.make_tensor_value_info(name, kind, [f"{name}_{axis}" for axis in range(np.ndim(array))])

    inputs = [value(f"in{at}", kind, array) for at, (kind, array) in enumerate(zip(kinds, good))]
    nodes = [node, helper.make_node("Neg", ["made"], ["y"], "after")]
    output = value("y", helper.np_dtype_to_tensor_dtype(want.dtype), want)
    return bytes_of(helper.make_graph(nodes, "test", inputs, [output]))


def node(op_type, inputs, **attributes):
    return helper.make_node(op_type, [f"in{at}" for at in range(inputs)], ["made"], "culprit", **attributes)


# The node, the types of its inputs, a good request with its result before the negation, and bad requests.
CASES = {
    "gather": (
        node("Gather", 2), (FLOAT, INT),
        ((floats(4, 3), ints(2, -4)), floats(4, 3)[[2, 0]]),
        [(floats(4, 3), ints(4)), (floats(4, 3), ints(0, -5)), (floats(4, 3), ints(1 << 62))],
    ),
    "gather-nd": (
        node("GatherND", 2), (FLOAT, INT),
        ((floats(4, 3), ints(1, 2).reshape(1, 2)), floats(4, 3)[1:2, 2]),
        [(floats(4, 3), ints(1, 3).reshape(1, 2))],
    ),
    "scatter-nd": (
        node("ScatterND", 3), (FLOAT, INT, FLOAT),
        ((floats(4), ints(1).reshape(1, 1), floats(1)), np.array([0, 0, 2, 3], np.float32)),
        [(floats(4), ints(4).reshape(1, 1), floats(1))],
    ),
    "shapes-that-do-not-fit": (
        node("MatMul", 2), (FLOAT, FLOAT),
        ((floats(2, 3), floats(3, 2)), floats(2, 3) @ floats(3, 2)),
        [(floats(2, 3), floats(4, 2)), (floats(3, 2), floats(3, 2))],
    ),
    "broadcast": (
        node("Add", 2), (FLOAT, FLOAT),
        ((floats(2, 3), floats(1, 3)), floats(2, 3) + floats(1, 3)),
        [(floats(2, 3), floats(2, 2))],
    ),
    "reshape": (
        node("Reshape", 2), (FLOAT, INT),
        ((floats(2, 3), ints(3, -1)), floats(3, 2)),
        [(floats(2, 3), ints(4, -1)), (floats(2, 3), ints(7)), (floats(2, 3), ints(-1, -1)), (floats(2, 3), ints(-2, 3))],
    ),
    "expand": (
        node("Expand", 2), (FLOAT, INT),
        ((floats(1, 3), ints(2, 3)), np.broadcast_to(floats(1, 3), (2, 3))),
        [(floats(2, 3), ints(5, 3)), (floats(1, 3), ints(-1, 3))],
    ),
    "range": (
        node("Range", 3), (INT, INT, INT),
        ((ints(0)[0], ints(4)[0], ints(2)[0]), ints(0, 2)),
        [(ints(0)[0], ints(4)[0], ints(0)[0])],
    ),
}


def feeds_of(arrays):
    return {f"in{at}": np.asarray(array) for at, array in enumerate(arrays)}


def runs_of_ours(profile):
    """Returns how often ONNX Runtime ran a node of our provider."""
    events = json.loads(open(profile).read())
    return sum(event.get("args", {}).get("provider") == EP for event in events if event["name"].endswith("_kernel_time"))


@pytest.mark.parametrize("streams", ["default", "threads"])
@pytest.mark.parametrize("name", CASES)
def test_the_session_runs_the_next_request_on_our_provider(name, streams, monkeypatch, tmp_path):
    set_streams(monkeypatch, streams)
    culprit, kinds, (good, want), bad = CASES[name]
    with registered() as found:
        options = options_for(found)
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
        session = ort.InferenceSession(model_of(culprit, kinds, good, want), sess_options=options)
        made = session._sess
        for request in bad:
            with pytest.raises(InvalidArgument, match="culprit"):
                session.run(None, feeds_of(request))
            assert EP in session.get_providers()
            np.testing.assert_allclose(session.run(None, feeds_of(good))[0], -want)
        assert session._sess is made and EP in session.get_providers()
        # At least once for each good request; a bad one may fail before its node is counted.
        assert runs_of_ours(session.end_profiling()) >= len(bad)
        del session, made


@pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_MEMORY="16M")
def test_a_full_device_fails_one_request_but_not_the_session():
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"], "negate")], "test",
        [helper.make_tensor_value_info("x", FLOAT, ["n"])], [helper.make_tensor_value_info("y", FLOAT, ["n"])],
    )
    with registered() as found:
        session = ort.InferenceSession(bytes_of(graph), sess_options=options_for(found))
        with pytest.raises(Fail, match="Allocation failed"):
            session.run(None, {"x": floats(5 << 20)})
        assert EP in session.get_providers()
        np.testing.assert_array_equal(session.run(None, {"x": floats(5)})[0], -floats(5))
        del session
