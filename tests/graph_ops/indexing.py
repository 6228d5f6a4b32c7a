"""Operators that read or write elements by index."""
import numpy as np

from graph_maker import DTYPES, FLOATS, INTS, Dim
from graph_ops.registry import MOVABLE, operator
from graph_ops.movement import fixed_axis


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
    """Selects rows of a table by computed indices."""
    x = m.pick(*INTS, where=lambda value: value.rank <= 3)
    if x:
        index = m.node("Mod", [x, m.constant(DTYPES[x.dtype][1](6))])
        shape = x.shape + (Dim(4),)
        if m.fits(shape):
            m.add(m.node("Gather", [m.constant(m.draw("f32", (6, 4), m.numbers)), index]), "f32", shape, 3, True)


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
    """Writes rows at distinct positions, so that their order does not matter."""
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
