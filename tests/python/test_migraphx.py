"""The migraphx backend through the umbrella, as users of ONNX Runtime see it: partitions, results, options."""
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from migraphx_support import close, cpu, entries, needs_migraphx, on_the_real_one, on_the_stand_in, ours, session_on, value
from onnx import TensorProto, helper
from support import affine, affine_model, bytes_of, on_device, on_threads, registered, sample

MODELS = Path(__file__).resolve().parents[2] / "target" / "models"

pytestmark = needs_migraphx


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
