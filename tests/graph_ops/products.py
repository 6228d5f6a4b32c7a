"""Matrix products, recurrent and quantised operators."""
import numpy as np
from onnx import TensorProto

from graph_maker import DTYPES, FLOATS, Dim
from graph_ops.registry import operator
from graph_ops.movement import fixed_axis

MICROSOFT = "com.microsoft"


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
    """Attention scores of a sequence against itself, as exporters write them out."""
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


@operator()
def microsoft_matmul(m):
    """Products of com.microsoft: transposed, with 4-bit floats as weights, or with an activation."""
    x = m.pick("f32", where=lambda value: value.rank >= 2 and value.shape[-1].fixed)
    if not x:
        return
    inner, columns = x.shape[-1].factor, m.random.randint(1, 4) * 4
    shape = x.shape[:-1] + (Dim(columns),)
    if m.random.random() < 0.5:
        weight = m.weight("f32", (columns, inner), inner**-0.5)
        node = m.node("TransposeMatMul", [x, weight], domain=MICROSOFT, transB=1, alpha=0.5)
    elif inner * columns % 16 == 0:
        packed = m.constant(m.numbers.integers(0, 256, inner * columns // 2).astype(np.uint8))
        largest = m.constant((m.numbers.random(inner * columns // 16) * inner**-0.5).astype(np.float32))
        kinds = dict(K=inner, N=columns, block_size=16, quant_type=m.random.randint(0, 1))
        node = m.node("MatMulBnb4", [x, packed, largest], domain=MICROSOFT, **kinds)
    else:
        return
    m.add(node, "f32", shape, x.magnitude * 4, False)


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
    # Scales along an axis are powers of two, so they are exact; a scalar scale may round a tie either way.
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
