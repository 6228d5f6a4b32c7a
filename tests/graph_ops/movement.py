"""Operators that move elements: by axes, blocks and slices."""
from graph_maker import FLOATS, INTS, ONE, Dim
from graph_ops.registry import MOVABLE, operator


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
    """Reshape to a computed shape, as exporters write it."""
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
def reverse_sequence(m):
    x = m.pick("f32", "i64", where=lambda value: value.rank >= 2 and all(dim.fixed for dim in value.shape[:2]))
    if x:
        batch, length = (dim.factor for dim in x.shape[:2])
        lengths = m.constant(m.numbers.integers(1, length + 1, size=batch))
        node = m.node("ReverseSequence", [x, lengths], batch_axis=0, time_axis=1)
        m.add(node, x.dtype, x.shape, x.magnitude, x.exact)
