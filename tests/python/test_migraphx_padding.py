"""Batches and sequences that the migraphx backend pads to a few sizes."""
import numpy as np
import onnx
import pytest
from migraphx_support import close, cpu, entries, needs_migraphx, on_the_real_one, ours, session_on, value
from onnx import helper
from support import affine, affine_model, bytes_of, registered, sample

pytestmark = needs_migraphx


def test_batches_are_padded_and_cut():
    with registered() as devices:
        session = session_on(devices, affine_model(), compile_batches="2,8", background_compile=0)
        for rows in (1, 2, 3, 8, 9, 1):
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
        del session


def test_the_next_batch_size_is_compiled_in_the_background(tmp_path):
    with registered() as devices:
        session = session_on(devices, affine_model(), compile_batches="2,8", cache_dir=tmp_path)
        session.run(None, {"x": sample(1)})
        # Destroying the session waits for the compilation.
        del session
    assert len(entries(tmp_path)) == 2


def sequence_model():
    """logits = relu(ids × w) for ids of [1, s, 4], next to an independent mask of [1, t] that is negated."""
    weight = np.linspace(-1, 1, 4, dtype=np.float32)
    nodes = [
        helper.make_node("Mul", ["ids", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["logits"]),
        helper.make_node("Neg", ["attention_mask"], ["mask"]),
    ]
    inputs = [value("ids", [1, "s", 4]), value("attention_mask", [1, "t"])]
    outputs = [value("logits", [1, "s", 4]), value("mask", [1, "t"])]
    return bytes_of(helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(weight, "w")]))


def test_sequences_are_padded_to_the_masks_length(tmp_path):
    pad = {"static_pad_seq": 1, "static_pad_inputs": "ids", "static_pad_outputs": "logits", "cache_dir": tmp_path}
    random = np.random.default_rng(0)
    with registered() as devices:
        session = session_on(devices, sequence_model(), **pad)
        for length in (2, 5, 7):
            feeds = {
                "ids": random.standard_normal((1, length, 4), dtype=np.float32),
                "attention_mask": np.ones((1, 8), np.float32),
            }
            close(session.run(None, feeds), cpu(sequence_model(), feeds))
        assert len(entries(tmp_path)) == 1, "one program serves every length"
        del session


@on_the_real_one
@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("rows", [1, 3])
def test_token_ids_are_padded_to_the_masks_length(tmp_path, kind, rows):
    """Embeddings of ids and positions, for one row and for a batch."""
    table = np.random.default_rng(1).standard_normal((16, 4), dtype=np.float32)
    nodes = [
        helper.make_node("Gather", ["w", "input_ids"], ["e"]),
        helper.make_node("Gather", ["w", "position_ids"], ["p"]),
        helper.make_node("Add", ["e", "p"], ["s"]),
        helper.make_node("MatMul", ["s", "square"], ["logits"]),
        helper.make_node("Neg", ["attention_mask"], ["mask"]),
    ]
    integers = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    inputs = [value(name, ["b", "s"], integers) for name in ("input_ids", "position_ids")]
    inputs += [value("attention_mask", ["b", "t"])]
    weights = [onnx.numpy_helper.from_array(table, "w"), onnx.numpy_helper.from_array(table[:4], "square")]
    outputs = [value("logits", ["b", "s", 4]), value("mask", ["b", "t"])]
    model = bytes_of(helper.make_graph(nodes, "g", inputs, outputs, weights))
    lists = {"static_pad_inputs": "input_ids:1,position_ids:1", "static_pad_outputs": "logits:1"}
    random = np.random.default_rng(2)
    with registered() as devices:
        session = session_on(devices, model, static_pad_seq=1, cache_dir=tmp_path, **lists)
        for length in (2, 5, 7):
            feeds = {name: random.integers(0, 16, (rows, length)).astype(kind) for name in ("input_ids", "position_ids")}
            feeds["attention_mask"] = np.ones((rows, 8), np.float32)
            close(session.run(None, feeds), cpu(model, feeds))
        assert len(entries(tmp_path)) == 1, "one program serves every length"
        del session


@pytest.mark.parametrize("rows", [1, 3])
def test_padding_is_cut_off_between_partitions(tmp_path, rows):
    """A node in the middle that MIGraphX does not support must see sequences of their original length."""
    weight = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    nodes = [
        helper.make_node("MatMul", ["ids", "w"], ["a"]),
        helper.make_node("Shrink", ["a"], ["middle"], lambd=0.25),
        helper.make_node("MatMul", ["middle", "w"], ["logits"]),
    ]
    inputs, outputs = [value("ids", ["b", "s", 4])], [value("logits", ["b", "s", 4]), value("middle", ["b", "s", 4])]
    model = bytes_of(helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(weight, "w")]))
    pad = {"static_pad_seq": 1, "static_pad_seq_len": 8, "static_pad_inputs": "ids", "static_pad_outputs": "logits"}
    random = np.random.default_rng(0)
    with registered() as devices:
        session = session_on(devices, model, cache_dir=tmp_path, **pad)
        assert ours(session) == ["MatMul", "MatMul"]
        for length in (2, 5, 7):
            feeds = {"ids": random.standard_normal((rows, length, 4), dtype=np.float32)}
            close(session.run(None, feeds), cpu(model, feeds))
        assert len(entries(tmp_path)) == 2, "one program for each partition serves every length"
        del session
