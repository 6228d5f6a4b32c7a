"""The kernels of well-known models are in the shipped sets: a session compiles none.

`cargo xtask amd --row sets` makes a set for an emulated GPU and runs these tests with it. With `AMDGPU_EP_SIMULATE_TEXTS`,
the same sessions write the sources of their kernels into a folder, from which the set is made.
"""
import os
from pathlib import Path

import numpy as np
import pytest
from genai_support import model_on_device
from support import LIBRARY, registered, session_on

ROOT = Path(__file__).resolve().parents[2]
TEXTS = os.environ.get("AMDGPU_EP_SIMULATE_TEXTS")
HAS_SET = "AMDGPU_EP_KERNEL_PATH" in os.environ

pytestmark = [
    pytest.mark.skipif(not (TEXTS or HAS_SET), reason="needs a kernel set: cargo xtask amd --row sets"),
    pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY),
]

# A prompt of a few tokens, one that fills several blocks of rows, and as many new tokens as use every kernel of a step.
PROMPTS = ([5, 9, 3], [1 + at % 50 for at in range(40)])
NEW = 3


@pytest.fixture(autouse=True)
def no_kernel_is_compiled(tmp_path, monkeypatch):
    """Compiled kernels go to the cache, which is empty at first."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("AMDGPU_EP_CACHE_DIR", str(cache))
    yield
    assert not sorted(file.name for file in cache.glob("kernels/*.co"))
    assert not TEXTS or list(Path(TEXTS).glob("*.hip"))


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("name", ["resnet50", "bert"])
def test_networks_with_fixed_shapes(name, batch, monkeypatch):
    """Their plans are made when a session is created."""
    monkeypatch.syspath_prepend(ROOT / "bench")
    from networks import bert, resnet50

    network = {"bert": bert, "resnet50": resnet50}[name]
    model = network.onnx_model(network.weights(), batch)
    with registered() as found:
        session = session_on(found[:1], model)
        del session


@pytest.mark.parametrize("name", ["nano-fp16", "nano-int4", "demo"])
def test_decoders(name):
    import onnxruntime_genai as og

    if name == "demo":
        config = og.Config(str(ROOT / "demo" / "model"))
        config.clear_providers()
        config.append_provider("amdgpu")
        model = og.Model(config)
    else:
        model = model_on_device(name, og)
    for prompt in PROMPTS:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=len(prompt) + NEW, do_sample=False)
        generator = og.Generator(model, parameters)
        generator.append_tokens(np.array(prompt, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        del generator
    del model
