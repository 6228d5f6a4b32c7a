"""A real HIP runtime on a machine without a GPU: nothing fails, and one line says why there is no device.

`cargo xtask test --only rocm` runs these tests with AMD's own libraries, one release after the other.
"""
import os
import re

import numpy as np
import onnxruntime as ort
import pytest

from support import EP, affine_model, close, devices, registered

pytestmark = [
    pytest.mark.skipif(os.environ.get("AMDGPU_EP_TEST_REAL_HIP") != "1", reason="needs a real HIP runtime"),
    pytest.mark.environment(AMDGPU_EP_DRIVER="amd"),
]

ROWS = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def test_registration_offers_no_device_and_says_which_library_found_none(capfd):
    with registered() as found:
        assert found == []
    told = [line for line in capfd.readouterr().err.splitlines() if "offers no device" in line]
    assert len(told) == 1, told
    assert os.environ["AMDGPU_EP_HIP_LIBRARY"] in told[0]
    # hipErrorNoDevice, or hipErrorInvalidDevice before HIP 6.
    assert re.search(r"hip\w+ failed on the amd driver: 10[01] \(", told[0]), told


def test_sessions_work_without_the_provider_and_registering_again_changes_nothing():
    alone = ort.InferenceSession(affine_model(), providers=["CPUExecutionProvider"])
    wanted = alone.run(None, {"x": ROWS})[0]
    for _ in range(3):
        with registered():
            session = ort.InferenceSession(affine_model(), providers=["CPUExecutionProvider"])
            close(session.run(None, {"x": ROWS})[0], wanted)
            assert EP not in session.get_providers()
            del session
        assert devices() == []
    close(alone.run(None, {"x": ROWS})[0], wanted)


def test_a_policy_that_prefers_gpus_falls_back_to_the_cpu():
    with registered():
        options = ort.SessionOptions()
        options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_GPU)
        session = ort.InferenceSession(affine_model(), sess_options=options)
        assert session.run(None, {"x": ROWS})[0].shape == (5, 3)
        assert EP not in session.get_providers()
        del session
