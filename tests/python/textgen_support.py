"""The `amdgpu-ep generate` command of the staged build, on this interpreter's ONNX Runtime."""
import json
import os
import subprocess
from pathlib import Path

import onnxruntime
from support import LIBRARY

COMMAND = Path(LIBRARY).parent.parent / "bin" / "amdgpu-ep"


def onnxruntime_library():
    """The library of the package that this interpreter imports."""
    capi = Path(onnxruntime.__file__).parent / "capi"
    return next(path for path in capi.iterdir() if path.name.startswith("libonnxruntime.so."))


def command_tokens(folder, prompt, count, *arguments):
    """The command's JSON document for `count` tokens after `prompt`."""
    command = [COMMAND, "generate", folder, "-", "--json", "--max-new-tokens", str(count), "--ort", onnxruntime_library()]
    environment = {**os.environ, "AMDGPU_EP_DRIVER": "host", "AMDGPU_EP_PATH": LIBRARY}
    done = subprocess.run([*command, *arguments], input=prompt.encode(), capture_output=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)
