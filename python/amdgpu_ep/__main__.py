"""Starts the program `amdgpu-ep` with this Python's ONNX Runtime. `python -m amdgpu_ep` does the same."""
import os
import site
import sys


def main():
    package = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(package, "bin", "amdgpu-ep")
    library = onnxruntime_library(package)
    if library and not os.environ.get("ORT_DYLIB_PATH"):
        os.environ["ORT_DYLIB_PATH"] = library
    try:
        os.execv(program, ["amdgpu-ep", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"error: {program} cannot be started: {error}\n  help: install amdgpu-ep again")


def onnxruntime_library(package):
    """Finds the library of the installed ONNX Runtime package without importing it.

    `sys.path` is not used: `python -m` puts the current folder first, which may contain downloaded files.
    """
    for folder in package_folders(package):
        capi = os.path.join(folder, "onnxruntime", "capi")
        names = os.listdir(capi) if os.path.isdir(capi) else []
        files = sorted(name for name in names if name.startswith("libonnxruntime.so"))
        if files:
            return os.path.join(capi, files[0])
    return None


def package_folders(package):
    """Returns the package folders of this Python in the order of `sys.path`: configured folders, site-packages, and the
    folder of this package."""
    configured = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    folders = [folder for folder in configured.split(os.pathsep) if os.path.isabs(folder)]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return [*folders, *site.getsitepackages(), os.path.dirname(package)]


if __name__ == "__main__":
    main()
