"""Captures: another capture survives the calls of ONNX Runtime into the library, and sessions capture their own
runs."""
import contextlib
import ctypes
import json
import os
import threading
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import (
    LIBRARY,
    ON_HOST,
    affine,
    affine_model,
    bytes_of,
    close,
    empty_on_device,
    on_device,
    on_threads,
    options_for,
    registered,
    sample,
    session_on,
)

RELAXED = 2
NON_BLOCKING = 1


def driver():
    """Returns the host driver that the library under test uses: the loader returns the same copy."""
    if not ON_HOST:
        pytest.skip("the captures are made through the host driver")
    library = ctypes.CDLL(os.path.join(os.path.dirname(LIBRARY), "libhip-host.so"))
    for name in ["hipStreamCreateWithFlags", "hipStreamBeginCapture", "hipStreamEndCapture", "hipStreamDestroy"]:
        getattr(library, name).restype = ctypes.c_int
    return library


@contextlib.contextmanager
def captured(handle):
    """Captures the stream for the duration of the block; the capture must be valid at the end."""
    hip, stream, graph = driver(), ctypes.c_void_p(handle), ctypes.c_void_p()
    assert hip.hipStreamBeginCapture(stream, RELAXED) == 0
    yield
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0, "the capture was invalidated"
    assert hip.hipGraphDestroy(graph) == 0


@contextlib.contextmanager
def captured_elsewhere():
    """A capture on a stream that the library does not know."""
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


def test_sessions_are_created_and_run():
    with registered() as found, captured_elsewhere():
        session = session_on(found, affine_model())
        x = sample()
        (y,) = session.run(None, {"x": x})
        close(y, affine(x))
        del session


@pytest.mark.environment(AMDGPU_EP_HOST_STREAMS="threads")
def test_memory_is_allocated_and_freed_while_our_stream_is_recorded():
    array = np.arange(100_000, dtype=np.int32)
    with registered() as found:
        stream = found[0].create_sync_stream()
        for _ in range(20):
            source, target = on_device(array), empty_on_device(array.shape, np.int32)
            ort.copy_tensors([source], [target], stream)
            # Freed while the stream may still use it: reuse depends on an event of that stream.
            del source
            with captured(stream.get_handle()):
                other = on_device(array + 1)
                np.testing.assert_array_equal(other.numpy(), array + 1)
                del other
            np.testing.assert_array_equal(target.numpy(), array)
            del target
        del stream


stream_modes = pytest.mark.parametrize("streams", ["immediate", "threads"])


class Capturing:
    """A session that requests captures, with device buffers at fixed addresses."""

    def __init__(self, found, model=None, **options):
        settings = options_for(found[:1], **options)
        settings.add_session_config_entry("ep.hip.graph_capture", "1")
        self.session = ort.InferenceSession(model or affine_model(), sess_options=settings, enable_fallback=0)

    def bind(self, rows):
        return Buffers(self.session, rows)


class Buffers:
    def __init__(self, session, rows):
        self.session, self.binding = session, session.io_binding()
        self.x, self.y = empty_on_device((rows, 4), np.float32), empty_on_device((rows, 3), np.float32)
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.y)

    def run(self, x, graph=None):
        """Runs with new contents in the same buffer."""
        ort.copy_tensors([on_device(x)], [self.x])
        options = ort.RunOptions()
        if graph is not None:
            options.add_run_config_entry("gpu_graph_id", str(graph))
        self.session.run_with_iobinding(self.binding, options)
        return self.y.numpy()

    def check(self, seed, graph=None):
        x = np.random.default_rng(seed).standard_normal(self.x.shape()).astype(np.float32)
        close(self.run(x, graph), affine(x))


def profiled(found, tmp_path):
    options = options_for(found[:1])
    options.add_session_config_entry("ep.hip.graph_capture", "1")
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    return ort.InferenceSession(affine_model(), sess_options=options, enable_fallback=0)


def calls(session):
    """Returns how often the session's partition was called, from ONNX Runtime's own profile."""
    events = json.loads(Path(session.end_profiling()).read_text())
    return sum(event.get("cat") == "Node" and event["name"].endswith("_kernel_time") for event in events)


@pytest.mark.since("1.26")
@stream_modes
def test_runs_are_replayed_on_new_contents(streams, monkeypatch, tmp_path):
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as found:
        session = profiled(found, tmp_path)
        buffers = Buffers(session, 5)
        for seed in range(5):
            buffers.check(seed)
        # The first run executes twice, normally and captured; the others are replays.
        assert calls(session) == 2
        del buffers, session


@pytest.mark.since("1.26")
def test_graph_ids_keep_captures_separate():
    with registered() as found:
        capturing = Capturing(found)
        one, two = capturing.bind(3), capturing.bind(300)
        for seed in range(6):
            one.check(seed, graph=1)
            two.check(seed + 100, graph=2)
            one.check(seed + 200, graph=1)
        del one, two, capturing


@pytest.mark.since("1.26")
def test_minus_one_leaves_a_run_uncaptured(tmp_path):
    with registered() as found:
        session = profiled(found, tmp_path)
        for rows in (2, 3, 4):
            buffers = Buffers(session, rows)
            buffers.check(rows, graph=-1)
            del buffers
        assert calls(session) == 3
        del session


@pytest.mark.since("1.26")
@stream_modes
def test_two_sessions_and_a_plain_one_take_turns(streams, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as found:
        capturing = [Capturing(found) for _ in range(2)]
        buffers = [session.bind(4 + at) for at, session in enumerate(capturing)]
        plain = session_on(found[:1], affine_model())
        for seed in range(8):
            buffers[seed % 2].check(seed)
            x = sample(1 + seed)
            close(plain.run(None, {"x": x})[0], affine(x))
        del buffers[0], capturing[0]
        buffers[0].check(50)
        del buffers, capturing, plain


@pytest.mark.since("1.26")
@stream_modes
def test_threads_capture_their_own_graphs(streams, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as found:
        capturing = Capturing(found)

        def work(number):
            buffers = capturing.bind(10 + number)
            for seed in range(20):
                buffers.check(seed + 100 * number, graph=number)

        on_threads(4, work)
        del capturing


@pytest.mark.since("1.26")
@pytest.mark.environment(AMDGPU_EP_HOST_STREAMS="threads")
def test_copies_on_another_thread_do_not_disturb_captures():
    # A copy waits for all streams, and waiting for a stream that is being captured ends its capture.
    with registered() as found:
        capturing, done = Capturing(found), threading.Event()

        def work(number):
            if number == 0:
                try:
                    for seed in range(300):
                        capturing.bind(3).check(seed, graph=seed)
                finally:
                    done.set()
            while not done.is_set():
                on_device(sample())

        on_threads(3, work)
        del capturing


def test_a_released_capture_makes_room_for_other_buffers():
    if not hasattr(ort.InferenceSession, "release_captured_graph"):
        pytest.skip("this ONNX Runtime cannot release a capture from Python")
    with registered() as found:
        capturing = Capturing(found)
        for rows in (4, 9):
            buffers = capturing.bind(rows)
            for seed in range(3):
                buffers.check(seed, graph=7)
            capturing.session.release_captured_graph(7)
            del buffers
        del capturing


@pytest.mark.since("1.26")
@stream_modes
def test_cpu_memory_is_refused_and_the_session_stays_usable(streams, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as found:
        capturing = Capturing(found)
        with pytest.raises(Exception, match="captured"):
            capturing.session.run(None, {"x": sample()})
        binding = capturing.session.io_binding()
        binding.bind_ortvalue_input("x", on_device(sample()))
        binding.bind_output("y", "cpu")
        with pytest.raises(Exception, match="captured"):
            capturing.session.run_with_iobinding(binding)
        buffers = capturing.bind(5)
        for seed in range(4):
            buffers.check(seed)
        del buffers, binding, capturing


@pytest.mark.since("1.26")
def test_an_input_that_decides_about_shapes_is_refused_by_name():
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "wanted"], ["y"])],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [12]),
            helper.make_tensor_value_info("wanted", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    )
    with registered() as found:
        capturing = Capturing(found, bytes_of(graph))
        binding = capturing.session.io_binding()
        binding.bind_ortvalue_input("x", on_device(np.arange(12, dtype=np.float32)))
        binding.bind_ortvalue_input("wanted", on_device(np.array([3, 4])))
        binding.bind_ortvalue_output("y", empty_on_device((3, 4), np.float32))
        with pytest.raises(Exception, match='"wanted" determine shapes'):
            capturing.session.run_with_iobinding(binding)
        del binding, capturing


@pytest.mark.since("1.26")
def test_nodes_of_other_providers_rule_captures_out():
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["z"]), helper.make_node("NonZero", ["z"], ["y"])],
        "split",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, None])],
    )
    with registered() as found, pytest.raises(Exception, match="(?i)graph"):
        Capturing(found, bytes_of(graph))


def test_a_bad_value_of_the_entry_is_an_error():
    with registered() as found:
        settings = options_for(found[:1])
        settings.add_session_config_entry("ep.hip.graph_capture", "perhaps")
        with pytest.raises(Exception, match='graph_capture is "perhaps".*expected 1, true'):
            ort.InferenceSession(affine_model(), sess_options=settings, enable_fallback=0)
