"""What the suites of the migraphx backend share.

The header of a run says which MIGraphX the tests run on: the real one with its `ref` target (`cargo xtask migraphx`), or
our stand-in library, which knows a few operators, has a `gpu` target on host memory, and fails on request.
"""
import os
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import EP

MIGRAPHX = os.environ.get("AMDGPU_EP_MIGRAPHX_LIBRARY", os.environ.get("AMDGPU_EP_TEST_MIGRAPHX", ""))
STAND_IN = "standin" in MIGRAPHX

needs_migraphx = pytest.mark.skipif(not MIGRAPHX, reason="no MIGraphX is given: cargo xtask migraphx gives one")
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
