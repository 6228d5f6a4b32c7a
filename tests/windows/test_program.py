"""The program and the wheel as users on Windows meet them."""
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import onnx
from conftest import windows_path
from onnx import TensorProto, helper

NAMES = ("amdgpu-ep", "hip-backend", "hipgpu-backend", "migraphx-backend", "directx-backend", "hip-host", "hipdnn_cudnn", "hipdnn_host")


def save_model(file):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def test_session_with_paths_that_have_spaces_umlauts_and_many_characters(windows, tmp_path):
    folder = tmp_path / "Modelle für Grüße" / "さくら" / ("sehr lang " * 12).strip() / ("noch länger " * 10).strip()
    folder.mkdir(parents=True)
    save_model(folder / "Größe.onnx")
    np.save(folder / "x.npy", np.arange(4, dtype=np.float32))
    words = ["run", windows_path(folder / "Größe.onnx"), *windows.libraries, "--profile", "hip", "--json"]
    words += ["--option", "session.disable_cpu_ep_fallback=1", "--input", f"x={windows_path(folder / 'x.npy')}", "--output", windows_path(folder)]
    report = json.loads(windows.run(*words))
    assert (report["driver"], report["device_nodes"]) == ("host", 1)
    assert np.load(folder / "y.npy").tolist() == [0.0, 2.0, 4.0, 6.0]


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
    assert "amdhip64_7.dll" in text and ".so" not in text


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
