"""Products with packed weights, and rows of packed tables, equal the CPU provider's."""
import json

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import options_for, registered

MICROSOFT = "com.microsoft"


def one_node(op, names, feeds, constants, **attributes):
    """A model of one node with the inputs `names`, in order: arrays fed at run time, and constants. `None` is
    omitted."""
    held = [
        tensor if isinstance(tensor, TensorProto) else numpy_helper.from_array(tensor, name)
        for name, tensor in constants.items() if tensor is not None
    ]
    value = helper.make_tensor_value_info
    given = [value(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in feeds.items()]
    read = ["" if name in constants and constants[name] is None else name for name in names]
    node = helper.make_node(op, read, ["y"], name=op, domain=MICROSOFT, **attributes)
    graph = helper.make_graph([node], "packed", given, [value("y", TensorProto.FLOAT, None)], held)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def check(found, model, feeds, folder, tolerance):
    """Checks that our provider takes the node and that its result equals the CPU provider's."""
    wanted = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    record = folder / "placement.json"
    options = options_for(found[:1])
    options.add_session_config_entry("ep.hip.explain_file", str(record))
    result = ort.InferenceSession(model, sess_options=options, enable_fallback=0).run(None, feeds)[0]
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    scale = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(result.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=tolerance * scale)
    nodes = json.loads(record.read_text().splitlines()[0])["nodes"]
    assert [node["reason"] for node in nodes] == [None]
    record.unlink()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [None, "packed", "floats"])
def test_products_equal_the_cpu_provider(bits, zeros, tmp_path):
    if bits == 8 and zeros == "floats":
        pytest.skip("the CPU provider has zero points of floats for 4 bits only")
    rng = np.random.default_rng(5)
    with registered() as found:
        for rows, depth, columns, block in ((1, 64, 24, 32), (3, 96, 40, 16), (17, 256, 33, 128), (2, 80, 16, 32)):
            blocks = -(-depth // block)
            constants = {
                "b": rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
                "s": (rng.standard_normal((columns, blocks)) / 10).astype(np.float32),
                "z": None,
            }
            if zeros == "packed":
                constants["z"] = rng.integers(0, 256, (columns, (blocks * bits + 7) // 8), np.uint8)
            if zeros == "floats":
                constants["z"] = rng.integers(0, 16, (columns, blocks)).astype(np.float32)
            feeds = {"a": rng.standard_normal((rows, depth)).astype(np.float32)}
            attributes = dict(K=depth, N=columns, bits=bits, block_size=block)
            # At level 0 neither provider rounds activations.
            model = one_node("MatMulNBits", "absz", feeds, constants, accuracy_level=0, **attributes)
            check(found, model, feeds, tmp_path, 1e-5)
            # At level 4 both do, in different ways.
            model = one_node("MatMulNBits", "absz", feeds, constants, accuracy_level=4, **attributes)
            check(found, model, feeds, tmp_path, 3e-2)


@pytest.mark.parametrize("element", ["bytes", "uint4", "int4"])
def test_rows_of_packed_tables_equal_the_cpu_provider(element, tmp_path):
    rng = np.random.default_rng(6)
    with registered() as found:
        for with_zeros in (False, True):
            scales = rng.standard_normal((24, 2)).astype(np.float32)
            attributes = dict(block_size=32, gather_axis=0, quantize_axis=1)
            if element == "bytes":
                data = rng.integers(0, 256, (24, 32), np.uint8)
                zeros = rng.integers(0, 256, (24, 1), np.uint8)
                attributes["bits"] = 4
            else:
                kind, low = (TensorProto.INT4, -8) if element == "int4" else (TensorProto.UINT4, 0)
                data = helper.make_tensor("d", kind, [24, 64], rng.integers(low, low + 16, 24 * 64).tolist())
                zeros = helper.make_tensor("z", kind, [24, 2], rng.integers(low, low + 16, 48).tolist())
            feeds = {"i": rng.integers(0, 24, (2, 3)).astype(np.int64)}
            constants = {"d": data, "s": scales, "z": zeros if with_zeros else None}
            model = one_node("GatherBlockQuantized", "disz", feeds, constants, **attributes)
            check(found, model, feeds, tmp_path, 1e-6)

