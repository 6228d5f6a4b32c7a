"""The tiny language models and their golden tokens, created by tools that are stored beside the repository."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
MAKER = SHARED / "tools" / "make_tiny_llm.py"
GOLDEN = SHARED / "data" / "tiny_llm_golden.json"
MODELS = Path(__file__).resolve().parents[2] / "target" / "test-models"

if not (MAKER.exists() and GOLDEN.exists()):
    pytest.skip("the tiny models' tools are not beside this clone (../shared)", allow_module_level=True)

GOLDENS = {model["name"]: model for model in json.loads(GOLDEN.read_text())["models"]}


def folder_of(name):
    """Returns the model's folder, which is created once."""
    folder = MODELS / name
    if not (folder / "genai_config.json").exists():
        draft = MODELS / f".{name}.{os.getpid()}"
        subprocess.run([sys.executable, MAKER, draft, *GOLDENS[name]["args"]], check=True, stdout=subprocess.DEVNULL)
        try:
            draft.rename(folder)
        except OSError:
            shutil.rmtree(draft)  # another process was faster
    return folder


def config_of(name):
    return json.loads((folder_of(name) / "genai_config.json").read_text())


def shares_its_cache(name):
    """Whether the model has a shared key/value buffer, which GenAI requires on this provider."""
    return config_of(name)["search"].get("past_present_share_buffer", False)


def cases_of(name, *kinds):
    return [case for case in GOLDENS[name]["cases"] if case["kind"] in kinds]


def model_on_device(name, og, options=(), entries=None, longest=None):
    """Loads the model on our device, with provider options and session-config entries; `longest` overrides the folder's
    maximum sequence length."""
    config = og.Config(str(folder_of(name)))
    config.clear_providers()
    config.append_provider("amdgpu")
    for key, value in options:
        config.set_provider_option("amdgpu", key, value)
    if entries:
        config.overlay(json.dumps({"model": {"decoder": {"session_options": entries}}}))
    if longest:
        config.overlay(json.dumps({"search": {"max_length": longest}}))
    return og.Model(config)


def generator_for(og, model, prompts, pad=0, **search):
    """Returns a generator that has read the prompts, padded on the right to the same length."""
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(batch_size=len(prompts), **search)
    generator = og.Generator(model, parameters)
    longest = max(map(len, prompts))
    padded = [prompt + [pad] * (longest - len(prompt)) for prompt in prompts]
    generator.append_tokens(np.array(padded if len(padded) > 1 else padded[0], np.int32))
    return generator


def rest_of(generator):
    """Generates to the end, and returns the new tokens of all rows."""
    rows = None
    while not generator.is_done():
        generator.generate_next_token()
        tokens = [int(token) for token in generator.get_next_tokens()]
        rows = [[] for _ in tokens] if rows is None else rows
        for row, token in zip(rows, tokens):
            row.append(token)
    return rows or []


def generate(og, model, prompt, **search):
    generator = generator_for(og, model, [prompt], **search)
    new = rest_of(generator)[0]
    del generator
    return new


def greedy(og, model, case):
    return generate(og, model, case["prompt_ids"][0], max_length=case["max_length"], do_sample=False)
