"""Passes: fired passes are recorded, passes can be disabled, and every stage can be dumped."""
import json
import os

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

from support import cpu_session, path, run_checks, session, value

ALL = (
    *("no-ops", "common-subexpressions", "dead-code", "layer-norm", "rms-norm", "gelu", "silu", "attention", "merged-products"),
    *("fused", "folded", "epilogues", "normed-products", "rotary-append", "append-attention"),
)


def transformer():
    """A serialised model with LayerNormalization, SiLU and attention, each spelled out in basic operators."""
    generator = np.random.default_rng(3)
    weights = {
        "axes": np.array([-1], np.int64),
        "two": np.float32(2),
        "epsilon": np.float32(1e-5),
        "scale": generator.standard_normal(8).astype(np.float32),
        "bias": generator.standard_normal(8).astype(np.float32),
        "heads": np.array([0, 0, 2, 4], np.int64),
        "joined": np.array([0, 0, 8], np.int64),
    }
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"]),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("Pow", ["centred", "two"], ["square"]),
        helper.make_node("ReduceMean", ["square", "axes"], ["variance"]),
        helper.make_node("Add", ["variance", "epsilon"], ["sum"]),
        helper.make_node("Sqrt", ["sum"], ["root"]),
        helper.make_node("Div", ["centred", "root"], ["part"]),
        helper.make_node("Mul", ["part", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["normal"]),
        helper.make_node("Reshape", ["normal", "heads"], ["split"]),
        helper.make_node("Transpose", ["split"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["split"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Div", ["scores", "two"], ["small"]),
        helper.make_node("Softmax", ["small"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "q"], ["seen"]),
        helper.make_node("Transpose", ["seen"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "joined"], ["flat"]),
        helper.make_node("Sigmoid", ["flat"], ["gate"]),
        helper.make_node("Mul", ["flat", "gate"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "transformer", [value("x", ("n", "s", 8))], [value("y", ("n", "s", 8))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model.SerializeToString()


def feeds():
    return {"x": np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32)}


def as_written(options):
    """Disables ONNX Runtime's optimisations, which fuse some of these patterns too."""
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL


def outputs(entries):
    """The output of a session, and how often each pass fired."""
    record = path(f"record{len(os.listdir(os.path.dirname(path('x'))))}")
    running = session(transformer(), {**entries, "ep.hip.explain_file": record}, as_written)
    (output,) = running.run(None, feeds())
    with open(record, encoding="utf-8") as opened:
        lines = [json.loads(line) for line in opened]
    (passes,) = [line["passes"] for line in lines if "passes" in line]
    return output, passes


def what_fires_is_recorded_and_right():
    output, passes = outputs({})
    for name in ("layer-norm", "silu", "attention"):
        assert passes[name] == 1, passes
    (wanted,) = cpu_session(transformer()).run(None, feeds())
    np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


def passes_are_switched_off_by_name():
    with_all, _ = outputs({})
    output, passes = outputs({"ep.hip.disable_passes": "layer-norm, Attention"})
    assert "layer-norm" not in passes and "attention" not in passes and passes["silu"] == 1, passes
    np.testing.assert_allclose(output, with_all, rtol=1e-4, atol=1e-5)
    try:
        outputs({"ep.hip.disable_passes": "layer-norm,no-such-pass"})
        raise AssertionError("an unknown pass was accepted")
    except RuntimeError as error:
        assert "unknown pass no-such-pass" in str(error) and "attention" in str(error), error
    output, passes = outputs({"ep.hip.disable_passes": ",".join(ALL)})
    assert passes == {}, passes
    np.testing.assert_allclose(output, with_all, rtol=1e-4, atol=1e-5)


def stages_are_written_into_the_folder():
    folder = path("stages/of/it")
    outputs({"ep.hip.dump_dir": folder})
    names = sorted(os.listdir(folder))
    stages = [name.rsplit(".", 2)[1].split("-", 1)[1] for name in names]
    assert stages[0] == "imported" and stages[-1] == "plan-0-placed", names
    for stage in ("layer-norm", "silu", "attention", "plan-0-lowered", "plan-0-fused"):
        assert stage in stages, names
    with open(os.path.join(folder, names[-1]), encoding="utf-8") as opened:
        text = opened.read()
    assert "# LayerNormalization" in text and "arena of" in text, text


run_checks(what_fires_is_recorded_and_right, passes_are_switched_off_by_name, stages_are_written_into_the_folder)
