"""Drivers with missing features, through ONNX Runtime: memory, copies and sessions still work."""
import numpy as np
import onnxruntime as ort
import pytest

from support import affine_model, close, empty_on_device, on_device, registered, session_on

pytestmark = pytest.mark.environment(AMDGPU_EP_DRIVER="host")

ROWS = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.mark.parametrize(
    "lacks", ["pools", "pinned", "capture", "graph-launch", "memory-info", "event-times", "attributes", "peers"]
)
@pytest.mark.parametrize("streams", ["immediate", "threads"])
def test_results_and_copies_are_right(lacks, streams, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HOST_LACKS", lacks)
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    monkeypatch.setenv("AMDGPU_EP_HOST_DEVICES", "2")
    wanted = ort.InferenceSession(affine_model(), providers=["CPUExecutionProvider"]).run(None, {"x": ROWS})[0]
    with registered() as devices:
        session = session_on(devices[:1], affine_model())
        for _ in range(4):
            close(session.run(None, {"x": ROWS})[0], wanted)
        given, made = on_device(ROWS), empty_on_device([5, 3], np.float32)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", given)
        binding.bind_ortvalue_output("y", made)
        for _ in range(4):
            session.run_with_iobinding(binding)
            close(made.numpy(), wanted)
        far = on_device(ROWS, 1)
        assert (far.numpy() == ROWS).all()
        del session, binding, given, made, far
