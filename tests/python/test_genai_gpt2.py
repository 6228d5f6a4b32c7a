"""Models of type gpt2 with ONNX Runtime GenAI: their Attention nodes get a mask of the maximum length, and the past of
each layer is one tensor. The tokens are those of the CPU provider."""
import json

import numpy as np
import onnx
import pytest
from genai_support import generator_for
from onnx import TensorProto, helper, numpy_helper
from support import LIBRARY

pytestmark = pytest.mark.environment(AMDGPU_EP_PATH=LIBRARY)

VOCABULARY, HIDDEN, HEADS, CONTEXT, PAD = 200, 32, 4, 64, 199


def decoder():
    """One layer: embeddings of tokens and positions, Attention with a mask and a past, and a head."""
    random = np.random.RandomState(5)
    shapes = {"words": (VOCABULARY, HIDDEN), "places": (CONTEXT, HIDDEN), "qkv": (HIDDEN, 3 * HIDDEN), "bias": (3 * HIDDEN,)}
    constants = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    constants["head"] = random.uniform(-2, 2, (HIDDEN, VOCABULARY)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["places", "position_ids"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["x"]),
        helper.make_node(
            "Attention", ["x", "qkv", "bias", "attention_mask", "past_0"], ["y", "present_0"], domain="com.microsoft",
            num_heads=HEADS, unidirectional=1,
        ),
        helper.make_node("Add", ["x", "y"], ["z"]),
        helper.make_node("MatMul", ["z", "head"], ["logits"]),
    ]
    value = helper.make_tensor_value_info
    past = lambda name, length: value(name, TensorProto.FLOAT, [2, "batch", HEADS, length, HIDDEN // HEADS])
    inputs = [value(name, TensorProto.INT32, ["batch", "tokens"]) for name in ("input_ids", "position_ids")]
    inputs += [value("attention_mask", TensorProto.INT32, ["batch", "total"]), past("past_0", "past")]
    outputs = [value("logits", TensorProto.FLOAT, ["batch", "tokens", VOCABULARY]), past("present_0", "total")]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "gpt2", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("gpt2")
    onnx.save(decoder(), place / "model.onnx")
    names = {"input_ids": "input_ids", "attention_mask": "attention_mask", "position_ids": "position_ids"}
    config = {
        "model": {
            "type": "gpt2", "context_length": CONTEXT, "vocab_size": VOCABULARY, "pad_token_id": PAD,
            "bos_token_id": PAD, "eos_token_id": PAD,
            "decoder": {
                "filename": "model.onnx", "num_hidden_layers": 1, "num_attention_heads": HEADS,
                "num_key_value_heads": HEADS, "head_size": HIDDEN // HEADS, "hidden_size": HIDDEN,
                "inputs": {**names, "past_names": "past_%d"},
                "outputs": {"logits": "logits", "present_names": "present_%d"},
            },
        },
        "search": {"max_length": CONTEXT, "past_present_share_buffer": True},
    }
    (place / "genai_config.json").write_text(json.dumps(config))
    return place


def on_device(og, folder):
    config = og.Config(str(folder))
    config.clear_providers()
    config.append_provider("amdgpu")
    return og.Model(config)


@pytest.mark.parametrize("prompts", [[[5, 17, 33]], [[5, 17, 33, 8], [71, 2, 140, 9]]], ids=["single", "batch"])
def test_the_mask_may_have_columns_for_tokens_to_come(folder, prompts):
    import onnxruntime_genai as og

    tokens = []
    for model in (og.Model(str(folder)), on_device(og, folder)):
        generator = generator_for(og, model, prompts, pad=PAD, max_length=20, do_sample=False)
        steps = []
        while len(steps) < 8:
            generator.generate_next_token()
            steps.append([int(token) for token in generator.get_next_tokens()])
        tokens.append(steps)
        del generator, model
    assert tokens[1] == tokens[0]
