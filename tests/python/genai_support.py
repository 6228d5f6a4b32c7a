"""The tiny language models of tests/tiny_llm and their golden tokens, on ONNX Runtime GenAI."""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tiny_llm import folder_of, goldens

GOLDENS = goldens()


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
