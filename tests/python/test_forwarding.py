"""Hooks of a backend through the umbrella: all are reachable, a fault in any of them is harmless, options arrive, and
the backend that compiled a model decides about its compatibility."""
import gc
import os

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from backends_support import (
    Report,
    entries_seen,
    error_of,
    example,
    fault,
    hip_works,
    mapped,
    model_of,
    mul_model,
    multiplies,
    on_hooks,
    pair,
    session,
    value,
    works,
)
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import EP, RELEASE, on_device

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")


# Actions on a session of the `hooks` example that cause a hook to be called.


def whole_life(found, **hooks):
    multiplies(on_hooks(found, hooks=hooks))
    gc.collect()


def own_resources(found):
    whole_life(found, resources="default_stream")


def pooled(found):
    pool = model_of([("GlobalMaxPool", ["x"], ["z"])], [value("x", (1, 2, 3, 3))], [value("z", (1, 2, 1, 1))])
    running = on_hooks(found, pool, hooks={"nhwc": "1"})
    (x, _) = pair((1, 2, 3, 3))
    np.testing.assert_array_equal(running.run(None, {"x": x})[0], x.max(axis=(2, 3), keepdims=True))


def captured(found):
    running = on_hooks(found, hooks={"capture": "1"})
    x, y = pair()
    binding = running.io_binding()
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_input("y", on_device(y))
    binding.bind_ortvalue_output("z", on_device(np.zeros((2, 3), np.float32)))
    for _ in range(2):
        running.run_with_iobinding(binding)
    if hasattr(running, "release_captured_graph"):
        running.release_captured_graph(0)


def profiled(found):
    def prepare(settings):
        settings.enable_profiling = True
        settings.profile_file_prefix = os.path.join(os.environ["HOOKS_REPORT"] + ".profile")

    running = on_hooks(found, hooks={"profile": "1"}, prepare=prepare)
    multiplies(running)
    running.end_profiling()


def saved(found, **more):
    source, path = (os.environ["HOOKS_REPORT"] + ending for ending in (".source.onnx", ".saved.onnx"))
    with open(source, "wb") as file:
        file.write(mul_model())
    if os.path.exists(path):
        os.remove(path)
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": "1", "ep.context_file_path": path, **more}
    on_hooks(found, source, hooks={"compiled": "best", "weightless": "all"}, entries=entries)
    return path


def saved_without_weights(found):
    saved(found, **{"ep.enable_weightless": "1"})


def saved_by_callback(found):
    settings = ort.SessionOptions()
    path = os.environ["HOOKS_REPORT"] + ".callback.onnx"
    settings.add_session_config_entry("ep.context_file_path", path)
    for key, text in (("compiled", "best"), ("callbacks", "3")):
        settings.add_session_config_entry(f"ep.hooks.{key}", text)
    settings.add_provider_for_devices(found[:1], {"profile": "migraphx"})
    compiler = ort.ModelCompiler(settings, mul_model(), embed_compiled_data_into_model=False)
    compiler.set_ep_context_data_write_func(lambda name, data: None)
    compiler.compile_to_file(path)
    os.remove(path)


def dynamic_options(found):
    on_hooks(found).set_ep_dynamic_options({"a": "b"})


def synchronised(found):
    running = on_hooks(found)
    binding = running.io_binding()
    x, y = pair()
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_input("y", on_device(y))
    binding.synchronize_inputs()


def serial(found):
    whole_life(found, serial="1")


# The hook, the action, and the first release that calls it.
HOOKS = [
    ("factory.create_ep", whole_life, 24),
    ("ep.claim", whole_life, 24),
    ("ep.compile", whole_life, 24),
    ("ep.on_run_start", whole_life, 24),
    ("ep.on_run_end", whole_life, 24),
    ("ep.set_dynamic_options", dynamic_options, 24),
    ("ep.sync", synchronised, 25),
    ("ep.runs_concurrently", serial, 24),
    ("ep.on_session_ready", whole_life, 27),
    ("ep.drop", whole_life, 24),
    ("resources.create_allocator", own_resources, 24),
    ("resources.create_stream", own_resources, 24),
    ("allocator.alloc", own_resources, 24),
    ("allocator.free", own_resources, 24),
    ("allocator.drop", own_resources, 24),
    ("stream.handle", own_resources, 24),
    ("stream.flush", own_resources, 24),
    ("stream.on_run_end", own_resources, 24),
    ("stream.drop", own_resources, 24),
    ("layout.preferred", pooled, 24),
    ("layout.converts", pooled, 24),
    ("capture.enabled", captured, 26),
    ("capture.is_captured", captured, 26),
    ("capture.replay", captured, 26),
    ("capture.release", captured, 27 if hasattr(ort.InferenceSession, "release_captured_graph") else 99),
    ("profiling.profiler", profiled, 25),
    ("profiler.start", profiled, 25),
    ("profiler.end", profiled, 25),
    ("profiler.drop", profiled, 25),
    ("compiled.compatibility_info", saved, 24),
    ("compiled.weightless", saved_without_weights, 29),
    ("compiled.data_callbacks", saved_by_callback, 31),
    ("partition.compute", whole_life, 24),
    ("partition.drop", whole_life, 24),
]


def reachable():
    return [(hook, action) for hook, action, since in HOOKS if RELEASE[1] >= since]


def test_weakness_13_every_hook_of_a_backend_is_reached_through_the_umbrella(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        for action in {action for _, action in reachable()}:
            report.forget()
            action(found)
            gc.collect()
            calls = report.hooks()
            for hook in [hook for hook, other in reachable() if other is action]:
                assert hook in calls, f"{hook} was not called by {action.__name__}: {sorted(set(calls))}"


@pytest.mark.parametrize("kind", ["fail", "panic"])
def test_a_fault_in_any_hook_of_a_backend_is_handled(kind, folder, capfd):
    """The fault becomes an error of the session or the run, or a log line. hip and the next session work in any
    case."""
    Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        for hook, action in reachable():
            print(f"{kind} in {hook}", flush=True)
            capfd.readouterr()
            text = ""
            with fault(kind, hook):
                try:
                    action(found)
                except Exception as error:
                    text = str(error)
                gc.collect()
            printed = capfd.readouterr().err
            assert f"{hook} was told to" in text + printed, f"{hook}: {text}\n{printed}"
            hip_works(found)
            action(found)


def test_a_fault_while_the_backend_loads_is_reported_and_the_next_session_loads_it(folder):
    Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        for kind in ("fail", "panic"):
            with fault(kind, "create"):
                assert "create was told to" in error_of(lambda: on_hooks(found))
            hip_works(found)
        multiplies(on_hooks(found))


def test_hooks_a_backend_lacks_are_absent(folder):
    """The bare backend has no profiler, capture or layout: ONNX Runtime requests none, and all paths work."""
    folder.put(example("broken"))
    with folder.registered() as found:
        def profiling(settings):
            settings.enable_profiling = True
            settings.profile_file_prefix = str(folder.path / "profile")

        running = session(found, profile="migraphx", prepare=profiling)
        works(running)
        running.end_profiling()
        binding = running.io_binding()
        binding.bind_cpu_input("x", np.zeros((1, 4), np.float32))
        binding.bind_output("y")
        binding.synchronize_inputs()
        running.run_with_iobinding(binding)
        binding.synchronize_outputs()
        running.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})


def test_the_profile_cannot_change_while_a_session_lives(folder):
    folder.put(example("hooks"))
    report = Report(folder.path / "report")
    with folder.registered() as found:
        running = on_hooks(found)
        for key in ("profile", f"ep.{EP.lower()}.profile", "ep.amdgpu.profile"):
            text = error_of(lambda: running.set_ep_dynamic_options({key: "hip"}))
            assert "cannot be changed" in text and "migraphx" in text, text
        assert not report.details("ep.set_dynamic_options")
        running.set_ep_dynamic_options({"profile": "MIGraphX", "other": "1"})
        assert len(report.details("ep.set_dynamic_options")) == 1
        multiplies(running)


def test_options_reach_the_backend_under_its_own_name(folder):
    folder.put(example("hooks"))
    report = Report(folder.path / "report")
    foreign = {"ep.nnapi.x": "y", "ep.share_ep_contexts": "0", "session.x": "z", "ep.migraphx.fp16_enable": "1"}
    with folder.registered() as found:
        on_hooks(found, entries=foreign, cache_dir="/a b/c", static_pad_seq="On", model_arch=" Llama ")
    seen = entries_seen(report)
    for key, text in foreign.items():
        assert seen[key] == text
    assert seen["ep.migraphx.cache_dir"] == "/a b/c"
    assert seen["ep.migraphx.static_pad_seq"] == "1"
    assert seen["ep.migraphx.model_arch"] == "llama"
    assert seen["ep.migraphx.device_id"] == "0"
    assert "ep.migraphx.profile" not in seen


def test_compatibility_of_compiled_models_is_decided_by_the_backend_that_made_them(folder):
    answers = native.OrtCompiledModelCompatibility
    folder.put(example("hooks"))
    report = Report(folder.path / "report")
    with folder.registered() as found:
        path = saved(found)
        metadata = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
        assert metadata[f"ep_compatibility_info.{EP}"] == "amdgpu-ep/1;backend=migraphx;best"
    with folder.registered() as found:
        report.forget()
        ask = lambda info: native.get_model_compatibility_for_ep_devices(found[:1], info)
        assert ask("somebody else's") == answers.EP_NOT_APPLICABLE
        assert not report.lines(), "nothing was loaded for a foreign text"
        assert ask("amdgpu-ep/1;backend=migraphx;best") == answers.EP_SUPPORTED_OPTIMAL
        assert ask("amdgpu-ep/1;backend=migraphx;slow") == answers.EP_SUPPORTED_PREFER_RECOMPILATION
        assert ask("amdgpu-ep/1;backend=migraphx;never") == answers.EP_UNSUPPORTED
        for unknown in ("amdgpu-ep/2;x", "amdgpu-ep/1;backend=warp;x", "amdgpu-ep/1;backend=hipgpu;x"):
            assert ask(unknown) == answers.EP_UNSUPPORTED
        # A model must not choose which library is loaded.
        assert ask(f"amdgpu-ep/1;backend={example('hooks')};best") == answers.EP_UNSUPPORTED
        assert not mapped("libhooks.so")


def test_compiled_model_of_a_backend_loads_again(folder):
    folder.put(example("hooks"))
    Report(folder.path / "report")
    with folder.registered() as found:
        path = saved(found)
        multiplies(on_hooks(found, path))
