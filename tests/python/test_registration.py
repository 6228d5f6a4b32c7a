"""Registering, listing devices, unregistering: also without a GPU, without a driver, and in unusual orders."""
import gc
import os
import re
import shutil

import numpy as np
import onnxruntime as ort
import pytest
from support import (
    AMD,
    DEFAULT,
    EP,
    HOST_ACCESSIBLE,
    LIBRARY,
    ON_HOST,
    affine,
    affine_model,
    close,
    devices,
    empty_on_device,
    mapped_libraries,
    on_device,
    on_threads,
    open_files,
    registered,
    resident_kib,
    sample,
    session_on,
    threads,
)

# AMD's runtime then shows no GPU, whether the machine has one or not.
no_amd_gpu = pytest.mark.environment(HIP_VISIBLE_DEVICES="-1", ROCR_VISIBLE_DEVICES="-1")


def test_lists_a_device_with_its_metadata():
    with registered() as found:
        assert len(found) >= 1
        device = found[0]
        assert device.ep_vendor == "AMD"
        metadata = device.ep_metadata
        assert re.fullmatch(r"\d+\.\d+\.\d+.*", metadata["version"]), metadata
        assert os.path.samefile(metadata["library_path"], LIBRARY)
        assert metadata["driver"] == os.environ["AMDGPU_EP_DRIVER"]
        assert metadata["arch"] == "host" if ON_HOST else metadata["arch"]
        memory = [int(value) for key, value in metadata.items() if "memory" in key and value.isdigit()]
        assert memory and min(memory) > 0, metadata
        assert any("driver_version" in key and value for key, value in metadata.items()), metadata


def test_device_offers_device_and_host_accessible_memory():
    with registered() as found:
        for ordinal, device in enumerate(found):
            for kind in (DEFAULT, HOST_ACCESSIBLE):
                info = device.memory_info(kind)
                assert info is not None, kind
                assert info.device_vendor_id == AMD
                assert info.device_id == ordinal
                assert info.device_mem_type == kind


@pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_DEVICES="2")
def test_two_host_devices_have_different_ids():
    with registered() as found:
        assert [device.memory_info(DEFAULT).device_id for device in found] == [0, 1]


@no_amd_gpu
@pytest.mark.environment(AMDGPU_EP_DRIVER=None)
def test_default_driver_without_a_gpu_gives_zero_devices():
    with registered() as found:
        assert found == []


@no_amd_gpu
@pytest.mark.parametrize("driver", ["amd", "auto", "", "nonsense", " HOST2 "])
def test_a_missing_driver_gives_zero_devices(driver, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_DRIVER", driver)
    with registered() as found:
        assert found == []


@no_amd_gpu
@pytest.mark.environment(AMDGPU_EP_DRIVER="amd")
@pytest.mark.parametrize("path", ["/nonexistent/libamdhip64.so", "/", "/etc/passwd", ""])
def test_useless_hip_library_path_gives_zero_devices(path, monkeypatch):
    monkeypatch.setenv("AMDGPU_EP_HIP_LIBRARY", path)
    with registered() as found:
        assert found == []


@pytest.mark.skipif(ON_HOST, reason="needs AMD's runtime with a GPU")
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize(("visible", "count"), [("-1", 0), ("0", 1)])
def test_only_visible_devices_are_listed(variable, visible, count, monkeypatch):
    monkeypatch.setenv(variable, visible)
    with registered() as found:
        assert len(found) == count


@no_amd_gpu
@pytest.mark.environment(AMDGPU_EP_DRIVER=None)
def test_one_line_explains_why_there_is_no_device(capfd):
    ort.set_default_logger_severity(1)
    with registered():
        pass
    error = capfd.readouterr().err
    lines = [line for line in error.splitlines() if "no" in line.lower() and "device" in line.lower()]
    assert len(lines) == 1, error


@pytest.mark.environment(AMDGPU_EP_DRIVER="host")
def test_missing_host_driver_library_gives_zero_devices(tmp_path):
    alone = tmp_path / "libamdgpu-ep.so"
    shutil.copy(LIBRARY, alone)
    with registered(library=str(alone)) as found:
        assert found == []


@pytest.mark.environment(AMDGPU_EP_DRIVER="host")
def test_finds_the_host_driver_beside_itself(tmp_path):
    for file in os.listdir(os.path.dirname(LIBRARY)):
        if file.endswith(".so"):
            shutil.copy(os.path.join(os.path.dirname(LIBRARY), file), tmp_path / file)
    with registered(library=str(tmp_path / "libamdgpu-ep.so")) as found:
        assert len(found) == 1


def test_the_ep_has_the_name_it_was_registered_with():
    with registered("SomethingElse") as found:
        assert len(found) >= 1
        assert devices(EP) == []
        session = session_on(found[:1], affine_model())
        assert "SomethingElse" in session.get_providers()
        x = sample()
        close(session.run(None, {"x": x})[0], affine(x))
        del session


def test_two_names_at_once():
    with registered("First") as first, registered("Second") as second:
        assert len(first) == len(second) >= 1
        x = sample()
        for found in (first, second):
            session = session_on(found[:1], affine_model())
            close(session.run(None, {"x": x})[0], affine(x))
            del session


def test_second_name_survives_the_first():
    ort.register_execution_provider_library("First", LIBRARY)
    ort.register_execution_provider_library("Second", LIBRARY)
    session = session_on(devices("Second")[:1], affine_model())
    ort.unregister_execution_provider_library("First")
    x = sample()
    close(session.run(None, {"x": x})[0], affine(x))
    del session
    gc.collect()
    ort.unregister_execution_provider_library("Second")


def test_a_duplicate_name_is_refused_and_the_first_registration_works():
    with registered() as found:
        with pytest.raises(Exception, match="(?i)already registered"):
            ort.register_execution_provider_library(EP, LIBRARY)
        assert len(devices()) == len(found)
        value = on_device(sample())
        np.testing.assert_array_equal(value.numpy(), sample())
        del value


@pytest.mark.parametrize("driver", ["host", None])
def test_virtual_name_registers(driver, monkeypatch):
    if driver is None:
        monkeypatch.delenv("AMDGPU_EP_DRIVER", raising=False)
    else:
        monkeypatch.setenv("AMDGPU_EP_DRIVER", driver)
    name = f"{EP}.virtual"
    with registered(name) as found:
        if driver == "host":
            assert len(found) >= 1
        for device in found:
            session = session_on([device], affine_model())
            x = sample()
            close(session.run(None, {"x": x})[0], affine(x))
            del session


def test_registering_repeatedly_does_not_leak():
    model = affine_model()
    x = sample()

    def once():
        with registered() as found:
            session = session_on(found[:1], model)
            session.run(None, {"x": x})
            value = on_device(x)
            value.numpy()
            del session, value

    def held():
        gc.collect()
        return mapped_libraries(), open_files(), threads()

    for _ in range(20):
        once()
    before, resident = held(), resident_kib()
    for _ in range(100):
        once()
    assert held() == before
    # ONNX Runtime and the C library keep some freed pages; leaking the arena of a registration would cost far more.
    assert resident_kib() - resident < 20 * 1024


def test_registers_on_four_threads_at_once():
    def work(index):
        for _ in range(50):
            with registered(f"Name{index}") as found:
                assert len(found) >= 1

    on_threads(4, work)


def test_session_may_outlive_its_registration():
    ort.register_execution_provider_library(EP, LIBRARY)
    session = session_on(devices()[:1], affine_model())
    x = sample()
    session.run(None, {"x": x})
    ort.unregister_execution_provider_library(EP)
    close(session.run(None, {"x": x})[0], affine(x))
    del session
    gc.collect()


def test_tensor_may_outlive_its_registration():
    ort.register_execution_provider_library(EP, LIBRARY)
    value = on_device(sample())
    ort.unregister_execution_provider_library(EP)
    del value
    gc.collect()


def test_registers_again_after_a_session_outlived_the_first_registration():
    ort.register_execution_provider_library(EP, LIBRARY)
    session = session_on(devices()[:1], affine_model())
    ort.unregister_execution_provider_library(EP)
    with registered() as found:
        x = sample()
        other = session_on(found[:1], affine_model())
        close(other.run(None, {"x": x})[0], affine(x))
        del session, other


def test_ends_cleanly_without_unregistering():
    ort.register_execution_provider_library(EP, LIBRARY)
    assert len(devices()) >= 1


def test_ends_cleanly_with_everything_alive():
    ort.register_execution_provider_library(EP, LIBRARY)
    session = session_on(devices()[:1], affine_model())
    value = empty_on_device((3, 4), np.float32)
    stream = devices()[0].create_sync_stream()
    # The module keeps these alive until the interpreter exits.
    globals()["alive"] = (session, value, stream)


def test_registers_under_a_long_and_unusual_name():
    name = "Ünïcode name with blanks " + "x" * 300
    with registered(name) as found:
        assert len(found) >= 1
