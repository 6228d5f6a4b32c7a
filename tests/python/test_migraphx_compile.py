"""`amdgpu-ep compile` and the migraphx backend, on the MIGraphX of the suite."""
import os

import onnx
import pytest
from command_support import document, error
from migraphx_support import MIGRAPHX, needs_migraphx
from support import affine_model

PROFILE = ["--profile", "migraphx", "--option", "ep.migraphx.target=ref"]

pytestmark = [
    needs_migraphx,
    pytest.mark.environment(AMDGPU_EP_MIGRAPHX_LIBRARY=MIGRAPHX),
]


@pytest.mark.parametrize("form", ["--embed", "--external"])
def test_a_compiled_model_runs_as_its_source_does(tmp_path, form):
    source, compiled = tmp_path / "source.onnx", tmp_path / "out" / "compiled.onnx"
    compiled.parent.mkdir()
    source.write_bytes(affine_model())
    report = document("compile", source, "-o", compiled, form, "--dim", "rows=5", *PROFILE)
    assert report["partitions"] == 1 and report["device_nodes"] == report["total_nodes"]
    names = [os.path.basename(file["file"]) for file in report["files"]]
    assert names == ["compiled.onnx", "compiled_0.mxr"][: len(names)] and len(names) == (1 if form == "--embed" else 2)
    assert [node.op_type for node in onnx.load(compiled).graph.node] == ["EPContext"]
    compared = document("run", compiled, "--compare", "cpu", "--source", source, *PROFILE)
    assert compared["good"] is True and compared["outputs"][0]["shape"] == [5, 3]
    assert "not a partition of the hip backend" in error("run", compiled, "--profile", "hip")


def test_dynamic_shapes_are_refused(tmp_path):
    source = tmp_path / "source.onnx"
    source.write_bytes(affine_model())
    said = error("compile", source, "-o", tmp_path / "compiled.onnx", *PROFILE)
    assert "dynamic shapes" in said and list(tmp_path.iterdir()) == [source], said
