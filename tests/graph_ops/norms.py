"""Softmax and normalisations."""
from graph_maker import DTYPES, FLOATS
from graph_ops.registry import operator
from graph_ops.windows import image


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
