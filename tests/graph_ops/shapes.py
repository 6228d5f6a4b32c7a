"""Shape arithmetic."""
from graph_maker import ONE, Dim
from graph_ops.registry import MOVABLE, operator


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
