"""Weights in external files are right, are held once, and need the files only while they are read from there.

On the host device and, in the suite of the wave simulator, on the GPU device.
"""
import gc
import json
import os

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import affine_model, options_for, registered

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")

ON_GPU_DEVICE = "AMDGPU_EP_SIMULATE" in os.environ
ROWS, WIDTH, COLUMNS = 700, 256, 300
BYTES = (ROWS * WIDTH + WIDTH * COLUMNS) * 4
# Biases, and constants created by planning.
SMALL = 16 << 10


def weights(seed=1):
    """A table and a matrix, large enough to stay in a file, and a bias that is too small for that."""
    rng = np.random.default_rng(seed)
    shapes = {"table": (ROWS, WIDTH), "matrix": (WIDTH, COLUMNS), "bias": (COLUMNS,)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def expected(ids, seed=1):
    held = {name: array.astype(np.float64) for name, array in weights(seed).items()}
    return held["table"][ids] @ held["matrix"] + held["bias"]


def proto():
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"], "lookup"),
            helper.make_node("MatMul", ["rows", "matrix"], ["product"], "product"),
            helper.make_node("Add", ["product", "bias"], ["y"], "sum"),
        ],
        "weights",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["count"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["count", COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in weights().items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def saved(folder):
    """Saves the model with its weights in the file `weights.bin` beside it."""
    file = folder / "model.onnx"
    onnx.save(proto(), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return file


def opened(devices, model, options=None):
    return ort.InferenceSession(model, sess_options=options or options_for(devices[:1]), enable_fallback=0)


def check(session, count=3, seed=1):
    ids = np.random.default_rng(count).integers(0, ROWS, count)
    np.testing.assert_allclose(session.run(None, {"ids": ids})[0], expected(ids, seed), rtol=1e-4, atol=1e-3)


def counted(devices, folder):
    """Returns the current and peak memory of the library, as a small session reports it at its end."""
    gc.collect()
    file = folder / "memory.json"
    options = options_for(devices[:1])
    options.add_session_config_entry("ep.hip.memory_file", str(file))
    opened(devices, affine_model(), options)
    gc.collect()
    return json.loads(file.read_text().splitlines()[-1])["memory"]


def about(bytes_held):
    """Whether all weights are held once, and nothing else of their size."""
    return BYTES <= bytes_held < BYTES + SMALL


def test_weights_in_a_file_are_held_once(tmp_path):
    with registered() as devices:
        session = opened(devices, saved(tmp_path))
        check(session)
        memory = counted(devices, tmp_path)
        assert about(memory["mapped"]["peak"]) and memory["mapped"]["now"] == 0, "read in the file, and let go"
        held, other = ("weights", "constants") if ON_GPU_DEVICE else ("constants", "weights")
        assert about(memory[held]["now"]) and about(memory[held]["peak"]), memory
        assert memory[other]["peak"] < SMALL, memory
        for count in (1, 5, 40):
            check(session, count)
        assert counted(devices, tmp_path)[held] == memory[held], "plans for other shapes hold no more"


def test_weights_in_the_model_are_held_once(tmp_path):
    with registered() as devices:
        session = opened(devices, proto().SerializeToString())
        check(session)
        memory = counted(devices, tmp_path)
        assert memory["mapped"]["peak"] == 0
        held = "weights" if ON_GPU_DEVICE else "constants"
        assert about(memory[held]["now"]) and about(memory["constants"]["peak"]), memory
        assert about(memory["constants"]["now"] + memory["weights"]["now"]), memory
        check(session, 9)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_file_may_be_deleted_once_there_is_a_session(tmp_path, when):
    with registered() as devices:
        session = opened(devices, saved(tmp_path))
        if when == "after":
            check(session)
        (tmp_path / "weights.bin").unlink()
        for count in (3, 1, 40):
            check(session, count)


def test_the_file_may_be_cut_once_its_weights_were_uploaded_or_copied(tmp_path):
    with registered() as devices:
        session = opened(devices, saved(tmp_path))
        check(session)
        os.truncate(tmp_path / "weights.bin", 0)
        for count in (3, 1, 40):
            check(session, count)


def test_a_model_without_a_path_finds_its_weights_in_the_folder_named(tmp_path):
    model = saved(tmp_path).read_bytes()
    with registered() as devices:
        options = options_for(devices[:1])
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
        check(opened(devices, model, options))


def test_weights_from_the_caller_override_those_in_the_file(tmp_path):
    file = saved(tmp_path)
    others = weights(seed=2)
    with registered() as devices:
        options = options_for(devices[:1])
        values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in others.items()}
        options.add_external_initializers(list(values), list(values.values()))
        check(opened(devices, str(file), options), seed=2)


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_a_file_in_memory_overrides_the_one_on_disk(tmp_path, source):
    model = saved(tmp_path)
    contents = bytearray((tmp_path / "weights.bin").read_bytes())
    for tensor in onnx.load(model, load_external_data=False).graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        start = int(place.get("offset", 0))
        contents[start:start + int(place["length"])] = weights(seed=2)[tensor.name].tobytes()
    with registered() as devices:
        options = options_for(devices[:1])
        # The contents must live until the session is created.
        buffer = bytes(contents)
        options.add_external_initializers_from_files_in_memory(["weights.bin"], [buffer], [len(buffer)])
        check(opened(devices, str(model) if source == "path" else model.read_bytes(), options), seed=2)


WORDS, BLOCK = 1100, 32


def model_of(nodes, constants, dtype):
    """A model from token ids to logits."""
    graph = helper.make_graph(
        nodes,
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["count"])],
        [helper.make_tensor_value_info("logits", dtype, ["count", WORDS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def tied_floats(dtype):
    """Both ends of a decoder: embeddings are rows of the transposed head, which ONNX Runtime turns into a separate
    constant."""
    head = np.random.default_rng(5).standard_normal((512, WORDS)).astype(dtype) / 16
    nodes = [
        helper.make_node("Transpose", ["head"], ["table"], "turned", perm=[1, 0]),
        helper.make_node("Gather", ["table", "ids"], ["rows"], "lookup"),
        helper.make_node("MatMul", ["rows", "head"], ["logits"], "product"),
    ]
    return model_of(nodes, {"head": head.astype(dtype)}, helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), head.nbytes


def tied_bytes():
    """Like `tied_floats` with 4-bit weights: the lookup sees the head's bytes and scales in other shapes."""
    rng = np.random.default_rng(6)
    constants = {
        "head": rng.integers(0, 256, (WORDS, WIDTH // BLOCK, BLOCK // 2), np.uint8),
        "scales": rng.standard_normal((WORDS, WIDTH // BLOCK), np.float32) / 64,
    }
    shapes = {"rows_shape": np.array([WORDS, WIDTH // 2])}
    nodes = [
        helper.make_node("Reshape", ["head", "rows_shape"], ["table"], "flat"),
        helper.make_node("GatherBlockQuantized", ["table", "ids", "scales"], ["rows"], "lookup", domain="com.microsoft",
                         bits=4, block_size=BLOCK, gather_axis=0, quantize_axis=1),
        helper.make_node("MatMulNBits", ["rows", "head", "scales"], ["logits"], "product", domain="com.microsoft",
                         K=WIDTH, N=WORDS, bits=4, block_size=BLOCK),
    ]
    return model_of(nodes, constants | shapes, TensorProto.FLOAT), sum(array.nbytes for array in constants.values())


def check_tied(session, model, tolerance):
    cpu = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for count in (1, 3, 20):
        feeds = {"ids": np.random.default_rng(count).integers(-WORDS, WORDS, count)}
        found, wanted = session.run(None, feeds)[0], cpu.run(None, feeds)[0]
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-4), (np.float16, 1e-2)])
def test_a_head_tied_to_the_embedding_is_held_once(tmp_path, dtype, tolerance):
    model, head = tied_floats(dtype)
    with registered() as devices:
        session = opened(devices, model)
        check_tied(session, model, tolerance)
        memory = counted(devices, tmp_path)
        held, other = ("weights", "constants") if ON_GPU_DEVICE else ("constants", "weights")
        assert head <= memory[held]["now"] < head + SMALL and memory[other]["now"] < SMALL, memory


def test_a_packed_head_that_is_also_the_embedding_is_held_once_by_a_gpu(tmp_path):
    model, head = tied_bytes()
    with registered() as devices:
        session = opened(devices, model)
        check_tied(session, model, 1e-3)
        if ON_GPU_DEVICE:
            memory = counted(devices, tmp_path)
            assert head <= memory["weights"]["now"] < head + SMALL, memory
