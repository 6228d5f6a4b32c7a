"""Helpers for tests with the `hooks` plugin: which hooks were called, and how to make them fail."""
import contextlib
import gc
import os
import sys
import tempfile

import numpy as np
import onnxruntime as ort
import support

LIBRARY, NAME, VENDOR = sys.argv[1], "Hooks", 0xBEEF
FOLDER = tempfile.TemporaryDirectory()
os.environ["HOOKS_REPORT"] = os.path.join(FOLDER.name, "report")


def calls(hook=""):
    """The new lines since the last call, for one hook or a family (`stream.`)."""
    try:
        with open(os.environ["HOOKS_REPORT"], encoding="utf-8") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        lines = []
    lines = [line.rstrip() for line in lines]
    return [line for line in lines if line.split(" ")[0].startswith(hook)]


def forget():
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.environ["HOOKS_REPORT"])


@contextlib.contextmanager
def fault(kind, hook):
    os.environ["HOOKS_FAULT"] = f"{kind}:{hook}"
    try:
        yield
    finally:
        del os.environ["HOOKS_FAULT"]


def register(name=NAME):
    ort.register_execution_provider_library(name, LIBRARY)


def unregister(name=NAME):
    gc.collect()
    ort.unregister_execution_provider_library(name)


def session(model, options=None, name=NAME, **rest):
    return support.session(name, model, options, **rest)


def on_device(array, device=0):
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", device, VENDOR)


def bound(running, **values):
    """A binding of device values; the one named `z` is the output."""
    binding = running.io_binding()
    for key, device_value in values.items():
        bind = binding.bind_ortvalue_output if key == "z" else binding.bind_ortvalue_input
        bind(key, device_value)
    return binding


def run_options(**entries):
    options = ort.RunOptions()
    for key, entry in entries.items():
        options.add_run_config_entry(key.replace("__", "."), entry)
    return options


def multiplies(running):
    """Runs a session of `support.mul_model` and compares."""
    x, y = support.pair()
    support.same(running.run(None, {"x": x, "y": y})[0], x * y)


def zeros(shape=(2, 3)):
    return np.zeros(shape, np.float32)
