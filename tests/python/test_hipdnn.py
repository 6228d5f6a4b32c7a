"""Steps offered to hipDNN: what runs them, their results, and the behaviour without a library."""
import ctypes
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from backends_support import error_of, log_lines, mapped
from onnx import TensorProto, helper
from support import (
    LIBRARY,
    ON_HOST,
    RELEASE,
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
    set_streams,
    threads,
)

pytestmark = pytest.mark.skipif(not ON_HOST, reason="the library is that of the host driver")

ENTRY = "ep.hip.hipdnn"
HOST = "hipDNN: HOST_CPU_ENGINE"


def several(operations):
    """Returns how a graph of several operations is displayed."""
    return f"{HOST}, {operations} operations"


def network():
    """Convolutions with everything that is fused into them, pooling, a product and a softmax."""
    rng = np.random.default_rng(1)
    weight = lambda name, *shape: onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 3, name)
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "second", pads=[1, 1, 1, 1], group=2),
        helper.make_node("Add", ["c1", "r0"], ["s1"], "residual"),
        helper.make_node("Sigmoid", ["s1"], ["g1"], "gate"),
        helper.make_node("MaxPool", ["g1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["m"], "dense"),
        helper.make_node("Softmax", ["m"], ["y"], "shares", axis=-1),
    ]
    weights = [weight("w0", 4, 3, 3, 3), weight("b0", 4), weight("w1", 4, 2, 3, 3), weight("w2", 64, 5), weight("b2", 5)]
    value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    return bytes_of(helper.make_graph(nodes, "network", [value("x", "n", 3, 8, 8)], [value("y", "n", 5)], weights))


def picture(seed=0, count=2):
    return np.random.default_rng(seed).standard_normal((count, 3, 8, 8), dtype=np.float32)


def reference(x):
    return ort.InferenceSession(network(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def session(found, model, severity=3, **entries):
    options = options_for(found[:1])
    options.log_severity_level = severity
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), str(value))
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def steps(record):
    """Returns, by operation, what runs each step and why hipDNN does not."""
    lines = [json.loads(line) for line in Path(record).read_text().splitlines()]
    return [(step["step"], step["run_by"], step["reason"]) for line in lines for step in line.get("steps", [])]


@pytest.mark.parametrize("streams", ["default", "threads"])
def test_every_step_that_hipdnn_has_an_operation_for_is_run_by_it(streams, tmp_path, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        running = session(found, network(), ep__hip__hipdnn="on", ep__hip__explain_file=tmp_path / "record")
        for seed, count in enumerate([2, 1, 2, 3]):
            close(running.run(None, {"x": picture(seed, count)})[0], reference(picture(seed, count)))
        del running
    found = steps(tmp_path / "record")
    # One plan for each of three batch sizes.
    one = found[: len(found) // 3]
    assert found == one * 3
    assert [step[:2] for step in one] == [
        ("fused_conv", several(3)),
        ("fused_conv", several(3)),
        ("pool", HOST),
        ("fused_matmul", several(2)),
        ("softmax", "own: softmax"),
    ]


@pytest.mark.parametrize("value", ["", "auto", "off"])
def test_host_sessions_leave_hipdnn_alone_unless_it_is_on(value, tmp_path):
    with registered() as found:
        running = session(found, network(), 2, ep__hip__hipdnn=value, ep__hip__explain_file=tmp_path / "record")
        close(running.run(None, {"x": picture()})[0], reference(picture()))
        del running
        assert not mapped("libhipdnn")
    assert all(by.startswith("own: ") and reason is None for _, by, reason in steps(tmp_path / "record"))


def test_case_does_not_matter_and_an_unknown_word_is_refused():
    with registered() as found:
        text = error_of(lambda: session(found, network(), ep__hip__hipdnn="yes"))
        assert 'option hipdnn is "yes"' in text and "expected auto, on or off" in text, text
        running = session(found, network(), ep__hip__hipdnn="On")
        assert mapped("libhipdnn_host")
        del running


@pytest.mark.environment(AMDGPU_EP_HIPDNN_LIBRARY="/no/such/library.so")
def test_missing_library_is_a_warning_and_a_reason(tmp_path, capfd):
    with registered() as found:
        running = session(found, network(), 2, ep__hip__hipdnn="on", ep__hip__explain_file=tmp_path / "record")
        close(running.run(None, {"x": picture()})[0], reference(picture()))
        del running
    (line,) = log_lines(capfd, ENTRY)
    assert "without hipDNN" in line and "/no/such/library.so" in line
    reasons = {step: reason for step, _, reason in steps(tmp_path / "record")}
    assert reasons.pop("softmax") is None
    for step, reason in reasons.items():
        assert reason.startswith("hipDNN is not available: ") and "/no/such/library.so" in reason, (step, reason)


def test_a_library_that_is_not_hipdnn_is_a_warning(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("AMDGPU_EP_HIPDNN_LIBRARY", str(Path(LIBRARY).with_name("libhip-host.so")))
    with registered() as found:
        running = session(found, affine_model(), 2, ep__hip__hipdnn="on")
        close(running.run(None, {"x": sample()})[0], affine(sample()))
        del running
    (line,) = log_lines(capfd, ENTRY)
    assert "hipdnnVersionString_ext" in line


@pytest.mark.parametrize("streams", ["default", "threads"])
@pytest.mark.parametrize("finds_driver", [True, False])
def test_named_library_is_the_one_in_use_and_may_refuse_to_run_steps(
    finds_driver, streams, tmp_path, monkeypatch, capfd
):
    set_streams(monkeypatch, streams)
    file = tmp_path / "another name.so"
    shutil.copy(Path(LIBRARY).with_name("libhipdnn_host.so"), file)
    monkeypatch.setenv("AMDGPU_EP_HIPDNN_LIBRARY", str(file))
    if finds_driver:
        monkeypatch.setenv("AMDGPU_EP_HIP_HOST_LIBRARY", str(Path(LIBRARY).with_name("libhip-host.so")))
    with registered() as found:
        running = session(found, network(), 2, ep__hip__hipdnn="on")
        for seed in range(3):
            close(running.run(None, {"x": picture(seed)})[0], reference(picture(seed)))
        assert [line for line in open("/proc/self/maps") if str(file) in line]
        del running
    # Without the driver the library knows no stream; each of the four steps is reported once.
    assert len(log_lines(capfd, "without hipDNN from now on")) == (0 if finds_driver else 4)


def test_registering_again_after_the_library_was_used():
    for _ in range(3):
        with registered() as found:
            running = session(found, network(), ep__hip__hipdnn="on")
            close(running.run(None, {"x": picture()})[0], reference(picture()))
            del running


PLAN = "HOST_CPU_ENGINE created a plan"


@pytest.mark.environment(HIPDNN_LOG_LEVEL="info")
def test_hipdnns_log_reaches_the_log_of_the_session_that_shows_it(capfd):
    x = sample()
    with registered() as found, registered("SecondExecutionProvider") as others:
        loud = session(found, affine_model(), 1, ep__hip__hipdnn="on")
        close(loud.run(None, {"x": x})[0], affine(x))
        lines = log_lines(capfd, PLAN)
        assert len(lines) == 1 and "hipdnn::backend" in lines[0], lines
        # A second registration listens to the same library, but no message is logged twice.
        second = session(others, affine_model(rows=5), 1, ep__hip__hipdnn="on")
        close(second.run(None, {"x": x})[0], affine(x))
        assert len(log_lines(capfd, PLAN)) == 1
        quiet = session(found, affine_model(), 2, ep__hip__hipdnn="on")
        close(quiet.run(None, {"x": sample(7)})[0], affine(sample(7)))
        assert log_lines(capfd, PLAN) == []
        del loud, second, quiet


def test_hipdnn_logs_only_when_enabled(capfd, monkeypatch):
    monkeypatch.delenv("HIPDNN_LOG_LEVEL", raising=False)
    with registered() as found:
        running = session(found, affine_model(), 0, ep__hip__hipdnn="on")
        close(running.run(None, {"x": sample()})[0], affine(sample()))
        del running
    assert log_lines(capfd, "hipdnn::backend") == []


@pytest.mark.environment(HIPDNN_LOG_LEVEL="info")
def test_the_log_callback_is_removed_before_the_backend_is_unloaded(capfd):
    """hipDNN stays in the process, and may continue to log for other users."""
    write = lambda text: ctypes.CDLL(str(Path(LIBRARY).with_name("libhipdnn_host.so"))).hipdnnLoggingCallback_ext(1, text)
    with registered() as found:
        running = session(found, affine_model(), 1, ep__hip__hipdnn="on")
        running.run(None, {"x": sample()})
        capfd.readouterr()
        write(b"someone is here")
        assert len(log_lines(capfd, "someone is here")) == 1
        before = threads()
        del running
    assert mapped("libhipdnn_host") and threads() <= before
    if RELEASE >= (1, 27):
        assert not mapped("hip-backend")
    write(b"nobody is here")
    assert log_lines(capfd, "nobody is here") == []


@pytest.mark.since("1.26")
def test_runs_with_hipdnn_are_captured_and_replayed():
    with registered() as found:
        running = session(found, network(), ep__hip__hipdnn="on", ep__hip__graph_capture="1")
        x, y = on_device(picture()), empty_on_device((2, 5), np.float32)
        binding = running.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for seed in range(5):
            x.update_inplace(picture(seed))
            running.run_with_iobinding(binding)
            close(y.numpy(), reference(picture(seed)))
        del running, binding, x, y


def test_sessions_on_many_threads_share_the_library():
    with registered() as found:
        running = session(found, network(), ep__hip__hipdnn="on")
        wanted = [reference(picture(seed, 1 + seed % 3)) for seed in range(4)]

        def work(number):
            own = session(found, network(), ep__hip__hipdnn="on")
            for turn in range(6):
                seed = (number + turn) % 4
                for one in (running, own):
                    close(one.run(None, {"x": picture(seed, 1 + seed % 3)})[0], wanted[seed])

        on_threads(4, work)
        del running


def test_the_profile_shows_the_backend_of_each_step(tmp_path):
    with registered() as found:
        options = options_for(found[:1])
        options.add_session_config_entry(ENTRY, "on")
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        running = ort.InferenceSession(network(), sess_options=options, enable_fallback=0)
        running.run(None, {"x": picture()})
        events = json.loads(Path(running.end_profiling()).read_text())
        del running
    ours = [event for event in events if event.get("cat") == "Kernel"]
    if RELEASE >= (1, 25):
        assert {event["args"]["run_by"] for event in ours} == {HOST, several(2), several(3), "own: softmax"}


def test_dumped_stages_name_the_backend_of_each_step(tmp_path):
    with registered() as found:
        running = session(found, network(), ep__hip__hipdnn="on", ep__hip__dump_dir=tmp_path)
        running.run(None, {"x": picture()})
        del running
    (file,) = tmp_path.glob("*-run-by.txt")
    lines = file.read_text().splitlines()
    assert sum(HOST in line for line in lines) == 4 and "own: softmax" in lines[-1]


def residual_block(kind=TensorProto.FLOAT):
    """A convolution with a bias, a residual and ReLU: four operations of hipDNN."""
    rng = np.random.default_rng(3)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = lambda name, *shape: onnx.numpy_helper.from_array((rng.standard_normal(shape) / 3).astype(dtype), name)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "x"], ["s"], "residual"),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    value = lambda name: helper.make_tensor_value_info(name, kind, ["n", 3, 8, 8])
    weights = [weight("w", 3, 3, 3, 3), weight("b", 3)]
    return bytes_of(helper.make_graph(nodes, "block", [value("x")], [value("y")], weights))


def limited_attention(limited=True):
    """Attention whose scores are soft-capped with tanh, and masked."""
    nodes = [
        helper.make_node("Transpose", ["k"], ["t"], "turn", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "t"], ["p"], "scores"),
        helper.make_node("Mul", ["p", "f"], ["f0"], "factor"),
        helper.make_node("Tanh", ["f0"], ["f1"], "limit"),
        helper.make_node("Add", ["f1" if limited else "f0", "m"], ["a"], "mask"),
        helper.make_node("Softmax", ["a"], ["w"], "shares", axis=-1),
        helper.make_node("MatMul", ["w", "v"], ["y"], "values"),
    ]
    if not limited:
        nodes = [node for node in nodes if node.name != "limit"]
    shapes = {"q": [2, 3, 5, 8], "k": [2, 3, 7, 8], "v": [2, 3, 7, 6], "m": [2, 1, 5, 7], "y": [2, 3, 5, 6]}
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name])
    factor = onnx.numpy_helper.from_array(np.float32(0.4), "f")
    graph = helper.make_graph(nodes, "attention", [value(name) for name in "qkvm"], [value("y")], [factor])
    rng = np.random.default_rng(4)
    return bytes_of(graph), {name: rng.standard_normal(shapes[name], dtype=np.float32) for name in "qkvm"}


def run_and_compare(model, feeds, record):
    """Runs a model twice, compares it with ONNX Runtime's own CPU provider, and returns what ran its steps."""
    wanted = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    with registered() as found:
        running = session(found, model, ep__hip__hipdnn="on", ep__hip__explain_file=record)
        for _ in range(2):
            if wanted.dtype == np.float16:
                np.testing.assert_allclose(running.run(None, feeds)[0], wanted, rtol=1e-2, atol=1e-2)
            else:
                close(running.run(None, feeds)[0], wanted)
        del running
    return [by for _, by, _ in steps(record)]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_convolution_bias_residual_and_activation_are_one_graph(kind, tmp_path):
    x = picture().astype(helper.tensor_dtype_to_np_dtype(kind))
    assert run_and_compare(residual_block(kind), {"x": x}, tmp_path / "record") == [several(4)]


@pytest.mark.environment(AMDGPU_EP_HIPDNN_HOST_LACKS="chains")
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_library_of_single_operations_gets_only_the_convolution(kind, tmp_path):
    x = picture().astype(helper.tensor_dtype_to_np_dtype(kind))
    assert run_and_compare(residual_block(kind), {"x": x}, tmp_path / "record") == [HOST, "own: map"]


def test_products_of_attention_and_all_between_them_are_one_graph(tmp_path):
    # Two products, a scale, a soft cap, a mask, and softmax in five operations.
    assert run_and_compare(*limited_attention(), tmp_path / "record") == [several(10)]


@pytest.mark.environment(AMDGPU_EP_HIPDNN_HOST_LACKS="chains")
def test_library_of_single_operations_gets_the_products_of_attention(tmp_path):
    assert run_and_compare(*limited_attention(), tmp_path / "record") == [HOST, "own: map", "own: softmax", HOST]


@pytest.mark.environment(AMDGPU_EP_HIPDNN_HOST_LACKS="attention")
def test_library_without_attention_gets_a_chain(tmp_path):
    assert run_and_compare(*limited_attention(limited=False), tmp_path / "record") == [several(9)]
