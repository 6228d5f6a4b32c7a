"""Sessions of the migraphx backend on the MIGraphX of the suite: a real one, or the stand-in.

The header says which. Tests that make the library fail need the stand-in.
"""
import ctypes

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import support
from migraphx_support import MIGRAPHX, needs_migraphx, on_the_stand_in
from onnx import TensorProto, helper

pytestmark = needs_migraphx


def session_on(chosen, model, **options):
    made = support.options_for(chosen, profile="migraphx")
    made.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in {"target": "ref", **options}.items():
        made.add_session_config_entry(f"ep.migraphx.{key}", str(value))
    return ort.InferenceSession(model, sess_options=made, enable_fallback=0)


def assigned(session):
    """Returns how many nodes each provider has; ONNX Runtime reports this since 1.24.1."""
    found = {}
    for group in session.get_provider_graph_assignment_info():
        found[group.ep_name] = found.get(group.ep_name, 0) + len(group.get_nodes())
    return found


def assert_right(session, rows=5):
    x = support.sample(rows)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], support.affine(x), rtol=1e-5, atol=1e-6)


def live_handles():
    return ctypes.CDLL(MIGRAPHX).migraphx_standin_live()


def test_fixed_and_dynamic_shapes_run_on_migraphx():
    with support.registered() as chosen:
        for rows in (5, "rows"):
            session = session_on(chosen, support.affine_model(rows))
            # ONNX Runtime fuses the product and the sum into one node before any provider is asked.
            assert assigned(session) == {support.EP: 2}
            for count in (5,) if rows == 5 else (1, 5, 2, 5, 7):
                assert_right(session, count)
            del session


def test_half_precision_changes_the_result_slightly():
    with support.registered() as chosen:
        session = session_on(chosen, support.affine_model(5), fp16_enable=1)
        x = support.sample()
        found, wanted = session.run(None, {"x": x})[0], support.affine(x)
        assert 0 < np.abs(found - wanted).max() < 1e-2
        del session


@pytest.mark.environment(AMDGPU_EP_MIGRAPHX_LIBRARY="/nowhere/libmigraphx_c.so.3")
def test_a_missing_library_is_named():
    with support.registered() as chosen:
        with pytest.raises(Exception, match="/nowhere/libmigraphx_c.so.3: no such file"):
            session_on(chosen, support.affine_model(5))


@on_the_stand_in
def test_sessions_free_every_handle():
    with support.registered() as chosen:
        for _ in range(3):
            session = session_on(chosen, support.affine_model())
            for rows in range(1, 12):
                assert_right(session, rows)
            assert live_handles() > 0
            del session
    assert live_handles() == 0


@on_the_stand_in
@pytest.mark.parametrize("call", ["parse_onnx_buffer", "program_compile", "program_get_parameter_shapes"])
def test_a_partition_that_cannot_be_compiled_runs_on_the_cpu(call):
    with support.registered() as chosen:
        ctypes.CDLL(MIGRAPHX).migraphx_standin_set(b"fail", call.encode())
        session = session_on(chosen, support.affine_model(5))
        assert support.EP not in assigned(session)
        assert_right(session)
        del session
    assert live_handles() == 0


@on_the_stand_in
@pytest.mark.parametrize("call", ["program_run:2", "program_parameters_create:2", "arguments_size:2"])
def test_a_run_that_fails_says_why_and_the_next_one_works(call):
    with support.registered() as chosen:
        session = session_on(chosen, support.affine_model(5))
        ctypes.CDLL(MIGRAPHX).migraphx_standin_set(b"fail", call.encode())
        assert_right(session)
        with pytest.raises(Exception, match=f"migraphx_{call[:-2]} returned status 4"):
            session.run(None, {"x": support.sample()})
        assert_right(session)
        del session
    assert live_handles() == 0


@on_the_stand_in
@pytest.mark.parametrize("call", ["program_run", "program_parameters_create", "arguments_size"])
def test_a_program_that_fails_at_its_first_run_is_replaced_by_the_cpu(call):
    library = ctypes.CDLL(MIGRAPHX)
    with support.registered() as chosen:
        session = session_on(chosen, support.affine_model())
        assert assigned(session) == {support.EP: 2}
        library.migraphx_standin_set(b"fail", call.encode())
        assert_right(session)
        # The program is not tried again: it makes no calls, even though none would fail now.
        library.migraphx_standin_set(b"fail", b"")
        assert_right(session)
        assert library.migraphx_standin_calls() == 0
        # Other shapes have a program of their own.
        assert_right(session, 3)
        assert library.migraphx_standin_calls() > 0
        del session
    assert live_handles() == 0


@on_the_stand_in
@pytest.mark.parametrize("target", ["ref", "gpu"])
def test_a_failure_of_any_call_is_a_reason_or_a_right_answer(target, tmp_path):
    library = ctypes.CDLL(MIGRAPHX)
    model, options = support.affine_model(5), dict(target=target, offload_copy=0, cache_dir=tmp_path)
    outcomes = []
    with support.registered() as chosen:
        for use in ("compiled", "kept"):
            calls, nth = 1, 0
            while nth <= calls:
                for kept in tmp_path.glob("*.mxr") if use == "compiled" else []:
                    kept.unlink()
                library.migraphx_standin_set(b"fail", str(nth).encode())
                session = None
                try:
                    session = session_on(chosen, model, **options)
                    assert_right(session)
                    outcomes.append("right")
                except AssertionError:
                    raise
                except Exception as error:
                    assert "MIGraphX" in str(error), f"call {nth}: {error}"
                    outcomes.append("reason")
                del session
                assert live_handles() == 0, f"call {nth} ({ctypes.string_at(failed(library))}) leaks"
                if nth == 0:
                    calls = library.migraphx_standin_calls()
                    assert outcomes[-1] == "right"
                nth += 1
    assert min(outcomes.count("right"), outcomes.count("reason")) > 10, outcomes


def failed(library):
    library.migraphx_standin_failed.restype = ctypes.c_void_p
    return library.migraphx_standin_failed()


@on_the_stand_in
def test_options_reach_the_compiler_in_the_order_it_requires(tmp_path):
    log = tmp_path / "log"
    with support.registered() as chosen:
        ctypes.CDLL(MIGRAPHX).migraphx_standin_set(b"log", str(log).encode())
        options = dict(bf16_enable=1, exhaustive_tune=1, compute_mode="balanced", mlss_use_specific_ops="conv,dot")
        session = session_on(chosen, support.affine_model(5), **options)
        del session
    lines = log.read_text().splitlines()
    assert lines[0] == "parse x[5, 4]", lines
    assert lines[1] == "quantize bf16", lines
    assert lines[2].startswith("compile Ref fast_math=false exhaustive_tune=true"), lines
    assert lines[2].endswith(r'mode=Some(50) backend=Some("{\"mlss_use_specific_ops\": [\"conv\", \"dot\"]}")'), lines


def many_outputs(count, rows="rows"):
    """Twelve or more outputs: output i is x @ w + i, and the last one is an unchanged input."""
    weight = onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32)[::-1].copy(), "w")
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 4])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["turned"])]
    constants = [weight]
    for index in range(count):
        constants.append(onnx.numpy_helper.from_array(np.float32([index]), f"c{index}"))
        nodes.append(helper.make_node("Add", ["turned", f"c{index}"], [f"y{index}"]))
    nodes.append(helper.make_node("Identity", ["z"], ["same"]))
    nodes.append(helper.make_node("MatMul", ["same", "w"], ["back"]))
    outputs = [value(f"y{index}") for index in range(count)] + [value("same"), value("back")]
    return support.bytes_of(helper.make_graph(nodes, "many", [value("x"), value("z")], outputs, constants))


@on_the_stand_in
@pytest.mark.parametrize("scratch", ["0", "4096"])
@pytest.mark.parametrize("hip_graph", [0, 1])
@pytest.mark.parametrize("rows", ["rows", 5])
def test_programs_of_a_gpu_write_to_parameters_in_stream_order(scratch, hip_graph, rows):
    with support.registered() as chosen:
        ctypes.CDLL(MIGRAPHX).migraphx_standin_set(b"scratch", scratch.encode())
        options = dict(target="gpu", offload_copy=0, hip_graph_enable=hip_graph)
        session = session_on(chosen, many_outputs(13, rows), **options)
        assert support.EP in assigned(session)
        for count in (5, 5, 5) if rows == 5 else (5, 2, 5, 9, 5, 2):
            x, z = support.sample(count), -support.sample(count)
            found = session.run(None, {"x": x, "z": z})
            for index in range(13):
                np.testing.assert_array_equal(found[index], x[:, ::-1] + np.float32(index))
            np.testing.assert_array_equal(found[13], z)
            np.testing.assert_array_equal(found[14], z[:, ::-1])
        del session
    assert live_handles() == 0


@on_the_stand_in
@pytest.mark.parametrize("hip_graph", [0, 1])
def test_tensors_on_the_device_stay_there(hip_graph, tmp_path):
    log = tmp_path / "log"
    with support.registered() as chosen:
        ctypes.CDLL(MIGRAPHX).migraphx_standin_set(b"log", str(log).encode())
        session = session_on(chosen, support.affine_model(), target="gpu", offload_copy=0, hip_graph_enable=hip_graph)
        for seed in range(8):
            x = support.sample(5) + np.float32(seed)
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", support.on_device(x))
            y = support.empty_on_device((5, 3), np.float32)
            binding.bind_ortvalue_output("y", y)
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(y.numpy(), support.affine(x), rtol=1e-5, atol=1e-5)
            del binding, y
        del session
    assert live_handles() == 0
    calls = log.read_text().count("run_async")
    assert calls < 8 if hip_graph else calls == 8, "a capture is replayed without MIGraphX"
