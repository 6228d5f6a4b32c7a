"""Each hook of the SDK panics, and fails if it can: the message is raised as an error or logged, and the next session
works.

usage: faults.py HOOKS_LIBRARY
"""
import gc
import os

import numpy as np
import onnxruntime as ort
import support
from hooks_support import (
    FOLDER, NAME, bound, calls, fault, forget, multiplies, on_device, register, run_options, session, unregister, zeros,
)
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import VERSION, captured_stderr, devices, model, mul_model, pair, value

X, Y = pair()


def whole_life(options=None):
    """Creates a session, runs it and releases it."""
    multiplies(session(mul_model(), options))
    gc.collect()


def own_resources():
    whole_life({"resources": "1"})


def registration():
    register("Faulty")
    unregister("Faulty")


def first_session():
    register()
    try:
        whole_life()
    finally:
        unregister()


def registered_without_a_part():
    """Runtimes that cannot roll back a registration keep a provider with a missing part."""
    if VERSION >= (1, 31):
        return
    for part, missing in (("create_allocator", "create_allocator was told to fail"), ("create_data_transfer", "")):
        unregister()
        with captured_stderr(), fault("fail", f"factory.{part}"):
            register()
        # The sessions create their own.
        whole_life()
        with captured_stderr() as lines:
            support.error_of(device_value)
        assert missing in lines[0], lines


def neighbours():
    """A graph whose values leave the device halfway."""
    nodes = [("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["n"]), ("Mul", ["n", "x"], ["z"])]
    running = session(model(nodes, [value("x", (2, 3))], [value("z", (2, 3))]))
    support.same(running.run(None, {"x": X})[0], -(X * X) * X)


def powers():
    running = session(model([("Pow", ["x", "e"], ["z"])], [value("x", (2, 3)), value("e", (1,))], [value("z", (2, 3))]))
    running.run(None, {"x": np.abs(X), "e": np.array([2], np.float32)})
    del running


def pooled():
    shape = (1, 2, 3, 3)
    pool = model([("GlobalMaxPool", ["x"], ["z"])], [value("x", shape)], [value("z", (1, 2, 1, 1))])
    running = session(pool, {"nhwc": "1"})
    x, _ = pair(shape)
    support.same(running.run(None, {"x": x})[0], x.max(axis=(2, 3), keepdims=True))


def captured():
    running = session(mul_model(), {"capture": "1"})
    binding = bound(running, x=on_device(X), y=on_device(Y), z=on_device(zeros()))
    for _ in range(2):
        running.run_with_iobinding(binding)
    if hasattr(running, "release_captured_graph"):
        running.release_captured_graph(0)


def capture_with_cpu_nodes():
    """Always rejected, by the policy or by the default."""
    nodes = [("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["z"])]
    try:
        session(model(nodes, [value("x", (2, 3))], [value("z", (2, 3))]), {"capture": "1"})
    except Exception as refused:
        assert "capture" in str(refused).lower(), refused


def profiled():
    def prepare(settings):
        settings.enable_profiling = True
        settings.profile_file_prefix = os.path.join(FOLDER.name, "profile")

    running = session(mul_model(), {"profile": "1"}, prepare=prepare)
    multiplies(running)
    running.end_profiling()
    del running


def saved(**more):
    source, path = (os.path.join(FOLDER.name, name) for name in ("source.onnx", "saved.onnx"))
    with open(source, "wb") as file:
        file.write(mul_model())
    if os.path.exists(path):
        os.remove(path)
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": path, **more}
    session(source, {"compiled": "best", "weightless": "all"}, entries=entries)
    return path


def saved_without_weights():
    saved(**{"ep.enable_weightless": "1"})


def saved_by_callback():
    settings = ort.SessionOptions()
    path = os.path.join(FOLDER.name, "callback.onnx")
    settings.add_session_config_entry("ep.context_file_path", path)
    settings.add_provider_for_devices(devices(NAME)[:1], {"compiled": "best", "callbacks": "3"})
    compiler = ort.ModelCompiler(settings, mul_model(), embed_compiled_data_into_model=False)
    compiler.set_ep_context_data_write_func(lambda name, data: None)
    compiler.compile_to_file(path)
    os.remove(path)


def dynamic_options():
    session(mul_model()).set_ep_dynamic_options({"a": "b"})


def synchronised():
    running = session(mul_model())
    bound(running, x=on_device(X), y=on_device(Y), z=on_device(zeros())).synchronize_inputs()


def shrunk():
    running = session(mul_model())
    running.run(None, {"x": X, "y": Y}, run_options(memory__enable_memory_arena_shrinkage="gpu:0"))


def asked_for_compatibility():
    native.get_model_compatibility_for_ep_devices(devices(NAME)[:1], "best")


def asked_for_incompatibility():
    native.get_hardware_device_ep_incompatibility_details(NAME, devices(NAME)[0].device)


def device_value():
    there = on_device(X)
    support.same(there.numpy(), X)
    del there


def environment_stream():
    stream = devices(NAME)[0].create_sync_stream()
    del stream


# The outcome of a fault. Its message is raised; or it cannot be reported, so it is logged and the call continues with
# the default; or the runtime raises its own message, and the log has the hook's.
RAISES, LOGS, EXPLAINS = "raises", "logs", "explains"
# Older runtimes cannot roll back such a registration, so the SDK does not let it fail.
ROLLS_BACK = RAISES if VERSION >= (1, 31) else LOGS
BOTH, PANIC = ("panic", "fail"), ("panic",)
# Hook, kinds of fault, scenario, outcome, and the first version that supports it.
ROWS = [
    ("create", BOTH, registration, RAISES, 24),
    ("factory.vendor", PANIC, registration, RAISES, 24),
    ("factory.version", PANIC, registration, RAISES, 24),
    ("factory.devices", BOTH, registration, RAISES, 24),
    ("factory.create_allocator", BOTH, registration, ROLLS_BACK, 24),
    ("factory.create_data_transfer", BOTH, registration, ROLLS_BACK, 24),
    ("factory.drop", PANIC, registration, LOGS, 24),
    ("factory.kernels", PANIC, first_session, RAISES, 24),
    ("factory.create_ep", BOTH, whole_life, RAISES, 24),
    ("factory.create_allocator", BOTH, whole_life, RAISES, 24),
    ("factory.create_data_transfer", BOTH, whole_life, RAISES, 24),
    ("factory.is_stream_aware", PANIC, whole_life, LOGS, 24),
    ("factory.create_stream", BOTH, whole_life, RAISES, 24),
    ("factory.create_stream", BOTH, environment_stream, RAISES, 24),
    ("factory.model_compatibility", BOTH, asked_for_compatibility, RAISES, 24),
    ("factory.incompatibility", PANIC, asked_for_incompatibility, RAISES, 28),
    ("ep.claim", BOTH, whole_life, LOGS, 24),
    ("ep.compile", BOTH, whole_life, RAISES, 24),
    ("ep.on_run_start", BOTH, whole_life, RAISES, 24),
    ("ep.on_run_end", BOTH, whole_life, RAISES, 24),
    ("ep.set_dynamic_options", BOTH, dynamic_options, RAISES, 24),
    ("ep.sync", BOTH, synchronised, RAISES, 25),
    ("ep.runs_concurrently", PANIC, whole_life, RAISES, 24),
    ("ep.on_session_ready", BOTH, whole_life, RAISES, 27),
    ("ep.default_memory", PANIC, whole_life, RAISES, 24),
    ("ep.available_bytes", PANIC, whole_life, RAISES, 24),
    ("ep.drop", PANIC, whole_life, LOGS, 24),
    ("resources.create_allocator", BOTH, own_resources, RAISES, 24),
    ("resources.create_stream", BOTH, own_resources, RAISES, 24),
    ("layout.preferred", PANIC, pooled, RAISES, 24),
    ("layout.converts", PANIC, pooled, RAISES, 24),
    ("capture.enabled", PANIC, captured, LOGS, 26),
    ("capture.is_captured", PANIC, captured, EXPLAINS, 26),
    ("capture.replay", BOTH, captured, RAISES, 26),
    ("capture.release", BOTH, captured, RAISES, 30),
    ("capture.allows_cpu_shape_nodes", PANIC, capture_with_cpu_nodes, LOGS, 26),
    ("profiling.profiler", BOTH, profiled, LOGS, 25),
    ("profiler.start", BOTH, profiled, LOGS, 25),
    ("profiler.start_event", BOTH, profiled, LOGS, 25),
    ("profiler.stop_event", BOTH, profiled, LOGS, 25),
    ("profiler.end", BOTH, profiled, LOGS, 25),
    ("profiler.drop", PANIC, profiled, LOGS, 25),
    ("compiled.compatibility_info", PANIC, saved, LOGS, 24),
    ("compiled.weightless", PANIC, saved_without_weights, RAISES, 29),
    ("compiled.data_callbacks", PANIC, saved_by_callback, RAISES, 31),
    ("partition.compute", BOTH, whole_life, RAISES, 24),
    ("partition.drop", PANIC, whole_life, LOGS, 24),
    ("kernel.create", BOTH, powers, RAISES, 24),
    ("kernel.compute", BOTH, powers, RAISES, 24),
    ("kernel.drop", PANIC, powers, LOGS, 24),
    ("allocator.alloc", BOTH, whole_life, EXPLAINS, 24),
    ("allocator.alloc", BOTH, device_value, EXPLAINS, 24),
    ("allocator.free", PANIC, whole_life, LOGS, 24),
    ("allocator.free", PANIC, device_value, LOGS, 24),
    ("allocator.shrink", BOTH, shrunk, LOGS, 25),
    ("allocator.drop", PANIC, whole_life, LOGS, 24),
    ("transfer.can_copy", PANIC, whole_life, EXPLAINS, 24),
    ("transfer.copy", BOTH, whole_life, RAISES, 24),
    ("transfer.copy", BOTH, device_value, RAISES, 24),
    ("transfer.drop", PANIC, whole_life, LOGS, 24),
    ("stream.handle", PANIC, whole_life, LOGS, 24),
    ("stream.notification", BOTH, neighbours, RAISES, 24),
    ("stream.flush", BOTH, whole_life, LOGS, 24),
    ("stream.on_run_end", BOTH, whole_life, RAISES, 24),
    ("stream.drop", PANIC, whole_life, LOGS, 24),
    ("notification.activate", BOTH, neighbours, LOGS, 24),
    ("notification.wait_on_host", BOTH, neighbours, LOGS, 24),
    ("notification.drop", PANIC, neighbours, LOGS, 24),
]


def check(kind, hook, scenario, outcome):
    forget()
    text, raised = f"{hook} was told to {kind}", None
    with captured_stderr() as lines, fault(kind, hook):
        try:
            scenario()
        except Exception as error:
            raised = str(error)
        gc.collect()
    # The message that the panic itself prints is not part of the log.
    log = "\n".join(line for line in lines[0].splitlines() if "onnxruntime:" in line)
    assert calls(hook), f"the hook was never called: {calls()}"
    found = RAISES if text in (raised or "") else EXPLAINS if raised else LOGS
    assert found == outcome and (found == RAISES or text in log), f"{found}; raised {raised!r}, logged {log!r}"


def main():
    print(f"onnxruntime {ort.__version__}", flush=True)
    faults = []
    for hook, kinds, scenario, outcome, since in ROWS:
        for kind in kinds:
            if VERSION[1] < since:
                continue
            print(f"  {kind} in {hook}: {scenario.__name__}", end="", flush=True)
            # Two registrations at once would share the allocators of the environment.
            is_first = scenario in (registration, first_session)
            if not is_first and not devices(NAME):
                register()
            try:
                check(kind, hook, scenario, outcome)
                print(f" {outcome}")
                if is_first:
                    register()
                whole_life()
            except Exception as problem:
                print(f" FAILED: {problem}")
                faults.append((kind, hook))
            if is_first:
                unregister()
    registered_without_a_part()
    unregister()
    assert not faults, faults


main()
