"""Known weaknesses of AMD's C++ umbrella, by their number in our list. Our umbrella must not have any of them.

Weaknesses that only show on a GPU, on Windows or in a build are not tested here. 5, 8 and 9 (PCI addresses, Strix Halo,
Instinct and RDNA2) are unit tests of `discovery` and `routing`; 13 (forwarded hooks) is in test_forwarding.py, and 20
and 24 (side effects, the log line) are in test_backends.py, under their numbers.
"""
import gc
import os
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto
from backends_support import (
    Folder,
    Report,
    entries_seen,
    error_of,
    example,
    fault,
    hip_works,
    log_lines,
    model_of,
    mul_model,
    multiplies,
    on_hooks,
    pair,
    session,
    value,
    works,
)
from support import AMD, empty_on_device, on_device, on_threads, options_for, sample

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")


def on(id):
    return pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_DEVICES=str(id))


def test_weakness_01_a_backend_that_cannot_load_does_not_stop_the_registration(tmp_path):
    folder = Folder(tmp_path, hip=False)
    folder.backend().write_text("no library")
    with folder.registered() as found:
        works(session(found))


def test_weakness_02_backends_are_found_beside_the_umbrella(folder, tmp_path_factory):
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert "LD_LIBRARY_PATH" not in os.environ or str(folder.path) not in os.environ["LD_LIBRARY_PATH"]
    with folder.registered() as found:
        hip_works(found)
    with open("/proc/self/maps") as maps:
        hip = {line.split()[-1] for line in maps if "libhip-backend.so" in line}
    assert hip <= {str(folder.backend("hip"))}


@pytest.mark.environment(AMDGPU_EP_FORCE_ARCH="nonsense")
def test_weakness_03_an_explicit_profile_is_never_replaced(folder, capfd):
    with folder.registered() as found:
        capfd.readouterr()
        works(session(found, profile="hip", model_fw="webnn", prepare=lambda so: setattr(so, "log_severity_level", 1)))
        assert len(log_lines(capfd, "profile hip on .* backend hip")) == 1
        for profile, word in (("migraphx", "migraphx"), ("hipgpu", "hipgpu"), ("directx", "Windows")):
            assert word in error_of(lambda: session(found, profile=profile))


@on(2)
@pytest.mark.since("1.27")
def test_weakness_04_two_devices_selected_at_once_run_on_one(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        assert len(found) == 2
        for ordinal in (None, 0, 1):
            report.forget()
            chosen = {} if ordinal is None else {"device_id": ordinal}
            settings = options_for(found, profile="migraphx", **chosen)
            settings.add_session_config_entry("ep.hooks.ram", str(AMD))
            running = ort.InferenceSession(mul_model(), sess_options=settings, enable_fallback=0)
            multiplies(running)
            want = str(ordinal or 0)
            assert entries_seen(report)["ep.migraphx.device_id"] == want
            assert any(f"Gpu{want} " in line for line in report.details("partition.compute"))
            del running


@on(2)
def test_weakness_04_the_second_device_is_the_one_that_computes(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        running = on_hooks(found[1:])
        multiplies(running)
        assert entries_seen(report)["ep.migraphx.device_id"] == "1"
        assert all("Gpu1 " in line for line in report.details("partition.compute"))
        values = [on_device(sample(), index) for index in (0, 1)]
        for device_value in values:
            np.testing.assert_array_equal(device_value.numpy(), sample())
        del running, values, device_value


def test_weakness_06_options_reach_the_hip_backend(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"), "hip")
    with folder.registered() as found:
        on_hooks(found, profile="hip", cache_dir="/some where", model_arch="llama")
    seen = entries_seen(report)
    assert (seen["ep.hip.device_id"], seen["ep.hip.cache_dir"], seen["ep.hip.model_arch"]) == ("0", "/some where", "llama")


@pytest.mark.parametrize("spelling", ["llm", "hipep", "HIP", "5"])
def test_weakness_07_old_spellings_still_mean_hip(spelling, folder):
    with folder.registered() as found:
        works(session(found, profile=spelling, entries={"session.disable_cpu_ep_fallback": "1"}))


@pytest.mark.parametrize("spelling", ["directml", "dml", "optimized"])
def test_weakness_07_old_spellings_are_not_typos(spelling, folder):
    with folder.registered() as found:
        text = error_of(lambda: session(found, profile=spelling))
        assert "unknown profile" not in text, text


def test_weakness_10_keys_of_others_are_skipped(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    foreign = {
        "ep.share_ep_contexts": "0", "ep.stop_share_ep_contexts": "0", "ep.enable_weightless": "0",
        "ep.context_source_model_path": "x", "ep.nnapi.x": "1", "ep.hipgpu.y": "1", "ep.future.key": "1",
    }
    with folder.registered() as found:
        for profile in ("hip", "auto"):
            works(session(found, profile=profile, entries=foreign))
        on_hooks(found, entries=foreign)
    assert foreign.items() <= entries_seen(report).items()


def test_weakness_11_sessions_on_different_backends_exchange_tensors(folder):
    """No session is "the current one": copies and allocations belong to the device, whichever session is newest."""
    folder.put(example("hooks"))
    with folder.registered() as found:
        x, y = pair()
        model = mul_model()
        before = on_device(x)
        for order in (("hip", "migraphx"), ("migraphx", "hip")):
            running = {profile: on_hooks(found, model, profile=profile) for profile in order}
            middle, last = empty_on_device((2, 3), np.float32), empty_on_device((2, 3), np.float32)
            bound_run(running[order[0]], before, on_device(y), middle)
            bound_run(running[order[1]], middle, on_device(y), last)
            np.testing.assert_array_equal(last.numpy(), x * y * y)
            # Environment-level copies, without a stream, of what the two sessions wrote.
            target = empty_on_device((2, 3), np.float32)
            ort.copy_tensors([last], [target])
            np.testing.assert_array_equal(target.numpy(), x * y * y)
            del running, middle, last, target
        np.testing.assert_array_equal(before.numpy(), x)
        del before


def test_weakness_11_sessions_are_created_on_different_backends_at_once(folder):
    folder.put(example("hooks"))
    with folder.registered() as found:

        def work(seed):
            for turn in range(6):
                profile = ("hip", "migraphx")[(seed + turn) % 2]
                running = on_hooks(found, profile=profile)
                multiplies(running)
                del running

        on_threads(4, work)


@pytest.mark.parametrize("order", [("hip", "migraphx"), ("migraphx", "hip")])
def test_weakness_12_memory_of_an_init_session_without_profile_serves_all_backends(order, folder):
    folder.put(example("hooks"))
    with folder.registered() as found:
        init = session(found, mul_model())
        x, y = pair()
        values = [on_device(x), on_device(y), empty_on_device((2, 3), np.float32)]
        for profile in order:
            running = on_hooks(found, mul_model(), profile=profile)
            bound_run(running, *values)
            np.testing.assert_array_equal(values[2].numpy(), x * y)
            del running
        del init
        gc.collect()
        running = on_hooks(found, mul_model(), profile=order[0])
        bound_run(running, *values)
        np.testing.assert_array_equal(values[2].numpy(), x * y)
        del running, values


def test_weakness_14_copy_kernels_are_registered_under_the_umbrellas_name(folder):
    """A graph that leaves the device in the middle: the backend must get device tensors again afterwards."""
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    nodes = [("Mul", ["x", "x"], ["m"]), ("Neg", ["m"], ["n"]), ("Mul", ["n", "x"], ["z"])]
    model = model_of(nodes, [value("x", (2, 3))], [value("z", (2, 3))])
    with folder.registered("Another Name") as found:
        x, _ = pair()
        running = on_hooks(found, model)
        np.testing.assert_array_equal(running.run(None, {"x": x})[0], -(x * x) * x)
        del running
    places = report.details("partition.compute")
    assert len(places) == 2 and all(" Gpu0 " in place for place in places), places


@pytest.mark.environment(AMDGPU_EP_HOST_MEMORY="64M")
def test_weakness_16_a_run_out_of_memory_is_an_error_and_the_session_stays_usable(folder):
    """Nothing unwinds out of an allocator: ONNX Runtime gets the error, and reports it to the caller."""
    grown = model_of([("Expand", ["x", "shape"], ["z"])], [value("x", (1,)), value("shape", (1,), TensorProto.INT64)],
                     [value("z", ("n",))])
    x = np.ones(1, np.float32)
    with folder.registered() as found:
        running = session(found, grown, profile="hip")
        with pytest.raises(Exception):
            running.run(None, {"x": x, "shape": np.array([1 << 40])})
        np.testing.assert_array_equal(running.run(None, {"x": x, "shape": np.array([3])})[0], np.ones(3))
        del running


def test_weakness_17_the_text_of_a_backends_error_arrives(folder):
    folder.put(example("hooks"))
    Report(folder.path / "report")
    with folder.registered() as found:
        for hook in ("factory.create_ep", "resources.create_allocator", "ep.compile"):
            with fault("fail", hook):
                text = error_of(lambda: on_hooks(found, hooks={"resources": "default_stream"}))
                assert f"{hook} was told to fail" in text, text


def test_weakness_18_a_stream_that_cannot_be_created_is_an_error(folder):
    folder.put(example("hooks"))
    Report(folder.path / "report")
    with folder.registered() as found:
        running = on_hooks(found, hooks={"resources": "default_stream"})
        with fault("fail", "resources.create_stream"):
            assert "resources.create_stream was told to fail" in error_of(lambda: multiplies(running))
        multiplies(running)


def test_weakness_19_nothing_is_recorded_about_the_user(folder, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("home")
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(home))
    before = sorted(path.name for path in folder.path.iterdir())
    with folder.registered() as found:
        hip_works(found)
        works(session(found))
    assert not [path for path in Path(home).rglob("*") if "amdgpu" in path.name.lower() or "telemetry" in path.name]
    assert sorted(path.name for path in folder.path.iterdir()) == before


def test_weakness_26_a_cache_folder_may_contain_spaces(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        on_hooks(found, cache_dir="C:\\Users\\some one\\cache dir")
    assert entries_seen(report)["ep.migraphx.cache_dir"] == "C:\\Users\\some one\\cache dir"


def test_weakness_27_an_option_given_twice_must_mean_the_same(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        twice = {"ep.migraphx.static_pad_seq_len": "128"}
        text = error_of(lambda: on_hooks(found, entries=twice, static_pad_seq_len="64"))
        for word in ("INVALID_ARGUMENT", "ep.migraphx.static_pad_seq_len", "128", "64"):
            assert word in text, text
        multiplies(on_hooks(found, entries=twice, static_pad_seq_len="128"))
        assert entries_seen(report)["ep.migraphx.static_pad_seq_len"] == "128"
        # Entries that only another backend reads do not contradict.
        works(session(found, profile="hip", entries=twice, static_pad_seq_len="64"))


def test_weakness_28_an_error_shows_the_text_that_is_wrong(folder):
    with folder.registered() as found:
        text = error_of(lambda: session(found, entries={"ep.amdgpu.exhaustive_tune": "perhaps"}, force_recompile="1"))
        assert "perhaps" in text and "exhaustive_tune" in text, text


def bound_run(running, x, y, z):
    binding = running.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_input("y", y)
    binding.bind_ortvalue_output("z", z)
    running.run_with_iobinding(binding)
    binding.synchronize_outputs()
