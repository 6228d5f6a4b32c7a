"""Sessions on a GPU: creation time with a cold and a warm kernel cache, the host time of a warm run (of a small block
and of two networks), and whether many runs leak memory.

Sessions are created in separate processes, the first with an empty cache. The host time is that of a run that is queued
and not waited for. Memory is the free memory that the driver reports.

usage: AMDGPU_EP_DRIVER=amd python bench/gpu_sessions.py LIBRARY [--tiny] [--runs N] [--option KEY=VALUE ...]
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_models
from networks import bert, resnet50

WARM_RUNS = 200
TINY_RUNS = 12
# The number of runs to queue before waiting for one, so that no run waits for space in the queue.
QUEUED_RUNS = 25
# Drivers round the free memory that they report, and other processes use the device too.
GROWTH_BYTES = 1 << 20


def block(rows=8, size=64):
    """A lookup, a product with a bias, a normalisation and a softmax."""
    rng = np.random.default_rng(7)
    constant = lambda name, *shape: onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "scale", "shift"], ["normal"], axis=-1),
        helper.make_node("Softmax", ["normal"], ["y"], axis=-1),
    ]
    given = [helper.make_tensor_value_info("ids", TensorProto.INT64, [rows])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, size])]
    weights = [constant("table", 100, size), constant("w", size, size), *(constant(name, size) for name in ("bias", "scale", "shift"))]
    graph = helper.make_graph(nodes, "block", given, made, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def on_device(array):
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, gpu_models.AMD)


def free_memory(driver):
    """A function that returns the free bytes on the device; None if there is no way to ask."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if driver == "nvidia":
        names, call = ["libcuda.so.1"], "cuMemGetInfo_v2"
    elif driver == "host":
        beside = os.environ.get("AMDGPU_EP_HIP_HOST_LIBRARY", "")
        names, call = [beside], "hipMemGetInfo"
    else:
        named = os.environ.get("AMDGPU_EP_HIP_LIBRARY", "")
        names, call = [named, "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"], "hipMemGetInfo"
    for name in filter(None, names):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if driver == "nvidia":
            context = ctypes.c_void_p()
            library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            library.cuCtxSetCurrent(context)

        def ask(library=library):
            answered = getattr(library, call)(ctypes.byref(free), ctypes.byref(total)) == 0
            # A driver that reports 0 of 0 bytes does not know how much is free.
            return free.value if answered and total.value else None

        return ask
    return lambda: None


def create(arguments, options):
    """Runs in a separate process: the seconds to create a session and to run it once, and its result."""
    tiny = arguments.tiny
    model = block() if tiny else resnet50.onnx_model(resnet50.weights(), 1)
    feeds = {"ids": np.arange(8)} if tiny else resnet50.inputs(1)
    ort.register_execution_provider_library(gpu_models.NAME, str(arguments.library.resolve()))
    start = time.perf_counter()
    running, _ = gpu_models.session(model, options)
    made = time.perf_counter()
    result = running.run(None, feeds)[0]
    print(json.dumps([made - start, time.perf_counter() - made, result.astype(np.float64).ravel().tolist()]))


def creation(arguments):
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "AMDGPU_EP_CACHE_DIR": cache}
        more = [word for option in arguments.option for word in ("--option", option)]
        command = [sys.executable, __file__, str(arguments.library), "--create", *more, *(["--tiny"] if arguments.tiny else [])]
        results = []
        for cold in ("cold", "warm"):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            made, first, result = json.loads(done.stdout.splitlines()[-1])
            results.append(np.array(result))
            what = "a small block" if arguments.tiny else "ResNet-50, half precision, batch 1"
            print(f"session of {what}, {cold} kernel cache: {made:.3f} s, and its first run {first:.3f} s")
        distance = np.linalg.norm(results[1] - results[0]) / np.linalg.norm(results[0])
        print(f"their results differ by {distance:.1e} of the norm{'' if distance < 1e-2 else ' WRONG'}")
    return bool(distance < 1e-2)


def host_times(running, binding, runs, seconds):
    """The times in microseconds of runs that are queued and not waited for; all work has finished on return."""
    unwaited, times = ort.RunOptions(), []
    unwaited.add_run_config_entry("disable_synchronize_execution_providers", "1")
    # This is the default. Without it, the Python package catches an exception in each run, which takes tens of
    # microseconds.
    unwaited.add_run_config_entry("gpu_graph_id", "0")
    limit = time.monotonic() + seconds
    while len(times) < runs and time.monotonic() < limit:
        start = time.perf_counter_ns()
        running.run_with_iobinding(binding, unwaited)
        times.append((time.perf_counter_ns() - start) / 1000)
        if len(times) % QUEUED_RUNS == 0:
            running.run_with_iobinding(binding)
    running.run_with_iobinding(binding)
    return times


def networks(arguments, options):
    for network in (resnet50, bert):
        if arguments.tiny:
            network.shrink()
        running, _ = gpu_models.session(network.onnx_model(network.weights(), 1), options)
        binding = running.io_binding()
        inputs = {name: on_device(array) for name, array in network.inputs(1).items()}
        for name, value in inputs.items():
            binding.bind_ortvalue_input(name, value)
        made = running.get_outputs()[0]
        result = ort.OrtValue.ortvalue_from_shape_and_type(made.shape, np.float16, "gpu", 0, gpu_models.AMD)
        binding.bind_ortvalue_output(made.name, result)
        warm_ups, count = (3, 5) if arguments.tiny else (WARM_RUNS, 5 * WARM_RUNS)
        host_times(running, binding, warm_ups, arguments.seconds)
        times = host_times(running, binding, count, arguments.seconds)
        print(f"host time of a warm run of {network.NAME}, batch 1: {statistics.median(times):.1f} us, median of {len(times)} runs")


def runs(arguments, options, driver):
    ort.register_execution_provider_library(gpu_models.NAME, str(arguments.library.resolve()))
    running, free = gpu_models.session(block(), options)[0], free_memory(driver)
    binding, ids = running.io_binding(), on_device(np.arange(8))
    result = ort.OrtValue.ortvalue_from_shape_and_type([8, 64], np.float32, "gpu", 0, gpu_models.AMD)
    binding.bind_ortvalue_input("ids", ids)
    binding.bind_ortvalue_output("y", result)
    wanted = ort.InferenceSession(block(), providers=["CPUExecutionProvider"]).run(None, {"ids": np.arange(8)})[0]
    for _ in range(TINY_RUNS if arguments.tiny else WARM_RUNS):
        running.run_with_iobinding(binding)
    before = free()
    times = host_times(running, binding, arguments.runs, arguments.seconds)
    done = len(times)
    np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-4, atol=1e-5)
    print(f"host time of a warm run of a small block: {statistics.median(times):.1f} us, median of {done} runs")
    after = free()
    if before is None or after is None:
        print(f"{done} runs gave the right result; the driver does not report free memory")
        return True
    grown = before - after
    print(f"{done} runs: {grown} bytes of device memory more in use than before{'' if grown <= GROWTH_BYTES else ' TOO MUCH'}")
    return grown <= GROWTH_BYTES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("--tiny", action="store_true", help=f"a small model instead of ResNet-50, and {TINY_RUNS} runs")
    parser.add_argument("--runs", type=int, default=0, help="default: 10000")
    parser.add_argument("--seconds", type=float, default=120, help="stop the runs after this time")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--create", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.runs = arguments.runs or (TINY_RUNS if arguments.tiny else 10_000)
    options = {"profile": "hip", **dict(option.split("=", 1) for option in arguments.option)}
    if arguments.create:
        create(arguments, options)
        return 0
    is_right = creation(arguments)
    is_right &= runs(arguments, options, os.environ.get("AMDGPU_EP_DRIVER", "amd"))
    networks(arguments, options)
    return int(not is_right)


if __name__ == "__main__":
    sys.exit(main())
