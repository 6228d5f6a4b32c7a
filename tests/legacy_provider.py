"""Tests ONNX Runtime with AMD's built-in provider, from PyPI: the second choice of `amdgpu-ep generate`.

    python tests/legacy_provider.py --command amdgpu-ep --library libamdgpu-ep.so --onnxruntime libonnxruntime.so --model DIR

Without MIGraphX on the machine, AMD's provider cannot start; the CPU is used, and a note says so. With MIGraphX, it is
used. If our provider has a device, ours comes first.
"""
import argparse
import json
import os
import subprocess

arguments = argparse.ArgumentParser()
for name in ("command", "library", "onnxruntime", "model"):
    arguments.add_argument(f"--{name}", required=True)
arguments = arguments.parse_args()


def generate(driver, *flags):
    command = [arguments.command, "generate", arguments.model, "Hello", "--json", "--max-new-tokens", "8"]
    command += ["--ort", arguments.onnxruntime, "--library", arguments.library, *flags]
    # With a missing driver, we have no device, regardless of the machine.
    environment = {**os.environ, "AMDGPU_EP_DRIVER": driver, "AMDGPU_EP_HIP_LIBRARY": "there-is-no-such-library.so"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


ours = json.loads(generate("host").stdout)
assert ours["provider"].startswith("AMDGPUExecutionProvider"), ours["provider"]
assert ours["notices"] == [], ours["notices"]

second = json.loads(generate("amd").stdout)
assert second["provider"] in ("MIGraphX", "CPUExecutionProvider"), second["provider"]
assert second["tokens"] == ours["tokens"]
note = " ".join(second["notices"])
assert "plugin: it is registered but offers no device" in note, note
if second["provider"] == "CPUExecutionProvider":
    assert "MIGraphX: " in note and "libonnxruntime_providers_migraphx.so" in note, note
    required = generate("amd", "--require-gpu")
    assert required.returncode == 1 and "no usable AMD GPU" in required.stderr, required.stderr
print(f"without a device of ours: {second['provider']}")
