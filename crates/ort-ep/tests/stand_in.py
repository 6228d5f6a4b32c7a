"""The `stand_in` example in ONNX Runtime: it behaves like the plugin it stands in for, or reports why it cannot.

usage: stand_in.py STAND_IN DEVICE_EP
"""
import gc
import os
import sys

import onnxruntime as ort
from support import VERSION, captured_stderr, devices, expect_error, is_mapped, mul_model, pair, run_checks, same, session

STAND_IN, PLUGIN = sys.argv[1:]
NAME, VARIABLE = "StandIn", "STAND_IN_LIBRARY"


def register(name=NAME):
    ort.register_execution_provider_library(name, STAND_IN)


def unregister(name=NAME):
    gc.collect()
    ort.unregister_execution_provider_library(name)


def multiplies(name=NAME):
    x, y = pair()
    running = session(name, mul_model(), entries={"session.disable_cpu_ep_fallback": "1"})
    same(running.run(None, {"x": x, "y": y})[0], x * y)


def a_missing_file_is_named():
    os.environ[VARIABLE] = "/no/such/libelsewhere.so"
    expect_error(register, "/no/such/libelsewhere.so", "could not load the plugin device_ep", "help:", VARIABLE)
    assert not devices(NAME)


def a_library_that_is_no_plugin_is_named():
    os.environ[VARIABLE] = "libm.so.6"
    expect_error(register, "libm.so.6", "CreateEpFactories", "help:", VARIABLE)
    assert not devices(NAME)


def the_right_path_works_after_that():
    os.environ[VARIABLE] = PLUGIN
    with captured_stderr() as lines:
        register()
    assert lines == [""], lines
    (device,) = devices(NAME)
    assert device.ep_vendor == "Example"
    multiplies()
    unregister()


def the_plugin_beside_it_is_found():
    del os.environ[VARIABLE]
    register()
    multiplies()


def two_names_share_one_plugin():
    register("Second")
    multiplies("Second")
    unregister("Second")
    multiplies()
    unregister()


def the_plugin_stays_mapped_without_a_factory():
    # It may link a runtime whose threads would crash if it were unmapped.
    assert is_mapped(PLUGIN)


def fifty_times_in_and_out():
    for _ in range(50):
        register()
        unregister()
    assert is_mapped(PLUGIN)


def unregistering_under_a_live_session_is_survived():
    # See device_ep.py.
    if VERSION < (1, 28):
        return
    register()
    x, y = pair()
    running = session(NAME, mul_model())
    ort.unregister_execution_provider_library(NAME)
    same(running.run(None, {"x": x, "y": y})[0], x * y)
    del running
    gc.collect()
    register()
    multiplies()
    unregister()


run_checks(
    a_missing_file_is_named, a_library_that_is_no_plugin_is_named, the_right_path_works_after_that,
    the_plugin_beside_it_is_found, two_names_share_one_plugin, the_plugin_stays_mapped_without_a_factory,
    fifty_times_in_and_out, unregistering_under_a_live_session_is_survived,
)
