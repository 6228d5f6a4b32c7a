"""Windows' Python with our libraries. Its sessions are tested by the files in tests/python."""
import os

from conftest import windows_path

# Each round loads our libraries again, unless they stay in the process.
REGISTER_OFTEN = """
import sys
import onnxruntime
for _ in range(400):
    onnxruntime.register_execution_provider_library("often", sys.argv[1])
    assert any(device.ep_name == "often" for device in onnxruntime.get_ep_devices())
    onnxruntime.unregister_execution_provider_library("often")
print("done")
"""

# The README's example, with the wheel as it is installed: as a folder that is imported from.
WITH_THE_WHEEL = """
import sys, zipfile
zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])
sys.path.insert(0, sys.argv[2])
import amdgpu_ep, numpy, onnxruntime
amdgpu_ep.register(onnxruntime)
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "AMDGPUExecutionProvider"]
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
options.add_provider_for_devices(devices[:1], {"profile": "hip"})
session = onnxruntime.InferenceSession(sys.argv[3], sess_options=options)
print(session.get_providers()[0], session.run(None, {"x": numpy.arange(4, dtype=numpy.float32)})[0].tolist())
"""


def test_libraries_can_be_registered_many_times(windows):
    assert windows.python("-c", REGISTER_OFTEN, windows_path(windows.library)).strip().endswith("done")


def test_wheel_registers_the_provider(windows, tmp_path):
    from test_program import save_model

    save_model(tmp_path / "model.onnx")
    files = os.environ["AMDGPU_EP_WHEEL"], tmp_path / "wheel", tmp_path / "model.onnx"
    said = windows.python("-c", WITH_THE_WHEEL, *map(windows_path, files))
    assert said.strip().endswith("AMDGPUExecutionProvider [0.0, 2.0, 4.0, 6.0]"), said
