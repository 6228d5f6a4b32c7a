"""Text generation with the `amdgpu-ep` command, compared with ONNX Runtime GenAI token by token."""
import json
import shutil

import numpy as np
import onnx
import pytest
from genai_support import folder_of, generate
from onnx import TensorProto, helper, numpy_helper
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


def with_rounded_keys(source, folder, is_cache_rounded):
    """A copy of a model whose new keys and values are rounded to 8-bit floats, and its cache is of 8-bit floats or not."""
    shutil.copytree(source, folder)
    model = onnx.load(folder / "model.onnx")
    scale = numpy_helper.from_array(np.array([1 / 16], np.float32), "cache_scale")
    model.graph.initializer.append(scale)
    nodes = []
    for node in model.graph.node:
        if node.op_type == "GroupQueryAttention":
            assert node.input[1] and not any(one.name == "do_rotary" and one.i for one in node.attribute)
            for at in (1, 2):
                name = node.input[at]
                nodes += [
                    helper.make_node("Div", [name, scale.name], [f"{name}/scaled"]),
                    helper.make_node("Cast", [f"{name}/scaled"], [f"{name}/short"], to=TensorProto.FLOAT8E4M3FN),
                    helper.make_node("Cast", [f"{name}/short"], [f"{name}/wide"], to=TensorProto.FLOAT),
                    helper.make_node("Mul", [f"{name}/wide", scale.name], [f"{name}/rounded"]),
                ]
                node.input[at] = f"{name}/rounded"
            if is_cache_rounded:
                node.input.extend([""] * (12 - len(node.input)) + [scale.name, scale.name])
                kinds = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
                node.attribute.extend(helper.make_attribute(key, value) for key, value in kinds.items())
        nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for value in [*model.graph.input, *model.graph.output]:
        if is_cache_rounded and value.name.startswith(("past", "present")):
            value.type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN
    onnx.save(model, folder / "model.onnx")
    return folder


def test_caches_of_eight_bit_floats_hold_rounded_keys_and_values(tmp_path):
    """GenAI's CPU provider has no such cache. It gets keys and values that are already rounded."""
    import onnxruntime_genai as og

    source = folder_of("nano-fp32-int32ids-rope")
    model = og.Model(str(with_rounded_keys(source, tmp_path / "plain", False)))
    exact = og.Model(str(source))
    folder, tokenizer, differing = with_rounded_keys(source, tmp_path / "short", True), og.Tokenizer(model), 0
    for prompt in PROMPTS:
        ids = [int(token) for token in tokenizer.encode(prompt)]
        wanted = generate(og, model, ids, max_length=len(ids) + NEW, do_sample=False)
        differing += wanted != generate(og, exact, ids, max_length=len(ids) + NEW, do_sample=False)
        assert command_tokens(folder, prompt, NEW, "--provider", "amdgpu")["tokens"] == wanted, prompt
    assert differing, "rounding changes no token, so this test shows nothing"
    del tokenizer, model, exact
