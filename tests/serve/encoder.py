"""Writes a tiny encoder folder: a token's vector is its row of a table. Needs the `onnx` package.

usage: python encoder.py FOLDER
"""
import json
import math
import sys
from pathlib import Path

WORDS = ["[UNK]", "a", "cat", "dog", "sits", "runs", "here"]
SIZE = 4


def row(token):
    """The vector of a token."""
    return [math.sin(1 + token * SIZE + index) for index in range(SIZE)]


def expected(sentence):
    """The vector of a sentence: the mean of its rows, scaled to length 1."""
    rows = [row(WORDS.index(word)) for word in sentence.split()]
    mean = [sum(column) / len(rows) for column in zip(*rows)]
    length = math.sqrt(sum(value * value for value in mean))
    return [value / length for value in mean]


def write(folder):
    from onnx import TensorProto, helper, save

    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "tokens"])
    out = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["batch", "tokens", SIZE])
    values = [value for token in range(len(WORDS)) for value in row(token)]
    table = helper.make_tensor("table", TensorProto.FLOAT, [len(WORDS), SIZE], values)
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    graph = helper.make_graph([node], "encoder", [ids, mask], [out], [table])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    save(model, str(folder / "model.onnx"))
    tokenizer = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {word: index for index, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
