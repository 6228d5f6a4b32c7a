"""The program and the wheel as users on Windows meet them."""
import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
from conftest import windows_path
from onnx import TensorProto, helper

NAMES = ("amdgpu-ep", "hip-backend", "hipgpu-backend", "migraphx-backend", "directx-backend", "hip-host", "hipdnn_cudnn", "hipdnn_host")


# Opens a file without sharing it, as a virus scanner does, and clears the cache meanwhile.
CLEAR_WHILE_LOCKED = """
import ctypes, json, subprocess, sys
READ, OPEN_EXISTING = 0x80000000, 3
file, program, folder = sys.argv[1:]
assert ctypes.windll.kernel32.CreateFileW(file, READ, 0, None, OPEN_EXISTING, 0, None) != -1
done = subprocess.run([program, "cache", "clear", "--yes", "--json", "--dir", folder], capture_output=True, encoding="utf-8")
print(json.dumps([done.returncode, done.stdout, done.stderr]))
"""


def save_model(file):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def doubled(windows, model, libraries, *words, folder, spelled=windows_path):
    """Doubles four numbers on our provider, and returns the command's report."""
    np.save(folder / "x.npy", np.arange(4, dtype=np.float32))
    command = ["run", spelled(model), *libraries, "--json", "--option", "session.disable_cpu_ep_fallback=1", *words]
    command += ["--input", f"x={spelled(folder / 'x.npy')}", "--output", windows_path(folder)]
    report = json.loads(windows.run(*command))
    assert (report["driver"], report["device_nodes"]) == ("host", 1)
    assert np.load(folder / "y.npy").tolist() == [0.0, 2.0, 4.0, 6.0]
    return report


def test_session_with_paths_that_have_spaces_umlauts_and_many_characters(windows, tmp_path):
    folder = tmp_path / "Modelle für Grüße" / "さくら" / ("sehr lang " * 12).strip() / ("noch länger " * 10).strip()
    folder.mkdir(parents=True)
    save_model(folder / "Größe.onnx")
    doubled(windows, folder / "Größe.onnx", windows.libraries, "--profile", "hip", folder=folder)


def test_session_with_paths_in_another_case(windows, tmp_path):
    save_model(tmp_path / "model.onnx")
    upper = [word if word.startswith("--") else word.upper() for word in windows.libraries]
    doubled(
        windows, tmp_path / "model.onnx", upper, "--profile", "hip", folder=tmp_path,
        spelled=lambda path: windows_path(path).upper(),
    )


def test_directx_backend_passes_sessions_to_the_provider_beside_it(windows, tmp_path):
    """Our hip backend has the name of the DirectX provider here, which is a plugin too."""
    libraries = shutil.copytree(windows.library.parent, tmp_path / "lib")
    shutil.copy(libraries / "hip-backend.dll", libraries / "directml-ep.dll")
    save_model(tmp_path / "model.onnx")
    beside = ["--ort", windows_path(windows.runtime), "--library", windows_path(libraries / "directx-backend.dll")]
    doubled(windows, tmp_path / "model.onnx", beside, folder=tmp_path)


def test_clearing_the_cache_names_a_locked_file_and_removes_the_others(windows, tmp_path):
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    locked, other = (kernels / f"{name}-0123456789abcdef.co" for name in ("locked", "other"))
    for file in (locked, other):
        file.write_bytes(b"code")
    words = windows_path(locked), windows_path(windows.program), windows_path(tmp_path)
    code, said, warned = json.loads(windows.python("-c", CLEAR_WHILE_LOCKED, *words))
    found = json.loads(said)
    assert (code, found["files"], found["left"][0]["file"]) == (1, 1, windows_path(locked))
    assert f"warning: {windows_path(locked)} could not be removed: " in warned, warned
    assert locked.exists() and not other.exists()


def test_doctor_finds_the_libraries_beside_the_plugin(windows):
    more = {"AMDGPU_EP_PATH": windows_path(windows.library), "ORT_DYLIB_PATH": windows_path(windows.runtime)}
    found = json.loads(windows.run("doctor", "--json", status=None, **more))
    plugin = found["plugin"]
    assert plugin["path"] == more["AMDGPU_EP_PATH"] and plugin["error"] is None
    assert plugin["host_driver"].endswith("\\lib\\hip-host.dll")
    backends = {backend["name"]: backend for backend in plugin["backends"]}
    assert set(backends) == {"hip", "hipgpu", "migraphx", "directx"}
    assert backends["hip"]["error"] is None
    # The vendors' libraries are not here, and the messages name them as on Windows.
    assert "migraphx_c.dll" in backends["migraphx"]["error"]
    text = windows.run("doctor", status=None, **more)
    assert "amdhip64_7.dll" in text and ".so" not in text and "\\\\?\\" not in text


def test_cache_is_below_the_users_local_folder(windows):
    found = json.loads(windows.run("cache", "--json"))
    assert found["from"] == "LOCALAPPDATA", found
    assert found["path"].lower().replace("/", "\\").endswith("\\local\\amdgpu-ep\\cache"), found


def test_wheel_is_for_windows_and_has_the_libraries_and_the_program():
    wheel = Path(os.environ["AMDGPU_EP_WHEEL"])
    assert wheel.name.endswith("-py3-none-win_amd64.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if name.startswith("amdgpu_ep/lib/")} == {f"amdgpu_ep/lib/{name}.dll" for name in NAMES}
    assert "amdgpu_ep/bin/amdgpu-ep.exe" in names
