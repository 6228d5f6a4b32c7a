"""Operators of newer decoders, one at a time, compared with ONNX Runtime's own CPU kernels."""
import numpy as np
import pytest
from onnx import helper
from op_support import MICROSOFT, Maker, angles, both, compare, one_node
from support import registered

HEADS, SHARED, SIZE = 4, 2, 16
FLOAT8E8M0 = 24  # older releases of onnx have no name for it


def resident(length, capacity, window):
    """How many positions a windowed cache holds."""
    step = capacity - window + 1
    return length if length <= capacity else length - step * -(-(length - capacity) // step)


def check_windowed(found, make, prompt, steps, capacity, window, **attributes):
    """Passes a sequence through a windowed cache; results and the rows in the cache are compared."""
    caches, total = [make(1, SHARED, capacity, SIZE), make(1, SHARED, capacity, SIZE)], 0
    kinds = dict(num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1, sliding_window_cache=1, local_window_size=window)
    for rows in [prompt, *steps]:
        total += rows
        q, k, v = (make(1, rows, heads * SIZE) for heads in (HEADS, SHARED, SHARED))
        lengths = [np.array([total - 1], np.int32), np.array([total], np.int32)]
        inputs = [q, k, v, *caches, *lengths, *angles(8, 64)]
        ours, theirs = both(found, "GroupQueryAttention", inputs, 3, **kinds, **attributes)
        compare(ours[0], theirs[0])
        held = resident(total, capacity, window)
        for at in (1, 2):
            assert ours[at].shape == theirs[at].shape
            compare(ours[at][:, :, :held], theirs[at][:, :, :held])
        caches = theirs[1:]


@pytest.mark.since("1.31")
def test_group_query_attention_on_windowed_caches():
    with registered() as found:
        make = Maker(1)
        check_windowed(found, make, 5, [1] * 6, capacity=8, window=4)
        check_windowed(found, make, 5, [1] * 4, capacity=4, window=4, smooth_softmax=1)
        check_windowed(found, make, 3, [4, 9, 2], capacity=6, window=4, softcap=2.0)
        check_windowed(found, make, 20, [3, 1], capacity=6, window=3)


@pytest.mark.since("1.31")
def test_group_query_attention_on_quantised_caches():
    room, past = 12, 5
    with registered() as found:
        make = Maker(5)
        for bits, kind in ((8, "PER_TENSOR"), (8, "PER_CHANNEL"), (4, "PER_TENSOR"), (4, "PER_CHANNEL")):
            for rows, before in ((1, past), (4, 0)):
                q, k, v = (make(2, rows, heads * SIZE) for heads in (HEADS, SHARED, SHARED))
                shape = (1,) if kind == "PER_TENSOR" else (1, SHARED, 1, SIZE)
                scales = [((np.abs(make(*shape)) + 2) / (2 ** (bits - 1) - 1)).astype(np.float32) for _ in range(2)]
                size, dtype = (SIZE, np.int8) if bits == 8 else (SIZE // 2, np.uint8)
                caches = [make.random.integers(0, 256, (2, SHARED, room, size)).astype(np.uint8).view(dtype) for _ in range(2)]
                total = before + rows
                lengths = [np.full(2, total - 1, np.int32), np.array([total], np.int32)]
                inputs = [q, k, v, *caches, *lengths, *angles(8), None, None, None, *scales]
                kinds = dict(k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
                ours, theirs = both(
                    found, "GroupQueryAttention", inputs, 3, num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1, made=[None, dtype, dtype], **kinds
                )
                compare(ours[0], theirs[0], 1e-3)
                for at in (1, 2):
                    # A tie may be rounded to either side after a rotation in single precision.
                    one, other = (np.asarray(result[at][:, :, :total]).view(np.uint8).astype(int) for result in (ours, theirs))
                    assert np.mean(one != other) < 0.01


def packed(make, experts, columns, depth, bits, block, zeros):
    """Weights, scales and zero points of QMoE."""
    blocks = depth // block if block else 1
    integers = lambda *shape: make.random.integers(0, 256, shape).astype(np.uint8)
    scales = (make.random.random((experts, columns, blocks), np.float32) + 0.5) * 0.05
    if block:
        points = integers(experts, columns, -(-blocks * bits // 8)) if zeros else None
        return integers(experts, columns, depth * bits // 8), scales, points
    points = integers(experts, -(-columns * bits // 8)) if zeros else None
    return integers(experts, columns, depth * bits // 8), scales[:, :, 0], points


@pytest.mark.since("1.31")
def test_mixtures_of_experts():
    tokens, hidden, inner, experts = 5, 64, 32, 6
    with registered() as found:
        make = Maker(2)
        x, scores = make(tokens, hidden), make(tokens, experts)
        for activation, k, normalize in (("relu", 1, 0), ("gelu", 2, 1), ("silu", 3, 0), ("identity", 2, 1), ("swiglu", 2, 1)):
            wide = inner * (2 if activation == "swiglu" else 1)
            inputs = [x, scores, make(experts, wide, hidden) / 8, make(experts, wide), make(experts, hidden, inner) / 8, make(experts, hidden)]
            kinds = dict(activation_type=activation, normalize_routing_weights=normalize)
            if activation == "swiglu":
                kinds.update(swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.7)
            ours, theirs = both(found, "MoE", inputs, 1, k=k, **kinds)
            compare(ours[0], theirs[0])
        for bits in (2, 4, 8):
            for block, zeros in ((0, False), (0, True), (16, False), (32, True)):
                w1, s1, z1 = packed(make, experts, inner, hidden, bits, block, zeros)
                w2, s2, z2 = packed(make, experts, hidden, inner, bits, block, zeros)
                inputs = [x, scores, w1, s1, make(experts, inner), w2, s2, make(experts, hidden), None, None, None, z1, z2]
                kinds = {"block_size": block} if block else {}
                ours, theirs = both(
                    found, "QMoE", inputs, 1, k=2, expert_weight_bits=bits, activation_type="silu", normalize_routing_weights=1, **kinds
                )
                # Results of wide weights are large sums.
                size = max(1.0, float(np.abs(theirs[0]).max()))
                compare(ours[0] / size, theirs[0] / size)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def four_bit_floats(make, experts, columns, depth):
    """Weights, powers of two for blocks and scales of experts of QMoE, and the weights that they stand for."""
    codes = make.random.integers(0, 16, (experts, columns, depth)).astype(np.uint8)
    powers = make.random.integers(122, 126, (experts, columns, depth // 32)).astype(np.uint8)
    of_expert = make.random.random(experts, np.float32) + 0.5
    by_row = codes.transpose(0, 2, 1)
    values = np.where(codes < 8, 1, -1) * E2M1[codes % 8]
    scales = np.exp2(powers.astype(np.float32) - 127) * of_expert[:, None, None]
    return by_row[..., 0::2] | by_row[..., 1::2] << 4, powers, of_expert, (values * np.repeat(scales, 32, 2)).astype(np.float32)


@pytest.mark.since("1.31")
def test_mixtures_of_experts_with_four_bit_floats():
    """ONNX Runtime's CPU provider has no kernel for these weights; it computes the same with floats."""
    tokens, hidden, inner, experts = 5, 64, 96, 4
    with registered() as found:
        make = Maker(12)
        x, scores, bias1, bias2 = make(tokens, hidden), make(tokens, experts), make(experts, 2 * inner), make(experts, hidden)
        w1, p1, s1, dense1 = four_bit_floats(make, experts, 2 * inner, hidden)
        w2, p2, s2, dense2 = four_bit_floats(make, experts, hidden, inner)
        gates = dict(activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.702, activation_beta=1.0, swiglu_limit=7.0)
        kinds = dict(k=2, normalize_routing_weights=1, **gates)
        _, theirs = both(found, "MoE", [x, scores, dense1, bias1, dense2, bias2], 1, **kinds)
        constants = {"w1": w1, "p1": p1, "b1": bias1, "w2": w2, "p2": p2, "b2": bias2, "s1": s1, "s2": s2}
        names = ["x", "scores", "w1", "p1", "b1", "w2", "p2", "b2", *[""] * 7, "s1", "s2"]
        node = helper.make_node("QMoE", names, ["y"], domain=MICROSOFT, quant_type="fp4", block_size=32, **kinds)
        ours = one_node(found, node, {"x": x, "scores": scores}, constants, {"p1": FLOAT8E8M0, "p2": FLOAT8E8M0})
        size = float(np.abs(theirs[0]).max())
        compare(ours / size, theirs[0] / size)


@pytest.mark.since("1.31")
def test_linear_attention_and_convolutions_with_a_state():
    batch, length, size, width = 2, 5, 8, 12
    with registered() as found:
        make = Maker(3)
        for queries, keys, heads in ((2, 2, 2), (4, 2, 2), (2, 2, 4)):
            for rule in ("linear", "gated", "delta", "gated_delta"):
                q, k, v = make(batch, length, queries * size), make(batch, length, keys * size) / 4, make(batch, length, heads * width)
                decay = make(batch, length, heads) / 2 if "gated" in rule else None
                rate = make(batch, length, heads) / 2 if "delta" in rule else None
                inputs = [q, k, v, make(batch, heads, size, width), decay, rate]
                ours, theirs = both(found, "LinearAttention", inputs, 2, q_num_heads=queries, kv_num_heads=heads, update_rule=rule)
                for one, other in zip(ours, theirs):
                    compare(one, other)
        for last in (0, 1):
            for dilation, length in ((1, 5), (2, 1)):
                shape = lambda extent: (batch, extent, 6) if last else (batch, 6, extent)
                inputs = [make(*shape(length)), make(6, 1, 4), make(6), make(*shape(3 * dilation))]
                ours, theirs = both(
                    found, "CausalConvWithState", inputs, 2, activation="silu", dilation=dilation, channels_last=last
                )
                for one, other in zip(ours, theirs):
                    compare(one, other)


@pytest.mark.since("1.31")
def test_gates_and_norms_of_linear_attention():
    with registered() as found:
        make = Maker(4)
        x, gate = make(2, 3, 12), make(2, 3, 12)
        for op_type, inputs, outputs, attributes in (
            ("GatedRMSNorm", [x, make(4), gate], 1, {"activation": "sigmoid"}),
            ("BranchwiseRMSNorm", [x, make(3, 4)], 1, {"num_branches": 3}),
            ("GatedAdd", [x, gate, make(2, 3, 1)], 1, {}),
            ("LinearAttentionGate", [x, make(12), make(12), gate], 2, {}),
        ):
            ours, theirs = both(found, op_type, inputs, outputs, **attributes)
            for one, other in zip(ours, theirs):
                compare(one, other)


@pytest.mark.since("1.31")
def test_operators_on_bytes():
    with registered() as found:
        make = Maker(6)
        for dtype in (np.uint8, np.int8):
            integers = lambda *shape: make.random.integers(0, 256, shape).astype(np.uint8).view(dtype)
            single = lambda scale, zero: [np.array(scale, np.float32), np.array(zero, dtype)]
            a, b, to = [integers(2, 3, 4), *single(0.03, 20)], [integers(2, 3, 4), *single(0.05, 30)], single(0.06, 7)
            flags = make.random.integers(0, 2, (2, 3, 4)).astype(bool)
            for op_type, inputs, attributes in (
                ("QLinearAdd", [*a, *b, *to], {}),
                ("QLinearMul", [*a, *b, *to], {}),
                ("QLinearSigmoid", [*a, *single(0.004, 0)], {}),
                ("QLinearLeakyRelu", [*a, *to], {"alpha": 0.1}),
                ("QLinearSoftmax", [*a, *single(0.004, 0)], {"axis": -1, "opset": 13}),
                ("QLinearGlobalAveragePool", [*a, *to], {}),
                ("QLinearWhere", [flags, *a, *b, *to], {}),
                ("QLinearConcat", [*to, *a, *b], {"axis": 1}),
            ):
                ours, theirs = both(found, op_type, inputs, 1, made=[dtype], **attributes)
                # ONNX Runtime may round through tables or fixed-point factors.
                assert np.abs(ours[0].astype(int) - theirs[0].astype(int)).max() <= 1, op_type


@pytest.mark.since("1.31")
def test_fused_convolutions_and_products_of_bytes():
    with registered() as found:
        make = Maker(7)
        inputs = [make(1, 2, 5, 5), make(3, 2, 3, 3), make(3), make(1, 3, 3, 3)]
        ours, theirs = both(found, "FusedConv", inputs, 1, activation="Relu")
        compare(ours[0], theirs[0])
        b = make.random.integers(-128, 128, (8, 5)).astype(np.int8)
        scale = np.array(0.03, np.float32)
        ours, theirs = both(found, "DynamicQuantizeMatMul", [make(3, 8), b, scale, None, make(5)], 1)
        compare(ours[0], theirs[0], 1e-4)
        a = make.random.integers(0, 256, (3, 8)).astype(np.uint8)
        inputs = [a, b, scale, np.array(0.02, np.float32), np.array(7, np.uint8), None, make(5)]
        ours, theirs = both(found, "MatMulIntegerToFloat", inputs, 1)
        compare(ours[0], theirs[0])


@pytest.mark.since("1.31")
def test_rotary_embedding_with_three_positions():
    with registered() as found:
        make = Maker(8)
        places = make.random.integers(0, 31, (3, 2, 5))
        for layout, sections in ((0, [2, 3, 3]), (1, [4, 2, 2])):
            inputs = [make(2, 5, HEADS * SIZE), places, *angles(8)]
            ours, theirs = both(found, "MRotaryEmbedding", inputs, 1, num_heads=HEADS, mrope_section=sections, mrope_layout=layout)
            compare(ours[0], theirs[0])
