"""Sessions: results equal the CPU provider's, with device tensors, on threads, and next to other sessions."""
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import (
    EP,
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
    set_streams,
)

stream_modes = pytest.mark.parametrize("streams", ["default", "threads"])


@stream_modes
def test_results_equal_the_reference(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        session = session_on(found[:1], affine_model())
        assert session.get_providers()[0] == EP
        for rows in (1, 2, 17, 1000):
            x = sample(rows)
            close(session.run(None, {"x": x})[0], affine(x))
        del session


def test_results_equal_the_cpu_provider_bit_for_bit_while_no_node_is_claimed():
    with registered() as found:
        x = sample(64)
        alone = ort.InferenceSession(affine_model(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        options = options_for(found[:1])
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = ort.InferenceSession(affine_model(), sess_options=options, enable_fallback=0)
        ours = session.run(None, {"x": x})[0]
        assignment = session.get_provider_graph_assignment_info()
        nodes = [node.op_type for part in assignment if part.ep_name == EP for node in part.get_nodes()]
        if nodes:
            close(ours, alone)
        else:
            assert ours.tobytes() == alone.tobytes()
        del session, assignment


def test_empty_input_gives_empty_output():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        assert session.run(None, {"x": np.empty((0, 4), np.float32)})[0].shape == (0, 3)
        del session


@stream_modes
def test_device_tensor_as_input(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        session = session_on(found[:1], affine_model())
        x = sample(9)
        value = on_device(x)
        close(session.run_with_ort_values(None, {"x": value})[0].numpy(), affine(x))
        del value, session


@stream_modes
def test_io_binding_with_device_tensors(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        session = session_on(found[:1], affine_model())
        binding = session.io_binding()
        for rows in (3, 3, 8):
            x = sample(rows)
            source = on_device(x)
            target = empty_on_device((rows, 3), np.float32)
            binding.bind_ortvalue_input("x", source)
            binding.bind_ortvalue_output("y", target)
            binding.synchronize_inputs()
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            close(target.numpy(), affine(x))
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
            del source, target
        del binding, session


def test_io_binding_with_cpu_input_and_device_output():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        binding = session.io_binding()
        x = sample(6)
        target = empty_on_device((6, 3), np.float32)
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_output("y", target)
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        close(target.numpy(), affine(x))
        del binding, target, session


def test_chain_of_sessions_through_device_memory():
    """Each session reads from the device what the previous one wrote there."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "one"], ["b"])],
        "increment",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [100])],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [100])],
        [onnx.numpy_helper.from_array(np.ones(100, np.float32), "one")],
    )
    model = bytes_of(graph)
    with registered() as found:
        sessions = [session_on(found[:1], model) for _ in range(2)]
        values = [on_device(np.zeros(100, np.float32)), empty_on_device((100,), np.float32)]
        for step in range(20):
            session = sessions[step % 2]
            binding = session.io_binding()
            binding.bind_ortvalue_input("a", values[step % 2])
            binding.bind_ortvalue_output("b", values[(step + 1) % 2])
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            del binding, session
        np.testing.assert_array_equal(values[0].numpy(), np.full(100, 20, np.float32))
        del values, sessions


@stream_modes
def test_four_threads_with_a_session_each(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:

        def work(seed):
            for turn in range(5):
                session = session_on(found[:1], affine_model())
                for run in range(10):
                    x = sample(1 + seed + 4 * run + turn)
                    close(session.run(None, {"x": x})[0], affine(x))
                    value = on_device(x)
                    close(session.run_with_ort_values(None, {"x": value})[0].numpy(), affine(x))
                    del value
                del session

        on_threads(4, work)


@stream_modes
def test_four_threads_share_a_session(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        session = session_on(found[:1], affine_model())

        def work(seed):
            for run in range(50):
                x = sample(1 + seed + 4 * run)
                close(session.run(None, {"x": x})[0], affine(x))

        on_threads(4, work)
        del session


@pytest.mark.since("1.25")
def test_provider_is_chosen_by_name():
    with registered():
        session = ort.InferenceSession(affine_model(), providers=[(EP, {})], enable_fallback=0)
        assert session.get_providers()[0] == EP
        x = sample()
        close(session.run(None, {"x": x})[0], affine(x))
        del session


def test_provider_is_chosen_by_policy():
    with registered():
        options = ort.SessionOptions()
        options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_GPU)
        session = ort.InferenceSession(affine_model(), sess_options=options, enable_fallback=0)
        x = sample()
        close(session.run(None, {"x": x})[0], affine(x))
        del session


def test_branches_run_inside_a_session():
    def branch(name, constant):
        output = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [3])
        tensor = onnx.numpy_helper.from_array(np.full(3, constant, np.float32), f"{name}_c")
        node = helper.make_node("Add", ["x", f"{name}_c"], [f"{name}_out"])
        return helper.make_graph([node], name, [], [output], [tensor])

    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], then_branch=branch("yes", 1), else_branch=branch("no", -1))],
        "choice",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    with registered() as found:
        session = session_on(found[:1], bytes_of(graph))
        x = np.array([1, 2, 3], np.float32)
        for flag, wanted in ((True, x + 1), (False, x - 1)):
            np.testing.assert_array_equal(session.run(None, {"x": x, "flag": np.array(flag)})[0], wanted)
        del session


def test_choices_between_constants_of_equal_names_stay_apart():
    def branch(constant):
        output = helper.make_tensor_value_info("out", TensorProto.FLOAT, [3])
        tensor = onnx.numpy_helper.from_array(np.full(3, constant, np.float32), "out")
        return helper.make_graph([], "branch", [], [output], [tensor])

    def choice(output, yes, no):
        return helper.make_node("If", ["flag"], [output], then_branch=branch(yes), else_branch=branch(no))

    nodes = [choice("a", 2, 3), choice("b", 5, 7)]
    nodes += [helper.make_node("Mul", ["x", "a"], ["scaled"]), helper.make_node("Add", ["scaled", "b"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "choices",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
            helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    with registered() as found:
        session = session_on(found[:1], bytes_of(graph))
        x = np.array([1, 2, 3], np.float32)
        for flag, wanted in ((True, 2 * x + 5), (False, 3 * x + 7)):
            np.testing.assert_array_equal(session.run(None, {"x": x, "flag": np.array(flag)})[0], wanted)
        del session


def test_weights_in_an_external_file(tmp_path):
    weight = np.arange(4096, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "scale",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = onnx.load_from_string(bytes_of(graph))
    path = str(tmp_path / "scale.onnx")
    onnx.save_model(model, path, save_as_external_data=True, location="scale.data", size_threshold=0)
    with registered() as found:
        session = session_on(found[:1], path)
        x = np.full(4096, 3, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], 3 * weight)
        del session


def test_strings_stay_on_the_cpu():
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "strings",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [None])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [None])],
    )
    with registered() as found:
        session = session_on(found[:1], bytes_of(graph))
        words = np.array(["one", "", "drei"], dtype=object)
        assert list(session.run(None, {"x": words})[0]) == list(words)
        del session


def test_profile_file_is_written(tmp_path):
    with registered() as found:
        options = options_for(found[:1])
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "profile")
        session = ort.InferenceSession(affine_model(), sess_options=options, enable_fallback=0)
        session.run(None, {"x": sample()})
        events = json.loads(Path(session.end_profiling()).read_text())
        assert any(event.get("name") == "model_run" for event in events)
        del session


def test_broken_model_is_an_error_and_leaves_the_registration_usable():
    with registered() as found:
        with pytest.raises(Exception):
            session_on(found[:1], b"this is not a model")
        session = session_on(found[:1], affine_model())
        close(session.run(None, {"x": sample()})[0], affine(sample()))
        del session


def test_a_wrong_input_shape_is_an_error_and_the_session_stays_usable():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        with pytest.raises(Exception):
            session.run(None, {"x": np.zeros((2, 5), np.float32)})
        close(session.run(None, {"x": sample()})[0], affine(sample()))
        del session


def test_dynamic_options_are_handled():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        try:
            session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})
        except Exception as error:
            assert "not supported" in str(error).lower() or "not implemented" in str(error).lower(), error
        close(session.run(None, {"x": sample()})[0], affine(sample()))
        del session
