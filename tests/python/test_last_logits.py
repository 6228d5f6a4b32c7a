"""A session that promises to read only the logits of last tokens: these equal the CPU provider's, the others are
zeros."""
import json

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import options_for, registered

MICROSOFT = "com.microsoft"
HEADS, SHARED, SIZE, ROOM, WORDS = 4, 2, 16, 24, 48
DEPTH = HEADS * SIZE
ENTRY = "ep.hip.last_logits"


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def decoder(reader=None, both=False):
    """One layer and a head. A `reader` operator reads the logits; it replaces them as output, or with `both` adds
    one."""
    weights = {
        "norm": np.abs(numbers(1, DEPTH)),
        "qkv": numbers(2, DEPTH, (HEADS + 2 * SHARED) * SIZE) / 8,
        "out": numbers(3, DEPTH, DEPTH) / 8,
        "last": np.abs(numbers(4, DEPTH)),
        "head": numbers(5, DEPTH, WORDS) / 8,
        "bias": numbers(6, WORDS),
    }
    node = helper.make_node
    nodes = [
        node("SimplifiedLayerNormalization", ["x", "norm"], ["normed"], axis=-1, epsilon=1e-5),
        node("MatMul", ["normed", "qkv"], ["tokens"]),
        node(
            "GroupQueryAttention",
            ["tokens", "", "", "past_k", "past_v", "last_index", "total"],
            ["attended", "present_k", "present_v"],
            domain=MICROSOFT,
            num_heads=HEADS,
            kv_num_heads=SHARED,
        ),
        node("MatMul", ["attended", "out"], ["projected"]),
        node(
            "SkipSimplifiedLayerNormalization", ["x", "projected", "last"], ["hidden"], domain=MICROSOFT, epsilon=1e-5
        ),
        node("MatMul", ["hidden", "head"], ["product"]),
        node("Add", ["product", "bias"], ["logits"]),
    ]
    outputs = ["logits", "present_k", "present_v"]
    if reader:
        nodes.append(node(reader, ["logits"], ["read"]))
        outputs = (["logits"] if both else []) + ["read", *outputs[1:]]
    floats = {name: TensorProto.FLOAT for name in ("x", "past_k", "past_v")}
    inputs = [
        helper.make_tensor_value_info(name, kind, dims)
        for name, kind, dims in [
            ("x", floats["x"], ["batch", "rows", DEPTH]),
            ("past_k", floats["past_k"], ["batch", SHARED, "room", SIZE]),
            ("past_v", floats["past_v"], ["batch", SHARED, "room", SIZE]),
            ("last_index", TensorProto.INT32, ["batch"]),
            ("total", TensorProto.INT32, [1]),
        ]
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, made, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)])
    model.ir_version = 10
    return model.SerializeToString()


def session(found, model, value=None, record=None):
    options = options_for(found[:1])
    if value is not None:
        options.add_session_config_entry(ENTRY, value)
    if record is not None:
        options.add_session_config_entry("ep.hip.explain_file", str(record))
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def on_cpu(model):
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 3
    return ort.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])


def feed(x, caches, lengths, total):
    index = np.array(lengths, np.int32) - 1
    return {"x": x, "past_k": caches[0], "past_v": caches[1], "last_index": index, "total": np.array([total], np.int32)}


def rows_of_cpu(cpu, x, caches, lengths, rows):
    """Returns the logits of each sequence's last token, running every sequence alone with its own number of tokens."""
    result = []
    for at, length in enumerate(lengths):
        new = min(rows, length)
        alone = [cache[at : at + 1] for cache in caches]
        result.append(cpu.run(["logits"], feed(x[at : at + 1, :new], alone, [length], length))[0][0, new - 1])
    return result


def passes_of(record):
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return {name for line in lines for name in line.get("passes", {})}


CASES = {
    "behind a cache": (5, [9, 20, 12]),
    "first prompts": (5, [5, 5, 5]),
    "first prompts of several lengths": (7, [3, 7, 1]),
    "one alone": (6, [17]),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_of_last_tokens_are_those_of_the_cpu_provider(case, tmp_path):
    rows, lengths = CASES[case]
    model, record = decoder(), tmp_path / "explain"
    batch = len(lengths)
    x, caches = numbers(7, batch, rows, DEPTH), [numbers(seed, batch, SHARED, ROOM, SIZE) for seed in (8, 9)]
    wanted = rows_of_cpu(on_cpu(model), x, caches, lengths, rows)
    with registered() as found:
        given = feed(x, caches, lengths, ROOM)
        last = session(found, model, "on", record)
        all_rows = session(found, model)
        (logits, *present), (whole, *same) = last.run(None, given), all_rows.run(None, given)
        alone = session(found, model, "alone")
        rows_alone = alone.run(None, given)[0]
        assert logits.shape == whole.shape == (batch, rows, WORDS) and rows_alone.shape == (batch, 1, WORDS)
        for at, length in enumerate(lengths):
            place = min(length, rows) - 1
            np.testing.assert_allclose(logits[at, place], wanted[at], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(whole[at, place], wanted[at], rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(rows_alone[at, 0], logits[at, place])
            assert not np.delete(logits[at], place, axis=0).any()
            assert np.abs(whole[at]).max(axis=-1).all()
        for found_cache, wanted_cache in zip(present, same):
            np.testing.assert_array_equal(found_cache, wanted_cache)
        one = feed(x[:, :1], caches, lengths, ROOM)
        np.testing.assert_array_equal(last.run(None, one)[0], all_rows.run(None, one)[0])
        del last, all_rows, alone
    assert "last-rows" in passes_of(record)


@pytest.mark.parametrize("value", ["auto", "1"])
def test_an_unknown_promise_is_an_error(value, tmp_path):
    with registered() as found, pytest.raises(Exception, match="last_logits.*expected on, alone or off"):
        session(found, decoder(), value, tmp_path / "explain")


@pytest.mark.parametrize("value", [None, "off"])
def test_without_the_promise_all_rows_are_there(value, tmp_path):
    model, record = decoder(), tmp_path / "explain"
    x, caches = numbers(7, 1, 6, DEPTH), [numbers(seed, 1, SHARED, ROOM, SIZE) for seed in (8, 9)]
    given = feed(x, caches, [17], 17)
    with registered() as found:
        ours = session(found, model, value, record)
        np.testing.assert_allclose(ours.run(None, given)[0], on_cpu(model).run(None, given)[0], rtol=1e-4, atol=1e-4)
        del ours
    assert "last-rows" not in passes_of(record)


@pytest.mark.parametrize("both", [False, True])
def test_logits_that_a_node_of_the_cpu_provider_reads_keep_all_rows(both, tmp_path):
    model, record = decoder("Unique", both), tmp_path / "explain"
    x, caches = numbers(7, 1, 6, DEPTH), [numbers(seed, 1, SHARED, ROOM, SIZE) for seed in (8, 9)]
    given = feed(x, caches, [17], 17)
    with registered() as found:
        ours = session(found, model, "on", record)
        made = dict(zip([output.name for output in ours.get_outputs()], ours.run(None, given)))
        wanted = on_cpu(model).run(["read"], given)[0]
        np.testing.assert_allclose(made["read"], wanted, rtol=1e-4, atol=1e-4)
        assert len(wanted) > 5 * WORDS, "rows of zeros would be one number"
        if both:
            np.testing.assert_allclose(np.unique(made["logits"]), wanted, rtol=1e-4, atol=1e-4)
        del ours
    assert "last-rows" not in passes_of(record)
