"""Bad input and the expected result, in a real ONNX Runtime: one row for each case known from AMD's C++ umbrella.

A row is a function: its name describes the input, its docstring the expected result. Some rows call tests of other
suites.
"""
import os
import shutil

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import test_exports
from backends_support import (
    Folder,
    Report,
    error_of,
    example,
    hip_works,
    mul_model,
    multiplies,
    on_hooks,
    pair,
    session,
    works,
)
from onnxruntime.capi import onnxruntime_pybind11_state as native
from support import EP, affine_model, empty_on_device, on_device, options_for, registered

on_host = pytest.mark.environment(AMDGPU_EP_DRIVER="host")
ROWS = []


def row(*marks):
    """Adds the decorated function to the table."""

    def add(function):
        ROWS.append(pytest.param(function, id=function.__name__, marks=list(marks)))
        return function

    return add


def refused(found, *words, **options):
    text = error_of(lambda: session(found, **options))
    for word in words:
        assert word in text, f"{word} is not in {text}"


@row()
def bad_arguments_of_the_entry(_):
    """INVALID_ARGUMENT, created through an API table of its own; with a null base, success and zero factories."""
    for arguments in ({"name": None}, {"name": b""}, {"factories": False}, {"room": 0}, {"count": False}):
        test_exports.test_bad_arguments_are_invalid_argument(arguments)
    test_exports.test_null_api_base_gives_zero_factories()


@row()
def runtime_older_than_api_24(_):
    """EP_FAIL that names the minimum."""
    test_exports.test_a_runtime_that_is_too_old_is_refused(b"1.23.2")


@row()
def unknown_option_names(folder):
    """INVALID_ARGUMENT with all of them and their nearest matches; a warning if options are not strict."""
    with folder.registered() as found:
        refused(found, "INVALID_ARGUMENT", "profil", '"profile"', "cach_dir", '"cache_dir"', profil="hip", cach_dir="x")
        works(session(found, profil="hip", strict_options="0"))


@row()
def malformed_switches_and_numbers(folder):
    """INVALID_ARGUMENT with option, text and accepted spellings."""
    with folder.registered() as found:
        refused(found, "INVALID_ARGUMENT", "force_recompile", "maybe", "true", "disabled", force_recompile="maybe")
        refused(found, "INVALID_ARGUMENT", "device_id", "1x", "expected an integer", device_id="1x")


@row()
def unknown_profile(folder):
    """INVALID_ARGUMENT with the accepted values."""
    with folder.registered() as found:
        refused(found, "INVALID_ARGUMENT", "warp", "auto", "eager", "optimize", "migraphx", "directx", "hip", profile="warp")


@row(pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2"))
def device_id_out_of_range(folder):
    """INVALID_ARGUMENT with the range."""
    with folder.registered() as found:
        refused(found, "INVALID_ARGUMENT", "device_id 7", "0, 1", device_id="7")
        refused(found, "INVALID_ARGUMENT", "-1", device_id="-1")


@row(pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2"))
def device_id_against_the_selected_device(folder):
    """INVALID_ARGUMENT, also if the backend's own key contradicts."""
    folder.put(example("hooks"))
    with folder.registered() as found:
        refused(found[1:], "INVALID_ARGUMENT", "device_id 0", "selected device", device_id="0")
        text = error_of(lambda: on_hooks(found[1:], entries={"ep.migraphx.device_id": "0"}))
        assert "INVALID_ARGUMENT" in text and "ep.migraphx.device_id" in text, text


@row(pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2"), pytest.mark.since("1.27"))
def several_devices_selected(folder):
    """One of them is used."""
    with folder.registered() as found:
        running = ort.InferenceSession(affine_model(), sess_options=options_for(found), enable_fallback=0)
        works(running)
        del running


@row()
def backend_without_a_library(folder):
    """A named profile: an error with file, folder and the loader's message. Auto: the next backend."""
    with folder.registered() as found:
        refused(found, "libmigraphx-backend.so", str(folder.path), "cannot open shared object file", profile="migraphx")
        works(session(found, **folder.auto()))


@row()
def backend_without_a_symbol(folder):
    """An error with file and symbol."""
    shutil.copy(folder.path / "libhip-host.so", folder.backend())
    with folder.registered() as found:
        refused(found, "libmigraphx-backend.so", "CreateEpFactories", profile="migraphx")


@row()
def backend_that_exists_on_windows_only(folder):
    """NOT_IMPLEMENTED instead of another backend."""
    with folder.registered() as found:
        refused(found, "NOT_IMPLEMENTED", "Windows", profile="directx")


@row(pytest.mark.environment(BROKEN="zero"))
def backend_with_zero_factories(folder):
    """EP_FAIL."""
    folder.put(example("broken"))
    with folder.registered() as found:
        refused(found, "EP_FAIL", "returned no factory", profile="migraphx")


@row(pytest.mark.environment(BROKEN="null_ep"))
def backend_with_a_null_ep(folder):
    """EP_FAIL while the session is created."""
    folder.put(example("broken"))
    with folder.registered() as found:
        refused(found, "EP_FAIL", "returned no execution provider", profile="migraphx")


@row(pytest.mark.environment(AMDGPU_EP_HIP_LIBRARY="/no/such/libamdhip64.so"))
def no_gpu_and_no_driver(_):
    """Registration and listing work; a session without a device gets the reason, with a hint."""
    os.environ["AMDGPU_EP_DRIVER"] = "amd"
    with registered() as found:
        assert found == []
        cpu = ort.InferenceSession(affine_model(), providers=["CPUExecutionProvider"])
        works(cpu)
    test_exports.test_a_session_without_devices_is_refused()


@row(pytest.mark.since("1.28"))
def hardware_that_can_not_be_used(folder):
    """The incompatibility details give the reason."""
    with folder.registered():
        cpu = next(device.device for device in ort.get_ep_devices() if device.ep_name == "CPUExecutionProvider")
        details = native.get_hardware_device_ep_incompatibility_details(EP, cpu)
        assert details["reasons_bitmask"] and "AMD GPUs" in details["notes"], details


@row()
def cache_folder_that_can_not_be_written(folder):
    """The session works without a cache."""
    blocked = folder.path / "file"
    blocked.write_text("in the way")
    with folder.registered() as found:
        for place in (blocked / "below", "/proc/nowhere"):
            works(session(found, profile="hip", cache_dir=place))


@row()
def compiled_model_of_another_version(folder):
    """A clear refusal, both when the model is loaded and when its compatibility is queried."""
    saved = compiled(folder)
    model = onnx.load(saved)
    (node,) = [node for node in model.graph.node if node.op_type == "EPContext"]
    blob = next(attribute for attribute in node.attribute if attribute.name == "ep_cache_context")
    blob.s = blob.s[:8] + b"\xff" * 8 + blob.s[16:]
    onnx.save(model, saved)
    with folder.registered() as found:
        error_of(lambda: session(found, saved, profile="hip"))
        ask = lambda info: native.get_model_compatibility_for_ep_devices(found[:1], info)
        answers = native.OrtCompiledModelCompatibility
        assert ask("amdgpu-ep/9;backend=hip;whatever") == answers.EP_UNSUPPORTED
        assert ask("amdgpu-ep/1;backend=hip;whatever") in (answers.EP_UNSUPPORTED, answers.EP_NOT_APPLICABLE)
        hip_works(found)


@row()
def compiled_model_of_this_version(folder):
    """Runs, and its compatibility string names the backend that compiled it."""
    saved = compiled(folder)
    metadata = {entry.key: entry.value for entry in onnx.load(saved).metadata_props}
    info = metadata[f"ep_compatibility_info.{EP}"]
    assert info.startswith("amdgpu-ep/1;backend=hip;"), info
    with folder.registered() as found:
        answer = native.get_model_compatibility_for_ep_devices(found[:1], info)
        assert answer == native.OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL
        works(session(found, saved, profile="hip"))


@row()
def compiled_model_whose_file_lies_elsewhere(folder):
    """Absolute paths, and paths that leave the model's folder, are refused."""
    saved = compiled(folder, embed="0")
    for path in (b"/etc/passwd", b"../../etc/passwd"):
        model = onnx.load(saved)
        (node,) = [node for node in model.graph.node if node.op_type == "EPContext"]
        next(attribute for attribute in node.attribute if attribute.name == "ep_cache_context").s = path
        moved = folder.path / "moved.onnx"
        onnx.save(model, str(moved))
        with folder.registered() as found:
            error_of(lambda: session(found, str(moved), profile="hip"))
            hip_works(found)


@row()
def keys_of_other_providers(folder):
    """Ignored."""
    foreign = {"ep.cuda.x": "1", "ep.share_ep_contexts": "0", "ep.nnapi.y": "z", "ep.unknown.w": "v"}
    with folder.registered() as found:
        works(session(found, profile="hip", entries=foreign))


@row(pytest.mark.environment(ORT_AMDGPU_TRACE_ROUTING="maybe"))
def odd_trace_switch(folder):
    """A warning, and the trace stays off."""
    with folder.registered() as found:
        works(session(found))


@row()
def allocator_for_foreign_memory(_):
    """INVALID_ARGUMENT for an unknown kind of memory and for memory of another vendor or device."""
    marks = {mark.name: mark for mark in test_exports.test_allocator_for_foreign_memory_is_refused.pytestmark}
    for memory in marks["parametrize"].args[1]:
        test_exports.test_allocator_for_foreign_memory_is_refused(getattr(memory, "values", (memory,))[0])


@row()
def tensors_of_two_backends(folder):
    """Copies between allocations of two backends are right, with and without a session in between."""
    folder.put(example("hooks"))
    with folder.registered() as found:
        own = on_hooks(found, hooks={"resources": "default_stream"})
        x, y = pair()
        binding = own.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_cpu_input("y", y)
        shared = empty_on_device((2, 3), np.float32)
        binding.bind_ortvalue_output("z", shared)
        own.run_with_iobinding(binding)
        other = on_device(np.zeros((2, 3), np.float32))
        ort.copy_tensors([shared], [other])
        np.testing.assert_array_equal(other.numpy(), x * y)
        multiplies(session(found, mul_model(), profile="hip"))
        del own, binding, shared, other


@row()
def releasing_null(_):
    """Does nothing."""
    test_exports.test_releasing_null_does_nothing()


@row()
def two_registrations_at_once(folder):
    """Both work, each with its own backends."""
    folder.put(example("hooks"))
    report = Report(folder.path / "report")
    with folder.registered("First") as first, folder.registered("Second") as second:
        for found in (first, second, first):
            multiplies(on_hooks(found))
            hip_works(found)
    assert report.hooks().count("create") == report.hooks().count("factory.drop") == 2


@row()
def unregistered_while_a_session_lives(folder):
    """The session and its backend keep working."""
    folder.put(example("hooks"))
    with folder.registered() as found:
        running = on_hooks(found)
    multiplies(running)
    del running


def compiled(folder, embed="1"):
    """Returns the affine model as compiled by the hip backend."""
    source, saved = folder.path / "source.onnx", folder.path / "saved.onnx"
    source.write_bytes(affine_model())
    entries = {"ep.context_enable": "1", "ep.context_embed_mode": embed, "ep.context_file_path": saved}
    with folder.registered() as found:
        session(found, str(source), profile="hip", entries=entries)
    return str(saved)


@on_host
@pytest.mark.parametrize("case", ROWS)
def test_answer(case, tmp_path):
    case(Folder(tmp_path))
