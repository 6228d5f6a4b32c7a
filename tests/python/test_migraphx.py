"""The migraphx backend through the umbrella, as users of ONNX Runtime see it.

The header says which MIGraphX the tests run on: the real one with its `ref` target (`cargo xtask migraphx`), or our
stand-in library, which knows a few operators, has a `gpu` target on host memory, and fails on request.
"""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import EP, affine, affine_model, bytes_of, on_device, on_threads, registered, sample

MIGRAPHX = os.environ.get("AMDGPU_EP_MIGRAPHX_LIBRARY", os.environ.get("AMDGPU_EP_TEST_MIGRAPHX", ""))
PYTHON = os.environ.get("AMDGPU_EP_TEST_PYTHON", sys.executable)
STAND_IN = "standin" in MIGRAPHX
MODELS = Path(__file__).resolve().parents[2] / "target" / "models"

pytestmark = pytest.mark.skipif(not MIGRAPHX, reason="no MIGraphX is given: cargo xtask migraphx gives one")
on_the_real_one = pytest.mark.skipif(STAND_IN, reason="the stand-in knows a few operators only")
on_the_stand_in = pytest.mark.skipif(not STAND_IN, reason="only the stand-in does this without a GPU")
FLOAT = TensorProto.FLOAT


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def options_for(devices, **options):
    result = ort.SessionOptions()
    result.log_severity_level = 3
    # Nodes stay unfused: the stand-in has no fused operators.
    result.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    result.add_provider_for_devices(devices[:1], {"profile": "migraphx"})
    for key, text in {"target": "ref", **options}.items():
        result.add_session_config_entry(f"ep.migraphx.{key}", str(text))
    result.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return result


def session_on(devices, model, **options):
    model = str(model) if isinstance(model, Path) else model
    return ort.InferenceSession(model, sess_options=options_for(devices, **options), enable_fallback=0)


def ours(session):
    """Returns the operators in our partitions."""
    parts = [part for part in session.get_provider_graph_assignment_info() if part.ep_name == EP]
    return sorted(node.op_type for part in parts for node in part.get_nodes())


def cpu(model, feeds):
    model = str(model) if isinstance(model, Path) else model
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)


def close(found, wanted, tolerance=1e-5):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def entries(folder):
    return sorted(path.name for path in Path(folder).glob("*.mxr"))


AFFINE = ["Add", "MatMul", "Relu"]


def test_results_equal_the_reference_for_many_shapes():
    with registered() as devices:
        session = session_on(devices, affine_model())
        assert ours(session) == AFFINE
        for rows in (1, 5, 0, 17, 5):
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
        del session


def test_fixed_shapes_are_compiled_when_the_session_is_made(tmp_path):
    with registered() as devices:
        session = session_on(devices, affine_model(5), cache_dir=tmp_path)
        assert len(entries(tmp_path)) == 1 and ours(session) == AFFINE
        close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
        assert len(entries(tmp_path)) == 1
        del session


def test_inputs_may_be_on_the_device():
    with registered() as devices:
        session = session_on(devices, affine_model())
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_device(sample(6)))
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        close(binding.copy_outputs_to_cpu(), [affine(sample(6))])
        del binding, session


def test_threads_with_different_shapes_share_a_session():
    with registered() as devices:
        session = session_on(devices, affine_model(), max_programs=2)

        def work(seed):
            for step in range(12):
                rows = (seed + step) % 4 + 1
                close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])

        on_threads(4, work)
        del session


def split_model():
    """Two heavy parts around a node that MIGraphX does not support, followed by a cheap node."""
    weight = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
        helper.make_node("Det", ["square"], ["d"], "unknown"),
        helper.make_node("Add", ["a", "d"], ["b"], "joined"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "second"),
        helper.make_node("Det", ["square2"], ["e"], "unknown2"),
        helper.make_node("Neg", ["e"], ["z"], "cheap"),
    ]
    inputs = [value("x", [3, 4]), value("square", [2, 2]), value("square2", [2, 2])]
    graph = helper.make_graph(
        nodes, "split", inputs, [value("y", [3, 4]), value("z", [])], [onnx.numpy_helper.from_array(weight, "w")]
    )
    return bytes_of(graph)


def split_feeds():
    random = np.random.default_rng(3)
    return {
        name: random.standard_normal(shape, dtype=np.float32)
        for name, shape in {"x": (3, 4), "square": (2, 2), "square2": (2, 2)}.items()
    }


def test_unknown_and_lonely_cheap_nodes_stay_with_other_providers():
    with registered() as devices:
        session = session_on(devices, split_model())
        assert ours(session) == ["Add", "MatMul", "MatMul"]
        close(session.run(None, split_feeds()), cpu(split_model(), split_feeds()))
        del session


@pytest.mark.environment(MIGRAPHX_STANDIN_FAIL="program_compile")
@on_the_stand_in
def test_partitions_that_do_not_compile_go_to_the_cpu():
    with registered() as devices:
        fixed = session_on(devices, affine_model(5))
        assert ours(fixed) == []
        close(fixed.run(None, {"x": sample(5)}), [affine(sample(5))])
        open_ = session_on(devices, affine_model())
        assert ours(open_) == AFFINE, "whether open shapes compile is known when they are met"
        for rows in (2, 3, 2):
            close(open_.run(None, {"x": sample(rows)}), [affine(sample(rows))])
        del fixed, open_


@on_the_real_one
def test_a_model_that_migraphx_refuses_goes_to_the_cpu():
    branch = lambda name, rows: helper.make_graph(
        [helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.ones((rows, 2), np.float32)))],
        name, [], [value(name, [rows, 2])],
    )
    nodes = [
        helper.make_node("If", ["c"], ["i"], then_branch=branch("t", 1), else_branch=branch("e", 3)),
        helper.make_node("MatMul", ["i", "x"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("c", [1], TensorProto.BOOL), value("x", [2, 2])], [value("y", None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    with registered() as devices:
        session = session_on(devices, model)
        for flag in (True, False):
            feeds = {"c": np.array([flag]), "x": np.eye(2, dtype=np.float32)}
            close(session.run(None, feeds), cpu(model, feeds))
        del session


@on_the_real_one
@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_reads_values_of_the_outer_graph(flag):
    """The branches use an input, a constant and a computed value of the outer graph."""
    branch = lambda op: helper.make_graph(
        [helper.make_node(op, ["a", "w"], [f"{op}1"]), helper.make_node("Add", [f"{op}1", "x"], [f"{op}2"])],
        op, [], [value(f"{op}2", [2, 2])],
    )
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Mul"), else_branch=branch("Sub")),
    ]
    inputs = [value("c", [1], TensorProto.BOOL), value("x", [2, 2])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", [2, 2])], [onnx.numpy_helper.from_array(weight, "w")])
    model = bytes_of(graph)
    feeds = {"c": np.array([flag]), "x": np.array([[1, 2], [3, 4]], np.float32)}
    with registered() as devices:
        session = session_on(devices, model)
        assert ours(session) == ["If", "MatMul"]
        close(session.run(None, feeds), cpu(model, feeds))
        del session


def one_node(op, feeds, constants=None, outputs=1, **attributes):
    constants = constants or {}
    inputs = [value(name, array.shape, helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in feeds.items()]
    names = [f"y{at}" for at in range(outputs)]
    node = helper.make_node(op, [*feeds, *constants], names, **attributes)
    made = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in names], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True).SerializeToString()


def numbers(*shape):
    return np.random.default_rng(11).standard_normal(shape, dtype=np.float32)


GOTTEN_WRONG = {
    "booleans of fractions": lambda: ("Cast", {"x": numbers(8)}, {"to": TensorProto.BOOL}),
    "places of what is not zero": lambda: ("NonZero", {"x": np.array([0, 1, 0, 2], np.float32)}, {}),
    "indices from the end": lambda: (
        "GatherElements", {"x": numbers(5, 4), "i": np.array([[2, -1], [0, -4]], np.int64)}, {"axis": 1},
    ),
    "a window in the padding alone": lambda: (
        "MaxPool", {"x": numbers(1, 1, 2, 2)}, {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
    ),
    "integers with a zero point": lambda: (
        "ConvInteger",
        {"x": np.arange(200, 209, dtype=np.uint8).reshape(1, 1, 3, 3), "w": np.ones((1, 1, 2, 2), np.uint8),
         "z": np.array(129, np.uint8)},
        {},
    ),
}


@on_the_real_one
@pytest.mark.parametrize("form", GOTTEN_WRONG)
def test_forms_that_migraphx_gets_wrong_stay_with_other_providers(form):
    op, feeds, attributes = GOTTEN_WRONG[form]()
    model = one_node(op, feeds, **attributes)
    with registered() as devices:
        session = session_on(devices, model)
        assert ours(session) == []
        close(session.run(None, feeds), cpu(model, feeds))
        del session


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


def with_weight(scale):
    model = onnx.load_from_string(affine_model(5))
    weight = model.graph.initializer[0]
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(scale), weight.name))
    return model.SerializeToString()


def test_the_cache_knows_weights_options_and_shapes(tmp_path):
    with registered() as devices:
        make = lambda model, **options: session_on(devices, model, cache_dir=tmp_path, **options)
        make(affine_model(5)), make(affine_model(5))
        assert len(entries(tmp_path)) == 1
        changed = make(with_weight(2))
        assert len(entries(tmp_path)) == 2
        close(changed.run(None, {"x": sample(5)}), cpu(with_weight(2), {"x": sample(5)}))
        make(affine_model(5), fp16_enable=1)
        assert len(entries(tmp_path)) == 3
        make(affine_model(6))
        assert len(entries(tmp_path)) == 4
        del changed


def test_damaged_entries_are_replaced(tmp_path):
    with registered() as devices:
        session_on(devices, affine_model(5), cache_dir=tmp_path)
        (entry,) = tmp_path.glob("*.mxr")
        whole = entry.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), b"nonsense"):
            entry.write_bytes(damaged)
            session = session_on(devices, affine_model(5), cache_dir=tmp_path)
            close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
            assert [one.read_bytes() for one in tmp_path.glob("*.mxr")] == [whole]
        del session


def test_an_unwritable_folder_only_disables_the_cache(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with registered() as devices:
        session = session_on(devices, affine_model(5), cache_dir=file)
        close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
        del session


@pytest.mark.skipif(os.name == "nt", reason="permissions of folders are checked on Unix only")
def test_a_cache_folder_that_others_can_write_to_is_not_used_and_one_line_says_what_to_do(tmp_path, capfd):
    with registered() as devices:
        session_on(devices, affine_model(5), cache_dir=tmp_path)
        kept = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.mxr")}
        assert len(kept) == 1
        tmp_path.chmod(0o777)
        capfd.readouterr()
        for rows in (5, 6):
            options = options_for(devices, cache_dir=tmp_path)
            options.log_severity_level = 2
            session = ort.InferenceSession(affine_model(rows), sess_options=options, enable_fallback=0)
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
            del session
        said = capfd.readouterr().err
        assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.mxr")} == kept
        assert said.count("compiled programs are not cached") == 1, said
        assert f"help: chmod go-w {tmp_path}" in said


@pytest.mark.environment(MIGRAPHX_STANDIN_COMPILE_MS="300")
def test_four_processes_make_one_entry(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_migraphx as t
with t.registered() as devices:
    session = t.session_on(devices, t.affine_model(5), cache_dir={str(tmp_path)!r})
    t.close(session.run(None, {{"x": t.sample(5)}}), [t.affine(t.sample(5))])
    del session
"""
    command = [PYTHON, "-c", code]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in started:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    assert len(entries(tmp_path)) == 1


@pytest.mark.parametrize("embedded", [0, 1])
def test_compiled_models_run_without_their_source(tmp_path, embedded):
    source, compiled = tmp_path / "source.onnx", tmp_path / "out" / "compiled.onnx"
    compiled.parent.mkdir()
    source.write_bytes(affine_model(5))
    with registered() as devices:
        options = options_for(devices)
        for key, text in {"enable": 1, "embed_mode": embedded, "file_path": compiled}.items():
            options.add_session_config_entry(f"ep.context_{key}", str(text))
        ort.InferenceSession(str(source), sess_options=options, enable_fallback=0)
        model = onnx.load(compiled)
        assert [node.op_type for node in model.graph.node] == ["EPContext"] and not model.graph.initializer
        attributes = {one.name: one for one in model.graph.node[0].attribute}
        assert attributes["embed_mode"].i == embedded and attributes["hardware_architecture"].s == b"host"
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert "migraphx-backend;migraphx=" in metadata[f"ep_compatibility_info.{EP}"], metadata
        source.unlink()
        session = session_on(devices, compiled)
        close(session.run(None, {"x": sample(5)}), [affine(sample(5))])
        del session

        def refused(change, *texts):
            other = onnx.load(compiled)
            change({one.name: one for one in other.graph.node[0].attribute})
            path = compiled.with_name("other.onnx")
            onnx.save(other, path)
            with pytest.raises(Exception) as error:
                session_on(devices, path)
            assert all(text in str(error.value) for text in texts), error.value

        def set_bytes(name, text):
            return lambda attributes: setattr(attributes[name], "s", text)

        refused(set_bytes("hardware_architecture", b"gfx1100"), "gfx1100", "compile the model again")
        if embedded:
            refused(set_bytes("ep_cache_context", b"nonsense"), "not a MIGraphX program")
        else:
            (tmp_path / "secret.mxr").write_bytes((compiled.parent / "compiled_0.mxr").read_bytes())
            refused(set_bytes("ep_cache_context", b"../secret.mxr"), "not a path inside its folder")
            (compiled.parent / "link.mxr").symlink_to(tmp_path / "secret.mxr")
            refused(set_bytes("ep_cache_context", b"link.mxr"), "a link to a file outside")
            refused(set_bytes("ep_cache_context", b"gone.mxr"), "gone.mxr")


def test_dynamic_shapes_are_not_saved(tmp_path):
    source = tmp_path / "source.onnx"
    source.write_bytes(affine_model())
    with registered() as devices:
        options = options_for(devices)
        options.add_session_config_entry("ep.context_enable", "1")
        with pytest.raises(Exception, match="dynamic shapes"):
            ort.InferenceSession(str(source), sess_options=options, enable_fallback=0)


def test_partitions_are_valid_models(tmp_path, monkeypatch):
    """The models passed to MIGraphX pass ONNX's checker, and give the same results on the CPU provider."""
    monkeypatch.chdir(tmp_path)
    with registered() as devices:
        session_on(devices, split_model(), dump_subgraphs=1)
        session_on(devices, affine_model(), dump_subgraphs=1)
    dumped = list(tmp_path.glob("*.onnx"))
    assert len(dumped) == 3 or len(dumped) == 2, dumped
    for path in dumped:
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        names = [one.name for one in model.graph.input]
        assert names == sorted(names)
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@on_the_real_one
def test_weights_in_files_stay_there(tmp_path):
    weight = np.random.default_rng(1).standard_normal((64, 64), dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x", ["n", 64])], [value("y", ["n", 64])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    x = np.random.default_rng(2).standard_normal((3, 64), dtype=np.float32)
    with registered() as devices:
        session = session_on(devices, path, cache_dir=tmp_path / "cache")
        close(session.run(None, {"x": x}), [x @ weight], 1e-4)
        del session
        # Other weights in the same file need another program.
        (tmp_path / "weights.bin").write_bytes((weight * 2).tobytes())
        session = session_on(devices, path, cache_dir=tmp_path / "cache")
        close(session.run(None, {"x": x}), [x @ (weight * 2)], 1e-4)
        del session
    assert len(entries(tmp_path / "cache")) == 2


def test_options_are_checked_and_old_names_read(tmp_path):
    with registered() as devices:
        with pytest.raises(Exception, match="unknown option \"fp61_enable\".*fp16_enable"):
            session_on(devices, affine_model(5), fp61_enable=1)
        with pytest.raises(Exception, match='exhaustive_tune is "maybe".*expected 1, true'):
            session_on(devices, affine_model(5), exhaustive_tune="maybe")
        session_on(devices, affine_model(5), migraphx_model_cache_dir=tmp_path)
        assert len(entries(tmp_path)) == 1


@pytest.mark.environment(AMDGPU_EP_MIGRAPHX_LIBRARY="/nowhere/libmigraphx_c.so.3")
def test_a_missing_library_is_named():
    with registered() as devices, pytest.raises(Exception, match="AMDGPU_EP_MIGRAPHX_LIBRARY"):
        session_on(devices, affine_model(5))


def many_outputs(rows="rows", count=12):
    """Outputs that are not ordered by name: some computed, one an input that is passed through."""
    nodes = [helper.make_node("Identity", ["x"], ["same"])]
    nodes += [helper.make_node("Mul", ["x", f"k{at}"], [f"o{at}"]) for at in range(count)]
    outputs = [value(f"o{at}", [rows, 4]) for at in reversed(range(count))] + [value("same", [rows, 4])]
    constants = [onnx.numpy_helper.from_array(np.full(1, at + 1, np.float32), f"k{at}") for at in range(count)]
    return bytes_of(helper.make_graph(nodes, "many", [value("x", [rows, 4])], outputs, constants))


GPU = {"target": "gpu", "offload_copy": 0}


@on_the_stand_in
@pytest.mark.environment(MIGRAPHX_STANDIN_SCRATCH="4096")
@pytest.mark.parametrize("streams", ["default", "threads"])
@pytest.mark.parametrize("replay", [0, 1])
def test_output_parameters_scratch_and_streams(streams, replay, monkeypatch):
    if streams != "default":
        monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as devices:
        session = session_on(devices, many_outputs(), hip_graph_enable=replay, **GPU)
        for rows in (5, 1, 5, 5, 3, 5):
            x = np.random.default_rng(rows).standard_normal((rows, 4), dtype=np.float32)
            found = session.run(None, {"x": x})
            close(found, [x * np.float32(at + 1) for at in reversed(range(12))] + [x])
        del session


@on_the_stand_in
def test_a_captured_run_is_replayed(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("MIGRAPHX_STANDIN_LOG", str(log))
    with registered() as devices:
        session = session_on(devices, affine_model(5), hip_graph_enable=1, **GPU)
        for seed in range(6):
            x = np.random.default_rng(seed).standard_normal((5, 4), dtype=np.float32)
            close(session.run(None, {"x": x}), [affine(x)])
        del session
    runs = [line for line in log.read_text().splitlines() if "run" in line]
    assert len(runs) == 3, "two to warm up and one to capture, whatever follows is replayed"


@on_the_stand_in
def test_padding_on_the_gpu_target():
    with registered() as devices:
        session = session_on(devices, affine_model(), compile_batches="4", **GPU)
        for rows in (1, 3, 4, 2):
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
        del session


@on_the_stand_in
def test_every_failing_call_gives_an_error_or_the_right_result(monkeypatch):
    """Each call of the library fails in turn. The session then cannot be created, runs elsewhere, or reports an
    error."""
    import ctypes

    library = ctypes.CDLL(MIGRAPHX)
    set_ = lambda key, text: library.migraphx_standin_set(key.encode(), text.encode())
    library.migraphx_standin_calls.restype = ctypes.c_size_t
    library.migraphx_standin_live.restype = ctypes.c_size_t

    def once():
        session = session_on(devices, affine_model(), compile_batches="4", background_compile=0, **GPU)
        close(session.run(None, {"x": sample(3)}), [affine(sample(3))])

    with registered() as devices:
        set_("fail", "")
        once()
        calls = library.migraphx_standin_calls()
        assert calls > 20
        failures = 0
        for number in range(1, calls + 1):
            set_("fail", str(number))
            try:
                once()
            except Exception as error:
                failures += 1
                assert "MIGraphX" in str(error), error
        assert failures > 0
        set_("fail", "")
        once()
        assert library.migraphx_standin_live() == 0


@on_the_real_one
@pytest.mark.parametrize("model", ["mnist_cnn", "bert_toy", "rl_sorter", "attention_past"])
def test_real_models_agree_with_the_cpu_provider(model):
    path = MODELS / f"{model}.onnx"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: `cargo xtask models` makes it")
    random = np.random.default_rng(7)
    feeds = {}
    reference = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for one in reference.get_inputs():
        shape = [extent if isinstance(extent, int) else 4 for extent in one.shape]
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
        kind = kinds[one.type]
        feeds[one.name] = random.random(shape, dtype=kind) if kind is np.float32 else np.ones(shape, kind)
    with registered() as devices:
        session = session_on(devices, path)
        assert ours(session)
        close(session.run(None, feeds), reference.run(None, feeds), 1e-4)
        del session, reference
