"""`cargo xtask test --only wheel` builds a wheel and runs these tests with its path."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from environments import ROOT, Environment
from onnx import TensorProto, helper

RELEASES = ("1.24.4", "1.28.0", "1.31.1")
GENAI = "0.18.0"

# The backends that the wheel was packed with.
BACKENDS = set(os.environ.get("AMDGPU_EP_WHEEL_BACKENDS", "migraphx,hip,hipgpu").split(",")) - {"none"}

# Fixtures that provide models to run; here our own engine runs them.
MODELS = {"model_folder", "tiny_language_model", "genai"}


def pytest_configure(config):
    if not os.path.isfile(os.environ.get("AMDGPU_EP_WHEEL", "")):
        raise pytest.UsageError("AMDGPU_EP_WHEEL is not a file; `cargo xtask test --only wheel` builds it and sets this")


def pytest_collection_modifyitems(items):
    for item in items:
        if "hip" not in BACKENDS and MODELS & set(item.fixturenames):
            item.add_marker(pytest.mark.skip(reason="the wheel has no hip backend"))


@pytest.fixture(scope="session")
def backends():
    return BACKENDS


@pytest.fixture(scope="session")
def libraries():
    """The libraries that belong in the wheel."""
    names = ["amdgpu-ep", "hip-host", *(f"{backend}-backend" for backend in BACKENDS)]
    if "hip" in BACKENDS:
        names += ["hipdnn_host", "hipdnn_cudnn"]
    return {f"lib{name}.so" for name in names}


@pytest.fixture(scope="session")
def wheel():
    return Path(os.environ["AMDGPU_EP_WHEEL"]).resolve()


@pytest.fixture(scope="session")
def environment_of(tmp_path_factory, wheel):
    """Returns an environment with the wheel and a given ONNX Runtime release; each is made once."""
    made = {}

    def get(release):
        if release not in made:
            made[release] = Environment(tmp_path_factory.mktemp(release) / "venv")
            made[release].install(f"onnxruntime=={release}", wheel)
        return made[release]

    return get


@pytest.fixture(params=RELEASES)
def release(request, environment_of):
    """An environment for each of the releases, with the release."""
    return environment_of(request.param), request.param


@pytest.fixture
def newest(environment_of):
    return environment_of(RELEASES[-1])


@pytest.fixture(scope="session")
def genai(environment_of):
    environment = environment_of(RELEASES[-1])
    environment.install(f"onnxruntime-genai=={GENAI}")
    return environment


@pytest.fixture(scope="session")
def tiny_language_model(tmp_path_factory):
    """A folder with `model`, a GenAI folder."""
    folder = tmp_path_factory.mktemp("language-model")
    subprocess.run([sys.executable, ROOT / "tests" / "tiny_models.py", "--to", folder / "model"], check=True)
    return folder


@pytest.fixture
def model_folder(tmp_path):
    """A folder with the models that the documents mention: `model.onnx`, y = relu(x @ w), and `mixed.onnx`, which has
    an unsupported node."""
    floats = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    nodes = [("MatMul", ["x", "w"], ["product"]), ("Relu", ["product"], ["y"])]
    save(tmp_path / "model.onnx", nodes, floats("x", "rows", 4), floats("y", "rows", 3), weight)
    nodes = [("Exp", ["x"], ["e"]), ("MatMul", ["e", "w"], ["p"]), ("Det", ["p"], ["d"]), ("Relu", ["d"], ["y"])]
    save(tmp_path / "mixed.onnx", nodes, floats("x", "n", 4, 4), floats("y", "n"), np.eye(4, dtype=np.float32))
    return tmp_path


def save(path, nodes, x, y, weight):
    nodes = [helper.make_node(*node) for node in nodes]
    graph = helper.make_graph(nodes, path.stem, [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
