"""Operators that ONNX Runtime's optimisers and quantisers write, one at a time, compared with its own CPU kernels."""
import re
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
from op_support import MICROSOFT, Maker, both, compare, one_node
from support import registered

HEADS, SIZE = 2, 8
WIDTH = HEADS * SIZE


class Integers(Maker):
    """Random 8-bit integers, with their scales and zero points."""

    def of(self, dtype, *shape):
        limits = np.iinfo(dtype)
        return self.random.integers(limits.min, limits.max + 1, shape).astype(dtype)

    def scale(self, *shape, share=1.0):
        return np.asarray((self.random.random(shape, np.float32) / 64 + 0.005) * share, np.float32)

    def zero(self, dtype, *shape):
        middle = 128 if dtype == np.uint8 else 0
        return np.asarray(self.random.integers(-9, 10, shape) + middle, dtype)


def single(value, dtype=np.float32):
    return np.array(value, dtype)


def compare_integers(found, wanted):
    """A tie may be rounded to either side."""
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert apart.max() <= 1 and np.mean(apart != 0) < 0.02, f"{apart.max()}, {np.mean(apart != 0)}"


@pytest.mark.since("1.31")
def test_integer_convolutions_and_pools_with_the_channels_last():
    with registered() as found:
        make = Integers(1)
        for x_type, w_type, groups in ((np.uint8, np.int8, 1), (np.uint8, np.uint8, 2), (np.int8, np.int8, 1)):
            channels, maps = 4, 6
            weights = make.of(w_type, maps, channels // groups, 3, 3)
            zeros = make.zero(w_type, 1)[0] if w_type == np.uint8 else w_type(0)
            bias = make.random.integers(-2000, 2000, maps).astype(np.int32)
            for last in (0, 1):
                x = make.of(x_type, *((2, 7, 5, channels) if last else (2, channels, 7, 5)))
                scales = make.scale(maps)
                inputs = [x, single(0.02), make.zero(x_type), weights, scales, np.full(maps, zeros, w_type), single(0.3), make.zero(x_type), bias]
                kinds = dict(group=groups, pads=[1, 0, 1, 0], strides=[2, 1], channels_last=last)
                ours, theirs = both(found, "QLinearConv", inputs, 1, made=[x_type], **kinds)
                compare_integers(ours[0], theirs[0])
        for dtype in (np.uint8, np.int8):
            for last in (0, 1):
                x = make.of(dtype, *((2, 7, 5, 3) if last else (2, 3, 7, 5)))
                inputs = [x, single(0.0217), make.zero(dtype), single(0.0331), make.zero(dtype)]
                for counts, ceil in ((0, 0), (1, 0), (0, 1)):
                    kinds = dict(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0], count_include_pad=counts, ceil_mode=ceil)
                    ours, theirs = both(found, "QLinearAveragePool", inputs, 1, made=[dtype], channels_last=last, **kinds)
                    compare_integers(ours[0], theirs[0])
            x = make.of(dtype, 2, 7, 5, 3)
            kinds = dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2])
            ours, theirs = both(found, "NhwcMaxPool", [x], 1, made=[dtype], **kinds)
            np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.since("1.31")
def test_integer_matrix_products():
    rows, depth, columns = 5, 12, 7
    with registered() as found:
        make = Integers(2)
        for a_type, b_type in ((np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)):
            for by_column, turned, with_c, to_integers in ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0), (1, 0, 0, 1)):
                a, b = make.of(a_type, *((depth, rows) if turned else (rows, depth))), make.of(b_type, *((columns, depth) if turned else (depth, columns)))
                shape = (columns,) if by_column else ()
                c = make.random.integers(-5000, 5000, columns).astype(np.int32) if with_c else None
                inputs = [a, single(0.02), make.zero(a_type), b, make.scale(*shape), make.zero(b_type, *shape), c]
                inputs += [single(0.07), make.zero(a_type)] if to_integers else []
                ours, theirs = both(
                    found, "QGemm", inputs, 1, made=[a_type if to_integers else None], transA=turned, transB=turned, alpha=1.25
                )
                (compare_integers if to_integers else compare)(ours[0], theirs[0])
        a, b = make(2, depth, rows), make(2, columns, depth)
        ours, theirs = both(found, "TransposeMatMul", [a, b], 1, transA=1, transB=1, alpha=0.5)
        compare(ours[0], theirs[0])


@pytest.mark.since("1.31")
def test_quantised_attention_and_embeddings():
    batch, rows, past = 2, 3, 4
    with registered() as found:
        make = Integers(3)
        masks = [None, np.array([2, 3], np.int32), np.array([[1, 1, 0], [1, 1, 1]], np.int32)]
        for w_type, by_column, mask in zip((np.uint8, np.int8, np.int8), (False, True, False), masks):
            shape = (3 * WIDTH,) if by_column else ()
            inputs = [
                make.of(np.uint8, batch, rows, 12), make.of(w_type, 12, 3 * WIDTH), make(3 * WIDTH),
                single(0.01), make.scale(*shape, share=0.25), mask, single(120, np.uint8), make.zero(w_type, *shape),
            ]
            ours, theirs = both(found, "QAttention", inputs, 1, num_heads=HEADS)
            compare(ours[0], theirs[0])
            if mask is None:
                caches = make(2, batch, HEADS, past, SIZE)
                ours, theirs = both(found, "QAttention", [*inputs, caches], 2, num_heads=HEADS, unidirectional=1)
                for one, other in zip(ours, theirs):
                    compare(one, other)
        for dtype in (np.uint8, np.int8):
            ids = lambda limit: make.random.integers(0, limit, (batch, rows)).astype(np.int32)
            for segments in (True, False):
                tables = [make.of(dtype, *shape) for shape in ((30, WIDTH), (9, WIDTH), (2, WIDTH), (WIDTH,), (WIDTH,))]
                scales, zeros = [make.scale() for _ in range(5)], [make.zero(dtype) for _ in range(5)]
                if not segments:
                    tables[2] = scales[2] = zeros[2] = None
                mask = np.array([[1, 1, 0], [1, 0, 0]], np.int32)
                values = [ids(30), ids(2) if segments else None, *tables, mask, *scales, *zeros]
                names = ["" if value is None else f"i{at}" for at, value in enumerate(values)]
                given = {name: value for name, value in zip(names, values) if name}
                node = helper.make_node("QEmbedLayerNormalization", names, ["y", "lengths"], domain=MICROSOFT, epsilon=1e-5)
                compare(one_node(found, node, given, {}, {}), on_cpu(node, given))


@pytest.mark.since("1.31")
def test_quantised_lstms_are_close_to_kernels_that_round_activations():
    steps, batch, width, hidden = 4, 2, 6, 5
    with registered() as found:
        make = Integers(4)
        for dtype, by_column, direction in ((np.uint8, False, "forward"), (np.int8, True, "bidirectional"), (np.int8, False, "reverse")):
            count = 2 if direction == "bidirectional" else 1
            shape = (count, 4 * hidden) if by_column else (count,)
            zeros = lambda: np.zeros(shape, dtype) if dtype == np.int8 else make.zero(dtype, *shape)
            inputs = [
                make(steps, batch, width), make.of(dtype, count, width, 4 * hidden), make.of(dtype, count, hidden, 4 * hidden),
                make(count, 8 * hidden), None, make(count, batch, hidden), make(count, batch, hidden), make(count, 3 * hidden),
                make.scale(*shape, share=0.25), zeros(), make.scale(*shape, share=0.25), zeros(),
            ]
            ours, theirs = both(found, "DynamicQuantizeLSTM", inputs, 3, hidden_size=hidden, direction=direction)
            for one, other in zip(ours, theirs):
                compare(one, other, 0.03)


@pytest.mark.since("1.31")
def test_convolutions_with_pads_as_an_input():
    with registered() as found:
        make = Maker(5)
        x, w, bias = make(2, 4, 5, 6), make(4, 3, 3, 3), make(6)
        pads = np.array([1, 0, 2, 1], np.int64)
        kinds = dict(strides=[2, 1], dilations=[1, 1], group=2, output_padding=[1, 0], kernel_shape=[3, 3])
        node = helper.make_node("ConvTransposeWithDynamicPads", ["x", "w", "pads", "b"], ["y"], domain=MICROSOFT, **kinds)
        ours = one_node(found, node, {"x": x}, {"w": w, "pads": pads, "b": bias}, {})
        _, theirs = both(
            found, "ConvTranspose", [x, w, bias], 1, domain="", pads=pads.tolist(), **kinds
        )
        compare(ours, theirs[0])


@pytest.mark.since("1.31")
def test_regions_of_images():
    with registered() as found:
        make = Maker(6)
        x = make(2, 3, 9, 11)
        boxes = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [0.8, 0.9, 0.1, 0.2], [-0.2, 0.3, 1.3, 0.6]], np.float32)
        numbers = np.array([0, 1, 1, 0], np.int32)
        for mode in ("bilinear", "nearest"):
            for size in ((4, 5), (1, 3), (6, 1)):
                kinds = dict(mode=mode, extrapolation_value=0.5)
                node = helper.make_node("CropAndResize", ["x", "boxes", "numbers", "size"], ["y"], domain=MICROSOFT, **kinds)
                constants = {"boxes": boxes, "numbers": numbers, "size": np.array(size, np.int32)}
                ours = one_node(found, node, {"x": x}, constants, {})
                theirs = on_cpu(node, {"x": x, **constants})
                compare(ours, theirs)
        rois = np.array([[0, 0, 10, 8], [2.5, 1.5, 7, 6], [-9, -4, 3, 20], [4, 4, 4.2, 4.1]], np.float32)
        for version, centres in ((16, ["half_pixel", "output_half_pixel"]), (10, [None])):
            for centre in centres:
                kinds = {"coordinate_transformation_mode": centre} if centre else {}
                kinds.update(output_height=3, output_width=2, sampling_ratio=2, spatial_scale=0.75)
                ours, theirs = both(found, "RoiAlign", [x, rois, numbers.astype(np.int64)], 1, domain="", version=version, **kinds)
                compare(ours[0], theirs[0])


def on_cpu(node, given):
    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in given.items()]
    graph = helper.make_graph([node], "one", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)[0]


@pytest.mark.since("1.31")
def test_four_bit_weights_of_bitsandbytes():
    rows, depth, columns = 3, 64, 24
    with registered() as found:
        make = Maker(7)
        for kind in (0, 1):
            for block in (16, 64):
                packed = make.random.integers(0, 256, depth * columns // 2).astype(np.uint8)
                largest = make.random.random(depth * columns // block, np.float32) + 0.5
                kinds = dict(K=depth, N=columns, block_size=block, quant_type=kind)
                ours, theirs = both(found, "MatMulBnb4", [make(2, rows, depth), packed, largest], 1, **kinds)
                size = np.abs(theirs[0]).max()
                compare(ours[0] / size, theirs[0] / size)


@pytest.mark.since("1.31")
def test_attention_of_one_token():
    batch, held, room = 2, 3, 6
    with registered() as found:
        make = Maker(8)
        parts = [make(batch, 1, WIDTH) for _ in range(3)]
        caches = [np.zeros((batch, HEADS, room, SIZE), np.float32) for _ in range(2)]
        for cache in caches:
            cache[:, :, :held] = make(batch, HEADS, held, SIZE)
        mask = np.array([[1, 1, 1, 1], [0, 1, 1, 1]], np.int32)
        for given, bias in ((None, None), (mask, None), (None, make(3 * WIDTH))):
            inputs = [*parts, given, None, *caches, np.array([held], np.int32), None, None, bias]
            kinds = dict(num_heads=HEADS, past_present_share_buffer=1)
            ours, theirs = both(found, "DecoderMaskedMultiHeadAttention", inputs, 3, **kinds)
            compare(ours[0], theirs[0])
            for at in (1, 2):
                compare(ours[at][:, :, :held + 1], theirs[at][:, :, :held + 1])
        keys, values = make(batch, HEADS, 5, SIZE), make(batch, HEADS, 5, SIZE)
        inputs = [parts[0], keys, values]
        ours, theirs = both(found, "DecoderMaskedMultiHeadAttention", inputs, 1, num_heads=HEADS)
        compare(ours[0], theirs[0])


@pytest.mark.since("1.31")
def test_the_support_table_names_every_operator_of_onnx_runtime():
    page = (Path(__file__).parents[2] / "docs/support.md").read_text()
    listed = set(re.findall(r"^\| (com\.microsoft\S*) \| (\w+) \|", page, re.MULTILINE))
    known = {(schema.domain, schema.name) for schema in get_all_operator_schema() if schema.domain.startswith(MICROSOFT)}
    assert known - listed == set()
