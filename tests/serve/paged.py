"""Writes the demo model with PagedAttention in place of GroupQueryAttention: a decoder over a cache in blocks. Needs the
`onnx` package.

usage: python paged.py FOLDER
"""
import json
import shutil
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

DEMO = Path(__file__).resolve().parents[2] / "demo/model"
BLOCK = 16
# The inputs that describe the blocks, with their shapes.
NUMBERS = {
    "cumulative_sequence_lengths": ["ends"],
    "past_sequence_lengths": ["sequences"],
    "block_table": ["sequences", "most"],
    "attention_metadata": [3],
}


def cast(name, to):
    """A node that converts a value, and the name of its result."""
    return helper.make_node("Cast", [name], [f"{name}.cast"], to=to), f"{name}.cast"


def attention(old):
    """The nodes for one GroupQueryAttention node. PagedAttention computes in half precision."""
    nodes, names = zip(*(cast(old.input[0], TensorProto.FLOAT16), cast(old.output[0] + ".half", TensorProto.FLOAT)))
    inputs = [names[0], "", "", *old.input[3:5], *list(NUMBERS)[:3], "cos.cast", "sin.cast", *[""] * 6, list(NUMBERS)[3]]
    kept = {one.name: helper.get_attribute_value(one) for one in old.attribute}
    nodes[1].output[0] = old.output[0]
    paged = helper.make_node(
        "PagedAttention", inputs, [nodes[1].input[0], *old.output[1:3]], domain="com.microsoft", **kept
    )
    return [nodes[0], paged, nodes[1]]


def write(folder):
    shutil.copytree(DEMO, folder, dirs_exist_ok=True)
    model = onnx.load(DEMO / "model.onnx")
    graph = model.graph
    nodes = [cast(name, TensorProto.FLOAT16)[0] for name in ("cos", "sin")]
    for node in graph.node:
        # What the mask is for is in the lengths now.
        if not any(name.startswith(("mask.", "attention_mask")) for name in node.input):
            nodes += attention(node) if node.op_type == "GroupQueryAttention" else [node]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    config = json.loads((DEMO / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    heads, size = decoder["num_key_value_heads"], decoder["head_size"]
    for values in (graph.input, graph.output):
        for at, value in enumerate(list(values)):
            if value.name.startswith(("past_key_values.", "present.")):
                value = helper.make_tensor_value_info(value.name, TensorProto.FLOAT16, ["blocks", BLOCK, heads, size])
                values[at].CopyFrom(value)
    ids, mask, *caches = graph.input
    kept = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["tokens"]), *map(copied, caches)]
    kept += [helper.make_tensor_value_info(name, TensorProto.INT32, shape) for name, shape in NUMBERS.items()]
    assert (ids.name, mask.name) == ("input_ids", "attention_mask")
    del graph.input[:]
    graph.input.extend(kept)
    vocabulary = config["model"]["vocab_size"]
    graph.output[0].CopyFrom(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["tokens", vocabulary]))
    onnx.save(model, folder / "model.onnx")
    del decoder["inputs"]["attention_mask"]
    decoder["inputs"].update({name: name for name in NUMBERS})
    config["engine"] = {"dynamic_batching": {"block_size": BLOCK, "max_batch_size": 8}}
    (folder / "genai_config.json").write_text(json.dumps(config))


def copied(value):
    """A copy that outlives the list it came from."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    return copy


if __name__ == "__main__":
    write(Path(sys.argv[1]))
