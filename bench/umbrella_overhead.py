"""The overhead of the umbrella in a warm run: libamdgpu-ep.so compared with libhip-backend.so alone.

Both run one small Add on the host driver and take turns in one process, so that a busy machine slows both. The backend
alone uses CPU memory; the umbrella gets tensors on its device, so neither copies anything. Prints the median of each
and the median of the differences between neighbouring rounds.

usage: AMDGPU_EP_DRIVER=host python bench/umbrella_overhead.py FOLDER_OF_LIBRARIES [SECONDS]
"""
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

AMD = 0x1002
RUNS = 200


def one_node():
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [16])
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "one", [value("x"), value("y")], [value("z")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def session(name, library, **options):
    ort.register_execution_provider_library(name, str(library))
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    device = next(device for device in ort.get_ep_devices() if device.ep_name == name)
    settings.add_provider_for_devices([device], options)
    return ort.InferenceSession(one_node(), sess_options=settings, enable_fallback=0)


def bound(running, place):
    binding = running.io_binding()
    values = {name: place(np.full(16, number, np.float32)) for name, number in (("x", 1), ("y", 2), ("z", 0))}
    for name in "xy":
        binding.bind_ortvalue_input(name, values[name])
    binding.bind_ortvalue_output("z", values["z"])
    running.run_with_iobinding(binding)
    np.testing.assert_array_equal(values["z"].numpy(), np.full(16, 3, np.float32))
    return lambda: running.run_with_iobinding(binding)


def microseconds(run):
    start = time.perf_counter_ns()
    for _ in range(RUNS):
        run()
    return (time.perf_counter_ns() - start) / RUNS / 1000


def compare(title, umbrella, alone, seconds):
    pairs = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(pairs) < 20:
        pairs.append((microseconds(umbrella), microseconds(alone)))
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    difference = statistics.median(one - other for one, other in pairs)
    print(f"{title}: {ours:.2f} us through the umbrella, {theirs:.2f} us on the backend alone, difference {difference:+.2f} us"
          f" ({len(pairs)} rounds of {RUNS} runs)")


def main():
    folder, seconds = Path(sys.argv[1]).resolve(), float(sys.argv[2]) if len(sys.argv) > 2 else 5
    umbrella = session("Umbrella", folder / "libamdgpu-ep.so", profile="hip")
    alone = session("Alone", folder / "libhip-backend.so")
    on_device = lambda array: ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, AMD)
    compare("tensors in place", bound(umbrella, on_device), bound(alone, ort.OrtValue.ortvalue_from_numpy), seconds)
    feeds = {name: np.ones(16, np.float32) for name in "xy"}
    # Here ONNX Runtime also copies the tensors to and from the umbrella's device.
    compare("tensors of NumPy", lambda: umbrella.run(None, feeds), lambda: alone.run(None, feeds), seconds)


if __name__ == "__main__":
    main()
