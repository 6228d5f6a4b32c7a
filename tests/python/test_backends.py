"""Backends that are missing, broken, faulty or odd: registration succeeds, the session gets an error or another
backend, the hip backend beside them keeps working, and nothing crashes."""
import gc
import itertools
import os
import random
import shutil
import threading
import time

import numpy as np
import pytest
from backends_support import (
    Folder,
    Report,
    error_of,
    example,
    hip_works,
    log_lines,
    mapped,
    multiplies,
    on_hooks,
    pair,
    session,
    works,
)
from support import EP, empty_on_device, on_threads, open_files, resident_kib, threads

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")


# Modes of the `broken` example, and words in the error of a session that requests it.
BROKEN = {
    "error": ["CreateEpFactories was told to fail"],
    "zero": ["CreateEpFactories", "returned no factory"],
    "null_factory": ["CreateEpFactories", "returned no factory"],
    "no_create_ep": ["cannot create or cannot release"],
    "no_release_ep": ["cannot create or cannot release"],
    "factory_stamp=21": ["cannot create or cannot release"],
    "ep_error": ["CreateEp was told to fail"],
    "null_ep": ["returned no execution provider"],
    "no_capability": ["has no GetCapability"],
    "ep_stamp=22": ["built for API 22", "23"],
}


@pytest.mark.parametrize("mode", BROKEN)
def test_broken_backend_is_reported_by_name_and_skipped_by_auto(mode, folder, capfd):
    folder.put(example("broken"))
    os.environ["BROKEN"] = mode
    with folder.registered() as found:
        for _ in range(2):
            text = error_of(lambda: session(found, profile="migraphx"))
            for word in ["migraphx", *BROKEN[mode]]:
                assert word in text, text
            hip_works(found)
        capfd.readouterr()
        running = session(found, prepare=at_warnings, **folder.auto())
        (line,) = log_lines(capfd, "amdgpu_ep::load|backend hip")
        for word in ["profile auto", "backend hip", "skipped migraphx", BROKEN[mode][0]]:
            assert word in line, line
        works(running)
        del running
        # The failure is not cached.
        os.environ["BROKEN"] = "not at all"
        works(session(found, profile="migraphx"))


def at_warnings(settings):
    settings.log_severity_level = 2


def at_infos(settings):
    settings.log_severity_level = 1


# Modes that fail later, while the session is created, and words in the error.
@pytest.mark.parametrize(
    "mode, words",
    [
        ("null_allocator", ["returned no allocator"]),
        ("no_release_allocator", ["creates allocators, but cannot release them"]),
        ("registry_error", ["GetKernelRegistry was told to fail"]),
    ],
)
def test_a_backend_that_fails_while_the_session_is_created_is_an_error(mode, words, folder):
    folder.put(example("broken"))
    os.environ["BROKEN"] = mode
    with folder.registered() as found:
        text = error_of(lambda: session(found, profile="migraphx"))
        for word in words:
            assert word in text, text
        hip_works(found)


@pytest.mark.parametrize("mode", ["", "ep_stamp=23", "ep_stamp=24", "ep_stamp=99", "factory_stamp=22", "factory_stamp=99",
                                  "factories=4", "release_error", "null_stream"])
def test_an_odd_but_usable_backend_creates_a_session(mode, folder):
    """Slots that a version stamp does not cover are not read: the plugin puts a trap there."""
    folder.put(example("broken"))
    os.environ["BROKEN"] = mode
    with folder.registered() as found:
        for _ in range(2):
            running = session(found, profile="migraphx")
            works(running)
            assert EP in running.get_providers()
            del running
        hip_works(found)


def missing(folder):
    return ["libmigraphx-backend.so", str(folder.path), "cannot open shared object file", "AMDGPU_EP_BACKEND_PATH"]


def text_file(folder):
    folder.backend().write_text("this is no library\n")
    return ["libmigraphx-backend.so"]


def empty_file(folder):
    folder.backend().write_bytes(b"")
    return ["libmigraphx-backend.so"]


def cut_to(kept):
    """A truncated library, which would crash the loader after mapping."""

    def truncated(folder):
        whole = example("hooks").read_bytes()
        folder.backend().write_bytes(whole[: int(len(whole) * kept)])
        return ["libmigraphx-backend.so", "truncated"]

    truncated.__name__ = f"cut_to_{kept}"
    return truncated


def a_folder(folder):
    folder.backend().mkdir()
    return ["libmigraphx-backend.so"]


def without_exports(folder):
    shutil.copy(folder.path / "libhip-host.so", folder.backend())
    return ["libmigraphx-backend.so", "CreateEpFactories"]


def dangling_link(folder):
    folder.backend().symlink_to("/no/such/file.so")
    return ["libmigraphx-backend.so"]


@pytest.mark.parametrize(
    "make",
    [missing, text_file, empty_file, a_folder, without_exports, dangling_link, *map(cut_to, (0.01, 0.1, 0.5, 0.999))],
)
def test_a_file_that_is_not_a_backend_is_reported_and_may_be_replaced_for_the_next_session(make, folder, capfd):
    words = make(folder)
    with folder.registered() as found:
        for action in (lambda: session(found, profile="migraphx"), lambda: session(found, profile="3")):
            text = error_of(action)
            for word in words:
                assert word in text, text
        hip_works(found)
        capfd.readouterr()
        works(session(found, prepare=at_warnings, **folder.auto()))
        assert len(log_lines(capfd, "skipped migraphx")) == 1
        if folder.backend().is_dir():
            folder.backend().rmdir()
        folder.put(example("hooks"))
        running = on_hooks(found)
        multiplies(running)
        del running


def test_no_backend_at_all_leaves_the_nodes_to_the_cpu_with_one_warning(tmp_path, capfd):
    folder = Folder(tmp_path, hip=False)
    with folder.registered() as found:
        capfd.readouterr()
        works(session(found, prepare=at_warnings))
        (line,) = log_lines(capfd, "profile auto")
        assert "no usable backend" in line and "libhip-backend.so" in line, line
        text = error_of(lambda: session(found, profile="hip"))
        assert "libhip-backend.so" in text and "help" in text, text


def test_weakness_24_one_line_says_what_was_chosen_and_why(folder, capfd):
    with folder.registered() as found:
        capfd.readouterr()
        for options, words in (({}, ["profile auto", "host driver"]), ({"profile": "llm"}, ["profile hip (", "profile hip on"])):
            works(session(found, prepare=at_infos, **options))
            lines = log_lines(capfd, r"profile \w+ on")
            assert len(lines) == 1 and "backend hip" in lines[0], lines
            assert any(word in lines[0] for word in words), lines


def test_weakness_20_nothing_is_written_to_stdout_or_the_environment(folder, capfd):
    folder.put(example("broken"))
    before = dict(os.environ)
    with folder.registered() as found:
        works(session(found, prepare=at_infos))
        works(session(found, profile="migraphx"))
        works(session(found, **folder.auto()))
    assert capfd.readouterr().out == ""
    assert dict(os.environ) == before


def test_a_deleted_backend_keeps_working_until_the_next_registration(folder):
    folder.put(example("hooks"))
    with folder.registered() as found:
        first = on_hooks(found)
        multiplies(first)
        folder.backend().unlink()
        multiplies(on_hooks(found))
        multiplies(first)
        del first
    with folder.registered() as found:
        assert "cannot open shared object file" in error_of(lambda: on_hooks(found))
        hip_works(found)


def test_backend_is_found_in_the_folders_of_the_variable(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("else where")
    shutil.copy(example("hooks"), elsewhere / "libmigraphx-backend.so")
    os.environ["AMDGPU_EP_BACKEND_PATH"] = f"/no/such/folder:{elsewhere}"
    with folder.registered() as found:
        multiplies(on_hooks(found))
        # An unusable file beside the umbrella does not hide the next one.
        folder.backend("hipgpu").write_text("no library")
        shutil.copy(example("hooks"), elsewhere / "libhipgpu-backend.so")
        multiplies(on_hooks(found, profile="hipgpu"))


@pytest.mark.since("1.27")
def test_backend_is_loaded_by_its_first_session_and_unloaded_with_the_registration(folder):
    folder.put(example("hooks"))
    with folder.registered() as found:
        assert not mapped("migraphx-backend") and not mapped("hip-backend")
        multiplies(on_hooks(found))
        assert mapped("migraphx-backend") and not mapped("hip-backend")
        hip_works(found)
        assert mapped("hip-backend")
    assert not mapped("migraphx-backend") and not mapped("hip-backend")


def test_library_that_may_link_a_vendors_runtime_stays_mapped(folder):
    file = folder.put(example("hooks"), "other")
    with folder.registered() as found:
        multiplies(on_hooks(found, profile=None, backend_library=file))
    assert mapped(file.name)


def test_backend_loads_once_for_eight_threads(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        on_threads(8, lambda _: multiplies(on_hooks(found)))
    assert report.hooks().count("create") == 1


def test_every_object_of_a_backend_is_released(folder):
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    with folder.registered() as found:
        for resources in (None, "default_stream"):
            hooks = {"profile": "1", "compiled": "x"} | ({"resources": resources} if resources else {})
            for _ in range(3):
                running = on_hooks(found, hooks=hooks)
                multiplies(running)
                del running
    calls = report.hooks()
    made = {"ep.drop": "factory.create_ep", "factory.drop": "create", "stream.drop": "resources.create_stream"}
    made |= {"allocator.drop": "resources.create_allocator"}
    for gone, came in made.items():
        assert calls.count(gone) == calls.count(came) > 0, (gone, calls.count(gone), calls.count(came))
    assert calls.count("partition.drop") == 6
    assert calls.count("profiler.drop") == calls.count("profiling.profiler")


@pytest.mark.since("1.28")
def test_tensor_of_a_backends_allocator_outlives_session_and_registration(folder):
    """ONNX Runtime 1.26 frees such a tensor through an object that it destroyed with the registration."""
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    found = folder.registered()
    devices = found.__enter__()
    running = on_hooks(devices, hooks={"resources": "default_stream"})
    x, y = pair()
    binding = running.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("y", y)
    binding.bind_ortvalue_output("z", empty_on_device((2, 3), np.float32))
    running.run_with_iobinding(binding)
    (kept,) = binding.get_outputs()
    del binding, running
    gc.collect()
    np.testing.assert_array_equal(kept.numpy(), x * y)
    found.__exit__(None, None, None)
    del kept
    gc.collect()
    assert report.hooks().count("allocator.drop") == report.hooks().count("resources.create_allocator")


def test_session_on_a_backend_outlives_the_registration(folder):
    folder.put(example("hooks"))
    with folder.registered() as found:
        running = on_hooks(found)
        multiplies(running)
    multiplies(running)
    del running
    gc.collect()


@pytest.mark.parametrize("profile", ["hip", "migraphx"])
def test_thread_that_ran_a_session_may_end_after_the_backend_is_unmapped(profile, folder):
    """Thread-local destructors of a backend must not run after its code is unmapped."""
    folder.put(example("hooks"))
    ran, unregistered = threading.Event(), threading.Event()

    def work(found):
        multiplies(on_hooks(found, profile=profile))
        gc.collect()
        ran.set()
        unregistered.wait()

    with folder.registered() as found:
        worker = threading.Thread(target=work, args=(found,))
        worker.start()
        ran.wait()
    unregistered.set()
    worker.join()


PROFILES = ["hip", "auto", "migraphx", "directx", "hipgpu", "eager", "optimize", "turbo"]


def test_threads_create_and_destroy_sessions_with_random_profiles(folder):
    """Eight threads for a few rounds each, or for AMDGPU_EP_TEST_STRESS_SECONDS. Nothing grows, and every object that
    the backend created is released."""
    seconds, turns = float(os.environ.get("AMDGPU_EP_TEST_STRESS_SECONDS", "0")), 24
    report = Report(folder.path / "report")
    folder.put(example("hooks"))
    folder.put(example("broken"), "hipgpu")
    os.environ["BROKEN"] = "ep_error"
    counts = {"made": 0, "refused": 0}
    lock = threading.Lock()

    with folder.registered() as found:

        def work(seed, until):
            dice = random.Random(seed)
            for turn in itertools.count():
                if turn >= turns and time.monotonic() >= until:
                    break
                profile = dice.choice(PROFILES)
                try:
                    if profile == "migraphx":
                        running = on_hooks(found, hooks={"resources": "default_stream"} if dice.random() < 0.5 else {})
                        multiplies(running)
                    else:
                        running = session(found, profile=profile)
                        works(running)
                except Exception as error:
                    assert profile not in ("hip", "auto", "migraphx", "eager"), error
                    outcome = "refused"
                else:
                    outcome = "made"
                    del running
                with lock:
                    counts[outcome] += 1

        # The first rounds fill the caches of ONNX Runtime and of the C library.
        on_threads(8, lambda seed: work(seed, time.monotonic() + seconds / 4))
        before = (resident_kib(), open_files(), threads())
        on_threads(8, lambda seed: work(100 + seed, time.monotonic() + seconds))
        after = (resident_kib(), open_files(), threads())
    print(f"{counts}, resident {before[0]} -> {after[0]} KiB")
    assert counts["made"] > 200 and counts["refused"] > 50, counts
    assert after[1:] == before[1:], "open files and threads"
    assert after[0] - before[0] < 64 * 1024
    calls = report.hooks()
    for gone, came in {"ep.drop": "factory.create_ep", "stream.drop": "resources.create_stream",
                       "allocator.drop": "resources.create_allocator", "factory.drop": "create"}.items():
        assert calls.count(gone) == calls.count(came) > 0, (gone, calls.count(gone), calls.count(came))
