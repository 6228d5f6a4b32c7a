"""Starts the program `amdgpu-ep` with this Python's ONNX Runtime. `python -m amdgpu_ep` does the same."""
import os
import signal
import site
import subprocess
import sys

IS_WINDOWS = os.name == "nt"


def main():
    package = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(package, "bin", "amdgpu-ep.exe" if IS_WINDOWS else "amdgpu-ep")
    library = onnxruntime_library(package)
    if library and not os.environ.get("ORT_DYLIB_PATH"):
        os.environ["ORT_DYLIB_PATH"] = library
    try:
        replace(program, ["amdgpu-ep", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"error: {program} cannot be started: {error}\n  help: install amdgpu-ep again")


def replace(program, arguments):
    """Runs the program in place of this process, or waits for it on Windows, which cannot replace a process."""
    if not IS_WINDOWS:
        os.execv(program, arguments)
    # Ctrl-C goes to both processes. The program decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(subprocess.run(arguments, executable=program, check=False).returncode)


def onnxruntime_library(package):
    """Finds the library of the installed ONNX Runtime package without importing it.

    `sys.path` is not used: `python -m` puts the current folder first, which may contain downloaded files.
    """
    for folder in package_folders(package):
        capi = os.path.join(folder, "onnxruntime", "capi")
        names = os.listdir(capi) if os.path.isdir(capi) else []
        start = "onnxruntime.dll" if IS_WINDOWS else "libonnxruntime.so"
        files = sorted(name for name in names if name.startswith(start))
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
