"""Fixtures for tests of `amdgpu-ep serve`: servers on the host device, and real clients."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("serving")

from serving import ROOT, Server

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant{{ '\n' }}"
# The names alone, because the model's sequences are short.
HERMES = "{% for tool in tools or [] %}{{ tool.function.name }} <tool_call>{% endfor %}" + TURNS
LLAMA = "{% if tools %}<|python_tag|>{% endif %}" + TURNS
THINKING = TURNS + "<think>\n"


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
def templates(tmp_path_factory):
    """A server with one model for each template: the demo model knows no tools."""
    words = ["demo=demo/model"]
    for name, template in [("hermes", HERMES), ("llama", LLAMA), ("thinking", THINKING)]:
        folder = tmp_path_factory.mktemp("models") / name
        shutil.copytree(ROOT / "demo/model", folder)
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": template}))
        words.append(str(folder))
    with Server(*words) as server:
        yield server


def written(script, folder):
    """Runs a script that writes models, in the environment that has the `onnx` package."""
    subprocess.run([os.environ["AMDGPU_EP_TEST_ONNX_PYTHON"], Path(__file__).with_name(script), folder], check=True)
    return folder


@pytest.fixture(scope="session")
def tensors(tmp_path_factory):
    """A folder with plain ONNX models, and what ONNX Runtime's CPU provider answers."""
    return written("tensors.py", tmp_path_factory.mktemp("tensors"))


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """The folder of an encoder."""
    return written("encoder.py", tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def written_folder(tmp_path_factory):
    """Runs a script that writes a folder."""
    return lambda script: written(script, tmp_path_factory.mktemp(Path(script).stem))


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
