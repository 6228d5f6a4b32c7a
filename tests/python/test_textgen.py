"""Text generation with the `amdgpu-ep` command, compared with ONNX Runtime GenAI token by token."""
import json

import pytest
from genai_support import folder_of, generate
from textgen_support import command_tokens

PROMPTS = [
    "Hello world, this is",
    "a",
    "The tensor stream; the cache memory.\n\n  Once more: 1234567890, 'quoted'!",
    "näive café — 漢字 🦀",
    " ".join(["the graph of the model"] * 6),
]
MODELS = ["nano-fp32", "nano-fp32-eos", "nano-int4", "nano-fp32-int32ids-rope"]
NEW = 40


@pytest.mark.parametrize("provider", ["cpu", "amdgpu"])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_of_genai(name, provider):
    import onnxruntime_genai as og

    folder = folder_of(name)
    model = og.Model(str(folder))
    tokenizer = og.Tokenizer(model)
    for prompt in PROMPTS:
        ids = [int(token) for token in tokenizer.encode(prompt)]
        wanted = generate(og, model, ids, max_length=len(ids) + NEW, do_sample=False)
        found = command_tokens(folder, prompt, NEW, "--provider", provider)
        assert found["prompt_tokens"] == ids, prompt
        assert found["tokens"] == wanted, prompt
        assert found["provider"].startswith("AMDGPU" if provider == "amdgpu" else "CPU")
    del tokenizer, model


@pytest.mark.parametrize("entry", [None, "alone", "on", "off"])
@pytest.mark.parametrize("name", ["nano-fp32", "nano-int4-io16"])
def test_prompts_compute_only_the_logits_of_last_tokens(name, entry, tmp_path):
    """With one row of logits or with all, the tokens are the same. Only a few are compared, because half precision
    rounds differently on other providers."""
    import onnxruntime_genai as og

    folder, record = folder_of(name), tmp_path / "explain"
    model = og.Model(str(folder))
    ids = [int(token) for token in og.Tokenizer(model).encode(PROMPTS[2])]
    wanted = generate(og, model, ids, max_length=len(ids) + 12, do_sample=False)
    entries = {"ep.hip.explain_file": record} | ({"ep.hip.last_logits": entry} if entry else {})
    options = [part for key, value in entries.items() for part in ("--option", f"{key}={value}")]
    assert command_tokens(folder, PROMPTS[2], 12, "--provider", "amdgpu", *options)["tokens"] == wanted
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["passes"].get("last-rows", 0) for line in lines if "passes" in line] == [int(entry != "off")]
    del model


@pytest.mark.parametrize("sampling", [dict(top_k=8, temperature=0.8), dict(top_k=0, top_p=0.7), dict(top_k=30, top_p=0.9)])
def test_drawn_tokens_are_those_of_genai(sampling):
    import onnxruntime_genai as og

    folder = folder_of("nano-fp32")
    model = og.Model(str(folder))
    tokenizer = og.Tokenizer(model)
    flags = [part for key, value in sampling.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    for seed in (1, 2, 12345):
        ids = [int(token) for token in tokenizer.encode(PROMPTS[0])]
        options = dict(do_sample=True, random_seed=seed, max_length=len(ids) + NEW)
        wanted = generate(og, model, ids, **options, **sampling)
        found = command_tokens(folder, PROMPTS[0], NEW, "--provider", "cpu", "--seed", str(seed), *flags)
        assert found["tokens"] == wanted, (seed, sampling)
    del tokenizer, model
