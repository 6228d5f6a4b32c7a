"""The `amdgpu-ep` command of the staged build, on this interpreter's ONNX Runtime and the driver of the test."""
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


def loader():
    """The loader that this interpreter was started by, with its folders, if that is another one than the system's."""
    words = Path("/proc/self/cmdline").read_text().split("\0")
    return words[:3] if words[1] == "--library-path" else []


def call(*words, stdin="", **variables):
    """What the command did, with these environment variables on top."""
    environment = {**os.environ, "AMDGPU_EP_PATH": LIBRARY, **variables}
    command = [*loader(), COMMAND, *words, "--ort", onnxruntime_library()]
    return subprocess.run(command, input=stdin.encode(), capture_output=True, env=environment, timeout=600)


def document(*words, stdin="", **variables):
    """The JSON document that the command prints."""
    done = call(*words, "--json", stdin=stdin, **variables)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def error(*words, **variables):
    """What the command says when it fails."""
    done = call(*words, **variables)
    assert done.returncode == 2 and not done.stdout, done
    return done.stderr.decode()
