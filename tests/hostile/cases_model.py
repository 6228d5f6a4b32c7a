"""Models that are damaged, refer to files outside their folder, or need more resources than any machine has."""
import os

import numpy as np
import onnx
from case import EITHER, MODEL, REFUSED, Case
from cases_config import ESCAPES
from onnx import TensorProto, helper, numpy_helper
from place import DEMO

FLOATS = 64


def tiny(nodes, initializers=(), inputs=("x",), extent=FLOATS, outputs=("y",), **rest):
    """A model of these nodes, with vectors as inputs."""
    value = lambda name, dims: helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    graph = helper.make_graph(nodes, "tiny", [value(name, [extent]) for name in inputs], [value(name, None) for name in outputs], list(initializers), **rest)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10)


def appended(nodes, initializers):
    """The demo's decoder with `nodes` appended: their scalar `more` is added to the logits."""
    model = onnx.load(DEMO / "model.onnx")
    for node in model.graph.node:
        for at, name in enumerate(node.output):
            if name == "logits":
                node.output[at] = "plain_logits"
    nodes = [*nodes, helper.make_node("Add", ["plain_logits", "more"], ["logits"], "hostile_add")]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(initializers)
    return model


def constants(**values):
    return [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]


def hostile(nodes, initializers=()):
    """Saves the nodes as part of a decoder, for text generation, and alone, for running the model."""

    def change(place):
        onnx.save(appended(nodes, initializers), place.model / "model.onnx")
        alone = [*nodes, helper.make_node("Add", ["x", "more"], ["y"], "hostile_add")]
        onnx.save(tiny(alone, initializers), place.model / "tiny.onnx")

    return change


def shape_cases():
    one, node = np.float32(1), helper.make_node
    expand = [node("Expand", ["h_one", "h_shape"], ["h_big"], "hostile"), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
    fused = [
        node("Expand", ["h_one", "h_shape"], ["h_big"], "hostile"),
        node("Exp", ["h_big"], ["h_exp"]), node("Mul", ["h_exp", "h_big"], ["h_product"]),
        node("ReduceMax", ["h_product"], ["more"], keepdims=0),
    ]  # fmt: skip
    for name, shape in {"2-40": [1 << 20, 1 << 20], "2-63": [1 << 31, 1 << 32], "overflow": [1 << 40, 1 << 40], "negative": [-5, 3]}.items():
        given = constants(h_one=one, h_shape=np.array(shape, np.int64))
        yield f"expand-{name}", hostile(expand, given)
        yield f"expand-fused-{name}", hostile(fused, given)
        filled = [node("ConstantOfShape", ["h_shape"], ["h_big"], "hostile"), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
        yield f"constant-of-shape-{name}", hostile(filled, given)
        tiled = [node("Tile", ["h_square", "h_shape"], ["h_big"], "hostile"), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
        yield f"tile-{name}", hostile(tiled, [*given, *constants(h_square=np.ones((1, 1), np.float32))])
    ranged = [node("Range", ["h_start", "h_end", "h_step"], ["h_big"], "hostile"), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
    yield "range-2-60", hostile(ranged, constants(h_start=np.float32(0), h_end=np.float32(2.0**60), h_step=np.float32(1)))
    yield "range-step-zero", hostile(ranged, constants(h_start=np.float32(0), h_end=np.float32(9), h_step=np.float32(0)))
    broadcast = [node("Mul", ["h_row", "h_column"], ["h_big"], "hostile"), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
    row = constants(h_row=np.ones((1, 1 << 20), np.float32), h_column=np.ones((1 << 20, 1), np.float32))
    yield "broadcast-2-40", hostile(broadcast, row)
    concatenated = helper.make_graph(
        [node("Identity", ["again"], ["still"]), node("Concat", ["sum", "sum"], ["next"], axis=0)], "body",
        [helper.make_tensor_value_info("turn", TensorProto.INT64, []), helper.make_tensor_value_info("again", TensorProto.BOOL, []),
         helper.make_tensor_value_info("sum", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("still", TensorProto.BOOL, []), helper.make_tensor_value_info("next", TensorProto.FLOAT, None)],
    )  # fmt: skip
    doubled = [node("Loop", ["h_turns", "h_true", "h_vector"], ["h_big"], "hostile", body=concatenated), node("ReduceMax", ["h_big"], ["more"], keepdims=0)]
    yield "loop-doubling", hostile(doubled, constants(h_turns=np.int64(60), h_true=np.bool_(True), h_vector=np.ones(64, np.float32)))


def external(location, offset="0", length=str(4 * FLOATS), prepare=None):
    """A weight of the tiny model and one appended to the decoder, stored in a file."""

    def change(place):
        if prepare:
            prepare(place)
        tensor = TensorProto(name="h_w", data_type=TensorProto.FLOAT, dims=[FLOATS], data_location=TensorProto.EXTERNAL)
        for key, value in (("location", place.fill(location)), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=value)
        hostile([helper.make_node("ReduceMax", ["h_w"], ["more"], "hostile", keepdims=0)], [tensor])(place)

    return change


def weights(name="weights.bin", count=FLOATS):
    return lambda place: (place.model / name).write_bytes(bytes(4 * count))


def linked(leads_to):
    return lambda place: (place.model / "weights.bin").symlink_to(place.fill(leads_to))


def external_cases():
    outside = lambda place: (place.target / "weights.bin").write_bytes(bytes(4 * FLOATS))
    fifo = lambda place: os.mkfifo(place.model / "weights.bin")
    folder = lambda place: (place.model / "weights.bin").mkdir()
    yield "external-parent", external("../target/weights.bin", prepare=outside), REFUSED
    yield "external-absolute", external("{target}/weights.bin", prepare=outside), REFUSED
    yield "external-winding", external("sub/../../target/weights.bin", prepare=outside), REFUSED
    yield "external-passwd", external("/etc/passwd"), REFUSED
    yield "external-link", external("weights.bin", prepare=linked("{target}/secret.txt")), EITHER
    yield "external-dev-zero", external("weights.bin", prepare=linked("/dev/zero")), EITHER
    yield "external-fifo", external("weights.bin", prepare=fifo), REFUSED
    yield "external-directory", external("weights.bin", prepare=folder), REFUSED
    yield "external-short", external("weights.bin", prepare=weights(count=3)), REFUSED
    yield "external-missing", external("weights.bin"), REFUSED
    yield "external-offset-huge", external("weights.bin", offset=str((1 << 63) - 1), prepare=weights()), REFUSED
    yield "external-offset-negative", external("weights.bin", offset="-4", prepare=weights()), REFUSED
    yield "external-length-huge", external("weights.bin", length=str(1 << 62), prepare=weights()), REFUSED
    yield "external-nothing", external(""), REFUSED


def context(source, cache, embed=0):
    def change(place):
        for name in ("context.hipctx", "libevil.so"):
            (place.model / name).write_bytes(place.evil.read_bytes())
        attributes = {"ep_cache_context": place.fill(cache), "embed_mode": embed, "source": source, "main_context": 1, "partition_name": ESCAPES}
        node = helper.make_node("EPContext", ["x"], ["y"], "hostile", domain="com.microsoft", **attributes)
        model = tiny([node])
        onnx.save(model, place.model / "tiny.onnx")
        onnx.save(model, place.model / "model.onnx")

    return change


def context_cases():
    for source in ("AMDGPUExecutionProvider", "hip", "MIGraphXExecutionProvider"):
        yield f"context-parent-{source}", context(source, "../evil/libevil.so"), REFUSED
        yield f"context-absolute-{source}", context(source, "{evil}"), REFUSED
        yield f"context-library-{source}", context(source, "libevil.so"), REFUSED
        yield f"context-embedded-{source}", context(source, "\x89HIPCTX\n" + "\xff" * 5000, 1), REFUSED
        yield f"context-empty-{source}", context(source, ""), REFUSED


def stored(model):
    def change(place):
        data = model if isinstance(model, bytes) else model.SerializeToString()
        place.write("model.onnx", data)

    return change


def form_cases():
    node = helper.make_node
    decoder = (DEMO / "model.onnx").read_bytes()
    yield "prefix-only", stored(decoder[:1000]), REFUSED
    yield "middle-missing", stored(decoder[:200_000] + decoder[300_000:]), EITHER
    yield "bytes-flipped", stored(bytes(byte ^ (i % 4099 == 0) for i, byte in enumerate(decoder))), EITHER
    yield "ff", stored(b"\xff" * 100_000), REFUSED
    yield "varint-endless", stored(b"\x0a" + b"\x80" * 100_000), REFUSED
    yield "length-huge", stored(b"\x3a\xff\xff\xff\xff\x0f" + b"\x0a" * 100), REFUSED
    yield "nested-messages", stored(nested_graph(5000)), EITHER
    yield "no-nodes", stored(tiny([], inputs=("y",))), EITHER
    yield "no-graph", stored(onnx.ModelProto(ir_version=10)), REFUSED
    yield "wrong-inputs", stored(tiny([node("Relu", ["x"], ["y"])])), EITHER
    yield "unknown-operator", stored(tiny([node("Evil", ["x"], ["y"], ESCAPES, domain=ESCAPES)])), REFUSED
    yield "cyclic", stored(tiny([node("Relu", ["z"], ["y"]), node("Relu", ["y"], ["z"])])), REFUSED
    yield "self-function", stored(recursive_function()), REFUSED
    yield "input-huge", stored(tiny([node("Relu", ["x"], ["y"])], extent=1 << 62)), EITHER
    yield "output-escapes", stored(tiny([node("Relu", ["x"], [ESCAPES], ESCAPES)], outputs=(ESCAPES,))), EITHER
    yield "dims-lie", stored(lying_dims()), REFUSED


def nested_graph(depth):
    """If inside If, encoded by hand: the onnx package would overflow its stack first."""

    def field(number, data):
        length, rest = b"", len(data)
        while rest > 127:
            length, rest = length + bytes([rest & 127 | 128]), rest >> 7
        return bytes([number << 3 | 2]) + length + bytes([rest]) + data

    graph = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(4, b"If") + field(5, attribute))
    return b"\x08\x0a" + field(7, graph)


def recursive_function():
    node = helper.make_node("F", ["x"], ["y"], domain="evil")
    function = helper.make_function("evil", "F", ["x"], ["y"], [node], [helper.make_opsetid("evil", 1)])
    model = tiny([node])
    model.opset_import.append(helper.make_opsetid("evil", 1))
    model.functions.append(function)
    return model


def lying_dims():
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31], raw_data=b"abcd")
    return tiny([helper.make_node("Add", ["x", "w"], ["y"])], [tensor])


# The message of a failing command must name the file or something in it.
SAID = ("weights.bin", "model.onnx", "tiny.onnx", "byte", "memory", "hostile", "input", "output", "shape", "node")


def cases():
    for name, change in shape_cases():
        yield Case(f"model-{name}", change, MODEL, EITHER, names=SAID, seconds=20)
    for name, change, ends in (*external_cases(), *context_cases(), *form_cases()):
        seconds = 10 if "fifo" in name else 30
        yield Case(f"model-{name}", change, MODEL, ends, names=SAID, seconds=seconds)
