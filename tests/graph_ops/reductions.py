"""Reductions, searches and running sums."""
from graph_maker import FLOATS, INTS, ONE, Dim, elements
from graph_ops.registry import operator
from graph_ops.movement import fixed_axis


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
