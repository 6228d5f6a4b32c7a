"""A capture that somebody else has under way survives what ONNX Runtime asks of the library meanwhile."""
import contextlib
import ctypes
import os

import numpy as np
import onnxruntime as ort
import pytest
from support import LIBRARY, ON_HOST, affine, affine_model, empty_on_device, on_device, registered, sample, session_on

RELAXED = 2
NON_BLOCKING = 1


def driver():
    """The host driver that the library under test uses: the loader gives the same copy."""
    if not ON_HOST:
        pytest.skip("the captures are made through the host driver")
    library = ctypes.CDLL(os.path.join(os.path.dirname(LIBRARY), "libhip-host.so"))
    for name in ["hipStreamCreateWithFlags", "hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamDestroy"]:
        getattr(library, name).restype = ctypes.c_int
    return library


@contextlib.contextmanager
def captured(handle):
    """Records the stream for the length of the block; the recording must be whole at the end."""
    hip, stream, graph = driver(), ctypes.c_void_p(handle), ctypes.c_void_p()
    assert hip.hipStreamBeginCapture(stream, RELAXED) == 0
    yield
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0, "the capture was spoilt"
    assert hip.hipGraphDestroy(graph) == 0


@contextlib.contextmanager
def captured_elsewhere():
    """A capture on a stream that the library knows nothing of."""
    hip, stream = driver(), ctypes.c_void_p()
    assert hip.hipStreamCreateWithFlags(ctypes.byref(stream), NON_BLOCKING) == 0
    with captured(stream.value):
        yield
    assert hip.hipStreamDestroy(stream) == 0


@pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2")
def test_copies_in_every_direction():
    array = np.arange(5000, dtype=np.int32)
    with registered(), captured_elsewhere():
        first = on_device(array, 0)
        again, second = empty_on_device(array.shape, np.int32, 0), empty_on_device(array.shape, np.int32, 1)
        ort.copy_tensors([first], [again])
        ort.copy_tensors([again], [second])
        np.testing.assert_array_equal(second.numpy(), array)
        del first, again, second


def test_sessions_are_made_and_run():
    with registered() as found, captured_elsewhere():
        session = session_on(found, affine_model())
        x = sample()
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, affine(x), rtol=1e-5, atol=1e-6)
        del session


@pytest.mark.environment(AMDGPU_EP_HOST_STREAMS="threads")
def test_memory_comes_and_goes_while_a_stream_of_ours_is_recorded():
    array = np.arange(100_000, dtype=np.int32)
    with registered() as found:
        stream = found[0].create_sync_stream()
        for _ in range(20):
            source, target = on_device(array), empty_on_device(array.shape, np.int32)
            ort.copy_tensors([source], [target], stream)
            # Freed while the stream may still be busy with it: its reuse depends on an event of that stream.
            del source
            with captured(stream.get_handle()):
                other = on_device(array + 1)
                np.testing.assert_array_equal(other.numpy(), array + 1)
                del other
            np.testing.assert_array_equal(target.numpy(), array)
            del target
        del stream
