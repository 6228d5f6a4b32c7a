"""Sessions through the whole GPU path on a machine without a GPU: kernels run under the wave simulator.

`cargo xtask test --only simulator-sessions` builds the backend for this and names the target.
"""
import json
import os
import threading

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from genai_support import folder_of
from support import close, empty_on_device, on_device, options_for, registered

pytestmark = [
    pytest.mark.skipif("AMDGPU_EP_SIMULATE" not in os.environ, reason="needs a backend with the wave simulator"),
    pytest.mark.environment(AMDGPU_EP_DRIVER="host"),
]


def encoder(rows="rows"):
    """A small block with a lookup, a product, a normalisation, a softmax and a residual."""
    rng = np.random.default_rng(7)
    constant = lambda name, *shape: onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"], "lookup"),
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Add", ["product", "bias"], ["sum"], "sum"),
        helper.make_node("Tanh", ["sum"], ["active"], "active"),
        helper.make_node("Add", ["active", "x"], ["residual"], "residual"),
        helper.make_node("LayerNormalization", ["residual", "scale", "shift"], ["normal"], "normal", axis=-1),
        helper.make_node("Softmax", ["normal"], ["y"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 24])],
        [constant("table", 11, 24), constant("w", 24, 24), constant("bias", 24), constant("scale", 24), constant("shift", 24)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def session_on(devices, model, **entries):
    options = options_for(devices)
    for name, value in entries.items():
        options.add_session_config_entry(f"ep.hip.{name}", value)
    return ort.InferenceSession(model, sess_options=options, enable_fallback=0)


def on_cpu(model, feeds):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)


def ids(rows, seed=0):
    return np.random.default_rng(seed).integers(0, 11, rows)


@pytest.mark.parametrize("streams", ["immediate", "threads"])
@pytest.mark.parametrize("graph", ["auto", "on", "off"])
def test_results_equal_the_cpu_provider(streams, graph, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HOST_STREAMS", streams)
    model = encoder()
    with registered() as devices:
        session = session_on(devices, model, graph=graph)
        for turn in range(12):
            rows = 3 if turn < 6 else 1 + turn % 4
            feeds = {"ids": ids(rows, turn)}
            close(session.run(None, feeds)[0], on_cpu(model, feeds)[0])
        del session


def test_every_step_runs_as_a_kernel(tmp_path):
    file = tmp_path / "explained"
    with registered() as devices:
        session = session_on(devices, encoder(), explain_file=str(file))
        session.run(None, {"ids": ids(5)})
        del session
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = [step for line in lines for step in line.get("steps", [])]
    assert steps and all(step["run_by"].startswith("own: ") for step in steps), steps


def test_bound_tensors_stay_on_the_device():
    model = encoder(4)
    with registered() as devices:
        session = session_on(devices, model)
        given, result = on_device(np.zeros(4, np.int64)), empty_on_device([4, 24], np.float32)
        binding = session.io_binding()
        binding.bind_ortvalue_input("ids", given)
        binding.bind_ortvalue_output("y", result)
        for turn in range(6):
            given.update_inplace(ids(4, turn))
            session.run_with_iobinding(binding)
            close(result.numpy(), on_cpu(model, {"ids": ids(4, turn)})[0])
        del binding, session, given, result


def test_an_index_out_of_range_fails_its_run_but_not_the_session():
    model = encoder()
    with registered() as devices:
        session = session_on(devices, model)
        for _ in range(4):
            with pytest.raises(InvalidArgument, match="lookup.*an index is out of range"):
                session.run(None, {"ids": np.array([1, 11, 0])})
            close(session.run(None, {"ids": ids(3)})[0], on_cpu(model, {"ids": ids(3)})[0])
        del session


def test_threads_share_a_session():
    model = encoder()
    wanted = {rows: on_cpu(model, {"ids": ids(rows, rows)})[0] for rows in range(1, 5)}
    failures = []
    with registered() as devices:
        session = session_on(devices, model)

        def work(rows):
            try:
                for _ in range(8):
                    close(session.run(None, {"ids": ids(rows, rows)})[0], wanted[rows])
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(rows,)) for rows in wanted]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failures, failures
        del session


def product():
    """A product that the engine can run in several ways."""
    weights = np.random.default_rng(3).standard_normal((200, 65)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [70, 200])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [70, 65])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_measured_steps_are_used_by_later_sessions_and_give_the_same(tmp_path):
    model, feeds = product(), {"x": np.random.default_rng(4).standard_normal((70, 200)).astype(np.float32)}

    def tuned(mode):
        file = tmp_path / "explained"
        file.unlink(missing_ok=True)
        with registered() as devices:
            session = session_on(devices, model, explain_file=str(file), tune=mode, cache_dir=str(tmp_path / "cache"))
            found = session.run(None, feeds)[0]
            del session
        # Sums of 200 products, in a different order.
        np.testing.assert_allclose(found, on_cpu(model, feeds)[0], rtol=1e-4, atol=1e-4)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [step["tuned"] for line in lines for step in line.get("steps", [])]

    assert not any(tuned("auto"))
    measured = tuned("on")
    assert any(step and step["tried"] > 1 and step["micros"] <= step["usual_micros"] for step in measured), measured
    assert len(list((tmp_path / "cache/tuning").iterdir())) == 1
    assert tuned("auto") == measured
    assert not any(tuned("off"))


def test_times_of_steps_are_written_for_each_run(tmp_path):
    file = tmp_path / "times"
    with registered() as devices:
        session = session_on(devices, encoder(), profile_file=str(file))
        for _ in range(3):
            close(session.run(None, {"ids": ids(5)})[0], on_cpu(encoder(), {"ids": ids(5)})[0])
        del session
    runs = [json.loads(line)["times"] for line in file.read_text().splitlines()]
    assert len(runs) == 3 and all(len(run) == len(runs[0]) > 3 for run in runs)
    (dense,) = [step for step in runs[0] if "matmul" in step["step"]]
    # At least 5 rows of 24 times a matrix of 24 by 24.
    assert dense["flops"] >= 2 * 5 * 24 * 24 and dense["bytes"] >= 4 * (5 * 24 + 24 * 24 + 5 * 24), dense
    assert all(step["micros"] >= 0 and step["share_of_peak"] is None for run in runs for step in run)


@pytest.mark.parametrize("rows", [4, "rows"])
def test_plans_for_known_shapes_are_built_with_the_session(rows, tmp_path):
    file = tmp_path / "explained"
    plans = lambda: sum("steps" in json.loads(line) for line in file.read_text().splitlines())
    with registered() as devices:
        session = session_on(devices, encoder(rows), explain_file=str(file))
        assert plans() == (1 if rows == 4 else 0)
        session.run(None, {"ids": ids(4)})
        assert plans() == 1
        del session


@pytest.mark.environment(AMDGPU_EP_SIMULATE="gfx1100@96")
@pytest.mark.parametrize("name", ["nano-fp32", "nano-int4"])
def test_a_decoder_knows_its_kernels_before_the_first_prompt(name, tmp_path, monkeypatch):
    """The recorder writes each kernel that a plan asks for."""
    texts = tmp_path / "texts"
    monkeypatch.setenv("AMDGPU_EP_SIMULATE_TEXTS", str(texts))
    recorded = lambda: sorted(file.name for file in texts.glob("*.hip"))
    with registered() as found:
        session = session_on(found[:1], str(folder_of(name) / "model.onnx"))
        planned = recorded()
        assert len(planned) > 5
        for tokens, total in ((50, 50), (1, 51), (1, 52)):
            session.run(None, decoder_feeds(session, tokens, total))
        assert recorded() == planned
        del session


def decoder_feeds(session, tokens, total):
    """One sequence of `total` tokens, of which `tokens` are new, with a cache of fixed length."""
    lengths = {"batch_size": 1, "sequence_length": tokens, "past_sequence_length": 128, "total_sequence_length": total}
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    shape = lambda value: [lengths.get(extent, extent) for extent in value.shape]
    return {value.name: np.ones(shape(value), kinds[value.type]) for value in session.get_inputs()}
