"""Text generation with ONNX Runtime GenAI: the golden tokens of the tiny models, through our device memory.

The models and the tokens are made by tools that lie beside the repository; a clone without them skips.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from backends_support import Folder
from support import LIBRARY

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
MAKER = SHARED / "tools" / "make_tiny_llm.py"
GOLDEN = SHARED / "data" / "tiny_llm_golden.json"
MODELS = Path(__file__).resolve().parents[2] / "target" / "test-models"

if not (MAKER.exists() and GOLDEN.exists()):
    pytest.skip("the tiny models' tools are not beside this clone (../shared)", allow_module_level=True)

GOLDENS = {model["name"]: model for model in json.loads(GOLDEN.read_text())["models"]}
NANO = [name for name in GOLDENS if name.startswith("nano")]

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)


def folder_of(name):
    """The model's folder, made once."""
    folder = MODELS / name
    if not (folder / "genai_config.json").exists():
        draft = MODELS / f".{name}.{os.getpid()}"
        subprocess.run([sys.executable, MAKER, draft, *GOLDENS[name]["args"]], check=True, stdout=subprocess.DEVNULL)
        draft.rename(folder)
    return folder


def model_on_device(name, og, options=()):
    config = og.Config(str(folder_of(name)))
    config.clear_providers()
    config.append_provider("amdgpu")
    for key, value in options:
        config.set_provider_option("amdgpu", key, value)
    return og.Model(config)


def generate(og, model, prompt, **search):
    import numpy as np

    parameters = og.GeneratorParams(model)
    parameters.set_search_options(**search)
    generator = og.Generator(model, parameters)
    generator.append_tokens(np.array(prompt, np.int32))
    new = []
    while not generator.is_done():
        generator.generate_next_token()
        new.append(int(generator.get_next_tokens()[0]))
    del generator
    return new


@pytest.mark.parametrize("backend", ["hip", "none"])
@pytest.mark.parametrize("name", NANO)
def test_golden_tokens(name, backend, tmp_path, monkeypatch):
    """With the hip backend taking nodes, and without any backend, so that no node is taken."""
    import onnxruntime_genai as og

    if backend == "none":
        monkeypatch.setenv("AMDGPU_EP_PATH", Folder(tmp_path, hip=False).library)

    config = json.loads((folder_of(name) / "genai_config.json").read_text())
    if not config["search"].get("past_present_share_buffer", False):
        pytest.skip("GenAI takes only models with a shared key/value buffer on this provider, and this one has none")
    model = model_on_device(name, og)
    assert model.device_type.upper() == "AMDGPU"
    for case in GOLDENS[name]["cases"]:
        if case["kind"] == "greedy":
            new = generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], do_sample=False)
            assert new == case["new_ids"][0]
        elif case["kind"] in ("greedy_penalty", "sample"):
            sampling = {"do_sample": case["kind"] == "sample", **case["options"]}
            new = generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], **sampling)
            assert new == case["new_ids"][0], case["options"]
    del model


def test_rewinding_to_the_start_repeats_the_tokens():
    import numpy as np
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    case = next(case for case in GOLDENS["nano-fp32"]["cases"] if case["kind"] == "greedy")
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=case["max_length"], do_sample=False)
    generator = og.Generator(model, parameters)
    for _ in range(3):
        generator.append_tokens(np.array(case["prompt_ids"][0], np.int32))
        new = []
        while not generator.is_done():
            generator.generate_next_token()
            new.append(int(generator.get_next_tokens()[0]))
        assert new == case["new_ids"][0]
        generator.rewind_to(0)
    del generator, model


def test_two_generators_of_one_model_take_turns():
    import numpy as np
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    cases = [case for case in GOLDENS["nano-fp32"]["cases"] if case["kind"] == "greedy"][:2]
    generators = []
    for case in cases:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=case["max_length"], do_sample=False)
        generator = og.Generator(model, parameters)
        generator.append_tokens(np.array(case["prompt_ids"][0], np.int32))
        generators.append(generator)
    new = [[], []]
    while not all(generator.is_done() for generator in generators):
        for tokens, generator in zip(new, generators):
            if not generator.is_done():
                generator.generate_next_token()
                tokens.append(int(generator.get_next_tokens()[0]))
    assert new == [case["new_ids"][0] for case in cases]
    del generator, generators, model


@pytest.mark.environment(AMDGPU_EP_HOST_STREAMS="threads")
def test_golden_tokens_with_stream_work_on_threads():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    for case in GOLDENS["nano-fp32"]["cases"]:
        if case["kind"] == "greedy":
            new = generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], do_sample=False)
            assert new == case["new_ids"][0]
    del model


@pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_DEVICES="2")
def test_golden_tokens_where_two_devices_are_offered():
    """GenAI hands every device of the provider to the session."""
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og)
    case = GOLDENS["nano-fp32"]["cases"][0]
    new = generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], do_sample=False)
    assert new == case["new_ids"][0]
    del model


@pytest.mark.parametrize("spelling", ["AMDGPU", "AMDGPUExecutionProvider", "amdgpuexecutionprovider"])
def test_provider_names_of_genai(spelling):
    import onnxruntime_genai as og

    config = og.Config(str(folder_of("nano-fp32")))
    config.clear_providers()
    config.append_provider(spelling)
    model = og.Model(config)
    case = GOLDENS["nano-fp32"]["cases"][0]
    assert generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], do_sample=False) == case["new_ids"][0]
    del model


def test_provider_option_reaches_the_parser():
    import onnxruntime_genai as og

    model = model_on_device("nano-fp32", og, [("profile", "hip")])
    del model
    with pytest.raises(Exception, match="turbo"):
        model_on_device("nano-fp32", og, [("profile", "turbo")])
