"""The examples `first_plugin` and `kernels_ep` in ONNX Runtime: results, and what they decline.

usage: course.py FIRST_PLUGIN KERNELS_EP
"""
import gc
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto
from support import devices, error_of, model, run_checks, same, session, value

FIRST, KERNELS = sys.argv[1:]
ALONE = {"session.disable_cpu_ep_fallback": "1"}
X = np.array([[-2.0, -0.0, 1.5], [np.nan, np.inf, -np.inf]], dtype=np.float32)


def unary(op, element=TensorProto.FLOAT):
    return model([(op, ["x"], ["y"])], [value("x", X.shape, element)], [value("y", X.shape, element)])


def computes(name, op, wanted):
    same(session(name, unary(op), entries=ALONE).run(None, {"x": X})[0], wanted)


def declines(name, op, element):
    """Without the CPU provider, a session with a node that the plugin declines cannot be made."""
    message = error_of(lambda: session(name, unary(op, element), entries=ALONE))
    assert "fallback" in message.lower(), message


def the_first_plugin():
    name = "FirstExecutionProvider"
    ort.register_execution_provider_library(name, FIRST)
    (device,) = devices(name)
    assert device.ep_vendor == "Example", device.ep_vendor
    computes(name, "Relu", np.where(X < 0, np.float32(0), X))
    declines(name, "Relu", TensorProto.DOUBLE)
    declines(name, "Neg", TensorProto.FLOAT)
    gc.collect()
    ort.unregister_execution_provider_library(name)


def the_kernels():
    name = "KernelsExecutionProvider"
    ort.register_execution_provider_library(name, KERNELS)
    computes(name, "Neg", -X)
    computes(name, "Abs", np.abs(X))
    declines(name, "Neg", TensorProto.DOUBLE)
    declines(name, "Relu", TensorProto.FLOAT)
    gc.collect()
    ort.unregister_execution_provider_library(name)


run_checks(the_first_plugin, the_kernels)
