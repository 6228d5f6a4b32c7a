"""Writes a decoder twice, with the same random 4-bit weights: a folder for us, and a GGUF file for llama.cpp.

The products of the folder round activations to 8 bits (accuracy level 4), as llama.cpp does for 4-bit weights (Q4_0). The
tokenizer, the norms and the angles of rotation are the same too. Scales have 16 bits in a GGUF file and 32 in the folder, and
llama.cpp's cache has 16-bit elements, so scores differ slightly.

usage: python bench/gguf_model.py FOLDER FILE.gguf [--size 100m] [--context N]

Needs the packages `gguf`, `numpy` and `onnx`.
"""
import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import tiny_llm
from tiny_llm.settings import SIZES
from tiny_llm.weights import Weights

# The bytes of a Q4_0 block: a scale of 16 bits, and 32 numbers of 4 bits.
BLOCK, BLOCK_BYTES = 32, 18


def rotated_by_pairs(matrix, heads):
    """llama.cpp rotates neighbouring channels, and the ONNX operator the first half of a head with the second."""
    shape = matrix.shape
    return matrix.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def q4_0(values, scales):
    """The bytes of rows of blocks. A byte holds the number at its place and the one half a block after it."""
    rows, blocks, size = values.shape
    assert size == BLOCK, size
    packed = np.empty((rows, blocks, BLOCK_BYTES), np.uint8)
    packed[..., :2] = scales.astype(np.float16)[..., None].view(np.uint8)
    packed[..., 2:] = values[..., : BLOCK // 2] | values[..., BLOCK // 2 :] << 4
    return packed.reshape(rows, -1)


def write_gguf(file, folder, settings):
    weights = Weights(settings)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(settings.context)
    writer.add_embedding_length(settings.hidden)
    writer.add_block_count(settings.layers)
    writer.add_feed_forward_length(settings.inner)
    writer.add_head_count(settings.heads)
    writer.add_head_count_kv(settings.key_heads)
    writer.add_rope_dimension_count(settings.head)
    writer.add_rope_freq_base(settings.theta)
    writer.add_layer_norm_rms_eps(settings.epsilon)
    writer.add_vocab_size(settings.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    add_tokenizer(writer, folder, settings)

    def linear(name, source, rows, columns, heads=None):
        stored = weights.linear(source, rows, columns)
        values, scales = stored.values, stored.scales
        if heads:
            values, scales = rotated_by_pairs(values, heads), rotated_by_pairs(scales, heads)
        writer.add_tensor(f"{name}.weight", q4_0(values, scales), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def norm(name, source):
        writer.add_tensor(f"{name}.weight", weights.norm(source, settings.hidden).astype(np.float32))

    writer.add_tensor("token_embd.weight", weights.embedding().astype(np.float16))
    for layer in range(settings.layers):
        block, attention, mlp = f"blk.{layer}", f"{layer}.attention", f"{layer}.mlp"
        norm(f"{block}.attn_norm", f"{layer}.before")
        linear(f"{block}.attn_q", f"{attention}.q", settings.queries, settings.hidden, settings.heads)
        linear(f"{block}.attn_k", f"{attention}.k", settings.keys, settings.hidden, settings.key_heads)
        linear(f"{block}.attn_v", f"{attention}.v", settings.keys, settings.hidden)
        linear(f"{block}.attn_output", f"{attention}.o", settings.hidden, settings.queries)
        norm(f"{block}.ffn_norm", f"{layer}.after")
        linear(f"{block}.ffn_gate", f"{mlp}.gate", settings.inner, settings.hidden)
        linear(f"{block}.ffn_up", f"{mlp}.up", settings.inner, settings.hidden)
        linear(f"{block}.ffn_down", f"{mlp}.down", settings.hidden, settings.inner)
    norm("output_norm", "last")
    linear("output", "head", settings.vocabulary, settings.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, folder, settings):
    """The tokenizer of the folder: byte-level pairs, split as Llama 3 splits text."""
    model = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [""] * settings.vocabulary
    kinds = [gguf.TokenType.NORMAL] * settings.vocabulary
    for token, number in model["model"]["vocab"].items():
        tokens[number] = token
    for special in model["added_tokens"]:
        tokens[special["id"]], kinds[special["id"]] = special["content"], gguf.TokenType.CONTROL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(model["model"]["merges"])
    writer.add_bos_token_id(settings.special("<|bos|>"))
    writer.add_eos_token_id(settings.special("<|eos|>"))
    writer.add_pad_token_id(settings.pad)
    writer.add_add_bos_token(False)
    template = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["chat_template"]
    writer.add_chat_template(template)


def round_activations(file):
    """Lets the products of an ONNX file round activations to 8 bits."""
    model = onnx.load(file, load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(onnx.helper.make_attribute("accuracy_level", 4))
    onnx.save(model, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", choices=SIZES, default="100m")
    parser.add_argument("--context", type=int, default=1024, help="the longest sequence")
    given = parser.parse_args()
    settings = replace(SIZES[given.size], precision="int4", context=given.context, is_tied=False)
    tiny_llm.write(given.folder, settings)
    round_activations(given.folder / "model.onnx")
    write_gguf(given.file, given.folder, settings)


if __name__ == "__main__":
    main()
