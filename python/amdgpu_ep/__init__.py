"""AMD GPUs for ONNX Runtime: locates the execution provider's library and registers it.

Importing this package imports and registers nothing else. It has no dependencies: install `onnxruntime` (1.24 or newer)
yourself. The package opens no network connections.
"""
import os
from pathlib import Path

__all__ = ["__version__", "devices", "get_ep_name", "get_ep_names", "get_library_path", "register"]

_EP_NAME = "AMDGPUExecutionProvider"


def get_library_path() -> str:
    """Returns the full path of the execution provider's library."""
    name = "amdgpu-ep.dll" if os.name == "nt" else "libamdgpu-ep.so"
    library = Path(__file__).resolve().parent / "lib" / name
    if not library.is_file():
        raise FileNotFoundError(f"{library} is missing: the installation of amdgpu-ep is incomplete; install it again")
    return str(library)


def get_ep_name() -> str:
    """Returns the name of the execution provider in ONNX Runtime."""
    return _EP_NAME


def get_ep_names() -> list[str]:
    """Returns the names of all execution providers in the library. There is one."""
    return [_EP_NAME]


def register(ort, trust_options: bool = False) -> None:
    """Registers the library with `ort`, the module `onnxruntime` or `onnxruntime_genai`.

    Both modules share registrations, and registering again does nothing. Without a GPU the call succeeds too: there are
    no devices then, and a warning says why.

    Options that load libraries or write files are refused unless `trust_options` is true. It applies to the whole
    process, including options that ONNX Runtime GenAI reads from a model's folder: use it only with folders that you
    trust.
    """
    if trust_options:
        _trust_options(get_library_path())
    if hasattr(ort, "Generator"):
        from ._genai import guard

        guard(ort)
    try:
        ort.register_execution_provider_library(_EP_NAME, get_library_path())
    except Exception as error:
        # ONNX Runtime has no query for this, and no exception type.
        if f"already registered under {_EP_NAME}" not in str(error):
            raise


def _trust_options(path: str) -> None:
    import ctypes

    # The library stays loaded from here on, so the setting is in effect when ONNX Runtime loads it.
    library = ctypes.CDLL(path)
    try:
        trust = library.amdgpu_ep_trust_options
    except AttributeError:
        raise RuntimeError(
            f"{path} does not support trusting options: it has no function amdgpu_ep_trust_options\n"
            "  help: install amdgpu-ep again, so that the package and its library have the same version"
        ) from None
    trust.argtypes, trust.restype = [ctypes.c_int], None
    trust(1)


def devices() -> list:
    """Registers the execution provider and returns its devices, as listed by `onnxruntime.get_ep_devices()`.

    The list is empty if there is no AMD GPU; `python -m amdgpu_ep doctor` says why.
    """
    import onnxruntime

    register(onnxruntime)
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == _EP_NAME]


def __getattr__(name: str):
    if name == "__version__":
        # Looked up on demand, because it takes longer than the rest of the import.
        from importlib.metadata import version

        return version("amdgpu-ep")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
