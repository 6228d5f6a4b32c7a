"""Files in the current folder are never loaded just because they are there."""
import shutil
import sys

import pytest
from ways import run

NAMES = ("libamdgpu-ep.so", "libonnxruntime.so", "libonnxruntime.so.1", "libhip-backend.so", "libhip-host.so", "libamdhip64.so", "libmigraphx_c.so", "libhipgpu-backend.so")


def set_traps(place, tools):
    """Puts the evil library under every name that is searched for, and a package that shadows the installed one."""
    capi = place.cwd / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    for name in {*NAMES, tools.onnxruntime.name}:
        shutil.copy(place.evil, place.cwd / name)
        if "onnxruntime" in name:
            shutil.copy(place.evil, capi / name)
    spoken = "import os\nopen(os.environ['HOSTILE_MARK'], 'a').write('imported\\n')\n"
    (place.cwd / "onnxruntime" / "__init__.py").write_text(spoken)
    for module in ("sitecustomize.py", "numpy.py"):
        (place.cwd / module).write_text(spoken)


def wheel(place, tools):
    """The Python package in the wheel's layout, outside the current folder."""
    from place import ROOT

    package = place.root / "site" / "amdgpu_ep"
    shutil.copytree(ROOT / "python" / "amdgpu_ep", package)
    shutil.copytree(tools.library.parent, package / "lib")
    shutil.copytree(tools.command.parent, package / "bin")
    return package.parent


def check(ended, record_property, name):
    record_property("case", f"trap-{name}")
    record_property("way", "command")
    record_property("loads", int(bool(ended.loads)))
    record_property("writes", int(bool(ended.changes)))
    record_property("aborts", int(ended.code < 0))
    assert not ended.loads, f"{ended.loads!r} was loaded\n{ended.everything()}"
    assert not ended.harm(), f"{ended.harm()}\n{ended.everything()}"
    assert ended.code in (0, 1, 2), ended.everything()


COMMANDS = {"generate": ["generate", "{model}", "hello", "--max-new-tokens", "2"], "doctor": ["doctor"], "explain": ["explain", "{model}/model.onnx"]}


@pytest.mark.parametrize("search", [None, "", ":", ".", "/nowhere::/nothing"])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_takes_nothing_from_the_current_folder(name, search, tools, place, record_property):
    set_traps(place, tools)
    if search == ".":
        pytest.skip("a dot in LD_LIBRARY_PATH is an explicit choice")
    words = [tools.command, *(place.fill(word) for word in COMMANDS[name])]
    ended = run(place, words, AMDGPU_EP_PATH=None, LD_LIBRARY_PATH=search)
    check(ended, record_property, f"command-{name}-{search}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_python_module_takes_nothing_from_the_current_folder(name, tools, place, record_property):
    site = wheel(place, tools)
    set_traps(place, tools)
    (place.cwd / "sitecustomize.py").unlink()  # with `python -m`, Python itself would load it
    words = [sys.executable, "-m", "amdgpu_ep", *(place.fill(word) for word in COMMANDS[name])]
    ended = run(place, words, AMDGPU_EP_PATH=None, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    check(ended, record_property, f"module-{name}")


def test_the_traps_are_triggered(tools, place):
    """The traps work: given a path to it, the evil library leaves its mark."""
    ended = run(place, [tools.command, "generate", place.model, "hello", "--ort", place.evil])
    assert "loaded" in ended.loads, ended.everything()
