"""Patterns for random graphs: exporters write them as several operators, and the engine fuses them into one.

Sometimes a detail differs from the pattern: another axis, another number, a second consumer.
"""
from graph_maker import DTYPES, ONE
from graph_ops import operator

# The probability of such a difference.
ODD = 0.25


def number(m, value, dtype="f32"):
    return m.constant(DTYPES[dtype][1](value))


def mean(m, x, axis):
    return m.node("ReduceMean", [x, m.ints(axis)]) if m.opset >= 18 else m.node("ReduceMean", [x], axes=[axis])


def floats(m):
    return m.pick("f32", where=lambda value: value.rank >= 2 and value.shape[-1].fixed and value.magnitude < 100)


@operator()
def written_norm(m):
    x = floats(m)
    if not x:
        return
    width, axis = x.shape[-1].factor, m.random.choice([-1, x.rank - 1])
    other = 0 if m.random.random() < ODD else axis
    centred = m.node("Sub", [x, mean(m, x, other)]) if m.random.random() < 0.6 else x
    square = m.node("Mul", [centred, centred]) if m.random.random() < 0.5 else m.node("Pow", [centred, number(m, 2)])
    root = m.node("Sqrt", [m.node("Add", [mean(m, square, axis), number(m, 0.1)])])
    if m.random.random() < 0.5:
        part = m.node("Div", [centred, root])
    else:
        part = m.node("Mul", [m.node("Reciprocal", [root]), centred])
    if m.random.random() < 0.8:
        part = m.node("Mul", [part, m.weight("f32", (width,))])
    if m.random.random() < 0.8:
        part = m.node("Add", [m.weight("f32", (width,)), part])
    m.add(part, "f32", x.shape, 4 * x.magnitude + 10, False)
    if m.random.random() < ODD:
        m.add(root, "f32", (*x.shape[:-1], ONE), 2 * x.magnitude + 1, False)


@operator()
def written_gelu(m):
    x = m.pick("f32", where=lambda value: value.magnitude < 20)
    if not x:
        return
    one, half = number(m, 1), number(m, 0.4 if m.random.random() < ODD else 0.5)
    if m.random.random() < 0.5:
        curve = m.node("Erf", [m.node("Div", [x, number(m, 2**0.5)])])
    else:
        cube = m.node("Mul", [m.node("Mul", [x, x]), x]) if m.random.random() < 0.5 else m.node("Pow", [x, number(m, 3)])
        inner = m.node("Add", [x, m.node("Mul", [cube, number(m, 0.044715)])])
        curve = m.node("Tanh", [m.node("Mul", [number(m, 0.7978845608), inner])])
    weight = m.node("Add", [curve, one])
    if m.random.random() < 0.5:
        out = m.node("Mul", [m.node("Mul", [x, weight]), half])
    else:
        out = m.node("Mul", [m.node("Mul", [half, x]), weight])
    m.add(out, "f32", x.shape, x.magnitude + 1, False)
    if m.random.random() < ODD:
        m.add(weight, "f32", x.shape, 2, False)


@operator()
def written_silu(m):
    x = m.pick("f32", "f16", where=lambda value: value.magnitude < 100)
    if not x:
        return
    inner = m.node("Mul", [x, number(m, 1.702, x.dtype)]) if m.random.random() < 0.5 else x
    gate = m.node("Sigmoid", [inner])
    m.add(m.node("Mul", [gate, x]), x.dtype, x.shape, x.magnitude, False)
    if m.random.random() < ODD:
        m.add(gate, x.dtype, x.shape, 1, False)


@operator()
def written_attention(m):
    """Self-attention over the heads of a sequence, `[batch, heads, sequence, size]`."""
    x = m.pick("f32", where=lambda value: value.rank == 3 and value.shape[2].fixed and value.magnitude < 30)
    if not x or x.shape[2].factor % 2 or not m.fits((x.shape[0], x.shape[1], x.shape[1], x.shape[2])):
        return
    heads, size = 2, x.shape[2].factor // 2
    split = m.node("Reshape", [x, m.ints(0, 0, heads, size)])
    query, key = m.node("Transpose", [split], perm=[0, 2, 1, 3]), m.node("Transpose", [split], perm=[0, 2, 3, 1])
    value = m.node("Transpose", [split], perm=[0, 2, 1, 3])
    if m.random.random() < 0.5:
        root = number(m, 0.2)
        query, key = m.node("Mul", [query, root]), m.node("Mul", [key, root])
        scores = m.node("MatMul", [query, key])
    else:
        scores = m.node("Div", [m.node("MatMul", [query, key]), number(m, 20)])
    if m.random.random() < 0.5:
        scores = m.node("Add", [scores, m.weight("f32", (1, heads, 1, 1))])
    weights = m.node("Softmax", [scores], axis=2 if m.random.random() < ODD else -1)
    seen = m.node("Transpose", [m.node("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    m.add(m.node("Reshape", [seen, m.ints(0, 0, heads * size)]), "f32", x.shape, x.magnitude * 8, False)
