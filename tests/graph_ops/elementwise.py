"""Elementwise operators, comparisons and casts."""
import math

from graph_maker import DTYPES, FLOATS, INTS, ONE
from graph_ops.registry import MOVABLE, operator


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
    """An operand to combine with `x`, as (operand, shape, magnitude, exact): a value of the same type that broadcasts,
    or a constant."""

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
