"""The command `amdgpu-ep`, also as `python -m amdgpu_ep`: a program of its own, with this Python's ONNX Runtime."""
import importlib.util
import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).resolve().parent / "bin" / "amdgpu-ep"
    library = onnxruntime_library()
    if library and not os.environ.get("ORT_DYLIB_PATH"):
        os.environ["ORT_DYLIB_PATH"] = library
    try:
        os.execv(program, ["amdgpu-ep", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"error: {program} cannot be started: {error}\n  help: install amdgpu-ep again")


def onnxruntime_library():
    """The library of the installed package, which is found without importing it."""
    found = importlib.util.find_spec("onnxruntime")
    folders = found.submodule_search_locations if found else None
    files = (file for folder in folders or [] for file in Path(folder, "capi").glob("libonnxruntime.so*"))
    return next(map(str, sorted(files)), None)


if __name__ == "__main__":
    main()
