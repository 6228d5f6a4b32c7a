"""Faults on a GPU and recovery from them: each case runs in its own process, which must return in time.

- memory: a run that needs more memory than the device has fails with a status; the session still gives right results
afterwards.
- threads: two sessions on two threads, each with its own stream, give right results.
- lost: a kernel that reads unmapped memory fails its run with a status, and later runs fail too. Only this process
  loses the device. The host driver has no such fault, and an emulated device may not have it: then the case says so.
  HIP 6 and older abort the process, which fails the case.

With --tiny, no run has more than 2^16 elements to compute, so that none starts a million threads: an emulated GPU
executes every one of them.

usage: AMDGPU_EP_DRIVER=amd python bench/gpu_faults.py LIBRARY [--tiny] [--only memory,threads,lost]
"""
import argparse
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_models

FLOAT = TensorProto.FLOAT
CASES = ("memory", "threads", "lost")
SECONDS = int(os.environ.get("AMDGPU_EP_TEST_SECONDS", "120"))
# A kernel has at most one thread for each element that it reads or writes, and a model here has up to four kernels.
TINY_ELEMENTS = 1 << 16
# Nothing is mapped in the first pages of an address space.
UNMAPPED = 4096


def sized(elements, tiny):
    """The number of elements of a run, which must suit a slow device if it is tiny."""
    if tiny and elements > TINY_ELEMENTS:
        raise AssertionError(f"a tiny run computes {elements} elements; the most is {TINY_ELEMENTS}")
    return elements


def outer():
    """The largest element of each row of x·xᵀ, which has the square of x's number of elements."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["wide"]), helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0]),
             helper.make_node("MatMul", ["wide", "turned"], ["square"]), helper.make_node("ReduceMax", ["square"], ["y"], axes=[1])]
    weights = [numpy_helper.from_array(np.array([[2.0]], np.float32), "w")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "outer", [value("x", FLOAT, ["n", 1])], [value("y", FLOAT, ["n", 1])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def total():
    """Twice the sum of x."""
    nodes = [helper.make_node("Add", ["x", "x"], ["twice"]), helper.make_node("ReduceSum", ["twice"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "total", [value("x", FLOAT, ["n", 1])], [value("y", FLOAT, [1, 1])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def expected(x):
    # A row is 2·x[i]·x[j]: the largest element is at one end or the other.
    return np.maximum(2 * x * x.max(), 2 * x * x.min())


def sessions(library, options):
    ort.register_execution_provider_library(gpu_models.NAME, str(library.resolve()))
    return lambda model: gpu_models.session(model, options)[0]


def memory(made, tiny):
    running = made(outer())
    x = np.random.default_rng(1).standard_normal((64, 1), np.float32)
    np.testing.assert_allclose(running.run(None, {"x": x})[0], expected(x), rtol=1e-5)
    # The square of 2^20 elements is 4 TiB: more memory than any device, or the host of a rehearsal, has.
    large = np.ones((1 << 20, 1), np.float32)
    for _ in range(2):
        try:
            running.run(None, {"x": large})
        except Exception as error:
            print(f"memory: {str(error)[:400]}")
        else:
            raise AssertionError("a run with 4 TiB between its steps did not fail")
        np.testing.assert_allclose(running.run(None, {"x": x})[0], expected(x), rtol=1e-5)


def threads(made, tiny):
    failures = []

    def work(seed):
        random = np.random.default_rng(seed)
        running = made(outer())
        for _ in range(3 if tiny else 300):
            rows = int(random.integers(1, 200))
            sized(rows * rows, tiny)
            x = random.standard_normal((rows, 1), np.float32)
            try:
                np.testing.assert_allclose(running.run(None, {"x": x})[0], expected(x), rtol=1e-5)
            except Exception as error:
                failures.append(error)
                return

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    print("threads: two sessions on two threads were right")


def lost(made, tiny):
    if os.environ.get("AMDGPU_EP_DRIVER") == "host":
        print("lost: skipped, the host driver reads the process's own memory")
        return
    running = made(total())
    value, result = (ort.OrtValue.ortvalue_from_numpy(np.ones((1, 1), np.float32), "gpu", 0, gpu_models.AMD) for _ in range(2))
    device = ort.OrtDevice.make("gpu", 0, gpu_models.AMD)._get_c_device()
    binding = running.io_binding()
    binding.bind_ortvalue_output("y", result)
    # 4 GiB, starting at an allocation of a few bytes; tiny: 4 KiB where nothing is mapped.
    elements, address = (1024, UNMAPPED) if tiny else (1 << 30, value.data_ptr())
    binding._iobinding.bind_input("x", device, np.float32, [sized(elements, tiny), 1], address)
    for _ in range(2):
        try:
            running.run_with_iobinding(binding)
        except Exception as error:
            print(f"lost: {str(error)[:400]}")
        else:
            if os.environ.get("AMDGPU_EP_DRIVER") == "nvidia":
                raise AssertionError("a kernel read unmapped memory, and its run did not fail")
            print("lost: the device read unmapped memory without an error")
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--tiny", action="store_true", help="few runs, for slow devices")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.case:
        options = {"profile": "hip", **dict(option.split("=", 1) for option in given.option)}
        globals()[given.case](sessions(given.library, options), given.tiny)
        sys.stdout.flush()
        # A lost device cannot release anything.
        os._exit(0)
    failed = False
    for case in given.only.split(","):
        try:
            done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--case", case], timeout=SECONDS)
            if done.returncode:
                print(f"{case}: FAILED with exit code {done.returncode}")
            failed |= done.returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
            print(f"{case}: FAILED, still running after {SECONDS} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
