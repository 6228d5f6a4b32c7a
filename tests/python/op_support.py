"""Runs single operators on our provider and on ONNX Runtime's CPU provider, for tests that compare the two."""
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper
from support import EP, options_for

MICROSOFT = "com.microsoft"


class Maker:
    """Random numbers, the same in every run."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape):
        return self.random.standard_normal(shape, np.float32)


def model_of(op_type, inputs, outputs, domain, opset, attributes, types=None):
    names = [f"i{at}" if value is not None else "" for at, value in enumerate(inputs)]
    while not names[-1]:
        names.pop()
    made = [f"o{at}" for at in range(outputs)]
    node = helper.make_node(op_type, names, made, domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(f"i{at}", helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
        for at, value in enumerate(inputs)
        if value is not None
    ]
    types = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype or np.float32)) for dtype in types or [None] * outputs]
    kinds = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in zip(made, types)]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(helper.make_graph([node], "one", given, kinds), opset_imports=imports)
    model.ir_version = 10 if opset < 23 else 11
    return model.SerializeToString()


def both(found, op_type, inputs, outputs, domain=MICROSOFT, version=21, made=None, **attributes):
    """Returns our results and those of the CPU provider. Our provider must run the node. `made`: the types of
    outputs; `version`: ONNX's opset."""
    model = model_of(op_type, inputs, outputs, domain, version, attributes, made)
    feed = {f"i{at}": value for at, value in enumerate(inputs) if value is not None}
    options = options_for(found[:1])
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    ours = ort.InferenceSession(model, sess_options=options, enable_fallback=0)
    assert ours.get_providers()[0] == EP
    result = ours.run(None, feed)
    del ours
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 3
    theirs = ort.InferenceSession(model, quiet, providers=["CPUExecutionProvider"]).run(None, feed)
    return result, theirs


def one_node(found, node, given, constants, types):
    """The result of a node on our provider. `types`: ONNX types of constants that NumPy lacks, whose bytes are given."""
    def tensor(name, value):
        kind = types.get(name, helper.np_dtype_to_tensor_dtype(value.dtype))
        return TensorProto(name=name, data_type=kind, dims=value.shape, raw_data=np.ascontiguousarray(value).tobytes())

    inputs = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in given.items()]
    made = [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    weights = [tensor(name, value) for name, value in constants.items()]
    graph = helper.make_graph([node], "one", inputs, made, weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = options_for(found[:1])
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = ort.InferenceSession(model.SerializeToString(), sess_options=options, enable_fallback=0)
    return session.run(None, given)[0]


def angles(half, rows=32):
    turns = np.arange(rows)[:, None] * (100.0 ** (-np.arange(half) / half))[None]
    return np.cos(turns).astype(np.float32), np.sin(turns).astype(np.float32)


def compare(found, wanted, error=2e-5):
    np.testing.assert_allclose(found, wanted, rtol=error, atol=error)
