"""int8 with a calibration table, compared with the same arithmetic in NumPy. Needs a real MIGraphX, since the stand-in
has no Q/DQ."""
import os
import struct

import numpy as np
import onnx
import pytest
import support
from migraphx_support import MIGRAPHX, STAND_IN
from test_migraphx_library import assigned, session_on

pytestmark = pytest.mark.skipif(not MIGRAPHX or STAND_IN, reason="needs a real MIGraphX: cargo xtask migraphx gives one")

RANGE = 2.0
WEIGHT = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
BIAS = np.array([0.5, -0.25, 0.125], dtype=np.float32)


def narrowed(values, largest):
    scale = np.float32(largest) / np.float32(127)
    return np.clip(np.rint(values / scale), -128, 127) * scale


def wanted(x):
    return np.maximum(narrowed(x, RANGE).astype(np.float64) @ narrowed(WEIGHT, 1) + BIAS, 0)


def native_table(folder, text=None):
    scale = struct.unpack("<I", struct.pack("<f", RANGE / 127))[0]
    (folder / "table").write_text(text or f"MGX-2014-EntropyCalibration2\nx: {scale:08x}\n")
    return dict(int8_calibration_table_name="table", int8_use_native_calibration_table=1)


def flatbuffers_table(folder):
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
    from onnxruntime.quantization.quant_utils import write_calibration_table

    # The tool writes the upper bound, whatever the lower one is.
    bounds = (np.float32(-RANGE), np.float32(RANGE))
    here = os.getcwd()
    os.chdir(folder)
    try:
        write_calibration_table(TensorsData(CalibrationMethod.MinMax, {"x": bounds}))
    finally:
        os.chdir(here)
    return dict(int8_calibration_table_name="calibration.flatbuffers")


@pytest.mark.parametrize("table", [native_table, flatbuffers_table])
def test_products_are_those_of_eight_bits(table, tmp_path):
    options = table(tmp_path)
    x = support.sample(7)
    with support.registered() as chosen:
        for rows in (7, "rows"):
            session = session_on(chosen, support.affine_model(rows), int8_enable=1, cache_dir=tmp_path, **options)
            found = session.run(None, {"x": x})[0]
            np.testing.assert_allclose(found, wanted(x), rtol=1e-4, atol=1e-4)
            assert np.abs(found - support.affine(x)).max() > 1e-3, "nothing was narrowed"
            del session


def test_another_table_is_another_program(tmp_path):
    x = support.sample(7)
    answers = []
    with support.registered() as chosen:
        for largest in (RANGE, RANGE / 100):
            scale = struct.unpack("<I", struct.pack("<f", largest / 127))[0]
            options = native_table(tmp_path, f"MGX-2014\nx: {scale:08x}\n")
            session = session_on(chosen, support.affine_model(7), int8_enable=1, cache_dir=tmp_path, **options)
            answers.append(session.run(None, {"x": x})[0])
            del session
    assert np.abs(answers[0] - answers[1]).max() > 0.1
    assert len(list(tmp_path.rglob("*.mxr"))) == 2


def test_fp8_is_used_or_left_out_but_never_wrong(tmp_path):
    """ONNX has fp8 since opset 19, and MIGraphX 2.14 does not read fp8 constants."""
    x = support.sample(7)
    with support.registered() as chosen:
        for opset in (17, 19):
            model = onnx.load_from_string(support.affine_model(7))
            model.opset_import[0].version = opset
            options = dict(fp8_enable=1, cache_dir=tmp_path, **native_table(tmp_path))
            session = session_on(chosen, model.SerializeToString(), **options)
            assert support.EP in assigned(session)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], support.affine(x), atol=0.3)
            del session


@pytest.mark.parametrize("text", ["", "nonsense", "MGX-1\nx: zz\n"])
def test_a_table_that_cannot_be_read_leaves_floats(text, tmp_path):
    options = native_table(tmp_path, text or None)
    if not text:
        (tmp_path / "table").unlink()
    x = support.sample(7)
    with support.registered() as chosen:
        session = session_on(chosen, support.affine_model(7), int8_enable=1, cache_dir=tmp_path, **options)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], support.affine(x), rtol=1e-5, atol=1e-6)
        del session
