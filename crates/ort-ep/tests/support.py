"""Helpers for the scripts: models of a few nodes, sessions, captured stderr."""
import contextlib
import os
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
OPSET = 20


def value(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def model(nodes, inputs, outputs, constants=None):
    """The bytes of a model; `nodes` are (operator, inputs, outputs)."""
    nodes = [helper.make_node(op, ins, outs, name=f"{op}_{at}") for at, (op, ins, outs) in enumerate(nodes)]
    constants = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9).SerializeToString()


def mul_model(shape=(2, 3)):
    return model([("Mul", ["x", "y"], ["z"])], [value("x", shape), value("y", shape)], [value("z", shape)])


def devices(name):
    return [device for device in ort.get_ep_devices() if device.ep_name == name]


def session(name, model, options=None, entries=None, only=1, prepare=None):
    """A session on the first `only` devices of a provider; no silent fallback."""
    settings = ort.SessionOptions()
    for key, entry in (entries or {}).items():
        settings.add_session_config_entry(key, entry)
    if prepare:
        prepare(settings)
    settings.add_provider_for_devices(devices(name)[:only], options or {})
    return ort.InferenceSession(model, sess_options=settings, enable_fallback=0)


def pair(shape=(2, 3), seed=7):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype(np.float32) for _ in range(2)]


def same(found, wanted):
    np.testing.assert_array_equal(found, wanted)


def error_of(run):
    """The text of the exception that `run` raises."""
    try:
        run()
    except Exception as error:
        return str(error)
    raise AssertionError("succeeded, expected an error")


def expect_error(run, *texts):
    message = error_of(run)
    for text in texts:
        assert text in message, f"{message!r} does not say {text!r}"


@contextlib.contextmanager
def captured_stderr():
    """Captures the process's stderr inside the block, including native code; read the result after the block."""
    lines = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines.append(file.read().decode(errors="replace"))


def is_mapped(library):
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return os.path.basename(library) in maps.read()


def run_checks(*checks):
    """Runs each check, printing its name first: the last one printed is the one that crashed."""
    print(f"onnxruntime {ort.__version__}", flush=True)
    for check in checks:
        print(f"  {check.__name__}", flush=True)
        check()
