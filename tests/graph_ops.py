"""Operators of random graphs: each function adds one use of an operator to a `Maker`, or returns without doing so.

Values stay tame on purpose (no poles, no overflow), since a difference that rounding can explain proves nothing.
"""
import math

import numpy as np
from onnx import TensorProto

from graph_maker import DTYPES, FLOATS, INTS, ONE, Dim, elements

MOVABLE = ("f32", "f16", "i32", "i64", "bool")
TABLE = []


def operator(weight=1):
    def register(function):
        TABLE.extend([function] * weight)
        return function

    return register


# Elementwise.


@operator(weight=4)
def unary(m):
    x = m.pick(*FLOATS)
    smooth = {"Sigmoid": 1, "Tanh": 1, "Erf": 1, "HardSigmoid": 1, "Softsign": 1, "Atan": 2}
    smooth |= {"Sin": 1, "Cos": 1} if x.magnitude <= 20 else {}
    growing = ["Softplus", "LeakyRelu", "Elu", "Selu"] + ["Celu"] * (x.dtype == "f32")
    growing += ["HardSwish"] * (m.opset >= 14) + ["Mish"] * (m.opset >= 18) + ["Gelu"] * (m.opset >= 20)
    exact = ["Relu", "Abs", "Neg", "Identity"]
    op = m.random.choice([*smooth, *growing, *exact])
    magnitude = smooth.get(op, x.magnitude * 2 + 1 if op in growing else x.magnitude)
    m.add(m.node(op, [x]), x.dtype, x.shape, magnitude, x.exact and op in exact)


@operator()
def guarded_unary(m):
    x = m.pick(*FLOATS)
    positive = m.node("Add", [m.node("Abs", [x]), m.constant(DTYPES[x.dtype][1](0.5))])
    op = m.random.choice(["Sqrt", "Log", "Reciprocal"])
    m.add(m.node(op, [positive]), x.dtype, x.shape, x.magnitude + 2, False)


@operator()
def exponential(m):
    x = m.pick(*FLOATS, where=lambda value: value.magnitude <= 4)
    if x:
        m.add(m.node("Exp", [x]), x.dtype, x.shape, math.exp(x.magnitude), False)


@operator()
def rounding(m):
    x = m.pick("f32", where=lambda value: value.exact)
    if x:
        op = m.random.choice(["Floor", "Ceil", "Round", "Sign"])
        m.add(m.node(op, [x]), x.dtype, x.shape, x.magnitude + 1, True)


@operator()
def clip(m):
    x = m.pick(*FLOATS)
    low, high = m.random.choice([("", 1.0), (-1.0, ""), (-0.5, 2.0)])
    bounds = [bound if bound == "" else m.constant(DTYPES[x.dtype][1](bound)) for bound in (low, high)]
    m.add(m.node("Clip", [x, *bounds]), x.dtype, x.shape, x.magnitude, x.exact)


def partner(m, x):
    """Something to combine with `x`: a value of the same type that broadcasts, or a constant. (operand, shape, magnitude, exact)"""

    def broadcasts(y):
        pairs = zip(reversed(x.shape), reversed(y.shape))
        return all(a == b or ONE in (a, b) for a, b in pairs)

    if m.random.random() < 0.5:
        y = m.pick(x.dtype, where=broadcasts)
        if y:
            longer, shorter = (x.shape, y.shape) if x.rank >= y.rank else (y.shape, x.shape)
            lead = len(longer) - len(shorter)
            tail = tuple(b if a == ONE else a for a, b in zip(longer[lead:], shorter))
            shape = longer[:lead] + tail
            if m.fits(shape):
                return y, shape, y.magnitude, y.exact
    extents = [dim.factor if dim.fixed and m.random.random() < 0.6 else 1 for dim in x.shape]
    extents = extents[m.random.randint(0, len(extents)) :]
    if x.dtype in INTS:
        array = m.numbers.integers(1, 4, size=extents).astype(DTYPES[x.dtype][1])
    else:
        array = m.draw(x.dtype, extents, m.numbers)
    return m.constant(array), x.shape, 3.0, True


@operator(weight=4)
def binary(m):
    x = m.pick(*FLOATS, *INTS)
    y, shape, magnitude, exact = partner(m, x)
    op = m.random.choice(["Add", "Sub", "Mul", "Max", "Min"])
    pair = [x, y] if m.random.random() < 0.5 else [y, x]
    magnitude = x.magnitude * magnitude if op == "Mul" else x.magnitude + magnitude
    m.add(m.node(op, pair), x.dtype, shape, magnitude, x.exact and exact)


@operator()
def division(m):
    x = m.pick(*FLOATS, *INTS)
    if x.dtype in FLOATS:
        y, shape, _, _ = partner(m, x)
        y = m.node("Add", [m.node("Abs", [y]), m.constant(DTYPES[x.dtype][1](0.5))])
        m.add(m.node("Div", [x, y]), x.dtype, shape, x.magnitude * 2, False)
    else:
        y = m.constant(m.numbers.integers(1, 5, size=[]).astype(DTYPES[x.dtype][1]))
        m.add(m.node(m.random.choice(["Div", "Mod"]), [x, y]), x.dtype, x.shape, x.magnitude, True)


@operator()
def power(m):
    x = m.pick("f32", where=lambda value: value.magnitude <= 20)
    if x:
        exponent = m.random.choice([2.0, 3.0])
        m.add(m.node("Pow", [x, m.constant(DTYPES["f32"][1](exponent))]), "f32", x.shape, x.magnitude**exponent, False)


@operator()
def variadic(m):
    x = m.pick("f32")
    y, shape, magnitude, exact = partner(m, x)
    op = m.random.choice(["Sum", "Mean", "Max", "Min"])
    keeps = exact and x.exact and op in ("Max", "Min")
    m.add(m.node(op, [x, y, x]), x.dtype, shape, 2 * x.magnitude + magnitude, keeps)


@operator(weight=2)
def comparison(m):
    x = m.pick("f32", *INTS, where=lambda value: value.exact)
    if x:
        y, shape, _, exact = partner(m, x)
        if exact:
            op = m.random.choice(["Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"])
            m.add(m.node(op, [x, y]), "bool", shape, 1, True)


@operator()
def logic(m):
    x = m.pick("bool")
    if x and m.random.random() < 0.4:
        m.add(m.node("Not", [x]), "bool", x.shape, 1, True)
    elif x:
        y, shape, _, _ = partner(m, x)
        m.add(m.node(m.random.choice(["And", "Or", "Xor"]), [x, y]), "bool", shape, 1, True)


@operator(weight=2)
def where(m):
    condition = m.pick("bool")
    if not condition:
        return
    x = m.pick(*FLOATS, *INTS, where=lambda value: value.shape == condition.shape)
    if x:
        y, shape, magnitude, exact = partner(m, x)
        m.add(m.node("Where", [condition, x, y]), x.dtype, shape, max(x.magnitude, magnitude), x.exact and exact)


@operator(weight=2)
def cast(m):
    x = m.pick(*MOVABLE)
    targets = [to for to in MOVABLE if to != x.dtype]
    if x.dtype in FLOATS and not x.exact:
        targets = [to for to in FLOATS if to != x.dtype]
    to = m.random.choice(targets)
    m.add(m.node("Cast", [x], to=DTYPES[to][0]), to, x.shape, 1 if to == "bool" else x.magnitude, x.exact)


# Movement.


@operator(weight=3)
def transpose(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 2)
    if x:
        order = m.random.sample(range(x.rank), x.rank)
        m.add(m.node("Transpose", [x], perm=order), x.dtype, [x.shape[axis] for axis in order], x.magnitude, x.exact)


@operator(weight=2)
def merge_or_split_axes(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    if not x:
        return
    axis = m.random.randrange(x.rank)
    dim = x.shape[axis]
    if axis + 1 < x.rank and m.random.random() < 0.5:
        shape = x.shape[:axis] + (dim.times(x.shape[axis + 1]),) + x.shape[axis + 2 :]
        target = [0] * axis + [-1]
        rest = x.shape[axis + 2 :]
        if not all(part.fixed for part in rest):
            return
        target += [part.factor for part in rest]
    else:
        divisors = [part for part in range(2, dim.factor + 1) if dim.factor % part == 0]
        if not divisors or not all(part.fixed for part in x.shape[axis + 1 :]):
            return
        part = m.random.choice(divisors)
        shape = x.shape[:axis] + (Dim(dim.factor // part, dim.sizes), Dim(part)) + x.shape[axis + 1 :]
        target = [0] * axis + [-1, part] + [rest.factor for rest in x.shape[axis + 1 :]]
    if m.fits(shape):
        m.add(m.node("Reshape", [x, m.ints(*target)]), x.dtype, shape, x.magnitude, x.exact)


@operator(weight=2)
def reshape_by_shape(m):
    """Reshape to a shape that is computed, as exporters write it."""
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 2)
    if x:
        whole = m.node("Shape", [x])
        first = m.node("Gather", [whole, m.ints(0)], axis=0)
        target = m.node("Concat", [first, m.ints(-1)], axis=0)
        rest = ONE
        for dim in x.shape[1:]:
            rest = rest.times(dim)
        m.add(m.node("Reshape", [x, target]), x.dtype, (x.shape[0], rest), x.magnitude, x.exact)


@operator()
def flatten(m):
    x = m.pick(*MOVABLE)
    axis = m.random.randint(0, x.rank)
    halves = []
    for part in (x.shape[:axis], x.shape[axis:]):
        product = ONE
        for dim in part:
            product = product.times(dim)
        halves.append(product)
    m.add(m.node("Flatten", [x], axis=axis), x.dtype, halves, x.magnitude, x.exact)


@operator()
def unsqueeze(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank <= 4)
    if x:
        axis = m.random.randint(0, x.rank)
        shape = x.shape[:axis] + (ONE,) + x.shape[axis:]
        m.add(m.node("Unsqueeze", [x, m.ints(axis)]), x.dtype, shape, x.magnitude, x.exact)


@operator()
def squeeze(m):
    x = m.pick(*MOVABLE, where=lambda value: ONE in value.shape)
    if x:
        axis = m.random.choice([axis for axis, dim in enumerate(x.shape) if dim == ONE])
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        m.add(m.node("Squeeze", [x, m.ints(axis - x.rank)]), x.dtype, shape, x.magnitude, x.exact)


@operator(weight=2)
def concat(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    if not x:
        return
    axis = m.random.randrange(x.rank)

    def joins(y):
        same = y.rank == x.rank and y.shape[:axis] + y.shape[axis + 1 :] == x.shape[:axis] + x.shape[axis + 1 :]
        return same and y.shape[axis].sizes == x.shape[axis].sizes

    y = m.pick(x.dtype, where=joins)
    dim = Dim(2 * x.shape[axis].factor + y.shape[axis].factor, x.shape[axis].sizes)
    shape = x.shape[:axis] + (dim,) + x.shape[axis + 1 :]
    if m.fits(shape):
        magnitude = max(x.magnitude, y.magnitude)
        m.add(m.node("Concat", [x, y, x], axis=axis), x.dtype, shape, magnitude, x.exact and y.exact)


def fixed_axis(m, x, at_least=1):
    axes = [axis for axis, dim in enumerate(x.shape) if dim.fixed and dim.factor >= at_least]
    return m.random.choice(axes) if axes else None


@operator(weight=2)
def slice_(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    axis = fixed_axis(m, x, 2) if x else None
    if axis is None:
        return
    extent = x.shape[axis].factor
    start, step = m.random.randrange(extent), m.random.choice([1, 1, 2, -1, -2])
    end = m.random.randint(start + 1, extent) if step > 0 else m.random.choice([*range(start), -extent - 1])
    picked = len(range(extent)[slice(start, None if end < 0 else end, step)])
    shape = x.shape[:axis] + (Dim(picked),) + x.shape[axis + 1 :]
    node = m.node("Slice", [x, m.ints(start), m.ints(end), m.ints(axis), m.ints(step)])
    m.add(node, x.dtype, shape, x.magnitude, x.exact)


@operator()
def split(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    axis = fixed_axis(m, x, 2) if x else None
    if axis is None:
        return
    extent = x.shape[axis].factor
    first = m.random.randint(1, extent - 1)
    names = m.node("Split", [x, m.ints(first, extent - first)], outputs=2, axis=axis)
    for name, part in zip(names, (first, extent - first)):
        m.add(name, x.dtype, x.shape[:axis] + (Dim(part),) + x.shape[axis + 1 :], x.magnitude, x.exact)


@operator()
def pad(m):
    x = m.pick(*FLOATS, *INTS, where=lambda value: value.rank >= 1)
    axis = fixed_axis(m, x, 3) if x else None
    if axis is None:
        return
    before, after = m.random.randint(0, 2), m.random.randint(0, 2)
    pads = [0] * (2 * x.rank)
    pads[axis], pads[x.rank + axis] = before, after
    shape = x.shape[:axis] + (Dim(x.shape[axis].factor + before + after),) + x.shape[axis + 1 :]
    if m.fits(shape):
        mode = m.random.choice(["constant", "reflect", "edge"])
        m.add(m.node("Pad", [x, m.ints(*pads)], mode=mode), x.dtype, shape, x.magnitude, x.exact)


@operator()
def expand_like(m):
    """A row expanded to the run-time shape of another value."""
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1 and value.shape[-1].fixed)
    if x:
        row = m.draw("f32", [x.shape[-1].factor], m.numbers)
        node = m.node("Expand", [m.constant(row), m.node("Shape", [x])])
        m.add(node, "f32", x.shape, 3, True)


@operator()
def tile(m):
    x = m.pick(*FLOATS, *INTS, where=lambda value: value.rank >= 1)
    if x:
        repeats = [m.random.choice([1, 1, 2]) for _ in x.shape]
        shape = [Dim(dim.factor * times, dim.sizes) for dim, times in zip(x.shape, repeats)]
        if m.fits(shape):
            m.add(m.node("Tile", [x, m.ints(*repeats)]), x.dtype, shape, x.magnitude, x.exact)


@operator(weight=2)
def gather(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    axis = fixed_axis(m, x) if x else None
    if axis is None:
        return
    extents = m.random.choice([(), (2,), (2, 3)])
    index = m.numbers.integers(-x.shape[axis].factor, x.shape[axis].factor, size=extents)
    shape = x.shape[:axis] + tuple(Dim(extent) for extent in extents) + x.shape[axis + 1 :]
    if m.fits(shape):
        m.add(m.node("Gather", [x, m.constant(index)], axis=axis), x.dtype, shape, x.magnitude, x.exact)


@operator()
def look_up(m):
    """Rows of a table by computed indices."""
    x = m.pick(*INTS, where=lambda value: value.rank <= 3)
    if x:
        index = m.node("Mod", [x, m.constant(DTYPES[x.dtype][1](6))])
        shape = x.shape + (Dim(4),)
        if m.fits(shape):
            m.add(m.node("Gather", [m.constant(m.draw("f32", (6, 4), m.numbers)), index]), "f32", shape, 3, True)


@operator()
def trilu(m):
    x = m.pick(*FLOATS, *INTS, where=lambda value: value.rank >= 2)
    if x and m.opset >= 14:
        node = m.node("Trilu", [x, m.constant(m.numbers.integers(-2, 3))], upper=m.random.randint(0, 1))
        m.add(node, x.dtype, x.shape, x.magnitude, x.exact)


@operator()
def block_moves(m):
    x = m.pick(*FLOATS, where=lambda value: value.rank == 4 and all(dim.fixed for dim in value.shape[1:]))
    if not x:
        return
    batch, channels, rows, columns = x.shape
    if channels.factor % 4 == 0:
        shape = (batch, Dim(channels.factor // 4), Dim(rows.factor * 2), Dim(columns.factor * 2))
        node = m.node("DepthToSpace", [x], blocksize=2, mode=m.random.choice(["DCR", "CRD"]))
        m.add(node, x.dtype, shape, x.magnitude, x.exact)
    elif rows.factor % 2 == 0 and columns.factor % 2 == 0:
        shape = (batch, Dim(channels.factor * 4), Dim(rows.factor // 2), Dim(columns.factor // 2))
        m.add(m.node("SpaceToDepth", [x], blocksize=2), x.dtype, shape, x.magnitude, x.exact)


@operator()
def gather_elements(m):
    x = m.pick(*MOVABLE, where=lambda value: 1 <= value.rank <= 4 and value.is_fixed())
    if x:
        axis = m.random.randrange(x.rank)
        extents = [dim.factor for dim in x.shape]
        extents[axis] = m.random.randint(1, 4)
        index = m.constant(m.numbers.integers(-x.shape[axis].factor, x.shape[axis].factor, size=extents))
        shape = [Dim(extent) for extent in extents]
        if m.fits(shape):
            m.add(m.node("GatherElements", [x, index], axis=axis), x.dtype, shape, x.magnitude, x.exact)


@operator()
def gather_nd(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 2 and value.shape[1].fixed)
    if x:
        rows = [[0, int(m.numbers.integers(0, x.shape[1].factor))] for _ in range(3)]
        node = m.node("GatherND", [x, m.constant(np.array(rows))])
        m.add(node, x.dtype, (Dim(3), *x.shape[2:]), x.magnitude, x.exact)


@operator()
def scatter_rows(m):
    """Rows written at distinct places, so that their order does not matter."""
    x = m.pick(*FLOATS, *INTS, where=lambda value: value.rank >= 2 and value.is_fixed() and value.shape[0].factor >= 2)
    if not x:
        return
    rows = m.random.sample(range(x.shape[0].factor), 2)
    extents = [dim.factor for dim in x.shape[1:]]
    updates = m.constant(m.draw(x.dtype, [2, *extents], m.numbers))
    if m.random.random() < 0.5:
        index = m.constant(np.array([[row] for row in rows]))
        node = m.node("ScatterND", [x, index, updates])
    else:
        index = np.broadcast_to(np.array(rows).reshape(2, *(1 for _ in extents)), (2, *extents))
        node = m.node("ScatterElements", [x, m.constant(np.ascontiguousarray(index)), updates], axis=0)
    m.add(node, x.dtype, x.shape, max(x.magnitude, 3), x.exact)


@operator()
def one_hot(m):
    x = m.pick("i64", where=lambda value: 1 <= value.rank <= 3)
    if x:
        shape = (*x.shape, Dim(5))
        if m.fits(shape):
            node = m.node("OneHot", [x, m.constant(np.int64(5)), m.constant(np.array([-0.5, 2], np.float32))])
            m.add(node, "f32", shape, 2, True)


@operator()
def reverse_sequence(m):
    x = m.pick("f32", "i64", where=lambda value: value.rank >= 2 and all(dim.fixed for dim in value.shape[:2]))
    if x:
        batch, length = (dim.factor for dim in x.shape[:2])
        lengths = m.constant(m.numbers.integers(1, length + 1, size=batch))
        node = m.node("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1)
        m.add(node, x.dtype, x.shape, x.magnitude, x.exact)


# Shape arithmetic.


@operator(weight=2)
def shape_of(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    if x and m.opset >= 15 and m.random.random() < 0.5:
        m.add(m.node("Shape", [x], start=-1), "i64", (ONE,), 10_000, True)
    elif x:
        m.add(m.node("Shape", [x]), "i64", (Dim(x.rank),), 10_000, True)


@operator()
def range_of_size(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    if x:
        axis = m.random.randrange(x.rank)
        count = m.node("Gather", [m.node("Shape", [x]), m.constant(m.numbers.integers(axis, axis + 1))], axis=0)
        zero, one = (m.constant(m.numbers.integers(n, n + 1)) for n in (0, 1))
        m.add(m.node("Range", [zero, count, one]), "i64", (x.shape[axis],), 20_000, True)


@operator()
def zeros_like(m):
    x = m.pick(*MOVABLE, where=lambda value: value.rank >= 1)
    if x:
        m.add(m.node("ConstantOfShape", [m.node("Shape", [x])]), "f32", x.shape, 0, True)


# Reductions and searches.


@operator(weight=3)
def reduction(m):
    x = m.pick(*FLOATS, "i32", "i64", where=lambda value: value.rank >= 1)
    if not x:
        return
    ops = ["ReduceSum", "ReduceMax", "ReduceMin"]
    if x.dtype in FLOATS:
        ops += ["ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare"] + ["ReduceLogSumExp"] * (x.magnitude <= 20)
    op = m.random.choice(ops)
    axes = sorted(m.random.sample(range(x.rank), m.random.randint(1, x.rank)))
    keep = m.random.randint(0, 1)
    shape = [ONE if axis in axes else dim for axis, dim in enumerate(x.shape) if keep or axis not in axes]
    count = max(elements_of(x, axes), 1)
    magnitude = {"ReduceMax": x.magnitude, "ReduceMin": x.magnitude, "ReduceMean": x.magnitude}.get(op, x.magnitude * count)
    magnitude = x.magnitude**2 * count if op == "ReduceSumSquare" else magnitude
    exact = x.exact and (x.dtype in INTS or op in ("ReduceMax", "ReduceMin"))
    if op == "ReduceSum" or m.opset >= 18:
        node = m.node(op, [x, m.ints(*axes)], keepdims=keep)
    else:
        node = m.node(op, [x], axes=axes, keepdims=keep)
    m.add(node, x.dtype, shape, magnitude, exact)


def elements_of(x, axes):
    return elements([x.shape[axis] for axis in axes])


@operator()
def search(m):
    x = m.pick("f32", "i64", where=lambda value: value.rank >= 1 and value.exact)
    axis = fixed_axis(m, x) if x else None
    if axis is not None:
        shape = x.shape[:axis] + (ONE,) + x.shape[axis + 1 :]
        op = m.random.choice(["ArgMax", "ArgMin"])
        node = m.node(op, [x], axis=axis, keepdims=1, select_last_index=m.random.randint(0, 1))
        m.add(node, "i64", shape, x.shape[axis].factor, True)


@operator()
def top_k(m):
    x = m.pick("f32", "i64", where=lambda value: value.rank >= 1 and value.exact)
    axis = fixed_axis(m, x, 2) if x else None
    if axis is not None:
        count = m.random.randint(1, x.shape[axis].factor)
        shape = x.shape[:axis] + (Dim(count),) + x.shape[axis + 1 :]
        values, indices = m.node("TopK", [x, m.ints(count)], outputs=2, axis=axis, largest=m.random.randint(0, 1))
        m.add(values, x.dtype, shape, x.magnitude, True)
        m.add(indices, "i64", shape, x.shape[axis].factor, True)


@operator()
def cumulative_sum(m):
    x = m.pick("f32", *INTS, where=lambda value: value.rank >= 1)
    if x:
        axis = m.random.randrange(x.rank)
        flags = {"exclusive": m.random.randint(0, 1), "reverse": m.random.randint(0, 1)}
        node = m.node("CumSum", [x, m.constant(m.numbers.integers(axis, axis + 1))], **flags)
        m.add(node, x.dtype, x.shape, x.magnitude * elements_of(x, [axis]), x.exact and x.dtype in INTS)


# Products, convolutions, pools, norms.


@operator(weight=3)
def matmul(m):
    x = m.pick(*FLOATS, where=lambda value: value.rank >= 2 and value.shape[-1].fixed)
    if not x:
        return
    inner, columns = x.shape[-1].factor, m.random.randint(1, 9)
    shape = x.shape[:-1] + (Dim(columns),)
    node = m.node("MatMul", [x, m.weight(x.dtype, (inner, columns), inner**-0.5)])
    out = m.add(node, x.dtype, shape, x.magnitude * 4, False)
    if m.random.random() < 0.5:
        bias = m.weight(x.dtype, (columns,))
        m.add(m.node("Add", [out, bias]), x.dtype, shape, x.magnitude * 4 + 3, False)


@operator()
def self_attention(m):
    """Scores of a sequence against itself, as exporters write them out."""
    x = m.pick("f32", where=lambda value: value.rank == 3 and value.shape[-1].fixed and value.magnitude < 50)
    if x and m.fits((x.shape[0], x.shape[1], x.shape[1])):
        turned = m.node("Transpose", [x], perm=[0, 2, 1])
        scores = m.node("MatMul", [x, turned])
        scale = m.constant(DTYPES["f32"][1](0.05))
        weights = m.node("Softmax", [m.node("Mul", [scores, scale])], axis=-1)
        m.add(m.node("MatMul", [weights, x]), "f32", x.shape, x.magnitude, False)


@operator()
def gemm(m):
    x = m.pick("f32", where=lambda value: value.rank == 2 and value.shape[1].fixed)
    if x:
        inner, columns = x.shape[1].factor, m.random.randint(1, 9)
        turned = m.random.randint(0, 1)
        weight = m.weight("f32", (columns, inner) if turned else (inner, columns), inner**-0.5)
        bias = m.random.choice([[], [m.weight("f32", (columns,))], [m.weight("f32", (1, columns))], [m.weight("f32", ())]])
        node = m.node("Gemm", [x, weight, *bias], transB=turned, alpha=0.5, beta=1.5)
        m.add(node, "f32", (x.shape[0], Dim(columns)), x.magnitude * 4 + 5, False)


def image(m, *dtypes, ranks=(3, 4)):
    return m.pick(*dtypes, where=lambda v: v.rank in ranks and all(dim.fixed for dim in v.shape[1:]) and v.shape[1].factor <= 32)


@operator(weight=3)
def conv(m):
    x = image(m, "f32", "f16")
    if not x:
        return
    channels, spatial = x.shape[1].factor, [dim.factor for dim in x.shape[2:]]
    groups = m.random.choice([groups for groups in (1, 2, channels) if channels % groups == 0])
    filters = groups * m.random.randint(1, 3)
    kernel = [m.random.randint(1, 3) for _ in spatial]
    strides, dilations = [m.random.randint(1, 2) for _ in spatial], [m.random.randint(1, 2) for _ in spatial]
    pads = [m.random.randint(0, 1) for _ in range(2 * len(spatial))]
    extents = []
    for axis, extent in enumerate(spatial):
        padded = extent + pads[axis] + pads[len(spatial) + axis] - dilations[axis] * (kernel[axis] - 1) - 1
        extents.append(padded // strides[axis] + 1)
        if padded < 0:
            return
    shape = (x.shape[0], Dim(filters), *map(Dim, extents))
    if m.fits(shape):
        fan = channels // groups * math.prod(kernel)
        weight = m.weight(x.dtype, (filters, channels // groups, *kernel), fan**-0.5)
        bias = [m.weight(x.dtype, (filters,))] if m.random.random() < 0.5 else []
        node = m.node("Conv", [x, weight, *bias], group=groups, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)
        m.add(node, x.dtype, shape, x.magnitude * 4 + 3, False)


@operator()
def conv_transpose(m):
    x = image(m, "f32", ranks=(4,))
    if not x:
        return
    channels, filters, stride = x.shape[1].factor, m.random.randint(1, 3), m.random.randint(1, 2)
    shape = (x.shape[0], Dim(filters), *(Dim((dim.factor - 1) * stride + 2) for dim in x.shape[2:]))
    if m.fits(shape):
        weight = m.weight("f32", (channels, filters, 2, 2), (channels * 4) ** -0.5)
        node = m.node("ConvTranspose", [x, weight], strides=[stride, stride], kernel_shape=[2, 2])
        m.add(node, "f32", shape, x.magnitude * 4, False)


@operator(weight=2)
def pool(m):
    x = image(m, "f32")
    if not x or any(dim.factor < 3 for dim in x.shape[2:]):
        return
    op, rank = m.random.choice(["MaxPool", "AveragePool"]), x.rank - 2
    stride, begin, end = m.random.randint(1, 2), m.random.randint(0, 1), m.random.randint(0, 1)
    extra = {"count_include_pad": m.random.randint(0, 1)} if op == "AveragePool" else {}
    extents = [(dim.factor + begin + end - 2) // stride + 1 for dim in x.shape[2:]]
    pads = [begin] * rank + [end] * rank
    node = m.node(op, [x], kernel_shape=[2] * rank, strides=[stride] * rank, pads=pads, **extra)
    m.add(node, "f32", (*x.shape[:2], *map(Dim, extents)), x.magnitude, x.exact and op == "MaxPool")


@operator()
def global_pool(m):
    x = image(m, "f32")
    if x:
        op = m.random.choice(["GlobalAveragePool", "GlobalMaxPool"])
        shape = (*x.shape[:2], *(ONE for _ in x.shape[2:]))
        m.add(m.node(op, [x]), "f32", shape, x.magnitude, x.exact and op == "GlobalMaxPool")


@operator()
def resize(m):
    x = image(m, "f32", ranks=(4,))
    if not x:
        return
    shape = (*x.shape[:2], *(Dim(dim.factor * 2) for dim in x.shape[2:]))
    if m.fits(shape):
        scales = m.constant(np.array([1, 1, 2, 2], np.float32))
        mode = m.random.choice(["nearest", "linear", "cubic"])
        extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
        how = m.random.choice(["asymmetric", "half_pixel"])
        node = m.node("Resize", [x, "", scales], mode=mode, coordinate_transformation_mode=how, **extra)
        m.add(node, "f32", shape, x.magnitude * 2, x.exact and mode == "nearest")


@operator(weight=2)
def softmax(m):
    x = m.pick(*FLOATS, where=lambda value: value.rank >= 1 and value.magnitude <= 60)
    if x:
        axis = m.random.randrange(-x.rank, x.rank)
        m.add(m.node("Softmax", [x], axis=axis), x.dtype, x.shape, 1, False)


@operator()
def log_softmax(m):
    x = m.pick("f32", where=lambda value: value.rank >= 1 and value.magnitude <= 60)
    if x:
        m.add(m.node("LogSoftmax", [x], axis=-1), "f32", x.shape, 2 * x.magnitude + 10, False)


@operator()
def batch_norm(m):
    x = m.pick("f32", where=lambda value: value.rank >= 2 and value.shape[1].fixed and value.shape[1].factor <= 64)
    if x:
        channels = x.shape[1].factor
        scale, bias, mean = (m.weight("f32", (channels,)) for _ in range(3))
        variance = m.constant((m.numbers.random(channels) + 0.5).astype("f4"))
        m.add(m.node("BatchNormalization", [x, scale, bias, mean, variance]), "f32", x.shape, (x.magnitude + 3) * 5, False)


@operator()
def instance_norm(m):
    x = image(m, "f32")
    if x:
        scale, bias = (m.weight("f32", (x.shape[1].factor,)) for _ in range(2))
        m.add(m.node("InstanceNormalization", [x, scale, bias], epsilon=0.1), "f32", x.shape, 20, False)


@operator(weight=2)
def layer_norm(m):
    x = m.pick("f32", where=lambda value: value.rank >= 2 and value.shape[-1].fixed)
    if x and m.opset >= 17:
        width = x.shape[-1].factor
        bias = [m.weight("f32", (width,))] if m.random.random() < 0.5 else []
        node = m.node("LayerNormalization", [x, m.weight("f32", (width,)), *bias], axis=-1, epsilon=0.1)
        m.add(node, "f32", x.shape, 3 * width**0.5 + 3, False)


@operator()
def written_out_norm(m):
    """Layer normalisation in simple operators, as older exporters write it."""
    x = m.pick("f32", where=lambda value: value.rank >= 2 and value.shape[-1].fixed and value.magnitude < 50)
    if not x:
        return

    def mean(value):
        if m.opset >= 18:
            return m.node("ReduceMean", [value, m.ints(-1)])
        return m.node("ReduceMean", [value], axes=[-1])

    centred = m.node("Sub", [x, mean(x)])
    variance = mean(m.node("Pow", [centred, m.constant(DTYPES["f32"][1](2))]))
    deviation = m.node("Sqrt", [m.node("Add", [variance, m.constant(DTYPES["f32"][1](0.1))])])
    m.add(m.node("Div", [centred, deviation]), "f32", x.shape, x.shape[-1].factor**0.5 + 1, False)


@operator()
def einsum(m):
    x = m.pick("f32", where=lambda value: value.rank == 3 and value.shape[2].fixed)
    if x:
        inner = x.shape[2].factor
        node = m.node("Einsum", [x, m.weight("f32", (inner, 3), inner**-0.5)], equation="abc,cd->adb")
        m.add(node, "f32", (x.shape[0], Dim(3), x.shape[1]), x.magnitude * 4, False)


@operator()
def quantised(m):
    x = m.pick("f32", where=lambda value: value.exact and value.rank >= 1)
    if not x:
        return
    zero = m.random.choice([np.uint8(120), np.int8(-3)])
    axis = fixed_axis(m, x)
    if axis is None or m.random.random() < 0.5:
        scale, zero, axis = np.float32(0.05), zero, 0
    else:
        count = x.shape[axis].factor
        scale = np.array([2.0 ** -m.random.randint(3, 6) for _ in range(count)], np.float32)
        zero = np.full(count, zero)
    scale, zero = m.constant(scale), m.constant(zero)
    # The scales of an axis are powers of two and so exact; a plain one may round a tie either way.
    bits = m.node("QuantizeLinear", [x, scale, zero], axis=axis)
    m.add(m.node("DequantizeLinear", [bits, scale, zero], axis=axis), "f32", x.shape, 13, False)


@operator()
def integer_matmul(m):
    x = m.pick("i32", "i64", where=lambda value: value.rank >= 2 and value.shape[-1].fixed and value.magnitude <= 100)
    if x:
        small = m.node("Cast", [x], to=TensorProto.INT8)
        inner = x.shape[-1].factor
        weight = m.constant(m.numbers.integers(-9, 10, size=(inner, 3)).astype(np.int8))
        shape = (*x.shape[:-1], Dim(3))
        m.add(m.node("MatMulInteger", [small, weight]), "i32", shape, x.magnitude * 9 * inner, True)


@operator()
def recurrent(m):
    x = m.pick("f32", where=lambda value: value.rank == 3 and value.shape[2].fixed and value.magnitude < 50)
    if not x:
        return
    op, gates = m.random.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    both, inner, hidden = m.random.randint(0, 1), x.shape[2].factor, 3
    weight = m.weight("f32", (1 + both, gates * hidden, inner), inner**-0.5)
    state = m.weight("f32", (1 + both, gates * hidden, hidden), 0.5)
    bias = [m.weight("f32", (1 + both, 2 * gates * hidden), 0.5)] if m.random.random() < 0.5 else []
    extra = {"linear_before_reset": m.random.randint(0, 1)} if op == "GRU" else {}
    direction = "bidirectional" if both else m.random.choice(["forward", "reverse"])
    whole, last = m.node(op, [x, weight, state, *bias], outputs=2, hidden_size=hidden, direction=direction, **extra)
    m.add(whole, "f32", (x.shape[0], Dim(1 + both), x.shape[1], Dim(hidden)), 1, False)
    m.add(last, "f32", (Dim(1 + both), x.shape[1], Dim(hidden)), 1, False)


@operator()
def rms_norm(m):
    x = m.pick("f32", "f16", where=lambda value: value.rank >= 2 and value.shape[-1].fixed)
    if x and m.opset >= 23:
        width = x.shape[-1].factor
        node = m.node("RMSNormalization", [x, m.weight(x.dtype, (width,))], axis=-1, epsilon=0.1)
        m.add(node, x.dtype, x.shape, 3 * width**0.5, False)


@operator()
def group_norm(m):
    x = image(m, "f32", ranks=(3, 4))
    # The CPU provider's variance (seen in 1.31.1) loses digits when the mean is large: 1e-2 at a mean of 170.
    if x and m.opset >= 21 and x.magnitude <= 20:
        channels = x.shape[1].factor
        groups = m.random.choice([groups for groups in (1, 2, channels) if channels % groups == 0])
        scale, bias = (m.weight("f32", (channels,)) for _ in range(2))
        node = m.node("GroupNormalization", [x, scale, bias], num_groups=groups, epsilon=0.1)
        m.add(node, "f32", x.shape, 40, False)
