"""Shared by the test scripts: the plugin, small models, sessions."""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

LIBRARY, NAME = sys.argv[1], "HipBackend"
VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
FOLDER = tempfile.TemporaryDirectory()


def path(name):
    return os.path.join(FOLDER.name, name)


def value(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def devices():
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME]


def settings(entries=None, prepare=None):
    """Options of a session on the plugin that does not silently fall back."""
    options = ort.SessionOptions()
    for key, entry in (entries or {}).items():
        options.add_session_config_entry(key, entry)
    if prepare:
        prepare(options)
    options.add_provider_for_devices(devices(), {})
    return options


def session(model, entries=None, prepare=None):
    return ort.InferenceSession(model, sess_options=settings(entries, prepare), enable_fallback=0)


def cpu_session(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def network():
    """A serialised model that splits into two partitions, because the engine does not support Det.

    It has weights, attributes of several kinds, an omitted optional input, a dynamic axis, a name that must be escaped
    in JSON, and constants of all sizes.
    """
    generator = np.random.default_rng(5)
    weights = {
        "w": generator.standard_normal((6, 4)).astype(np.float32),
        "b": generator.standard_normal((4,)).astype(np.float32),
        "low": np.float32(-0.5).reshape(()),
        "halves": np.array([2, 2], np.int64),
        "square": np.array([-1, 2, 2], np.int64),
        "big": generator.standard_normal((64, 64)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"], alpha=0.5, name="dense"),
        helper.make_node("Clip", ["g", "low", ""], ["c"], name="clip"),
        helper.make_node("Split", ["c", "halves"], ["left", "right"], axis=1, name="split"),
        helper.make_node("Concat", ["left", "right"], ["both"], axis=1, name="join"),
        helper.make_node("Reshape", ["both", "square"], ["r"], name="shape"),
        helper.make_node("Det", ["r"], ["d"], name="foreign"),
        helper.make_node("ReduceMean", ["big"], ["mean"], keepdims=0, name="mean"),
        helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32(3.0).reshape((1,)), "k")),
        helper.make_node("Mul", ["d", "k"], ["dk"], name="scale"),
        helper.make_node("Add", ["dk", "mean"], ["z"], name="shift"),
        helper.make_node("Cast", ["c"], ["half"], to=TensorProto.FLOAT16, name="narrow \"\\"),
    ]
    graph = helper.make_graph(
        nodes, "network", [value("x", ("n", 6))], [value("z", ("n",)), value("half", ("n", 4), TensorProto.FLOAT16)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def sample(rows=3):
    return {"x": np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)}


def expect_error(run, *texts):
    try:
        run()
    except Exception as error:
        message = str(error)
    else:
        raise AssertionError(f"went through, wanted an error that says {texts}")
    for text in texts:
        assert text in message, f"{message!r} does not say {text!r}"


def run_checks(*checks):
    """Runs each check and prints its name first, so that the last name printed is the check that crashed."""
    print(f"onnxruntime {ort.__version__}", flush=True)
    ort.register_execution_provider_library(NAME, LIBRARY)
    for check in checks:
        print(f"  {check.__name__}", flush=True)
        check()
