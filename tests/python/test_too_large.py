"""Requests and models that are too large are refused at planning, with the number of bytes, and the session
survives."""
import time

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, InvalidGraph

from support import EP, bytes_of, options_for, registered

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_MEMORY="64M")

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def ints(*numbers):
    return np.array(numbers, np.int64)


def model_of(nodes, inputs, rank, constants=()):
    """A model of `nodes`; `inputs` are (name, type, shape), and the output is called y."""
    given = [helper.make_tensor_value_info(*each) for each in inputs]
    made = [helper.make_tensor_value_info("y", FLOAT, [f"y{axis}" for axis in range(rank)])]
    stored = [numpy_helper.from_array(array, name) for name, array in constants]
    return bytes_of(helper.make_graph(nodes, "test", given, made, stored))


def expand(then=None, rank=2):
    """y = then(Expand(x, to)), where each request sets the shape."""
    nodes = [helper.make_node("Expand", ["x", "to"], ["big" if then else "y"], "repeat")]
    nodes += [helper.make_node(then, ["big"], ["y"], "behind", keepdims=0)] if then else []
    return model_of(nodes, [("x", FLOAT, ["n"]), ("to", INT, ["rank"])], 0 if then else rank)


def refused(session, feeds, error, *words):
    """Checks that the request fails at once with an error that contains all words, and that the session keeps our
    provider."""
    start = time.monotonic()
    with pytest.raises(error) as raised:
        session.run(None, feeds)
    assert time.monotonic() - start < 10
    missing = [word for word in words if word not in str(raised.value)]
    assert not missing, raised.value
    assert EP in session.get_providers()


X = np.ones(1, np.float32)
TEBI = 1 << 40


@pytest.mark.parametrize("then", ["ReduceMax", "ReduceSum", "ReduceMean"])
def test_a_huge_expand_into_a_reduction_is_refused_instead_of_running_for_hours(then):
    with registered() as found:
        session = ort.InferenceSession(expand(then), sess_options=options_for(found))
        refused(session, {"x": X, "to": ints(TEBI)}, InvalidArgument, "behind", str(4 * TEBI), str(4 * (64 << 20)))
        # Three times the device's memory, but never materialised.
        big = 48 << 20
        assert session.run(None, {"x": X, "to": ints(big)})[0] == (big if then == "ReduceSum" else 1)
        del session


def test_a_result_that_does_not_fit_is_refused_with_its_bytes_and_those_of_the_device():
    with registered() as found:
        session = ort.InferenceSession(expand(), sess_options=options_for(found))
        refused(session, {"x": X, "to": ints(2, TEBI)}, InvalidArgument, "repeat", str(8 * TEBI), str(64 << 20), "help:")
        refused(session, {"x": X, "to": ints(2, 12 << 20)}, InvalidArgument, str(96 << 20))
        assert session.run(None, {"x": X, "to": ints(2, 3)})[0].shape == (2, 3)
        del session


def test_an_overflow_is_reported_as_one():
    with registered() as found:
        session = ort.InferenceSession(expand(), sess_options=options_for(found))
        for to in ((TEBI, TEBI), (1 << 31, 1 << 31), (2, (1 << 63) - 1)):
            refused(session, {"x": X, "to": ints(*to)}, InvalidArgument, "repeat", "more than 2^63 bytes")
        del session


def test_small_operands_with_a_huge_result():
    nodes = [helper.make_node("Add", ["a", "b"], ["sum"], "outer"), helper.make_node("ReduceMax", ["sum"], ["y"], keepdims=0)]
    model = model_of(nodes, [("a", FLOAT, ["n", 1]), ("b", FLOAT, [1, "m"])], 0)
    with registered() as found:
        session = ort.InferenceSession(model, sess_options=options_for(found))
        half = np.ones((1 << 18, 1), np.float32)
        refused(session, {"a": half, "b": half.T}, InvalidArgument, "outer", str(1 << 38))
        assert session.run(None, {"a": half[:5], "b": half.T})[0] == 2
        del session


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Range", "Tile", "Pad", "OneHot", "Resize"])
def test_other_operators_with_huge_results(operator):
    huge = {
        "ConstantOfShape": {"in0": ints(TEBI)},
        "Range": {f"in{at}": np.array(number, np.float32) for at, number in enumerate((0, TEBI, 1))},
        "Tile": {"in0": X, "in1": ints(TEBI)},
        "Pad": {"in0": X, "in1": ints(0, TEBI - 1)},
        "OneHot": {"in0": ints(0), "in1": ints(TEBI), "in2": np.array([0, 1], np.float32)},
        "Resize": {"in0": X, "in3": ints(TEBI)},
    }[operator]
    names = {"Resize": ["in0", "", "", "in3"]}.get(operator, list(huge))
    rank = 2 if operator == "OneHot" else 1
    nodes = [helper.make_node(operator, names, ["big"], "maker"), helper.make_node("Neg", ["big"], ["y"])]
    given = [(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in huge.items()]
    with registered() as found:
        session = ort.InferenceSession(model_of(nodes, given, rank), sess_options=options_for(found))
        refused(session, huge, InvalidArgument, str(4 * TEBI))
        del session


@pytest.mark.parametrize("then", ["ReduceMax", None])
def test_a_model_whose_own_numbers_are_too_large_is_an_invalid_graph(then):
    nodes = [helper.make_node("Expand", ["x", "to"], ["big" if then else "y"], "repeat")]
    nodes += [helper.make_node(then, ["big"], ["y"], "behind", keepdims=0)] if then else []
    model = model_of(nodes, [("x", FLOAT, [1])], 0 if then else 1, [("to", ints(TEBI))])
    with registered() as found:
        start = time.monotonic()
        session = ort.InferenceSession(model, sess_options=options_for(found))
        refused(session, {"x": X}, InvalidGraph, str(4 * TEBI))
        assert time.monotonic() - start < 20
        del session
