"""If, Loop and Scan on the device: results equal the CPU provider's, and values stay on the device."""
import json

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import bytes_of, options_for, registered, set_streams

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
value = helper.make_tensor_value_info
node = helper.make_node


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def body(name, nodes, inputs, outputs, constants=()):
    return helper.make_graph(nodes, name, inputs, outputs, list(constants))


def model_of(nodes, inputs, outputs, constants=(), opset=21):
    return bytes_of(helper.make_graph(nodes, "flow", inputs, outputs, list(constants)), opset)


def branches():
    """An If whose condition is computed on the device, with branches that read outer values."""
    yes = body("yes", [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["p"])], [], [value("p", FLOAT, ["n", 3])])
    no = body("no", [node("MatMul", ["x", "w"], ["b"]), node("Exp", ["b"], ["q"])], [], [value("q", FLOAT, ["n", 3])])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["flag"]),
        node("If", ["flag"], ["chosen"], "choice", then_branch=yes, else_branch=no), node("Add", ["chosen", "chosen"], ["y"]),
    ]
    constants = [constant("w", np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)), constant("zero", np.float32(0))]
    return model_of(nodes, [value("x", FLOAT, ["n", 4])], [value("y", FLOAT, ["n", 3])], constants)


def loop():
    """A Loop with a state and one output per iteration, which ends early if the state grows."""
    inner = body(
        "step",
        [
            node("Mul", ["state", "factor"], ["next"]), node("Add", ["next", "x"], ["row"]),
            node("ReduceMax", ["next"], ["most"], keepdims=0), node("Less", ["most", "limit"], ["again"]),
        ],
        [value("i", INT, []), value("going", BOOL, []), value("state", FLOAT, [4])],
        [value("again", BOOL, []), value("next", FLOAT, [4]), value("row", FLOAT, [4])],
        [constant("factor", np.float32(1.5)), constant("limit", np.float32(20))],
    )
    nodes = [node("Neg", ["x"], ["start"]), node("Loop", ["count", "go", "start"], ["last", "rows"], "repeat", body=inner)]
    inputs = [value("count", INT, []), value("go", BOOL, []), value("x", FLOAT, [4])]
    return model_of(nodes, inputs, [value("last", FLOAT, [4]), value("rows", FLOAT, ["steps", 4])])


def scan(**attributes):
    """A Scan over two inputs with a running sum."""
    inner = body(
        "step",
        [
            node("Mul", ["a", "b"], ["product"]), node("Add", ["sum", "product"], ["total"]),
            node("Tanh", ["total"], ["out"]),
        ],
        [value("sum", FLOAT, [3]), value("a", FLOAT, [3]), value("b", FLOAT, [3])],
        [value("total", FLOAT, [3]), value("out", FLOAT, [3])],
    )
    nodes = [node("Scan", ["start", "p", "q"], ["last", "rows"], "sweep", body=inner, num_scan_inputs=2, **attributes)]
    inputs = [value("start", FLOAT, [3]), value("p", FLOAT, ["n", 3]), value("q", FLOAT, ["n", 3])]
    return model_of(nodes, inputs, [value("last", FLOAT, [3]), value("rows", FLOAT, ["n", 3])])


def nested():
    """A Loop in a branch of an If."""
    step = body(
        "step", [node("Mul", ["state", "x"], ["next"]), node("Identity", ["going"], ["again"])],
        [value("i", INT, []), value("going", BOOL, []), value("state", FLOAT, [4])],
        [value("again", BOOL, []), value("next", FLOAT, [4])],
    )
    yes = body("yes", [node("Loop", ["count", "", "x"], ["power"], "inner", body=step), node("Neg", ["power"], ["p"])],
               [], [value("p", FLOAT, [4])])
    no = body("no", [node("Exp", ["x"], ["q"])], [], [value("q", FLOAT, [4])])
    nodes = [node("If", ["flag"], ["y"], "outer", then_branch=yes, else_branch=no)]
    return model_of(nodes, [value("flag", BOOL, []), value("count", INT, []), value("x", FLOAT, [4])],
                    [value("y", FLOAT, [4])])


def ragged(count=3):
    """A Loop whose output has one element less in each iteration."""
    inner = body(
        "step",
        [node("Slice", ["state", "one", "end", "zero"], ["next"]), node("Neg", ["next"], ["row"]),
         node("Identity", ["going"], ["again"])],
        [value("i", INT, []), value("going", BOOL, []), value("state", FLOAT, ["n"])],
        [value("again", BOOL, []), value("next", FLOAT, ["n"]), value("row", FLOAT, ["m"])],
        [constant("one", np.array([1])), constant("end", np.array([99])), constant("zero", np.array([0]))],
    )
    nodes = [node("Exp", ["x"], ["start"]), node("Loop", ["count", "", "start"], ["last", "rows"], "repeat", body=inner)]
    return model_of(nodes, [value("x", FLOAT, ["n"])], [value("last", FLOAT, ["k"]), value("rows", FLOAT, ["s", "m"])],
                    [constant("count", np.array(count))])


def random(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def check(model, feeds, folder, names, **given):
    """Compares every run with the CPU provider, and checks that the nodes `names` are on the device. Returns the answer
    for every node by name: whether it is, and the reason if not."""
    cpu = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    record = folder / "placement"
    with registered() as found:
        options = options_for(found[:1], **given)
        options.add_session_config_entry("ep.hip.explain_file", str(record))
        session = ort.InferenceSession(model, sess_options=options, enable_fallback=0)
        for feed in feeds:
            for ours, wanted in zip(session.run(None, feed), cpu.run(None, feed), strict=True):
                assert ours.shape == wanted.shape and ours.dtype == wanted.dtype
                np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-5)
        del session
    nodes = [node for line in record.read_text().splitlines() for node in json.loads(line).get("nodes", [])]
    placed = {node["name"]: (node["placed"], node["reason"]) for node in nodes}
    assert {name: placed[name] for name in names} == dict.fromkeys(names, (True, None))
    return placed


@pytest.mark.parametrize("streams", ["default", "threads"])
def test_branches_and_their_outer_values(streams, monkeypatch, tmp_path):
    set_streams(monkeypatch, streams)
    feeds = [{"x": sign * np.abs(random(rows, 4, seed=rows))} for sign in (1, -1) for rows in (1, 5, 1)]
    check(branches(), feeds, tmp_path, ["choice"])


@pytest.mark.parametrize("streams", ["default", "threads"])
def test_loops_that_end_early_late_or_at_once(streams, monkeypatch, tmp_path):
    set_streams(monkeypatch, streams)
    feed = {"x": -np.abs(random(4)) - 0.1}
    runs = [(5, True), (40, True), (1, True), (0, True), (5, False), (5, True)]
    feeds = [{**feed, "count": np.array(count, np.int64), "go": np.array(go)} for count, go in runs]
    check(loop(), feeds, tmp_path, ["repeat"])


@pytest.mark.parametrize("attributes", [{}, {"scan_input_directions": [1, 0], "scan_output_directions": [1]}])
def test_scans_in_both_directions(attributes, tmp_path):
    feeds = [{"start": random(3), "p": random(rows, 3, seed=2), "q": random(rows, 3, seed=3)} for rows in (6, 1, 9)]
    check(scan(**attributes), feeds, tmp_path, ["sweep"])


def test_a_loop_in_a_branch(tmp_path):
    runs = [(True, 3), (False, 3), (True, 0), (True, 7)]
    feeds = [{"flag": np.array(flag), "count": np.array(count, np.int64), "x": random(4)} for flag, count in runs]
    check(nested(), feeds, tmp_path, ["outer", "inner"])


def test_bodies_with_other_nodes_stay_with_the_cpu_provider(tmp_path):
    """Det is declined, here of a stack of matrices of one row and one column."""
    wide = [node("Unsqueeze", ["b", "axes"], ["c"]), node("Det", ["c"], ["q"])]
    yes = body("yes", [node("Relu", ["x"], ["p"])], [], [value("p", FLOAT, ["n", 1])])
    axes = constant("axes", np.array([2, 3], np.int64))
    no = body("no", [node("Exp", ["x"], ["b"]), *wide], [], [value("q", FLOAT, ["n", 1])], [axes])
    model = model_of([node("If", ["flag"], ["y"], "choice", then_branch=yes, else_branch=no)],
                     [value("flag", BOOL, []), value("x", FLOAT, ["n", 1])], [value("y", FLOAT, ["n", 1])])
    feeds = [{"flag": np.array(flag), "x": random(3, 1)} for flag in (True, False)]
    placed = check(model, feeds, tmp_path, [])
    assert placed["choice"] == (False, "nodes of its bodies are not on the device: 1")


def test_an_option_keeps_nodes_with_bodies_on_the_cpu_provider(tmp_path):
    placed = check(branches(), [{"x": random(2, 4)}], tmp_path, [], cpu_control_flow=1)
    assert not placed["choice"][0]


def test_a_loop_whose_output_changes_its_shape_is_an_error():
    model, feed = ragged(), {"x": random(6)}
    cpu = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    with registered() as found:
        session = ort.InferenceSession(model, sess_options=options_for(found[:1]), enable_fallback=0)
        with pytest.raises(Exception, match="(?i)shape"):
            cpu.run(None, feed)
        with pytest.raises(Exception, match="(?i)shape"):
            session.run(None, feed)
        del session


def test_loops_with_empty_outputs(tmp_path):
    check(ragged(1), [{"x": random(1)}, {"x": random(4)}], tmp_path, ["repeat"])


def test_branches_that_return_strings_stay_with_the_cpu_provider(tmp_path):
    def branch(name, op, word):
        strings = helper.make_tensor("word", TensorProto.STRING, [1], [word])
        nodes = [node(op, ["x"], [f"{name}_y"]), node("Constant", [], [f"{name}_word"], value=strings)]
        return body(name, nodes, [], [value(f"{name}_y", FLOAT, [4]), value(f"{name}_word", TensorProto.STRING, [1])])

    choice = node("If", ["flag"], ["y", "label"], "choice", then_branch=branch("yes", "Relu", b"cat"),
                  else_branch=branch("no", "Exp", b"dog"))
    model = model_of([choice], [value("flag", BOOL, []), value("x", FLOAT, [4])],
                     [value("y", FLOAT, [4]), value("label", TensorProto.STRING, [1])])
    cpu = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    with registered() as found:
        session = ort.InferenceSession(model, sess_options=options_for(found[:1]), enable_fallback=0)
        for flag in (True, False):
            feed = {"flag": np.array(flag), "x": random(4)}
            for ours, wanted in zip(session.run(None, feed), cpu.run(None, feed), strict=True):
                assert ours.dtype == wanted.dtype
                if wanted.dtype == object:
                    assert ours.tolist() == wanted.tolist()
                else:
                    np.testing.assert_allclose(ours, wanted, rtol=1e-6)
        del session
