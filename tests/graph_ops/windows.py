"""Convolutions, pools and resizing."""
import math

import numpy as np

from graph_maker import ONE, Dim
from graph_ops.registry import operator


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


@operator()
def regions(m):
    x = image(m, "f32", ranks=(4,))
    if not x:
        return
    count, size = m.random.randint(1, 3), [m.random.randint(1, 3) for _ in range(2)]
    # At least this many images exist at run time.
    numbers = m.numbers.integers(0, x.shape[0].factor, count)
    shape = (Dim(count), x.shape[1], *map(Dim, size))
    if not m.fits(shape):
        return
    # ONNX Runtime's CPU provider has no kernel for the RoiAlign of opset 22.
    if m.opset >= 22 or m.random.random() < 0.5:
        boxes = m.constant((m.numbers.random((count, 4)) * 1.2 - 0.1).astype(np.float32))
        inputs = [x, boxes, m.constant(numbers.astype(np.int32)), m.constant(np.array(size, np.int32))]
        node = m.node("CropAndResize", inputs, domain="com.microsoft", extrapolation_value=1.5)
    else:
        extents = [dim.factor for dim in x.shape[:1:-1]]
        boxes = m.constant((m.numbers.random((count, 4)) * np.array(extents * 2)).astype(np.float32))
        kinds = dict(output_height=size[0], output_width=size[1], sampling_ratio=m.random.randint(1, 2))
        node = m.node("RoiAlign", [x, boxes, m.constant(numbers)], **kinds)
    m.add(node, "f32", shape, x.magnitude + 2, False)


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
