"""Tests every hook of the SDK: ONNX Runtime calls it, passes the expected arguments, and respects its result.

usage: hooks.py HOOKS_LIBRARY
"""
import json
import os
import threading

import numpy as np
import onnx
import onnxruntime as ort
from hooks_support import (
    FOLDER, NAME, VENDOR, bound, calls, forget, multiplies, on_device, register, run_options, session, unregister,
    zeros,
)
from onnx import TensorProto
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import VERSION, devices, error_of, expect_error, model, mul_model, pair, run_checks, same, value


def registration():
    register("Seen.virtual")
    assert f"create Seen.virtual api={VERSION[1]}" in calls("create"), calls()
    assert calls("factory.devices")[0].endswith("virtual=true"), calls()
    unregister("Seen.virtual")
    assert "factory.drop" in calls()
    forget()
    register()
    assert calls("factory.devices")[0].endswith("virtual=false"), calls()
    memories = [f"{memory}{device}" for device in (0, 1) for memory in ("Default", "HostAccessible")]
    assert calls("factory.create_allocator") == [f"factory.create_allocator {memory}" for memory in memories], calls()
    assert calls("factory.create_data_transfer") and not calls("factory.create_ep")
    first, second = devices(NAME)
    assert (first.ep_vendor, first.ep_metadata["version"]) == ("Hooks", "1.2.3-hooks+1")
    assert first.ep_metadata["place"] == "slot 0" and first.ep_options == {"from_device": "default"}
    assert (second.device.device_id, second.device.vendor_id, second.device.metadata["number"]) == (1, VENDOR, "1")


def options_reach_the_session():
    forget()
    running = session(mul_model(), {"größe": "zwölf"}, entries={"my.entry": "mine"})
    assert "factory.create_ep slot 0" in calls()
    entries = calls("entry")
    for wanted in ("ep.hooks.größe=zwölf", "ep.hooks.from_device=default", "my.entry=mine"):
        assert f"entry {wanted}" in entries, entries
    multiplies(running)


def a_run_is_ordered_on_streams():
    running = session(mul_model(), entries={"session.disable_cpu_ep_fallback": "1"})
    forget()
    multiplies(running)
    seen = calls()
    order = [
        "ep.on_run_start", "factory.create_stream 0", "allocator.alloc Default0 24 stream=true",
        "transfer.copy Cpu0->Gpu0 stream=true", "partition.compute Mul Gpu0 stream=true",
        "transfer.copy Gpu0->Cpu0 stream=true", "ep.on_run_end sync=true id=0", "stream.on_run_end 0", "stream.flush 0",
    ]
    at = [seen.index(line) for line in order]
    assert at == sorted(at), seen
    del running
    assert {"stream.drop", "partition.drop", "ep.drop", "transfer.drop", "allocator.drop"} <= set(calls()), calls()


def host_neighbours_are_notified():
    nodes = [("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["n"]), ("Mul", ["n", "x"], ["z"])]
    running = session(model(nodes, [value("x", (2, 3))], [value("z", (2, 3))]))
    forget()
    x, _ = pair()
    same(running.run(None, {"x": x})[0], -(x * x) * x)
    seen = calls()
    assert {"stream.notification 0", "notification.activate 0", "notification.wait_on_host 0"} <= set(seen), seen
    assert not calls("notification.wait_on_device"), seen
    assert all("Gpu0" in line for line in calls("partition.compute")), seen
    del running
    assert len(calls("notification.drop")) == len(calls("stream.notification"))


def run_options_and_dynamic_options():
    running = session(mul_model())
    x, y = pair()
    forget()
    running.run(None, {"x": x, "y": y}, run_options(hooks__tag="täg", disable_synchronize_execution_providers="1"))
    assert "ep.on_run_start täg" in calls() and "ep.on_run_end sync=false id=0" in calls(), calls()
    running.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient", "a": "ü"})
    (seen,) = calls("ep.set_dynamic_options")
    assert '("ep.dynamic.workload_type", "Efficient")' in seen and '("a", "ü")' in seen, seen


def kernels_run_node_by_node():
    nodes = [("Pow", ["x", "e"], ["p"]), ("Shape", ["p"], ["s"]), ("Mul", ["p", "p"], ["z"])]
    outputs = [value("z", ("n", 3)), value("s", (2,), TensorProto.INT64)]
    powers = model(nodes, [value("x", ("n", 3)), value("e", (1,))], outputs)
    running = session(powers, entries={"session.disable_cpu_ep_fallback": "1"})
    assert "kernel.create Pow Pow_0" in calls(), calls()
    forget()
    x = np.abs(pair()[0])
    z, shape = running.run(None, {"x": x, "e": np.array([2], np.float32)})
    np.testing.assert_allclose(z, x**4, rtol=1e-5)
    same(shape, [2, 3])
    assert "kernel.compute Gpu Cpu" in calls() and "kernel.shape true" in calls(), calls()
    del running
    assert "kernel.drop" in calls()


def synchronising_waits():
    running = session(mul_model())
    forget()
    binding = bound(running, x=on_device(pair()[0]), y=on_device(pair()[1]), z=on_device(zeros()))
    binding.synchronize_inputs()
    binding.synchronize_outputs()
    assert len(calls("ep.sync")) == (2 if VERSION >= (1, 25) else 0), calls()


def runs_one_at_a_time_where_asked():
    running, faults = session(mul_model(), {"serial": "1"}), []
    assert "ep.runs_concurrently false" in calls()
    forget()

    def work():
        try:
            for _ in range(10):
                multiplies(running)
        except BaseException as problem:
            faults.append(problem)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not faults, faults
    inside = 0
    for line in calls("ep.on_run_"):
        inside += 1 if "start" in line else -1
        assert inside in (0, 1), "two runs at once"


def a_session_has_allocators_and_streams_of_its_own():
    forget()
    multiplies(session(mul_model(), {"resources": "1"}))
    assert not calls("factory.create_allocator") and not calls("factory.create_stream"), calls()
    assert "resources.create_allocator Default0" in calls() and "resources.create_stream 0" in calls(), calls()


def arena_options_and_shrinking():
    forget()
    running = session(mul_model(), {"arena.extend_strategy": "1"})
    x, y = pair()
    if VERSION < (1, 25):
        return
    assert "factory.create_allocator Default0 arena.extend_strategy=1" in calls(), calls()
    running.run(None, {"x": x, "y": y}, run_options(memory__enable_memory_arena_shrinkage="gpu:0"))
    assert "allocator.shrink Default0" in calls(), calls()


def channels_last():
    shape = (2, 3, 4, 5)
    pool = model([("GlobalMaxPool", ["x"], ["z"])], [value("x", shape)], [value("z", (2, 3, 1, 1))])
    x, _ = pair(shape)
    for choice in (None, "1", "ask"):
        forget()
        running = session(pool, {"nhwc": choice} if choice else {})
        same(running.run(None, {"x": x})[0], x.max(axis=(2, 3), keepdims=True))
        claims, op = calls("ep.claim"), calls("partition.compute")[0]
        if choice:
            assert "layout.preferred" in calls() and "layout.converts :GlobalMaxPool Nhwc" in calls(), calls()
            assert len(claims) == 2 and "com.ms.internal.nhwc:GlobalMaxPool" in claims[1], claims
            assert "channels_last: true" in op, op
        else:
            assert len(claims) == 1 and not calls("layout.") and "channels_last: false" in op, calls()


def graph_capture():
    if VERSION < (1, 26):
        multiplies(session(mul_model(), {"capture": "2"}))
        assert not calls("capture."), calls()
        return
    running = session(mul_model(), {"capture": "2"})
    binding = bound(running, x=on_device(pair()[0]), y=on_device(pair()[1]), z=on_device(zeros()))

    def run(graph):
        forget()
        running.run_with_iobinding(binding, run_options(gpu_graph_id=str(graph)))
        return len(calls("partition.compute")), calls("capture.replay")

    for graph in (0, 7):
        # ONNX Runtime repeats the user's first run until the graph is captured; after that nothing is computed any
        # more.
        assert run(graph) == (2, []), calls()
        assert run(graph) == (0, [f"capture.replay {graph}"]), calls()
        assert bool(calls("ep.sync")) == (VERSION >= (1, 28)) and not calls("ep.on_run_start"), calls()
    for _ in range(3):
        # Graph -1 is never captured, and the plugin is not even called.
        computed, replayed = run(-1)
        assert (computed, replayed) == (1, []) and "capture.is_captured -1" not in calls(), calls()
    if VERSION >= (1, 27) and hasattr(running, "release_captured_graph"):
        forget()
        running.release_captured_graph(7)
        assert calls("capture.release") == ["capture.release 7"], calls()
        assert run(7) == (2, [])
    on_cpu = model([("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["z"])], [value("x", (2, 3))], [value("z", (2, 3))])
    error_of(lambda: session(on_cpu, {"capture": "1"}))
    assert calls("capture.allows_cpu_shape_nodes"), calls()


def default_memory():
    forget()
    running = session(mul_model(), {"default_device": "1"}, only=2 if VERSION >= (1, 27) else 1)
    forget()
    multiplies(running)
    device = "Gpu1" if VERSION >= (1, 27) else "Gpu0"
    assert calls("partition.compute") == [f"partition.compute Mul {device} stream=true"], calls()


def the_session_is_ready():
    forget()
    running = session(mul_model())
    assert len(calls("ep.on_session_ready")) == (1 if VERSION >= (1, 27) else 0), calls()
    del running


def profiling():
    forget()

    def prepare(settings):
        settings.enable_profiling = True
        settings.profile_file_prefix = os.path.join(FOLDER.name, "profile")

    running = session(mul_model(), {"profile": "1"}, prepare=prepare)
    multiplies(running)
    with open(running.end_profiling(), encoding="utf-8") as file:
        events = [event for event in json.load(file) if event["name"] == "hooks_kernel"]
    if VERSION < (1, 25):
        assert not events and not calls("profil"), calls()
        return
    (event,) = events
    assert (event["cat"], event["ts"], event["dur"], event["ph"]) == ("Kernel", 11, 5, "X"), event
    assert event["args"]["größe"] == "1" and "model_run/" in event["args"]["seen"], event
    assert "_kernel_time/" in event["args"]["seen"], event
    assert "profiler.start true" in calls() and calls("profiler.start_event"), calls()
    del running
    assert "profiler.drop" in calls()
    forget()
    quiet = session(mul_model(), {"profile": "1"})
    multiplies(quiet)
    assert calls("profil") == ["profiling.profiler"], calls("profil")


def compile_settings(options, **entries):
    settings = ort.SessionOptions()
    for key, entry in entries.items():
        settings.add_session_config_entry(key, entry)
    settings.add_provider_for_devices(devices(NAME)[:1], options)
    return settings


def compiled_model_is_ours(path, embedded):
    saved = onnx.load(path)
    nodes = [node for node in saved.graph.node if node.op_type == "EPContext"]
    assert [node.op_type for node in saved.graph.node] == ["EPContext", "Neg", "EPContext"], saved
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in nodes[0].attribute}
    assert attributes["source"].decode() == NAME and attributes["notes"].decode() == "größe", attributes
    assert attributes["embed_mode"] == embedded and attributes["main_context"] == 1, attributes
    if embedded:
        assert attributes["ep_cache_context"] == b"\0\xff\n\0Mul", attributes
    metadata = {entry.key: entry.value for entry in saved.metadata_props}
    assert metadata.get(f"ep_compatibility_info.{NAME}") == "best", metadata
    forget()
    running = session(path, {"compiled": "best"})
    x, _ = pair()
    same(running.run(None, {"x": x})[0], -(x * x) * x)
    assert "com.microsoft:EPContext" in calls("ep.claim")[0], calls()


def compiled_models():
    source = os.path.join(FOLDER.name, "source.onnx")
    nodes = [("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["n"]), ("Mul", ["n", "x"], ["z"])]
    with open(source, "wb") as file:
        file.write(model(nodes, [value("x", (2, 3))], [value("z", (2, 3))]))
    ours = {"compiled": "best"}
    for embedded in (1, 0):
        path = os.path.join(FOLDER.name, f"saved_{embedded}.onnx")
        entries = {"ep.context_enable": "1", "ep.context_embed_mode": str(embedded), "ep.context_file_path": path}
        forget()
        session(source, ours, entries=entries)
        assert len(calls("compiled.compatibility_info")) == 1, calls()
        compiled_model_is_ours(path, embedded)
        path = os.path.join(FOLDER.name, f"compiled_{embedded}.onnx")
        settings = compile_settings(ours, **{} if embedded else {"ep.context_file_path": path})
        ort.ModelCompiler(settings, source, embed_compiled_data_into_model=bool(embedded)).compile_to_file(path)
        compiled_model_is_ours(path, embedded)
    blob = ort.ModelCompiler(compile_settings(ours), source, embed_compiled_data_into_model=True).compile_to_bytes()
    path = os.path.join(FOLDER.name, "bytes.onnx")
    with open(path, "wb") as file:
        file.write(blob)
    compiled_model_is_ours(path, 1)
    nowhere = ort.ModelCompiler(compile_settings(ours), source, embed_compiled_data_into_model=False)
    expect_error(nowhere.compile_to_bytes, "no place for the blob", "help: set ep.context_file_path")
    saved = onnx.load(path)
    for node in saved.graph.node:
        for attribute in node.attribute:
            if attribute.name == "ep_cache_context":
                attribute.s = b"somebody else's"
    expect_error(lambda: session(saved.SerializeToString()), "not our blob")


def compatibility():
    kinds = native.OrtCompiledModelCompatibility
    answers = {
        "best": kinds.EP_SUPPORTED_OPTIMAL, "slow": kinds.EP_SUPPORTED_PREFER_RECOMPILATION,
        "never": kinds.EP_UNSUPPORTED, "other": kinds.EP_NOT_APPLICABLE,
    }
    forget()
    for text, wanted in answers.items():
        assert native.get_model_compatibility_for_ep_devices(devices(NAME)[:1], text) == wanted, text
    assert "factory.model_compatibility 1 devices, best" in calls(), calls()


def incompatibility():
    ask = getattr(native, "get_hardware_device_ep_incompatibility_details", None)
    if not ask:
        return
    hardware = {device.device.type: device.device for device in ort.get_ep_devices()}
    found = ask(NAME, hardware[ort.OrtHardwareDeviceType.CPU])
    assert (found["reasons_bitmask"], found["error_code"]) == (4, 7), found
    assert found["notes"] == "no hooks on this device\n  help: use another", found
    found = ask(NAME, devices(NAME)[0].device)
    assert found["reasons_bitmask"] == 0 and not found["notes"], found


def weightless():
    if VERSION < (1, 29):
        return
    entries = {"ep.context_enable": "1", "ep.enable_weightless": "1"}
    source = os.path.join(FOLDER.name, "mul.onnx")
    with open(source, "wb") as file:
        file.write(mul_model())
    for option, passes in ((None, False), ("external", True), ("all", True)):
        forget()
        options = {"compiled": "best", **({"weightless": option} if option else {})}
        path = {"ep.context_file_path": os.path.join(FOLDER.name, f"weightless_{option}.onnx")}
        if passes:
            session(source, options, entries={**entries, **path})
        else:
            expect_error(lambda: session(source, options, entries={**entries, **path}), "eightless")
        assert calls("compiled.weightless"), calls()


def data_callbacks():
    if VERSION < (1, 31):
        return
    for flags, passes in ((None, False), ("1", False), ("2", True), ("3", True)):
        forget()
        path = os.path.join(FOLDER.name, f"callbacks_{flags}.onnx")
        options = {"compiled": "best", **({"callbacks": flags} if flags else {})}
        settings = compile_settings(options, **{"ep.context_file_path": path})
        compiler = ort.ModelCompiler(settings, mul_model(), embed_compiled_data_into_model=False)
        compiler.set_ep_context_data_write_func(lambda name, data: None)
        if passes:
            compiler.compile_to_file(path)
        else:
            expect_error(lambda: compiler.compile_to_file(path), "callback")
        assert calls("compiled.data_callbacks"), calls()


def memory_budget():
    # The runtime keeps budgets only for the CUDA provider, and from 1.27 on does not ask a plugin that uses its name.
    if VERSION != (1, 26):
        return
    cuda = "CUDAExecutionProvider"
    register(cuda)
    forget()
    session(mul_model(), {"budget": "1000000"}, name=cuda, entries={"session.resource_cuda_partitioning_settings": ","})
    # Once when the provider is created, to see whether it supports budgets, and once for the budget.
    assert len(calls("ep.available_bytes")) == 2, calls()
    unregister(cuda)


def a_wrong_number_of_results_is_refused():
    expect_error(lambda: session(mul_model(), {"results": "0"}), "compile returned 0 results for 1 partitions")


def two_providers_in_one_session():
    register("Other")
    nodes = [("Mul", ["x", "x"], ["m"]), ("Pow", ["m", "e"], ["z"])]
    both = model(nodes, [value("x", (2, 3)), value("e", (1,))], [value("z", (2, 3))])
    settings = ort.SessionOptions()
    settings.add_provider_for_devices(devices(NAME)[:1], {"only": "Mul"})
    # `ep.hooks.*` reaches every provider that the plugin creates, so the second one needs its own setting.
    settings.add_provider_for_devices(devices("Other")[1:], {"only": "Pow"})
    running = ort.InferenceSession(both, sess_options=settings, enable_fallback=0)
    forget()
    x, _ = pair()
    np.testing.assert_allclose(running.run(None, {"x": x, "e": np.array([2], np.float32)})[0], (x * x) ** 2, rtol=1e-5)
    # Each provider allocates on its own device, and its hooks are called once for each.
    assert {f"allocator.alloc Default{device} 24 stream=true" for device in (0, 1)} <= set(calls()), calls()
    assert len(calls("ep.on_run_start")) == len(calls("ep.on_run_end")) == 2, calls()
    del running
    # From here on, device values have no allocator: the runtime drops the shared ones of both names, since they serve
    # the same memory.
    unregister("Other")


def streams_of_the_environment():
    forget()
    stream = devices(NAME)[1].create_sync_stream()
    assert "factory.create_stream 1" in calls() and stream.get_handle(), calls()
    x, there = pair()[0], on_device(zeros(), device=1)
    ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(x)], [there], stream)
    assert "transfer.copy Cpu0->Gpu1 stream=true" in calls(), calls()
    forget()
    same(there.numpy(), x)
    assert "transfer.copy Gpu1->Cpu0 stream=false" in calls(), calls()
    del stream
    assert "stream.drop" in calls(), calls()


def nothing_is_left():
    forget()
    unregister()
    assert "factory.drop" in calls(), calls()


run_checks(
    registration, options_reach_the_session, a_run_is_ordered_on_streams, host_neighbours_are_notified,
    run_options_and_dynamic_options, kernels_run_node_by_node, synchronising_waits, runs_one_at_a_time_where_asked,
    a_session_has_allocators_and_streams_of_its_own, arena_options_and_shrinking, channels_last, graph_capture,
    default_memory, the_session_is_ready, profiling, compiled_models, compatibility, incompatibility, weightless,
    data_callbacks, a_wrong_number_of_results_is_refused, streams_of_the_environment, two_providers_in_one_session,
    memory_budget, nothing_is_left,
)
