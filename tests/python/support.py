"""What the tests share: the library, registrations, small models, and what a process holds."""
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
# The driver of a test's process; outside of it, where tests are skipped, the one that it will get (conftest.py).
ON_HOST = os.environ.get(
    "AMDGPU_EP_DRIVER" if "AMDGPU_EP_TEST_CHILD" in os.environ else "AMDGPU_EP_TEST_DRIVER", "host"
) == "host"

HOST_ACCESSIBLE = ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
DEFAULT = ort.OrtDeviceMemoryType.DEFAULT


# ONNX Runtime lists the devices of every registration by address, out of a list that registering and unregistering change:
# no other thread may do either while one reads them.
LISTING = threading.Lock()


@contextlib.contextmanager
def registered(name=EP, library=None):
    """The library registered under `name` for the length of the block; gives its devices."""
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
    """A session that fails rather than going to the CPU provider alone when ours cannot be made."""
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
    """Runs `work(number)` on so many threads at once; what one of them raises fails the test."""
    sys.setswitchinterval(1e-6)  # threads that change places often meet in more places
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
    # Python lets go of a thread a moment before the system does.
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/self/task/{number}") for number in ids) and time.monotonic() < deadline:
        time.sleep(0.001)
    gc.collect()
    assert not failures, "\n".join(failures)


def mapped_libraries():
    """How often each of our libraries is mapped, by path."""
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
