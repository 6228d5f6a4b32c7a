"""The `gpu` target of the migraphx backend, on the stand-in library: streams, captures, failing calls."""
import ctypes

import numpy as np
import onnx
import pytest
from migraphx_support import MIGRAPHX, close, needs_migraphx, on_the_stand_in, session_on, value
from onnx import helper
from support import affine, affine_model, bytes_of, registered, sample

pytestmark = needs_migraphx


def many_outputs(rows="rows", count=12):
    """Outputs that are not ordered by name: some computed, one an input that is passed through."""
    nodes = [helper.make_node("Identity", ["x"], ["same"])]
    nodes += [helper.make_node("Mul", ["x", f"k{at}"], [f"o{at}"]) for at in range(count)]
    outputs = [value(f"o{at}", [rows, 4]) for at in reversed(range(count))] + [value("same", [rows, 4])]
    constants = [onnx.numpy_helper.from_array(np.full(1, at + 1, np.float32), f"k{at}") for at in range(count)]
    return bytes_of(helper.make_graph(nodes, "many", [value("x", [rows, 4])], outputs, constants))


GPU = {"target": "gpu", "offload_copy": 0}


@on_the_stand_in
@pytest.mark.environment(MIGRAPHX_STANDIN_SCRATCH="4096")
@pytest.mark.parametrize("streams", ["default", "threads"])
@pytest.mark.parametrize("replay", [0, 1])
def test_output_parameters_scratch_and_streams(streams, replay, monkeypatch):
    if streams != "default":
        monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    with registered() as devices:
        session = session_on(devices, many_outputs(), hip_graph_enable=replay, **GPU)
        for rows in (5, 1, 5, 5, 3, 5):
            x = np.random.default_rng(rows).standard_normal((rows, 4), dtype=np.float32)
            found = session.run(None, {"x": x})
            close(found, [x * np.float32(at + 1) for at in reversed(range(12))] + [x])
        del session


@on_the_stand_in
def test_a_captured_run_is_replayed(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("MIGRAPHX_STANDIN_LOG", str(log))
    with registered() as devices:
        session = session_on(devices, affine_model(5), hip_graph_enable=1, **GPU)
        for seed in range(6):
            x = np.random.default_rng(seed).standard_normal((5, 4), dtype=np.float32)
            close(session.run(None, {"x": x}), [affine(x)])
        del session
    runs = [line for line in log.read_text().splitlines() if "run" in line]
    assert len(runs) == 3, "two to warm up and one to capture, whatever follows is replayed"


@on_the_stand_in
def test_padding_on_the_gpu_target():
    with registered() as devices:
        session = session_on(devices, affine_model(), compile_batches="4", **GPU)
        for rows in (1, 3, 4, 2):
            close(session.run(None, {"x": sample(rows)}), [affine(sample(rows))])
        del session


@on_the_stand_in
def test_every_failing_call_gives_an_error_or_the_right_result(monkeypatch):
    """Each call of the library fails in turn. The session then cannot be created, runs elsewhere, or reports an
    error."""
    library = ctypes.CDLL(MIGRAPHX)
    set_ = lambda key, text: library.migraphx_standin_set(key.encode(), text.encode())
    library.migraphx_standin_calls.restype = ctypes.c_size_t
    library.migraphx_standin_live.restype = ctypes.c_size_t

    def once():
        session = session_on(devices, affine_model(), compile_batches="4", background_compile=0, **GPU)
        close(session.run(None, {"x": sample(3)}), [affine(sample(3))])

    with registered() as devices:
        set_("fail", "")
        once()
        calls = library.migraphx_standin_calls()
        assert calls > 20
        failures = 0
        for number in range(1, calls + 1):
            set_("fail", str(number))
            try:
                once()
            except Exception as error:
                failures += 1
                assert "MIGraphX" in str(error), error
        assert failures > 0
        set_("fail", "")
        once()
        assert library.migraphx_standin_live() == 0
