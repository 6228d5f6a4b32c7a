"""Exports the trained demo model as a folder for ONNX Runtime GenAI, with int4 weights.

    python export.py TRAINED OUT    TRAINED: the folder that train.py wrote

The graph resembles what GenAI's model builder writes for a Llama: MatMulNBits with packed QKV, GroupQueryAttention with
built-in rotary embedding, (Skip)SimplifiedLayerNormalization, GatherBlockQuantized for the embedding. Activations and
the key/value cache are float32.
"""
import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

import tokenizer as tokens
from model import BLOCK, Shape, quantise, rotary_tables

CONTRIB = "com.microsoft"


class Graph:
    def __init__(self, shape, weights):
        self.shape, self.weights = shape, weights
        self.nodes, self.constants = [], {}

    def constant(self, name, array):
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        """Adds a node named after its first output."""
        self.nodes.append(helper.make_node(op, inputs, outputs, outputs[0].removesuffix(".out"), domain=domain, **attributes))
        return outputs[0]

    def int4(self, name):
        """The matrix with two values per byte, low half first, around the default zero point 8, and its scales."""
        values, scale = quantise(self.weights[name])
        nibbles = (values.numpy().astype(np.int8) + 8).astype(np.uint8)
        return nibbles[..., 0::2] | nibbles[..., 1::2] << 4, scale.squeeze(-1).numpy()

    def linear(self, source, name, output):
        packed, scale = self.int4(name)
        rows, columns = self.weights[name].shape
        return self.node(
            "MatMulNBits",
            [source, self.constant(f"{name}.int4", packed), self.constant(f"{name}.scales", scale)],
            [output], CONTRIB, K=columns, N=rows, bits=4, block_size=BLOCK,
        )

    def embedding(self):
        packed, scale = self.int4("embedding.weight")
        packed = self.constant("embedding.rows", packed.reshape(len(packed), -1))
        return self.node(
            "GatherBlockQuantized", [packed, "input_ids", self.constant("embedding.scales", scale)], ["embedding.out"],
            CONTRIB, bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1,
        )

    def lengths(self):
        """The inputs of attention that are derived from the mask: each row's last position, and the longest length."""
        self.constant("axis", np.array([1], np.int64))
        self.constant("one", np.array([1], np.int64))
        self.constant("column", np.array(1, np.int64))
        self.node("ReduceSum", ["attention_mask", "axis"], ["mask.sum"], keepdims=0)
        self.node("Sub", ["mask.sum", "one"], ["mask.last"])
        self.node("Cast", ["mask.last"], ["lengths"], to=TensorProto.INT32)
        self.node("Shape", ["attention_mask"], ["mask.shape"])
        self.node("Gather", ["mask.shape", "column"], ["mask.total"], axis=0)
        self.node("Cast", ["mask.total"], ["total"], to=TensorProto.INT32)

    def norm(self, source, skip, name, output):
        """The norm of source + skip, and that sum; the first norm has no skip."""
        weight = self.constant(name, self.weights[name].numpy())
        epsilon = self.shape.epsilon
        if skip is None:
            return self.node("SimplifiedLayerNormalization", [source, weight], [output], axis=-1, epsilon=epsilon,
                             stash_type=1), source
        total = output.replace("norm", "sum")
        self.node("SkipSimplifiedLayerNormalization", [source, skip, weight], [output, "", "", total], CONTRIB,
                  epsilon=epsilon)
        return output, total

    def attention(self, source, layer):
        shape, name = self.shape, f"layers.{layer}"
        qkv = self.linear(source, f"{name}.qkv.weight", f"{name}.qkv.out")
        attended = self.node(
            "GroupQueryAttention",
            [qkv, "", "", f"past_key_values.{layer}.key", f"past_key_values.{layer}.value", "lengths", "total", "cos", "sin"],
            [f"{name}.attention.out", f"present.{layer}.key", f"present.{layer}.value"],
            CONTRIB, num_heads=shape.heads, kv_num_heads=shape.kv_heads, do_rotary=1, rotary_interleaved=0,
            scale=shape.head_size**-0.5,
        )
        return self.linear(attended, f"{name}.out.weight", f"{name}.attention.projected.out")

    def mlp(self, source, layer):
        name = f"layers.{layer}"
        gate = self.linear(source, f"{name}.gate.weight", f"{name}.gate.out")
        up = self.linear(source, f"{name}.up.weight", f"{name}.up.out")
        sigmoid = self.node("Sigmoid", [gate], [f"{name}.sigmoid.out"])
        silu = self.node("Mul", [gate, sigmoid], [f"{name}.silu.out"])
        product = self.node("Mul", [silu, up], [f"{name}.product.out"])
        return self.linear(product, f"{name}.down.weight", f"{name}.down.out")

    def build(self):
        shape = self.shape
        self.lengths()
        for name, table in zip(("cos", "sin"), rotary_tables(shape)):
            self.constant(name, table.numpy())
        residual, skip = self.embedding(), None
        for layer in range(shape.layers):
            name = f"layers.{layer}"
            h, residual = self.norm(residual, skip, f"{name}.attention_norm.weight", f"{name}.attention.norm.out")
            skip = self.attention(h, layer)
            h, residual = self.norm(residual, skip, f"{name}.mlp_norm.weight", f"{name}.mlp.norm.out")
            skip = self.mlp(h, layer)
        h = self.node("SkipSimplifiedLayerNormalization",
                      [residual, skip, self.constant("norm.weight", self.weights["norm.weight"].numpy())],
                      ["norm.out"], CONTRIB, epsilon=shape.epsilon)
        self.linear(h, "embedding.weight", "logits")

        cache = ["batch", shape.kv_heads, "past", shape.head_size]
        grown = ["batch", shape.kv_heads, "total", shape.head_size]
        value = helper.make_tensor_value_info
        inputs = [value("input_ids", TensorProto.INT64, ["batch", "tokens"]),
                  value("attention_mask", TensorProto.INT64, ["batch", "total"])]
        outputs = [value("logits", TensorProto.FLOAT, ["batch", "tokens", shape.vocabulary])]
        for layer in range(shape.layers):
            for part in ("key", "value"):
                inputs.append(value(f"past_key_values.{layer}.{part}", TensorProto.FLOAT, cache))
                outputs.append(value(f"present.{layer}.{part}", TensorProto.FLOAT, grown))
        graph = helper.make_graph(self.nodes, "demo", inputs, outputs, list(self.constants.values()))
        return helper.make_model(graph, producer_name="amdgpu-ep demo", ir_version=10,
                                 opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(CONTRIB, 1)])


def genai_config(shape, tokenizer):
    return {
        "model": {
            "type": "llama",
            "bos_token_id": tokenizer.token_to_id(tokens.END),
            "eos_token_id": [tokenizer.token_to_id(tokens.TURN_END), tokenizer.token_to_id(tokens.END)],
            "pad_token_id": tokenizer.token_to_id(tokens.PAD),
            "vocab_size": shape.vocabulary,
            "context_length": shape.context,
            "decoder": {
                "filename": "model.onnx",
                "session_options": {"log_id": "demo", "provider_options": []},
                "hidden_size": shape.hidden,
                "head_size": shape.head_size,
                "num_attention_heads": shape.heads,
                "num_key_value_heads": shape.kv_heads,
                "num_hidden_layers": shape.layers,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"max_length": shape.context, "do_sample": False, "past_present_share_buffer": True, "top_k": 50,
                   "top_p": 1.0, "temperature": 1.0, "repetition_penalty": 1.0},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trained", type=Path)
    parser.add_argument("out", type=Path)
    chosen = parser.parse_args()
    saved = torch.load(chosen.trained / "weights.pt", map_location="cpu")
    shape, weights = Shape(**saved["shape"]), {name: weight.float() for name, weight in saved["weights"].items()}
    chosen.out.mkdir(parents=True, exist_ok=True)
    onnx.save(Graph(shape, weights).build(), chosen.out / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(chosen.trained / name, chosen.out / name)
    tokenizer = Tokenizer.from_file(str(chosen.out / "tokenizer.json"))
    (chosen.out / "genai_config.json").write_text(json.dumps(genai_config(shape, tokenizer), indent=2) + "\n")
    print(f"{chosen.out}: {sum(file.stat().st_size for file in chosen.out.iterdir()):,} bytes")


if __name__ == "__main__":
    main()
