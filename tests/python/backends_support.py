"""Helpers for tests of backends: a private folder of libraries, test backends, and their reports."""
import contextlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import AMD, EP, LIBRARY, affine, affine_model, bytes_of, close, options_for, registered, sample

STAGE = Path(LIBRARY).parent
ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = Path(os.environ.get("AMDGPU_EP_TEST_EXAMPLES", ROOT / "target" / "debug" / "examples"))


def example(name):
    """Returns one of the SDK's example plugins."""
    file = EXAMPLES / f"lib{name}.so"
    if not file.exists():
        pytest.skip(f"{file} is missing: cargo build -p ort-ep --examples")
    return file


def link(source, target):
    """Makes a hard link, or a copy if that fails. Never write to `target`: it may be the same file as `source`."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


class Folder:
    """A folder with the umbrella, the host driver and the hip backend, to which tests can add other backends."""

    def __init__(self, path, hip=True):
        self.path = Path(path)
        for name in ("amdgpu-ep", "hip-host") + (("hip-backend",) if hip else ()):
            link(STAGE / f"lib{name}.so", self.path / f"lib{name}.so")
        self.library = str(self.path / "libamdgpu-ep.so")
        self.table = self.path / "table.txt"
        self.table.write_text("* * migraphx\n")

    def backend(self, name="migraphx"):
        return self.path / f"lib{name}-backend.so"

    def put(self, source, name="migraphx"):
        """Installs a plugin under the name of a backend."""
        target = self.backend(name)
        target.unlink(missing_ok=True)
        link(source, target)
        return target

    @contextlib.contextmanager
    def registered(self, name=EP):
        with registered(name, self.library) as found:
            assert len(found) >= 1
            yield found

    def auto(self):
        """Options under which `auto` tries migraphx first and hip next."""
        return {"routing_table": self.table}


def error_of(action):
    with pytest.raises(Exception) as raised:
        action()
    return str(raised.value)


def session(found, model=None, entries=None, prepare=None, **options):
    settings = options_for(found[:1], **options)
    for key, value in (entries or {}).items():
        settings.add_session_config_entry(key, str(value))
    if prepare:
        prepare(settings)
    return ort.InferenceSession(model or affine_model(), sess_options=settings, enable_fallback=0)


def works(running):
    close(running.run(None, {"x": sample()})[0], affine(sample()))


def hip_works(found):
    running = session(found, profile="hip", entries={"session.disable_cpu_ep_fallback": "1"})
    works(running)
    del running


def on_hooks(found, model=None, profile="migraphx", hooks=None, entries=None, prepare=None, **options):
    """A session on the `hooks` example, which must be the migraphx backend or `backend_library`."""
    told = {f"ep.hooks.{key}": value for key, value in {"ram": AMD, **(hooks or {})}.items()}
    if profile:
        options["profile"] = profile
    return session(found, model or mul_model(), {**told, **(entries or {})}, prepare, **options)


def pair(shape=(2, 3)):
    generator = np.random.default_rng(7)
    return (generator.standard_normal(shape, dtype=np.float32) for _ in range(2))


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, list(shape))


def model_of(nodes, inputs, outputs):
    return bytes_of(helper.make_graph([helper.make_node(*node) for node in nodes], "test", inputs, outputs))


def mul_model():
    return model_of([("Mul", ["x", "y"], ["z"])], [value("x", (2, 3)), value("y", (2, 3))], [value("z", (2, 3))])


def multiplies(running):
    x, y = pair()
    np.testing.assert_array_equal(running.run(None, {"x": x, "y": y})[0], x * y)


class Report:
    """The file in which the `hooks` example records its calls."""

    def __init__(self, path):
        self.path = Path(path)
        os.environ["HOOKS_REPORT"] = str(path)

    def lines(self):
        return self.path.read_text().splitlines() if self.path.exists() else []

    def hooks(self):
        return [line.split(" ", 1)[0] for line in self.lines()]

    def details(self, hook):
        return [line.split(" ", 1)[1] for line in self.lines() if line.split(" ", 1)[0] == hook]

    def forget(self):
        self.path.unlink(missing_ok=True)


def entries_seen(report):
    """The session's configuration as the backend saw it."""
    return dict(line.split("=", 1) for line in report.details("entry"))


@contextlib.contextmanager
def fault(kind, hook):
    os.environ["HOOKS_FAULT"] = f"{kind}:{hook}"
    try:
        yield
    finally:
        del os.environ["HOOKS_FAULT"]


def mapped(name):
    """Whether a file whose path contains `name` is mapped."""
    with open("/proc/self/maps") as maps:
        return any(name in line for line in maps)


def log_lines(capfd, pattern):
    """Returns the matching lines of the session's log since the last call."""
    return [line for line in capfd.readouterr().err.splitlines() if re.search(pattern, line)]
