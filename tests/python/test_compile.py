"""`amdgpu-ep compile` and the hip backend: compiled models run in every ONNX Runtime, with the results of their
source."""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from command_support import document, error
from onnx import TensorProto, helper
from support import EP, affine, affine_model, bytes_of, close, options_for, registered, sample, session_on


def split_model():
    """Two partitions around a node that stays on the CPU provider, one of them with most of the weights."""
    floats = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    weight = np.random.default_rng(3).standard_normal((16, 16), dtype=np.float32) / 4 + np.eye(16, dtype=np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["t"]),
        helper.make_node("Det", ["t"], ["d"]), helper.make_node("Exp", ["d"], ["y"]),
    ]
    weights = [onnx.numpy_helper.from_array(weight, "w")]
    return bytes_of(helper.make_graph(nodes, "split", [floats("x", "n", 16, 16)], [floats("y", "n")], weights))


@pytest.mark.parametrize("form", ["--embed", "--external"])
def test_a_compiled_model_runs_as_its_source_does(tmp_path, form):
    source, compiled = tmp_path / "source.onnx", tmp_path / "out" / "compiled.onnx"
    compiled.parent.mkdir()
    source.write_bytes(split_model())
    report = document("compile", source, "-o", compiled, form)
    assert (report["device_nodes"], report["total_nodes"], report["partitions"]) == (3, 4, 2)
    assert len(report["files"]) == (1 if form == "--embed" else 3)
    model = onnx.load(compiled)
    assert sorted(node.op_type for node in model.graph.node) == ["Det", "EPContext", "EPContext"]
    assert not model.graph.initializer
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert "backend=hip" in metadata[f"ep_compatibility_info.{EP}"]
    reference = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"])
    # Weights are stored once: together the files are hardly larger than the source.
    assert sum(file["bytes"] for file in report["files"]) < source.stat().st_size + 4096
    with registered() as devices:
        options = options_for(devices[:1])
        options.add_session_config_entry("session.disable_model_compile", "1")
        session = ort.InferenceSession(str(compiled), sess_options=options, enable_fallback=0)
        for count in (1, 5):
            x = np.random.default_rng(count).standard_normal((count, 16, 16), dtype=np.float32) / 8
            close(session.run(None, {"x": x})[0], reference.run(None, {"x": x})[0])
        del session, reference


def resizing_model():
    """A node of the CPU provider, whose constant operand ONNX's shape inference reads, between two device nodes."""
    floats = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Resize", ["r", "", "scales"], ["s"], mode="cubic", antialias=1),
        helper.make_node("Exp", ["s"], ["y"]),
    ]
    scales = onnx.numpy_helper.from_array(np.array([1, 1, 0.5, 0.5], dtype=np.float32), "scales")
    return bytes_of(helper.make_graph(nodes, "resizing", [floats("x", 1, 2, 8, 8)], [floats("y", 1, 2, 4, 4)], [scales]), 19)


@pytest.mark.parametrize("form", ["--embed", "--external"])
def test_constants_of_the_cpu_provider_stay_readable(tmp_path, form):
    source, compiled = tmp_path / "source.onnx", tmp_path / "compiled.onnx"
    source.write_bytes(resizing_model())
    report = document("compile", source, "-o", compiled, form)
    assert (report["device_nodes"], report["total_nodes"]) == (2, 3)
    x = np.random.default_rng(5).standard_normal((1, 2, 8, 8), dtype=np.float32)
    wanted = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    with registered() as devices:
        session = session_on(devices[:1], str(compiled))
        close(session.run(None, {"x": x})[0], wanted)
        del session


def test_a_dimension_is_fixed_in_the_compiled_model(tmp_path):
    source, compiled = tmp_path / "source.onnx", tmp_path / "compiled.onnx"
    source.write_bytes(affine_model())
    document("compile", source, "-o", compiled, "--dim", "rows=5")
    with registered() as devices:
        session = session_on(devices[:1], str(compiled))
        assert session.get_inputs()[0].shape == [5, 4]
        close(session.run(None, {"x": sample(5)})[0], affine(sample(5)))
        with pytest.raises(Exception, match="x"):
            session.run(None, {"x": sample(6)})
        del session


def test_the_log_names_what_cannot_be_compiled(tmp_path):
    source, compiled = tmp_path / "source.onnx", tmp_path / "compiled.onnx"
    source.write_bytes(affine_model())
    assert "there is no folder" in error("compile", source, "-o", tmp_path / "none" / "compiled.onnx")
    document("compile", source, "-o", compiled)
    assert "is already compiled" in error("compile", compiled, "-o", tmp_path / "again.onnx")
    assert "is already compiled" in error("compile", compiled, "-o", tmp_path / "again.onnx", "--dim", "rows=3")
    assert "cannot run compiled models" in error("bench", compiled)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compiled.onnx", "source.onnx"]


def test_a_damaged_compiled_model_is_refused(tmp_path):
    source, compiled = tmp_path / "source.onnx", tmp_path / "compiled.onnx"
    source.write_bytes(affine_model())
    document("compile", source, "-o", compiled, "--external")
    (blob,) = tmp_path.glob("*.hipctx")
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    said = error("run", compiled)
    assert "it is damaged" in said and "compile the model again" in said, said
    model = onnx.load(compiled)
    for entry in model.metadata_props:
        if entry.key == f"ep_compatibility_info.{EP}":
            entry.value = entry.value.replace("format=1", "format=99")
    onnx.save(model, compiled)
    assert "compile its source again" in error("run", compiled)
