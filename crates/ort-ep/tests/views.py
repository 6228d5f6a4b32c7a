"""Compares the `inspect` plugin's view of a model with what the `onnx` package reads from it.

usage: views.py LIBRARY
"""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

VERSION = tuple(int(part) for part in ort.__version__.split(".")[:2])
LEAKY_ALPHA, UPPER = 0.25, 0.3
WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def value(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


def save_model(path):
    """A model with every kind of attribute, input, dimension and initializer that the views distinguish."""
    node, real = helper.make_node, TensorProto.FLOAT
    then = helper.make_graph([node("Mul", ["m", "m"], ["t"], name="square")], "then_graph", [], [value("t", real, None)])
    other = helper.make_graph([node("Sub", ["m", "w"], ["e"], name="minus")], "else_graph", [], [value("e", real, None)])
    nodes = [
        node("Mul", ["x", "y"], ["m"], name="mul"),
        node("If", ["c"], ["i"], name="if", then_branch=then, else_branch=other),
        node("LeakyRelu", ["i"], ["l"], name="leaky", alpha=LEAKY_ALPHA),
        node("Clip", ["l", "", "hi"], ["clipped"], name="clip"),
        node("ConstantOfShape", ["s"], ["filled"], name="fill", value=helper.make_tensor("v", TensorProto.INT64, [1], [3])),
        node("LabelEncoder", ["label"], ["encoded"], name="encode", domain="ai.onnx.ml", keys_strings=["a", "", "bc"],
             values_int64s=[1, 2, 3], default_int64=-5),
        node("Add", ["big", "over"], ["moved"], name="move"),
        node("Cast", ["half"], ["single"], name="cast", to=TensorProto.FLOAT),
        node("Identity", ["unranked"], ["same"], name="same"),
        node("Add", ["scalar", "filled"], ["sum"], name="add"),
        node("StringConcat", ["strs", "label"], ["joined"], name="join"),
    ]
    inputs = [
        value("x", real, ["batch", 3]), value("y", real, ["batch", 3]), value("c", TensorProto.BOOL, []),
        value("hi", real, []), value("s", TensorProto.INT64, [None]), value("label", TensorProto.STRING, [3]),
        value("over", real, [1]), value("unranked", real, None),
    ]
    outputs = [
        value("clipped", real, None), value("encoded", TensorProto.INT64, [3]), value("moved", real, None),
        value("single", real, None), value("same", real, None), value("sum", TensorProto.INT64, None),
        value("joined", TensorProto.STRING, None),
    ]
    constants = {
        "w": WEIGHTS, "big": np.arange(512, dtype=np.float32), "half": np.array([1, -2], np.float16),
        "strs": np.array(["a", "", "ü€"], object), "scalar": np.array(7, np.int64), "over": np.array([1.5], np.float32),
    }
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "grüph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(model, {"k": "v", "ключ": "значение"})
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=1024)
    return model


def one_node(name, op_type, inputs, **attributes):
    output = value("z", TensorProto.FLOAT, None)
    node = helper.make_node(op_type, [one.name for one in inputs], ["z"], name=name, **attributes)
    graph = helper.make_graph([node], "one", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def session(model, report):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.add_session_config_entry("my.entry", "größe")
    devices = [device for device in ort.get_ep_devices() if device.ep_name == "Inspect"]
    assert len(devices) == 1, devices
    options.add_provider_for_devices(devices, {"report": report})
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def read(report):
    """The lines by key; a repeated key keeps its last value."""
    with open(report, encoding="utf-8") as file:
        return dict(line.rstrip("\n").split(" = ", 1) for line in file)


def expect(report, expected):
    for key, wanted in expected.items():
        assert report.get(key) == wanted, f"{key}: {report.get(key)!r}, wanted {wanted!r}"


def refuses(run, message):
    try:
        run()
    except Exception as error:
        assert message in str(error), error
        return
    raise AssertionError(f"succeeded, expected an error with {message!r}")


def check_graph(folder):
    path, report = os.path.join(folder, "mödel.onnx"), os.path.join(folder, "graph")
    model = save_model(path)
    running = session(path, report)
    seen, main = read(report), "graph main/grüph: "
    expect(seen, {
        main + "path": path, main + "ir": "9", main + "opset": "20", main + "view": "1",
        main + "input x": "F32[batchx3] flags=required producer=- uses=mul.0 data=- external=-",
        main + "input c": "Bool[] flags=required producer=- uses=if.0 data=- external=-",
        main + "input s": "I64[?] flags=required producer=- uses=fill.0 data=- external=-",
        main + "input unranked": "F32[*] flags=required producer=- uses=same.0 data=- external=-",
        main + "input over": "F32[1] flags=optional producer=- uses=move.1 data=f32[1][1.5] external=-",
        main + "output encoded": "I64[3] flags=output producer=encode.0 uses= data=- external=-",
        main + "initializer scalar": "I64[] flags=constant producer=- uses=add.0 data=i64[][7] external=-",
        main + "initializer strs":
            'String[3] flags=constant producer=- uses=join.0 data=string[3]["a", "", "ü€"] external=-',
        main + "initializer half": "F16[2] flags=constant producer=- uses=cast.0 data=f16[2][3c00, c000] external=-",
        main + "initializer w": "F32[2x3] flags=constant producer=- uses=if.implicit "
            "data=f32[2, 3][0.0, 1.0, 2.0, 3.0, 4.0, 5.0] external=-",
    })
    assert '"k": "v"' in seen[main + "metadata"] and '"ключ": "значение"' in seen[main + "metadata"]
    stored = next(one for one in onnx.load(path, load_external_data=False).graph.initializer if one.name == "big")
    place = {entry.key: entry.value for entry in stored.external_data}
    external = f"external={place['location']}+{place.get('offset', 0)}:{place['length']}"
    big = ", ".join(f"{number}.0" for number in range(512))
    assert seen[main + "initializer big"].endswith(f"data=f32[512][{big}] {external}")
    for node in model.graph.node:
        key = f"node main/grüph/{node.name}: "
        op_type, version = seen[key + "op"].split(":")[1].split("@")
        schema = onnx.defs.get_schema(node.op_type, {"": 20, "ai.onnx.ml": 2}[node.domain], node.domain)
        assert (op_type, int(version)) == (node.op_type, schema.since_version), node.name
        expect(seen, {
            key + "inputs": ",".join(name or "-" for name in node.input), key + "outputs": ",".join(node.output),
            key + "ep": "-", key + "unknown attribute": "false",
        })
    node = "node main/grüph/"
    expect(seen, {
        node + "if: implicit": "m,w", node + "if: subgraph then_branch": "1", node + "if: attribute then_branch": "Graph",
        node + "leaky: attribute alpha": f"Float({LEAKY_ALPHA})", node + "fill: attribute value": "Tensor(i64[1][3])",
        node + "encode: attribute keys_strings": 'Strings(["a", "", "bc"])',
        node + "encode: attribute values_int64s": "Ints([1, 2, 3])", node + "encode: attribute default_int64": "Int(-5)",
        node + "encode: attribute default_string": 'String("_Unused")',
        node + "encode: keys_strings as int":
            "node `encode` (LabelEncoder): attribute `keys_strings` is strings, expected int",
        "node if/then_graph/square: inputs": "m,m", "node if/else_graph/minus: inputs": "m,w",
        "fused.domain": "Inspect", "fused.graph": "false",
        "session.my.entry": "größe", "copy.inspect.copied": "yes", "original.has_copied": "false",
        "pairs": '{"a": "1", "b": "3"}', "pairs.missing": "None", "device.answer": "42",
        "kernel leaky: op": ":LeakyRelu@16", "kernel leaky: alpha": f"Some({LEAKY_ALPHA})", "kernel leaky: mode": "None",
        "kernel leaky: ints": "true", "kernel leaky: entries": "true", "kernel leaky: logger": "Error",
    })
    check_runs(running, report)


def check_runs(running, report):
    generator = np.random.default_rng(7)
    x, y = (generator.standard_normal((2, 3)).astype(np.float32) for _ in range(2))
    options = ort.RunOptions()
    options.add_run_config_entry("inspect.tag", "täg")
    for condition in (True, False):
        feeds = {
            "x": x, "y": y, "c": np.array(condition), "hi": np.array(UPPER, np.float32), "s": np.array([4], np.int64),
            "label": np.array(["a", "bc", "zz"], object), "unranked": np.zeros((1, 2), np.float32),
        }
        inner = x * y * (x * y) if condition else x * y - WEIGHTS
        wanted = np.minimum(np.where(inner < 0, LEAKY_ALPHA * inner, inner), UPPER)
        np.testing.assert_allclose(running.run(["clipped"], feeds, options)[0], wanted, rtol=1e-6)
    expect(read(report), {
        "run.tag": "täg", "compute.stream": "None", "compute.twice": "true", "compute.as_i64": "true",
        "compute.scratch": "true", "compute.panic": "true",
    })


def check_bound_buffers(folder):
    report = os.path.join(folder, "bound")
    pair = [value(name, TensorProto.FLOAT, ["n", 3]) for name in "xy"]
    running = session(one_node("mul", "Mul", pair), report)
    expect(read(report), {"graph main/one: path": ""})
    empty = np.zeros((0, 3), np.float32)
    assert running.run(None, {"x": empty, "y": empty})[0].shape == (0, 3)
    x, y, z = (ort.OrtValue.ortvalue_from_numpy(np.full((2, 3), number, np.float32)) for number in (2, 3, 0))

    def run_into(output):
        binding = running.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_input("y", y)
        binding.bind_ortvalue_output("z", output)
        running.run_with_iobinding(binding)

    run_into(z)
    np.testing.assert_array_equal(z.numpy(), np.full((2, 3), 6, np.float32))
    expect(read(report), {"compute.preallocated": "true" if VERSION >= (1, 30) else "false"})
    refuses(lambda: run_into(x), "shares its memory with an input")


def check_kernel_info(folder):
    report = os.path.join(folder, "kernel")
    image = value("image", TensorProto.FLOAT, [1, 4, 1, 1])
    running = session(one_node("spread", "DepthToSpace", [image], blocksize=2, mode="CRD"), report)
    expect(read(report), {
        "kernel spread: op": ":DepthToSpace@13", "kernel spread: blocksize": "Some(2)",
        "kernel spread: mode": 'Some("CRD")', "kernel spread: alpha": "None", "kernel spread: constant 0": "-",
        "kernel spread: input image":
            "Tensor(TensorType { element: F32, shape: Some([Fixed(1), Fixed(4), Fixed(1), Fixed(1)]) })",
    })
    refuses(lambda: running.run(None, {"image": np.zeros((1, 4, 1, 1), np.float32)}), "only inspected")


def main():
    print(f"onnxruntime {ort.__version__}")
    ort.register_execution_provider_library("Inspect", sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        check_graph(folder)
        check_bound_buffers(folder)
        check_kernel_info(folder)
    ort.unregister_execution_provider_library("Inspect")


main()
