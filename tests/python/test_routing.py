"""Which backend a session uses, in a real ONNX Runtime: third-party plugins, routing tables, the trace."""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime as ort
import pytest
from backends_support import Report, example, multiplies, on_hooks
from support import EP, LIBRARY, affine, affine_model, close, options_for, registered, sample

HERE = Path(LIBRARY).parent
HIP = HERE / "libhip-backend.so"
SHIM = HERE / "libhipgpu-backend.so"


def session(found, severity=3, entries=(), **options):
    """Creates a session that must run all nodes on our provider."""
    settings = options_for(found[:1], **options)
    settings.log_severity_level = severity
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in entries:
        settings.add_session_config_entry(key, value)
    return ort.InferenceSession(affine_model(), sess_options=settings, enable_fallback=0)


def works(running):
    assert running.get_providers()[0] == EP
    close(running.run(None, {"x": sample()})[0], affine(sample()))


def refusal(found, **options):
    with pytest.raises(Exception) as raised:
        session(found, **options)
    return str(raised.value)


def is_mapped(file):
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(str(file)) for line in maps)


@contextlib.contextmanager
def captured(descriptor):
    """Captures what the process writes to a descriptor, in a list that is filled when the block ends."""
    lines, kept = [], os.dup(descriptor)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), descriptor)
        try:
            yield lines
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            file.seek(0)
            lines += file.read().splitlines()


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Creates plugins of any name: copies of the hip backend, each a separate library on the same driver."""
    monkeypatch.setenv("AMDGPU_EP_HIP_HOST_LIBRARY", str(HERE / "libhip-host.so"))
    return lambda name: shutil.copy(HIP, tmp_path / name)


def test_hipgpu_without_amds_library_says_what_was_tried_and_leaves_the_rest_working():
    with registered() as found:
        text = refusal(found, profile="hipgpu")
        for word in ("libhipgpu.so", "AMDGPU_EP_HIPGPU_LIBRARY", "help:"):
            assert word in text, text
        works(session(found, profile="hip"))


def test_hipgpu_hands_the_session_to_the_library_that_the_variable_names(plugin, monkeypatch):
    external = plugin("libhipgpu.so")
    monkeypatch.setenv("AMDGPU_EP_HIPGPU_LIBRARY", str(external))
    with registered() as found:
        running = session(found, profile=" HipGPU ")
        assert is_mapped(SHIM) and is_mapped(external)
        works(running)
        works(session(found, profile="hip"))
        del running


def test_hipgpu_finds_the_library_beside_the_shim(tmp_path, plugin):
    external = plugin("libhipgpu.so")
    for file in (LIBRARY, SHIM):
        shutil.copy(file, tmp_path)
    with registered(library=str(tmp_path / Path(LIBRARY).name)) as found:
        running = session(found, profile="hipgpu")
        assert is_mapped(external) and not is_mapped(HIP)
        works(running)
        del running


def test_any_plugin_library_can_be_the_backend(plugin):
    library = plugin("lib with a blank.so")
    with registered() as found:
        running = session(found, backend_library=library)
        assert is_mapped(library) and not is_mapped(HIP)
        works(running)
        works(session(found, profile="hip"))
        del running


def test_a_plugin_sees_its_own_metadata_and_what_the_user_adds(tmp_path):
    report, library = Report(tmp_path / "report"), example("hooks")
    with registered() as found:
        for _ in range(2):
            multiplies(on_hooks(found, profile=None, backend_library=library))
        multiplies(on_hooks(found, profile=None, backend_library=library, backend_device="place=elsewhere"))
    assert report.details("factory.create_ep") == ["slot 0", "slot 0", "elsewhere"]
    calls = report.hooks()
    assert calls.count("factory.devices") == 1, "once"
    assert calls.index("factory.devices") < calls.index("factory.create_ep")


def test_a_file_that_is_not_a_backend_library_is_refused_by_name(tmp_path):
    text_file = tmp_path / "text.so"
    text_file.write_text("not a library")
    with registered() as found:
        for library in ("/no/such/plugin.so", str(text_file), str(HERE / "libhip-host.so")):
            assert library in refusal(found, backend_library=library)
        text = refusal(found, backend_library=str(HIP), profile="hip")
        assert "backend_library" in text and "profile is hip" in text and "INVALID_ARGUMENT" in text, text
        works(session(found))


def test_rows_of_the_users_table_come_first(tmp_path, plugin):
    library = plugin("libother.so")
    table = tmp_path / "routes.txt"
    table.write_text("# ours\ngfx11 * migraphx\nhost resnet ./libother.so\n")
    with registered() as found:
        works(session(found, routing_table=table))
        assert not is_mapped(library), "no row fits: the built-in rules decide"
        running = session(found, routing_table=table, model_arch="ResNet")
        assert is_mapped(library)
        works(running)
        del running


def test_a_row_whose_backend_is_missing_falls_back_under_auto(tmp_path):
    table = tmp_path / "routes.txt"
    table.write_text("* * /no/such/plugin.so\n")
    with registered() as found:
        with captured(2) as lines:
            running = session(found, severity=2, routing_table=table)
        works(running)
        assert sum("/no/such/plugin.so" in line for line in lines) == 1, lines
        del running


def test_a_bad_table_is_an_argument_error_with_line_numbers(tmp_path):
    table = tmp_path / "routes.txt"
    table.write_text("host * hip\n\nhost hip\nhost * turbo\n")
    with registered() as found:
        text = refusal(found, routing_table=table)
        for word in ("INVALID_ARGUMENT", str(table), "line 3: ", "line 4: ", "turbo"):
            assert word in text, text
        assert "/no/such/table" in refusal(found, routing_table="/no/such/table")
        assert "routing_table" not in refusal(found, routing_table=table, profile="turbo")


@pytest.mark.environment(ORT_AMDGPU_TRACE_ROUTING="on", AMDGPU_EP_FORCE_ARCH=" GFX1151 ")
def test_the_trace_is_one_line_per_session_and_never_on_stdout():
    with registered() as found:
        with captured(1) as printed, captured(2) as logged:
            running = session(found, severity=2, model_arch="llama")
            running.run(None, {"x": sample()})
        lines = [line for line in logged if "[amdgpu-routing]" in line]
        assert len(lines) == 1, logged
        for word in ("arch=gfx1151 ", "driver=host ", "model_arch=llama ", "model_fw=- ", "profile=auto ", "-> hip ("):
            assert word in lines[0], lines
        assert printed == []
        del running


@pytest.mark.environment(ORT_AMDGPU_TRACE_ROUTING="maybe")
def test_a_trace_switch_that_cannot_be_read_is_off_with_a_warning():
    with registered() as found:
        with captured(2) as logged:
            running = session(found, severity=2)
        works(running)
        assert any("ORT_AMDGPU_TRACE_ROUTING is ignored" in line and '"maybe"' in line for line in logged), logged
        assert not any("[amdgpu-routing]" in line for line in logged), logged
        del running


def test_directx_is_refused_outside_windows():
    with registered() as found:
        text = refusal(found, profile="dml")
        assert "Windows only" in text and "NOT_IMPLEMENTED" in text, text


@pytest.mark.environment(AMDGPU_EP_DRIVER=None)
def test_the_environment_alone_changes_nothing_on_stdout():
    script = "import sys, onnxruntime as ort; ort.register_execution_provider_library('x', sys.argv[1])"
    command = [sys.executable, "-c", script, LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "ORT_AMDGPU_TRACE_ROUTING": "1"})
    assert done.returncode == 0 and done.stdout == "", done
