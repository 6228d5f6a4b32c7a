"""Ways to corrupt a model: each takes a ModelProto and a random generator, and returns whether it changed the model."""
import random

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

INTS = (0, 1, -1, 2, 3, 7, -7, 64, 65, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (b"", b"NOTSET", b"SAME_UPPER", b"VALID", b"linear", b"cubic", b"reflect", b"wrap", b"\xff\xfe", b"a" * 5000, b"ij,jk->ik", b"...->")
TYPES = tuple(range(0, 24))


def graphs(graph):
    """The graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def pick(rng, items):
    items = list(items)
    return rng.choice(items) if items else None


def any_node(model, rng):
    return pick(rng, (node for graph in graphs(model.graph) for node in graph.node))


def attribute(model, rng):
    node = any_node(model, rng)
    if node is None:
        return False
    schema_names = known_attributes(node)
    if schema_names and (not node.attribute or rng.random() < 0.3):
        name = rng.choice(schema_names)
        for index in reversed([i for i, one in enumerate(node.attribute) if one.name == name]):
            del node.attribute[index]
        value = rng.choice([rng.choice(INTS), [rng.choice(INTS) for _ in range(rng.randint(1, 5))], rng.choice(FLOATS), rng.choice(TEXTS)])
        node.attribute.append(helper.make_attribute(name, value))
        return True
    one = pick(rng, node.attribute)
    if one is None:
        return False
    action = rng.random()
    if action < 0.1:
        node.attribute.remove(one)
    elif action < 0.2:
        one.type = rng.randint(0, 14)
    elif one.type == AttributeProto.INT:
        one.i = rng.choice(INTS)
    elif one.type == AttributeProto.FLOAT:
        one.f = rng.choice(FLOATS)
    elif one.type == AttributeProto.STRING:
        one.s = rng.choice(TEXTS)
    elif one.type == AttributeProto.INTS:
        change_list(one.ints, INTS, rng)
    elif one.type == AttributeProto.FLOATS:
        change_list(one.floats, FLOATS, rng)
    elif one.type == AttributeProto.STRINGS:
        change_list(one.strings, TEXTS, rng)
    elif one.type == AttributeProto.TENSOR:
        corrupt_tensor(one.t, rng)
    else:
        return False
    return True


def known_attributes(node):
    try:
        return sorted(onnx.defs.get_schema(node.op_type, domain=node.domain).attributes)
    except onnx.defs.SchemaError:
        return []


def change_list(items, values, rng):
    action = rng.random()
    if items and action < 0.6:
        items[rng.randrange(len(items))] = rng.choice(values)
    elif items and action < 0.7:
        del items[rng.randrange(len(items))]
    elif action < 0.9:
        items.append(rng.choice(values))
    else:
        items.extend([rng.choice(values)] * rng.choice([8, 64, 100_000]))


def corrupt_tensor(tensor, rng):
    action = rng.random()
    if action < 0.4:
        change_list(tensor.dims, INTS, rng)
    elif action < 0.6:
        tensor.data_type = rng.choice(TYPES)
    elif action < 0.8 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
    else:
        try:
            values = changed_values(numpy_helper.to_array(tensor), rng)
        except (ValueError, TypeError, KeyError):  # it is already corrupted
            return
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def changed_values(array, rng):
    """The array with changed values, mostly with the same shape."""
    array = np.array(array)
    if array.dtype.kind in "OUS" or array.dtype.isbuiltin != 1:
        return array
    if rng.random() < 0.15:
        return array.reshape(-1)[: rng.randint(0, 2)]
    if array.size and array.dtype.kind in "iu":
        bounds = np.iinfo(array.dtype)
        for _ in range(rng.randint(1, 3)):
            array.reshape(-1)[rng.randrange(array.size)] = min(max(rng.choice(INTS), bounds.min), bounds.max)
    elif array.size and array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice(FLOATS)
    return array


def initializer(model, rng):
    one = pick(rng, (tensor for graph in graphs(model.graph) for tensor in graph.initializer))
    if one is None:
        return False
    corrupt_tensor(one, rng)
    return True


def declared(model, rng):
    """Changes the declared shape or type of an input, output or value."""
    graph = pick(rng, graphs(model.graph))
    value = pick(rng, [*graph.input, *graph.output, *graph.value_info])
    if value is None or not value.type.HasField("tensor_type"):
        return False
    tensor = value.type.tensor_type
    if rng.random() < 0.35:
        tensor.elem_type = rng.choice(TYPES)
        return True
    action = rng.random()
    if action < 0.2:
        tensor.ClearField("shape")
    elif action < 0.4 or not tensor.shape.dim:
        tensor.shape.dim.add().dim_value = rng.choice(INTS)
    elif action < 0.8:
        tensor.shape.dim[rng.randrange(len(tensor.shape.dim))].dim_value = rng.choice(INTS)
    elif action < 0.9:
        for dim in tensor.shape.dim:
            dim.dim_param = "same"
    else:
        for _ in range(200):
            tensor.shape.dim.add().dim_value = rng.choice((1, 2, 1 << 62))
    return True


def wire(model, rng):
    """Changes inputs and outputs of nodes: missing, duplicated, cyclic, from other operators."""
    graph = pick(rng, graphs(model.graph))
    node = pick(rng, graph.node)
    if node is None:
        return False
    names = [name for one in graph.node for name in (*one.input, *one.output)] + ["", "nowhere"]
    action = rng.randrange(8)
    if action == 0 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif action == 1 and node.input:
        del node.input[rng.randrange(len(node.input))]
    elif action == 2:
        node.input.extend(rng.choice(names) for _ in range(rng.choice((1, 2, 300))))
    elif action == 3 and node.output:
        node.output[rng.randrange(len(node.output))] = rng.choice(names)
    elif action == 4:
        node.output.extend([f"more{rng.random()}"] * rng.randint(1, 2))
    elif action == 5:
        node.op_type = rng.choice([*{one.op_type for one in graph.node}, "Nonsense", "EPContext", "Identity", "Gather", "Conv", "MatMul"])
    elif action == 6:
        graph.node.append(node)
    elif action == 7:
        node.domain = rng.choice(("", "com.microsoft", "ai.onnx.ml", "nobody"))
    else:
        return False
    return True


def circle(model, rng):
    nodes = [node for node in model.graph.node if node.input and node.output]
    if not nodes:
        return False
    first, last = rng.choice(nodes), rng.choice(nodes)
    first.input[0] = last.output[0]
    return True


def versions(model, rng):
    if rng.random() < 0.3 or not model.opset_import:
        model.ir_version = rng.choice((0, 1, 3, 7, 10, 99, 1 << 62))
    else:
        rng.choice(model.opset_import).version = rng.choice((-1, 0, 1, 6, 7, 9, 11, 13, 18, 23, 99, 1 << 40))
    return True


STRUCTURAL = (attribute, attribute, attribute, initializer, initializer, declared, declared, wire, wire, circle, versions)


def structure(model, rng):
    """One to three changes that keep a valid protobuf message; True if there was any."""
    return any([rng.choice(STRUCTURAL)(model, rng) for _ in range(rng.randint(1, 3))])


def data(blob, rng):
    """A blob with changed, missing or repeated bytes."""
    blob = bytearray(blob)
    if not blob:
        return bytes(blob)
    action = rng.random()
    if action < 0.2:
        return bytes(blob[: rng.randrange(len(blob))])
    if action < 0.35:
        start = rng.randrange(len(blob))
        end = min(start + rng.randint(1, 40), len(blob))
        return bytes(blob[:start] + blob[start:end] * rng.randint(0, 3) + blob[end:])
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(blob))
        blob[at] = rng.choice((blob[at] ^ (1 << rng.randrange(8)), rng.randrange(256), 0, 0xFF))
    return bytes(blob)


def fix_inputs(model, values, rng):
    """Turns some inputs into initializers, so that their values are known before the first run."""
    for value in list(model.graph.input):
        array = values.get(value.name)
        if isinstance(array, np.ndarray) and rng.random() < 0.6:
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
            model.graph.input.remove(value)


def generator(seed, index):
    return random.Random(seed * 1_000_003 + index)
