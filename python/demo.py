"""Shows the provider working in ONNX Runtime: `cargo xtask demo` runs this.

On a machine without an AMD GPU it says so and goes on with the host device, which is plain memory behind the same
interface. Exits 0 only when everything shown was right.
"""
import argparse
import os
import sys
import time
from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

EP = "AMDGPUExecutionProvider"
AMD = 0x1002


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True, help="path of libamdgpu-ep.so")
    library = os.path.abspath(parser.parse_args().library)

    ort.register_execution_provider_library(EP, library)
    print(f"registered {os.path.basename(library)} in ONNX Runtime {ort.__version__}")
    devices = [device for device in ort.get_ep_devices() if device.ep_name == EP]
    if not devices:
        if os.environ.get("AMDGPU_EP_DRIVER"):
            print(f"no device with AMDGPU_EP_DRIVER={os.environ['AMDGPU_EP_DRIVER']}")
            return 1
        ort.unregister_execution_provider_library(EP)
        print("no AMD GPU was found here: going on with the host device (AMDGPU_EP_DRIVER=host)\n", flush=True)
        os.environ["AMDGPU_EP_DRIVER"] = "host"
        # A new process: the driver is chosen once.
        os.execv(sys.executable, [sys.executable, *sys.argv])

    show_devices(devices)
    good = copies() and model(devices[0])
    ort.unregister_execution_provider_library(EP)
    print("\nunregistered; everything shown was right" if good else "\nsomething shown was WRONG")
    return 0 if good else 1


def show_devices(devices):
    memory = ort.OrtDeviceMemoryType.DEFAULT
    rows = [("device", "arch", "driver", "memory", "vendor")]
    for device in devices:
        metadata = device.ep_metadata
        total = next((int(value) for key, value in metadata.items() if "memory" in key and value.isdigit()), 0)
        info = device.memory_info(memory)
        rows.append(
            (
                str(info.device_id),
                metadata.get("arch", "?"),
                metadata.get("driver", "?"),
                f"{total / 2**30:.1f} GiB",
                f"{info.device_vendor_id:#06x}",
            )
        )
    show("devices", rows)


def copies():
    rows = [("tensor", "bytes", "to the device", "back", "equal")]
    good = True
    for shape, dtype in (((3, 4), np.float32), ((1000, 1000), np.float16), ((1 << 22,), np.int64)):
        array = np.random.default_rng(0).integers(0, 100, size=shape).astype(dtype)
        start = time.perf_counter()
        value = ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, AMD)
        there = time.perf_counter()
        back = value.numpy()
        end = time.perf_counter()
        equal = back.tobytes() == array.tobytes()
        good &= equal
        name = f"{np.dtype(dtype).name}[{', '.join(map(str, shape))}]"
        rows.append((name, f"{array.nbytes:,}", milliseconds(there - start), milliseconds(end - there), yes(equal)))
        del value
    show("copies", rows)
    return good


def model(device):
    """A small network on ours and on the CPU provider alone."""
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((64, 256), dtype=np.float32), rng.standard_normal((256, 10), dtype=np.float32)]
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w0"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w1"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["y"], axis=-1),
        ],
        "demo",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [onnx.numpy_helper.from_array(weight, f"w{index}") for index, weight in enumerate(weights)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    x = rng.standard_normal((32, 64), dtype=np.float32)
    wanted = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

    options = ort.SessionOptions()
    options.add_provider_for_devices([device], {})
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = ort.InferenceSession(proto.SerializeToString(), sess_options=options, enable_fallback=0)
    rows = [("run", "largest difference to the CPU provider", "good")]
    good = True

    def compare(name, result):
        nonlocal good
        difference = float(np.abs(result - wanted).max())
        good &= difference < 1e-5
        rows.append((name, f"{difference:.1e}", yes(difference < 1e-5)))

    compare("numpy in, numpy out", session.run(None, {"x": x})[0])
    source = ort.OrtValue.ortvalue_from_numpy(x, "gpu", 0, AMD)
    target = ort.OrtValue.ortvalue_from_shape_and_type([32, 10], np.float32, "gpu", 0, AMD)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    compare("device in, device out", target.numpy())
    parts = session.get_provider_graph_assignment_info()
    nodes = Counter(part.ep_name for part in parts for _ in part.get_nodes())
    show("a model of 4 nodes", rows)
    placed = ", ".join(f"{count} on {name}" for name, count in sorted(nodes.items()))
    print(f"nodes after optimisation: {placed}")
    del binding, source, target, parts, session
    return good


def show(title, rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(f"\n{title}")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def milliseconds(seconds):
    return f"{seconds * 1000:.2f} ms"


def yes(good):
    return "yes" if good else "NO"


if __name__ == "__main__":
    sys.exit(main())
