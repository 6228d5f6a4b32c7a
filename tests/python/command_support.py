"""Runs the `amdgpu-ep` command of the staged build with this interpreter's ONNX Runtime and the driver of the test."""
import json
import os
import subprocess
from pathlib import Path

import onnxruntime
from support import LIBRARY

COMMAND = Path(LIBRARY).parent.parent / "bin" / "amdgpu-ep"


def onnxruntime_library():
    """Returns the library of the package that this interpreter imports."""
    capi = Path(onnxruntime.__file__).parent / "capi"
    return next(path for path in capi.iterdir() if path.name.startswith("libonnxruntime.so."))


def loader():
    """Returns the loader that started this interpreter, with its folders, unless it is the system's."""
    words = Path("/proc/self/cmdline").read_text().split("\0")
    return words[:3] if words[1] == "--library-path" else []


def call(*words, stdin="", **variables):
    """Runs the command with additional environment variables, and returns the completed process."""
    environment = {**os.environ, "AMDGPU_EP_PATH": LIBRARY, **variables}
    command = [*loader(), COMMAND, *words, "--ort", onnxruntime_library()]
    return subprocess.run(command, input=stdin.encode(), capture_output=True, env=environment, timeout=600)


def document(*words, stdin="", **variables):
    """Returns the JSON document that the command prints."""
    done = call(*words, "--json", stdin=stdin, **variables)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def error(*words, **variables):
    """Returns the error message of a command that must fail."""
    done = call(*words, **variables)
    assert done.returncode == 2 and not done.stdout, done
    return done.stderr.decode()
