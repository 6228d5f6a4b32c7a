"""One session, 200 shapes: a small transformer encoder as exporters write it, with random batch sizes and lengths.

    python tests/dynamic_shapes.py --library libhip-backend.so [--shapes 200] [--seed 1]

Every result must agree with ONNX Runtime's CPU provider, and the process's memory must not grow with the number of
shapes.
"""
import argparse
import os
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

NAME = "DynamicShapesExecutionProvider"
LAYERS, HEADS, WIDTH, WORDS, LONGEST = 4, 4, 32, 20_000, 64
# If each plan dequantised the word vectors, that would take 2.4 MiB per plan, and 366 MiB for the 150 plans that are
# measured. The freed memory that the C library keeps varies by about 10 MiB between runs.
GROWTH_MIB = 48
TOLERANCE = 1e-4


class Encoder:
    """Embeddings, followed by attention and feed-forward layers; the graph computes the shapes."""

    def __init__(self):
        self.nodes, self.weights, self.random = [], [], np.random.default_rng(7)

    def node(self, op_type, *inputs, **attributes):
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def constant(self, array):
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape):
        return self.constant((self.random.normal(size=shape) * shape[0] ** -0.5).astype(np.float32))

    def table(self):
        """Quantised word vectors: if every plan dequantised them, memory usage would show it."""
        rows = self.constant(self.random.integers(-128, 128, size=(WORDS, WIDTH)).astype(np.int8))
        return self.node("DequantizeLinear", rows, self.constant(np.float32(0.02)), self.constant(np.int8(3)))

    def dense(self, x, inner, outer):
        return self.node("Add", self.node("MatMul", x, self.weight(inner, outer)), self.weight(outer))

    def norm(self, x):
        """Written out in simple operators, so that the engine has to recognise the pattern."""
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        square = self.node("Pow", centred, self.constant(np.float32(2)))
        variance = self.node("Add", self.node("ReduceMean", square, axes=[-1]), self.constant(np.float32(1e-5)))
        scaled = self.node("Div", centred, self.node("Sqrt", variance))
        return self.node("Add", self.node("Mul", scaled, self.weight(WIDTH)), self.weight(WIDTH))

    def heads(self, x):
        shape = self.node("Shape", x)
        batch, length = (self.node("Gather", shape, self.ints(axis), axis=0) for axis in (0, 1))
        target = self.node("Concat", batch, length, self.ints(HEADS), self.ints(WIDTH // HEADS), axis=0)
        return self.node("Transpose", self.node("Reshape", x, target), perm=[0, 2, 1, 3])

    def attention(self, x, mask):
        query, key, value = (self.heads(self.dense(x, WIDTH, WIDTH)) for _ in range(3))
        scores = self.node("MatMul", query, self.node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self.node("Div", scores, self.constant(np.float32((WIDTH // HEADS) ** 0.5)))
        weights = self.node("Softmax", self.node("Add", scores, mask), axis=-1)
        merged = self.node("Transpose", self.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.dense(self.node("Reshape", merged, self.ints(0, 0, WIDTH)), WIDTH, WIDTH)

    def feed_forward(self, x):
        hidden = self.dense(x, WIDTH, 2 * WIDTH)
        gate = self.node("Erf", self.node("Div", hidden, self.constant(np.float32(2**0.5))))
        gate = self.node("Mul", hidden, self.node("Add", gate, self.constant(np.float32(1))))
        return self.dense(self.node("Mul", gate, self.constant(np.float32(0.5))), 2 * WIDTH, WIDTH)

    def model(self):
        length = self.node("Gather", self.node("Shape", "words"), self.constant(np.int64(1)), axis=0)
        places = self.node("Range", self.constant(np.int64(0)), length, self.constant(np.int64(1)))
        x = self.node("Gather", self.table(), "words")
        x = self.node("Add", x, self.node("Gather", self.weight(LONGEST, WIDTH), places))
        hidden = self.node("Sub", self.constant(np.float32(1)), self.node("Cast", "mask", to=TensorProto.FLOAT))
        mask = self.node("Mul", self.node("Unsqueeze", hidden, self.ints(1, 2)), self.constant(np.float32(-1e4)))
        for _ in range(LAYERS):
            x = self.norm(self.node("Add", x, self.attention(x, mask)))
            x = self.norm(self.node("Add", x, self.feed_forward(x)))
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in ("words", "mask")]
        outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "encoder", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def session(model, devices):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    # Measure the provider's own memory, not what ONNX Runtime's arena keeps for each size.
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    if devices:
        options.add_provider_for_devices(devices, {})
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def feeds(random, batch, length):
    words = random.integers(0, WORDS, size=(batch, length))
    filled = random.integers(1, length + 1, size=(batch, 1))
    return {"words": words, "mask": (np.arange(length) < filled).astype(np.int64)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    model, random = Encoder().model(), np.random.default_rng(arguments.seed)
    ours, reference = session(model, devices), session(model, None)
    owners = [(item.ep_name, len(item.get_nodes())) for item in ours.get_provider_graph_assignment_info()]
    elsewhere = sum(count for owner, count in owners if owner != NAME)
    assert not elsewhere, f"{elsewhere} nodes are not on the device"
    # The largest shape comes first, so that the memory of a single run does not count as growth.
    largest = (8, LONGEST)
    every = [(batch, length) for batch in range(1, 9) for length in range(1, LONGEST + 1) if (batch, length) != largest]
    random.shuffle(every)
    worst, before = 0.0, None
    for seen, (batch, length) in enumerate([largest, *every[: arguments.shapes - 1]]):
        given = feeds(random, batch, length)
        (wanted,), (found,) = reference.run(None, given), ours.run(None, given)
        assert found.shape == wanted.shape, f"{(batch, length)}: {found.shape} instead of {wanted.shape}"
        error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        assert error <= TOLERANCE, f"{(batch, length)}: off by {error:.1e} of the largest element"
        worst = max(worst, error)
        if seen == arguments.shapes // 4:
            before = resident_mib()
    growth = resident_mib() - before
    assert growth <= GROWTH_MIB, f"memory grew by {growth:.1f} MiB over the last {arguments.shapes * 3 // 4} shapes"
    nodes = sum(count for _, count in owners)
    print(f"{arguments.shapes} shapes of {nodes} nodes, largest error {worst:.1e}, memory grew by {growth:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
