"""The `device_ep` example in ONNX Runtime: results, placement, memory, threads and lifetimes.

usage: device_ep.py LIBRARY
"""
import gc
import sys
import threading

import numpy as np
import onnxruntime as ort
from onnx import TensorProto
from support import (
    VERSION, captured_stderr, devices, error_of, is_mapped, model, mul_model, pair, run_checks, same, session, value,
)

LIBRARY, NAME = sys.argv[1], "MulExecutionProvider"
VENDOR = 0xF00D
ALONE = {"session.disable_cpu_ep_fallback": "1"}


def register(name=NAME):
    ort.register_execution_provider_library(name, LIBRARY)


def unregister(name=NAME):
    gc.collect()
    ort.unregister_execution_provider_library(name)


def on_device(array):
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, VENDOR)


def negotiation_prints_nothing():
    with captured_stderr() as lines:
        register()
    assert lines == [""], lines


def one_device_is_offered():
    (device,) = devices(NAME)
    assert device.ep_vendor == "Example" and device.ep_metadata["speed"] == "modest", device.ep_metadata
    assert device.device.vendor_id == VENDOR and device.device.metadata["is_virtual"] == "1"


def results_are_numpys():
    x, y = pair()
    running = session(NAME, mul_model(), entries=ALONE)
    same(running.run(None, {"x": x, "y": y})[0], x * y)
    # Neighbours stay on the CPU, so values cross the device boundary in both directions; one of them is a constant.
    nodes = [
        ("Add", ["x", "y"], ["a"]), ("Mul", ["a", "w"], ["m"]),
        ("Sub", ["m", "y"], ["s"]), ("Mul", ["s", "x"], ["z"]),
    ]
    shape, weight = (2, 3), np.arange(6, dtype=np.float32).reshape(2, 3)
    mixed = model(nodes, [value("x", shape), value("y", shape)], [value("z", shape)], {"w": weight})
    running = session(NAME, mixed)
    for seed in range(3):
        x, y = pair(seed=seed)
        same(running.run(None, {"x": x, "y": y})[0], ((x + y) * weight - y) * x)


def nodes_are_where_they_should_be():
    shape = (2, 3)
    nodes = [("Mul", ["x", "y"], ["m"]), ("Add", ["m", "y"], ["z"])]
    both = model(nodes, [value("x", shape), value("y", shape)], [value("z", shape)])
    running = session(NAME, both, entries={"session.record_ep_graph_assignment_info": "1"})
    groups = running.get_provider_graph_assignment_info()
    placed = {node.op_type: group.ep_name for group in groups for node in group.get_nodes()}
    assert placed == {"Mul": NAME, "Add": "CPUExecutionProvider"}, placed
    message = error_of(lambda: session(NAME, both, entries=ALONE))
    assert "fallback" in message, message
    doubles = [value(name, shape, TensorProto.DOUBLE) for name in "xyz"]
    wide = model([("Mul", ["x", "y"], ["z"])], doubles[:2], doubles[2:])
    message = error_of(lambda: session(NAME, wide, entries=ALONE))
    assert "fallback" in message, message


def a_square_has_one_input():
    shape = (4, 5)
    square = model([("Mul", ["x", "x"], ["z"])], [value("x", shape)], [value("z", shape)])
    x, _ = pair(shape)
    same(session(NAME, square, entries=ALONE).run(None, {"x": x})[0], x * x)


def tensors_without_elements_pass():
    running = session(NAME, mul_model(("n", 3)), entries=ALONE)
    for rows in (0, 2, 0, 1):
        x, y = pair((rows, 3))
        same(running.run(None, {"x": x, "y": y})[0], x * y)


def device_values_come_back_as_they_went():
    for array in (pair()[0], np.arange(5, dtype=np.int64), np.array(3, np.uint8), np.zeros((0, 4), np.float32)):
        there = on_device(array)
        assert there.device_name() != "cpu", there.device_name()
        same(there.numpy(), array)
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32, "gpu", 0, VENDOR)
    if hasattr(ort, "copy_tensors"):
        source, back = pair((2, 4))[0], ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 4), np.float32))
        ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(source)], [empty])
        ort.copy_tensors([empty], [back])
        same(back.numpy(), source)


def bound_buffers_are_used():
    running = session(NAME, mul_model(), entries=ALONE)
    x, y = pair()
    out = on_device(np.zeros((2, 3), np.float32))
    binding = running.io_binding()
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_input("y", on_device(y))
    binding.bind_ortvalue_output("z", out)
    for _ in range(3):
        binding.synchronize_inputs()
        running.run_with_iobinding(binding)
        binding.synchronize_outputs()
    same(out.numpy(), x * y)
    binding = running.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("y", x)
    binding.bind_output("z")
    running.run_with_iobinding(binding)
    same(binding.copy_outputs_to_cpu()[0], x * x)


def values_outlive_their_session():
    running = session(NAME, mul_model())
    kept = on_device(pair()[0])
    del running
    gc.collect()
    same(kept.numpy(), pair()[0])


def threads_do_not_disturb_each_other():
    shared, faults = session(NAME, mul_model(("n", 64))), []

    def work(seed):
        try:
            own = session(NAME, mul_model(("n", 64)))
            for step in range(20):
                x, y = pair((1 + (seed + step) % 5, 64), seed * 100 + step)
                for running in (own, shared):
                    same(running.run(None, {"x": x, "y": y})[0], x * y)
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults


def two_names_at_once():
    register("Second")
    x, y = pair()
    for name in (NAME, "Second"):
        running = session(name, mul_model(), entries={**ALONE, "session.record_ep_graph_assignment_info": "1"})
        assert [group.ep_name for group in running.get_provider_graph_assignment_info()] == [name]
        same(running.run(None, {"x": x, "y": y})[0], x * y)
        del running
    unregister("Second")
    same(session(NAME, mul_model()).run(None, {"x": x, "y": y})[0], x * y)


def the_name_can_be_given_as_a_provider():
    if VERSION >= (1, 25):
        running = ort.InferenceSession(mul_model(), providers=[NAME])
        assert running.get_providers()[0] == NAME, running.get_providers()


def unregistering_lets_go():
    unregister()
    assert not devices(NAME)
    if sys.platform == "linux":
        # Older runtimes keep every plugin mapped.
        assert is_mapped(LIBRARY) == (VERSION < (1, 27))


def fifty_times_in_and_out():
    x, y = pair()
    for turn in range(50):
        register()
        if turn % 10 == 0:
            same(session(NAME, mul_model()).run(None, {"x": x, "y": y})[0], x * y)
        unregister()


def names_that_can_not_be_used_are_refused():
    # Last, because the runtime forgets to unload a library that failed to register.
    register()
    assert NAME in error_of(register)
    assert "name is empty" in error_of(lambda: register(" "))
    x, y = pair()
    same(session(NAME, mul_model()).run(None, {"x": x, "y": y})[0], x * y)
    unregister()


def unregistering_under_a_live_session_is_survived():
    # Before 1.28, a session of ONNX Runtime reads its `OrtEpDevice` when it is destroyed, after unregistering freed it:
    # valgrind shows the read in every run, and whether it crashes is up to chance. From 1.28 on it does not read it.
    if VERSION < (1, 28):
        return
    for _ in range(2):
        register()
        running, kept = session(NAME, mul_model(("n", 3))), on_device(pair()[0])
        x, y = pair((3, 3))
        same(running.run(None, {"x": x, "y": y})[0], x * y)
        with captured_stderr() as lines:
            ort.unregister_execution_provider_library(NAME)
        assert "it stays loaded for them" in lines[0], lines
        assert not devices(NAME)
        x, y = pair((7, 3), seed=8)
        same(running.run(None, {"x": x, "y": y})[0], x * y)
        del running, kept
        gc.collect()
    register()
    same(session(NAME, mul_model(("n", 3))).run(None, {"x": x, "y": y})[0], x * y)
    unregister()


run_checks(
    negotiation_prints_nothing, one_device_is_offered, results_are_numpys, nodes_are_where_they_should_be,
    a_square_has_one_input, tensors_without_elements_pass, device_values_come_back_as_they_went, bound_buffers_are_used,
    values_outlive_their_session, threads_do_not_disturb_each_other, two_names_at_once,
    the_name_can_be_given_as_a_provider, unregistering_lets_go, fifty_times_in_and_out,
    names_that_can_not_be_used_are_refused, unregistering_under_a_live_session_is_survived,
)
