"""A folder with all, some or none of the backends: registration works, `auto` uses those that are present, and a
profile whose backend is missing is refused with a readable message. `cargo xtask test --only backends` runs this with
fewer backends."""
import json
import os
import subprocess
from pathlib import Path

import pytest
from backends_support import error_of, log_lines, session, works
from support import EP, LIBRARY, registered

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")

NAMES = ["migraphx", "hip", "hipgpu"]
CHOSEN = os.environ.get("AMDGPU_EP_TEST_BACKENDS", ",".join(NAMES)).split(",")
COMMAND = Path(LIBRARY).parents[1] / "bin" / "amdgpu-ep"


def at_warnings(settings):
    settings.log_severity_level = 2


def at_infos(settings):
    settings.log_severity_level = 1


def refused_because_missing(text, backend):
    file = f"lib{backend}-backend.so"
    for words in (f"could not load the backend {backend}", f"help: put {file} next to libamdgpu-ep", "profile=auto"):
        assert words in text, text


def test_the_folder_has_the_chosen_backends_only():
    staged = {file.name for file in Path(LIBRARY).parent.glob("*-backend.so")}
    assert staged == {f"lib{name}-backend.so" for name in NAMES if name in CHOSEN}


def test_devices_are_listed_with_any_set_of_backends():
    with registered() as found:
        assert [device.ep_name for device in found] == [EP]


def test_auto_takes_the_engine_or_leaves_the_model_to_the_cpu_with_one_warning(capfd):
    with registered() as found:
        capfd.readouterr()
        running = session(found, prepare=at_infos if "hip" in CHOSEN else at_warnings)
        (line,) = log_lines(capfd, "profile auto")
        works(running)
        if "hip" in CHOSEN:
            assert "backend hip (" in line and EP in running.get_providers(), line
        else:
            assert "no usable backend; other providers run all nodes" in line and "libhip-backend.so" in line, line


@pytest.mark.parametrize("profile", ["llm", "hip", "eager"])
def test_language_models_run_on_the_engine_or_are_refused_with_a_readable_reason(profile):
    with registered() as found:
        if "hip" in CHOSEN:
            works(session(found, profile=profile, entries={"session.disable_cpu_ep_fallback": "1"}))
        else:
            refused_because_missing(error_of(lambda: session(found, profile=profile)), "hip")


@pytest.mark.parametrize("profile", ["migraphx", "hipgpu"])
def test_a_profiles_library_is_missing_only_where_it_was_left_out(profile):
    with registered() as found:
        text = error_of(lambda: session(found, profile=profile))
        # If our backend's library is present, the error is about the vendor's library, which is missing.
        is_missing = f"{Path(LIBRARY).parent}/lib{profile}-backend.so: cannot open shared object file" in text
        assert is_missing == (profile not in CHOSEN), text
        if is_missing:
            refused_because_missing(text, profile)


def test_doctor_lists_the_backends():
    # On the host device there is no AMD GPU, hence exit code 1.
    told = subprocess.run([COMMAND, "doctor", "--json"], capture_output=True, text=True)
    assert told.returncode == 1, told.stderr
    listed = {row["name"] for row in json.loads(told.stdout)["plugin"]["backends"]}
    assert listed == {name for name in NAMES if name in CHOSEN}
