"""LongRoPE with ONNX Runtime GenAI: the graph chooses rotary tables by the width of the mask, and GenAI pads the mask of
this provider to the maximum length. The tokens are those of the CPU provider, whose mask is as wide as the sequence."""
import json
from dataclasses import replace

import pytest
from genai_support import generate, generator_for, rest_of
from support import LIBRARY

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)

LIMIT = 24
LONGEST = 60


@pytest.fixture(scope="module", params=["packed", "split"])
def folder(request, tmp_path_factory):
    from tiny_llm import write
    from tiny_llm.settings import NANO

    place = tmp_path_factory.mktemp("long-rope") / "model"
    write(place, replace(NANO, seed=121, attention=request.param, long_rope=LIMIT))
    return place


def prompt_of(length, seed=0):
    return [(at * 37 + seed * 101) % 480 for at in range(length)]


def on_device(og, folder, record=None):
    config = og.Config(str(folder))
    config.clear_providers()
    config.append_provider("amdgpu")
    if record:
        entries = {"ep.hip.explain_file": str(record)}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": entries}}}))
    return og.Model(config)


@pytest.mark.parametrize("length", [5, LIMIT - 6, LIMIT, LIMIT + 1, LIMIT + 12])
def test_the_true_length_chooses_the_tables(folder, length):
    """Prompts below, at and above the limit, with much room after them; answers of ten tokens cross it."""
    import onnxruntime_genai as og

    search = {"max_length": LONGEST, "do_sample": False}
    tokens = []
    for model in (og.Model(str(folder)), on_device(og, folder)):
        generator = generator_for(og, model, [prompt_of(length)], **search)
        new = []
        while len(new) < 10:
            generator.generate_next_token()
            new.append(int(generator.get_next_tokens()[0]))
        tokens.append(new)
        del generator, model
    assert tokens[1] == tokens[0]


def test_rows_of_a_batch_of_short_prompts_use_the_short_tables(folder):
    import onnxruntime_genai as og

    prompts = [prompt_of(5, 1), prompt_of(9, 2)]
    model = on_device(og, folder)
    singles = [generate(og, model, prompt, max_length=len(prompt) + 8, do_sample=False) for prompt in prompts]
    generator = generator_for(og, model, prompts, pad=506, max_length=17, do_sample=False)
    # A finished row continues with padding.
    assert [row[: len(single)] for row, single in zip(rest_of(generator), singles)] == singles
    del generator, model


def test_the_choice_is_part_of_the_only_partition(folder, tmp_path):
    import onnxruntime_genai as og

    record = tmp_path / "explain"
    model = on_device(og, folder, record)
    del model
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    graphs = [line for line in lines if "graph" in line and line["nodes"]]
    assert [(graph["partitions"], {node["placed"] for node in graph["nodes"]}) for graph in graphs] == [(1, {True})]
    assert [line["passes"].get("true-lengths") for line in lines if "passes" in line] == [1]
