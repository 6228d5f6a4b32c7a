"""`providers=[...]`, which most Python programs use: selecting a provider and a device, and disabling the CPU
fallback."""
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support import EP, affine, affine_model, bytes_of, close, registered, sample

# 1.24 supports plugins only through `add_provider_for_devices`.
pytestmark = pytest.mark.since("1.26")

two_devices = pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_DEVICES="2")
CPU = "CPUExecutionProvider"


def session(*providers, model=None, **options):
    return ort.InferenceSession(model or affine_model(), providers=list(providers), **options)


def works(session):
    close(session.run(None, {"x": sample()})[0], affine(sample()))


def device_of(session):
    """Returns the id of the device whose memory holds the session's input."""
    return session.get_input_memory_infos()[0].device_id


def determinant():
    """A model with a single node that no backend supports."""
    floats = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "det", [floats("x", 1, 2, 2)], [floats("y", 1)])
    return bytes_of(graph)


def test_a_name_is_enough():
    with registered():
        for providers in ([EP], [EP, CPU]):
            made = session(*providers, enable_fallback=0)
            assert made.get_providers() == [EP, CPU]
            works(made)
            del made


@two_devices
def test_a_name_alone_means_the_first_device():
    with registered():
        made = session(EP, enable_fallback=0)
        assert device_of(made) == 0
        del made


@two_devices
@pytest.mark.parametrize("number", [0, 1])
def test_device_id_selects_a_device(number):
    with registered():
        made = session((EP, {"device_id": str(number), "profile": "hip"}), CPU, enable_fallback=0)
        assert device_of(made) == number
        works(made)
        del made


@two_devices
def test_a_device_that_does_not_exist_is_an_error():
    with registered():
        with pytest.raises(RuntimeError, match=f"Unknown Provider Type: {EP}"):
            session((EP, {"device_id": "2"}), enable_fallback=0)


def test_a_wrong_option_falls_back_to_the_cpu_unless_fallback_is_off(capfd):
    """ONNX Runtime's Python package prints the error and continues without the provider, unless `enable_fallback=0`."""
    with registered():
        made = session((EP, {"profile": "turbo"}))
        assert made.get_providers() == [CPU]
        assert "Falling back" in capfd.readouterr().out
        del made
        with pytest.raises(Exception, match="turbo"):
            session((EP, {"profile": "turbo"}), enable_fallback=0)


def test_nodes_on_the_cpu_are_an_error_if_the_session_forbids_fallback():
    strict = ort.SessionOptions()
    strict.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with registered():
        made = session(EP, sess_options=strict, enable_fallback=0)
        works(made)
        del made
        made = session(EP, model=determinant(), enable_fallback=0)
        del made
        with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled"):
            session(EP, model=determinant(), sess_options=strict, enable_fallback=0)
