"""Damaged and forged saved partitions, with a valid checksum, so that the code behind the checksum test is reached."""
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import mutations

MAGIC = b"\x89HIPCTX\n"
HEADER_BYTES = len(MAGIC) + 4 + 8
MASK = (1 << 64) - 1


def checksum(data):
    """The checksum of `saved/mod.rs`."""

    def step(state, word):
        mixed = ((state ^ word) * 0x0000_0100_0000_01B3) & MASK
        return mixed ^ (mixed >> 32)

    state = step(0xCBF2_9CE4_8422_2325, len(data))
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        state = step(state, int.from_bytes(data[at : at + 8], "little"))
    for byte in data[whole:]:
        state = step(state, byte)
    return state


def sealed(body, format=1):
    return MAGIC + format.to_bytes(4, "little") + checksum(body).to_bytes(8, "little") + body


def network():
    """A few nodes with weights, attributes and shape arithmetic, so that a blob contains some of everything."""
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    shape = numpy_helper.from_array(np.array([0, -1], np.int64), "shape")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "net", [value("x", ["n", 3, 5, 5])], [value("y", ["n", 100])], [weight, shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


class Compiled:
    """A model compiled by the plugin, and ways to corrupt it."""

    def __init__(self, options, folder):
        # A unique name: another child process may use the same folder.
        path = Path(folder) / f"source_{os.getpid()}.onnx"
        onnx.save(network(), path)
        compiler = ort.ModelCompiler(options, str(path), embed_compiled_data_into_model=True)
        self.model = onnx.load_from_string(compiler.compile_to_bytes())
        path.unlink()
        assert any(node.op_type == "EPContext" for node in self.model.graph.node), "nothing was compiled"

    def feeds(self):
        return {"x": np.random.default_rng(2).normal(size=(2, 3, 5, 5)).astype(np.float32)}

    def corrupted(self, rng, folder):
        model = onnx.ModelProto.FromString(self.model.SerializeToString())
        node = rng.choice([node for node in model.graph.node if node.op_type == "EPContext"])
        attributes = {one.name: one for one in node.attribute}
        context = attributes["ep_cache_context"]
        blob = context.s
        action = rng.randrange(8)
        if action <= 3:
            context.s = sealed(mutations.data(blob[HEADER_BYTES:], rng))
        elif action == 4:
            context.s = mutations.data(blob, rng)
        elif action == 5:
            context.s = sealed(blob[HEADER_BYTES:], rng.choice((0, 2, 3, 0xFFFF_FFFF)))
        elif action == 6:
            attributes["embed_mode"].i = 0
            (folder / "part.hipctx").write_bytes(rng.choice((blob, blob[:40], b"", mutations.data(blob, rng))))
            names = (b"part.hipctx", b"gone.hipctx", b"../part.hipctx", b"/etc/passwd", b"", b".", b"..\\x", b"C:x", b"\xff", b"a" * 5000)
            context.s = rng.choice(names)
        else:
            while not rng.choice((mutations.attribute, mutations.wire, mutations.declared, mutations.versions))(model, rng):
                pass
        return model.SerializeToString()
