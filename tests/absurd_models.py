"""Small, valid-looking models with absurd numbers: impossible sizes, excessive ranks, products that overflow."""
import numpy as np
from onnx import TensorProto, helper

HUGE = (1 << 31, 1 << 32, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 1)
X = np.ones((2, 3), np.float32)


def one_node(op_type, *inputs, opset=21, outputs=1, out_type=TensorProto.FLOAT, **attributes):
    """(model, inputs by name) of one node with arrays as inputs; None stands for a missing input."""
    names = [f"in{at}" if array is not None else "" for at, array in enumerate(inputs)]
    feeds = {name: np.asarray(array) for name, array in zip(names, inputs) if array is not None}
    results = [f"out{at}" for at in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None) for name, array in feeds.items()]
    made = [helper.make_tensor_value_info(name, out_type, None) for name in results]
    graph = helper.make_graph([node], "absurd", given, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds


def chain(huge, kind, *nodes, out_type=TensorProto.FLOAT):
    """(model, inputs by name) of nodes after an Expand to a huge shape, which never has to be stored. Each node is
    (operator, inputs, attributes); it reads `big`, the previous node's result, or a feed, and its output is the next
    `big`."""
    feeds = {"x": np.ones(1, kind), "shape": ints(*huge), "row": np.ones((1, 3), np.float32), "axes": ints(-1), "flag": np.array([True])}
    made = [helper.make_node("Expand", ["x", "shape"], ["big0"])]
    for at, (op_type, inputs, attributes) in enumerate(nodes):
        names = [f"big{at}" if name == "big" else name for name in inputs]
        made.append(helper.make_node(op_type, names, [f"big{at + 1}"], **attributes))
    feeds = {name: array for name, array in feeds.items() if any(name in node.input for node in made)}
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), None) for name, array in feeds.items()]
    outputs = [helper.make_tensor_value_info(made[-1].output[0], out_type, None)]
    graph = helper.make_graph(made, "absurd", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), feeds


def ints(*numbers):
    return np.array(numbers, np.int64)


def floats(*numbers):
    return np.array(numbers, np.float32)


def absurd(rng):
    huge, other, immense = rng.choice(HUGE), rng.choice(HUGE), rng.choice(HUGE[2:])
    image = np.ones((1, 1, 4, 4), np.float32)
    return rng.choice((
        lambda: one_node("ConstantOfShape", ints(huge, 6)),
        lambda: one_node("ConstantOfShape", ints(huge, other, 0)),
        lambda: one_node("Expand", X, ints(huge, 2, 3)),
        lambda: one_node("Tile", X, ints(huge, other)),
        lambda: one_node("Reshape", X, ints(huge, -1)),
        lambda: one_node("Pad", X, ints(0, huge, 0, other)),
        lambda: one_node("Pad", X, ints(0, 5, 0, huge), mode="reflect"),
        lambda: one_node("Resize", image, None, None, ints(1, 1, 7, huge), mode="nearest"),
        lambda: one_node("Resize", image, None, None, ints(1, 1, 2147483647, 3), mode="linear"),
        lambda: one_node("Resize", image, None, floats(1, 1, 1e30, 1e30), mode="cubic"),
        lambda: one_node("Range", ints(0)[0], ints(huge)[0], ints(1)[0], out_type=TensorProto.INT64),
        lambda: one_node("Range", ints(-huge)[0], ints(huge)[0], ints(1)[0], out_type=TensorProto.INT64),
        lambda: one_node("Range", floats(0)[0], floats(1)[0], floats(1e-38)[0]),
        lambda: one_node("OneHot", ints(0, 1), ints(huge), floats(0, 1)),
        lambda: one_node("TopK", X, ints(huge), outputs=2),
        lambda: one_node("Gather", X, ints(huge, -huge)),
        lambda: one_node("ScatterND", X, ints(huge, 1).reshape(1, 2), floats(1)),
        lambda: one_node("Split", X, ints(huge, -huge), outputs=2),
        lambda: one_node("CenterCropPad", X, ints(huge, 3)),
        lambda: one_node("Unsqueeze", X, np.arange(1000, dtype=np.int64)),
        lambda: one_node("Conv", image, np.ones((1, 1, 2, 2), np.float32), pads=[huge] * 4),
        lambda: one_node("Conv", image, np.ones((1, 1, 2, 2), np.float32), dilations=[huge, other]),
        lambda: one_node("Conv", image, np.ones((1, 1, 2, 2), np.float32), strides=[huge, 0]),
        lambda: one_node("ConvTranspose", image, np.ones((1, 1, 2, 2), np.float32), strides=[huge, other]),
        lambda: one_node("MaxPool", image, kernel_shape=[huge, other]),
        lambda: one_node("AveragePool", image, kernel_shape=[2, 2], pads=[huge] * 4),
        lambda: one_node("DepthToSpace", image, blocksize=huge),
        lambda: one_node("EyeLike", X, k=-huge),
        lambda: one_node("Flatten", X, axis=huge),
        lambda: one_node("MatMul", np.ones((1 << 20, 1), np.float32), np.ones((1, 1 << 20), np.float32)),
        lambda: one_node("Einsum", np.ones(1 << 13, np.float32), np.ones(1 << 13, np.float32), np.ones(1 << 13, np.float32), equation="i,j,k->ijk"),
        # Large amounts of work without memory: the input is a broadcast.
        lambda: chain((immense,), np.float32, ("ReduceMax", ["big", "axes"], {})),
        lambda: chain((1 << 20, 1 << 20), np.float32, ("ReduceSum", ["big"], {"keepdims": 0})),
        lambda: chain((1 << 20, 1 << 20), np.float32, ("Transpose", ["big"], {}), ("ReduceMean", ["big", "axes"], {}), ("Neg", ["big"], {})),
        lambda: chain((immense,), np.int64, ("ArgMax", ["big"], {}), out_type=TensorProto.INT64),
        lambda: chain((1 << 30, 1 << 30), np.float32, ("MatMul", ["big", "big"], {}), ("ReduceMax", ["big"], {})),
        lambda: chain((1 << 40, 3), np.float32, ("Add", ["big", "row"], {}), ("ReduceMax", ["big"], {})),
        lambda: chain((huge, 2, other), np.float32, ("Where", ["flag", "big", "big"], {})),
        lambda: chain((1 << 40,), np.float32, ("Size", ["big"], {}), out_type=TensorProto.INT64),
        lambda: chain((1 << 40,), np.int64, ("Reshape", ["row", "big"], {})),
        lambda: chain((1 << 40,), np.int64, ("Expand", ["row", "big"], {})),
        lambda: chain((immense,), np.float32, ("NonZero", ["big"], {}), out_type=TensorProto.INT64),
        lambda: chain((1 << 40,), np.float32, ("Softmax", ["big"], {}), ("ReduceMax", ["big"], {})),
        lambda: one_node("LSTM", np.ones((1, 1, 2), np.float32), np.ones((1, 8, 2), np.float32), np.ones((1, 8, 2), np.float32), hidden_size=huge, outputs=3),
    ))()
