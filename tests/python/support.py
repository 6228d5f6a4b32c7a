"""Shared test helpers: the library, registrations, small models, and the resources of the process."""
import contextlib
import gc
import os
import sys
import threading
import time
import traceback

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

LIBRARY = os.environ.get("AMDGPU_EP_LIBRARY", "")
EP = "AMDGPUExecutionProvider"
AMD = 0x1002
RELEASE = tuple(int(part) for part in ort.__version__.split(".")[:2])
# The driver of the test's process. In the outer process, which decides about skips, the driver that it will get
# (conftest.py).
ON_HOST = os.environ.get(
    "AMDGPU_EP_DRIVER" if "AMDGPU_EP_TEST_CHILD" in os.environ else "AMDGPU_EP_TEST_DRIVER", "host"
) == "host"

HOST_ACCESSIBLE = ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
DEFAULT = ort.OrtDeviceMemoryType.DEFAULT


# ONNX Runtime returns pointers to devices from a list that registering and unregistering change. No other thread may do
# either while one reads the devices.
LISTING = threading.Lock()


@contextlib.contextmanager
def registered(name=EP, library=None):
    """Registers the library under `name` for the duration of the block, and yields its devices."""
    with LISTING:
        ort.register_execution_provider_library(name, library or LIBRARY)
    try:
        yield devices(name)
    finally:
        gc.collect()
        with LISTING:
            ort.unregister_execution_provider_library(name)


def devices(name=EP):
    with LISTING:
        return [device for device in ort.get_ep_devices() if device.ep_name == name]


def on_device(array, index=0):
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", index, AMD)


def empty_on_device(shape, dtype, index=0):
    return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, "gpu", index, AMD)


def set_streams(monkeypatch, mode):
    """`threads` makes the host driver run all stream work on workers after random delays."""
    if mode != "default":
        monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", mode)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def options_for(chosen, **options):
    result = ort.SessionOptions()
    result.log_severity_level = 3
    result.add_provider_for_devices(chosen, {key: str(value) for key, value in options.items()})
    return result


def session_on(chosen, model, **options):
    """Creates a session, and fails instead of falling back to the CPU provider if ours cannot be created."""
    return ort.InferenceSession(model, sess_options=options_for(chosen, **options), enable_fallback=0)


def affine_model(rows="rows"):
    """y = relu(x @ w + b), with x of shape [rows, 4] and y of shape [rows, 3]."""
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    bias = np.array([0.5, -0.25, 0.125], dtype=np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
            helper.make_node("Add", ["product", "b"], ["sum"], "sum"),
            helper.make_node("Relu", ["sum"], ["y"], "relu"),
        ],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 3])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(bias, "b")],
    )
    return bytes_of(graph)


def affine(x):
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    bias = np.array([0.5, -0.25, 0.125], dtype=np.float32)
    return np.maximum(x.astype(np.float64) @ weight + bias, 0).astype(np.float32)


def bytes_of(graph, opset=17):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    onnx.checker.check_model(model)
    return model.SerializeToString()


def sample(rows=5):
    return np.random.default_rng(rows).standard_normal((rows, 4), dtype=np.float32)


def on_threads(count, work):
    """Runs `work(number)` on `count` threads at once; an exception in any of them fails the test."""
    sys.setswitchinterval(1e-6)  # frequent switches expose more races
    failures, ids = [], []

    def guarded(number):
        ids.append(threading.get_native_id())
        try:
            work(number)
        except Exception:
            failures.append(f"thread {number}: {traceback.format_exc()}")

    workers = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # A joined thread may exist in the system for a moment longer.
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/self/task/{number}") for number in ids) and time.monotonic() < deadline:
        time.sleep(0.001)
    gc.collect()
    assert not failures, "\n".join(failures)


def mapped_libraries():
    """Returns how often each of our libraries is mapped, by path."""
    with open("/proc/self/maps") as maps:
        paths = [line.split(maxsplit=5)[5].strip() for line in maps if line.count("/") > 0]
    ours = [path for path in paths if "amdgpu-ep" in path or "hip-host" in path]
    return {path: ours.count(path) for path in ours}


def open_files():
    return len(os.listdir("/proc/self/fd"))


def threads():
    return len(os.listdir("/proc/self/task"))


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
