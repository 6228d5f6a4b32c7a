"""Fixtures for tests of `amdgpu-ep serve`: servers on the host device, and real clients."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("serving")

from serving import Server


def pytest_sessionstart():
    for name in ("AMDGPU_EP_LIBRARY", "AMDGPU_EP_TEST_ORT", "AMDGPU_EP_TEST_ONNX_PYTHON"):
        path = os.environ.get(name)
        if not path or not os.path.isfile(path):
            raise pytest.UsageError(
                f"{name} is {path!r}, which is not a file; `cargo xtask test --only serve` builds it and sets this"
            )


@pytest.fixture(scope="session")
def server():
    """A server with default settings, for tests that leave no traces in it."""
    with Server("demo=demo/model") as server:
        yield server


@pytest.fixture(scope="session")
def tensors(tmp_path_factory):
    """A folder with plain ONNX models, and what ONNX Runtime's CPU provider answers."""
    folder = tmp_path_factory.mktemp("tensors")
    script = Path(__file__).with_name("tensors.py")
    subprocess.run([os.environ["AMDGPU_EP_TEST_ONNX_PYTHON"], script, folder], check=True)
    return folder


@pytest.fixture
def start():
    """Starts servers with other arguments."""
    started = []

    def start(*words, **variables):
        started.append(Server(*words, **variables))
        return started[-1].__enter__()

    yield start
    for server in started:
        server.__exit__(None, None, None)
