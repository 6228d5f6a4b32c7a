"""OpenVINO's plugin as a backend of the umbrella: a third-party library on the host driver, in stock ONNX Runtime.

    python tests/third_party.py --library libamdgpu-ep.so --plugin libonnxruntime_providers_openvino_plugin.so

Every node has to run on the plugin, and results are compared with those of ONNX Runtime's CPU provider.
"""
import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

arguments = argparse.ArgumentParser()
arguments.add_argument("--library", required=True)
arguments.add_argument("--plugin", required=True)
arguments = arguments.parse_args()
os.environ["AMDGPU_EP_LIBRARY"] = os.path.abspath(arguments.library)
os.environ["AMDGPU_EP_DRIVER"] = "host"
# The user of this script chooses the plugin to load.
os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
sys.path.insert(0, str(Path(__file__).parent / "python"))

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from support import EP, affine, affine_model, bytes_of, empty_on_device, on_device, options_for, registered, sample

PLUGIN = os.path.abspath(arguments.plugin)
# As the plugin describes its own devices. It offers none on CPUs of other vendors, but still runs on them.
OPTIONS = {"backend_library": PLUGIN, "backend_device": "ov_device=CPU"}
# On some CPUs it would otherwise compute in bfloat16.
FLOAT32 = ("ep.openvinoexecutionprovider.load_config", '{"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}')


def session(model, found, **options):
    settings = options_for(found[:1], **(options or OPTIONS))
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    settings.add_session_config_entry(*FLOAT32)
    return ort.InferenceSession(model, sess_options=settings, enable_fallback=0)


def convolutions():
    """Two convolutions with a residual connection, pooling and a classifier."""
    random = np.random.default_rng(7)
    weights = {
        "w1": random.standard_normal((16, 3, 3, 3)) * 0.2,
        "b1": random.standard_normal(16) * 0.1,
        "w2": random.standard_normal((16, 16, 3, 3)) * 0.1,
        "w3": random.standard_normal((16, 10)) * 0.3,
    }
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], **pads),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], **pads),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return bytes_of(graph), random.standard_normal((2, 3, 32, 32)).astype(np.float32)


def same_as_cpu(model, x, found):
    want = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    running = session(model, found)
    assert running.get_providers()[0] == EP, running.get_providers()
    for _ in range(3):
        np.testing.assert_allclose(running.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)
    # With tensors that stay on the device, the plugin reads and writes the umbrella's memory.
    binding, y = running.io_binding(), empty_on_device(want.shape, np.float32)
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_output("y", y)
    running.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=1e-5)
    return np.abs(running.run(None, {"x": x})[0] - want).max()


with registered() as found:
    model, x = convolutions()
    worst = max(same_as_cpu(affine_model(), sample(), found), same_as_cpu(model, x, found))
    # Together with a session of the hip backend, created in either order.
    ours = session(affine_model(), found, profile="hip")
    theirs = session(affine_model(), found)
    np.testing.assert_allclose(
        ours.run(None, {"x": sample()})[0], theirs.run(None, {"x": sample()})[0], rtol=1e-4, atol=1e-5
    )
    try:
        session(affine_model(), found, backend_library=PLUGIN)
    except Exception as error:
        assert "ov_device" in str(error), error
    else:
        raise AssertionError("without backend_device, the plugin's device is ambiguous")
    del ours, theirs

    def sessions():
        for _ in range(3):
            np.testing.assert_allclose(session(affine_model(), found).run(None, {"x": sample()})[0], affine(sample()), atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        for worker in [pool.submit(sessions) for _ in range(4)]:
            worker.result()
print(f"OpenVINO's plugin behind {EP} in ONNX Runtime {ort.__version__}: right, largest difference {worst:.1e}")
