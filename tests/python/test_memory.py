"""Device memory through ORT's shared allocators, and copies in every direction, with and without a stream."""
import contextlib
import gc
import itertools
import threading

import numpy as np
import onnxruntime as ort
import pytest
from support import (
    HOST_ACCESSIBLE,
    affine_model,
    empty_on_device,
    on_device,
    on_threads,
    registered,
    session_on,
    set_streams,
)

DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64"]
DTYPES += ["uint8", "uint16", "uint32", "uint64", "bool"]
SHAPES = [(), (1,), (7,), (2, 3, 4), (1, 1, 1, 1, 1), (255, 257), (1 << 20,)]
EMPTY_SHAPES = [(0,), (0, 3), (2, 0, 4)]

stream_modes = pytest.mark.parametrize("streams", ["default", "threads"])


def filled(shape, dtype, seed=0):
    raw = np.random.default_rng(seed).integers(0, 256, size=(*shape, np.dtype(dtype).itemsize), dtype=np.uint8)
    if dtype == "bool":
        return np.asarray(raw[..., 0] & 1).astype(bool).reshape(shape)
    return raw.view(dtype).reshape(shape)


def bits(array):
    """Returns the raw bytes, so that NaN payloads are compared too."""
    return np.ascontiguousarray(array).tobytes()


@stream_modes
def test_every_element_type_and_shape_comes_back_bit_for_bit(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered():
        for dtype in DTYPES:
            for shape in SHAPES:
                array = filled(shape, dtype)
                value = on_device(array)
                assert list(value.shape()) == list(shape)
                back = value.numpy()
                assert back.dtype == array.dtype and bits(back) == bits(array), (dtype, shape)
                del value


def test_zero_size_tensors_come_back_empty():
    with registered():
        for dtype in DTYPES:
            for shape in EMPTY_SHAPES:
                value = on_device(np.empty(shape, dtype))
                assert value.numpy().shape == shape
                del value


def test_non_contiguous_arrays_arrive_in_order():
    with registered():
        array = np.arange(24, dtype=np.int32).reshape(4, 6)[::2, ::3]
        value = on_device(array)
        np.testing.assert_array_equal(value.numpy(), array)
        del value


def test_device_memory_is_aligned_and_disjoint():
    with registered():
        values = [empty_on_device((size,), np.uint8) for size in (1, 3, 255, 256, 257, 4096, 100_000)]
        spans = sorted((value.data_ptr(), value.tensor_size_in_bytes()) for value in values)
        for start, _ in spans:
            assert start % 256 == 0
        for (start, size), (following, _) in itertools.pairwise(spans):
            assert start + size <= following
        del values


def test_values_keep_their_content_among_others():
    rng = np.random.default_rng(7)
    with registered():
        held = []
        for step in range(400):
            array = rng.integers(0, 1 << 31, size=int(rng.integers(1, 5000)), dtype=np.int32)
            held.append((array, on_device(array)))
            if len(held) > 20:
                array, value = held.pop(int(rng.integers(0, len(held))))
                np.testing.assert_array_equal(value.numpy(), array, err_msg=str(step))
                del value
        for array, value in held:
            np.testing.assert_array_equal(value.numpy(), array)
        del value, held


def test_update_in_place_changes_the_device_content():
    with registered():
        value = on_device(np.zeros((3, 5), np.float32))
        wanted = np.arange(15, dtype=np.float32).reshape(3, 5)
        try:
            value.update_inplace(wanted)
        except Exception as error:
            pytest.skip(f"update_inplace of this release refuses plugin memory: {error}")
        np.testing.assert_array_equal(value.numpy(), wanted)
        del value


def test_absurd_allocation_is_refused():
    with registered():
        with contextlib.suppress(Exception):
            # ONNX Runtime may return a tensor without memory instead of an error.
            assert empty_on_device((1 << 50,), np.uint8).data_ptr() == 0
        value = on_device(np.arange(10))
        np.testing.assert_array_equal(value.numpy(), np.arange(10))
        del value


small_device = pytest.mark.environment(AMDGPU_EP_DRIVER="host", AMDGPU_EP_HOST_MEMORY="64M")


@small_device
def test_a_full_device_refuses_and_stays_usable():
    too_much = np.ones(100 << 20, np.uint8)
    with registered():
        for _ in range(3):
            with contextlib.suppress(Exception):
                value = on_device(too_much)
                assert value.data_ptr() == 0
                del value
            value = on_device(too_much[: 1 << 20])
            np.testing.assert_array_equal(value.numpy(), too_much[: 1 << 20])
            del value


@small_device
def test_cached_memory_is_freed_when_another_size_needs_it():
    with registered():
        for mebibytes in (10, 20, 30, 40, 50, 7, 50):
            array = np.full(mebibytes << 20, mebibytes, np.uint8)
            value = on_device(array)
            assert value.data_ptr() != 0, mebibytes
            np.testing.assert_array_equal(value.numpy(), array)
            del value


@pytest.mark.environment(AMDGPU_EP_HOST_POISON="1")
def test_no_copy_runs_over_its_buffer():
    """The host driver fills new memory with a pattern and checks for overruns after every buffer."""
    with registered():
        for size in (1, 3, 255, 256, 257, 4095, 4097, 100_003):
            array = filled((size,), "uint8", size)
            first, second = on_device(array), empty_on_device((size,), np.uint8)
            ort.copy_tensors([first], [second])
            assert bits(second.numpy()) == bits(array), size
            del first, second


def test_unknown_device_id_is_an_error():
    with registered() as found:
        with pytest.raises(Exception):
            empty_on_device((4,), np.uint8, index=len(found) + 7)


def test_memory_freed_on_another_thread():
    with registered():
        values = [on_device(np.full(1000, index)) for index in range(50)]

        def drop():
            while values:
                values.pop()

        worker = threading.Thread(target=drop)
        worker.start()
        worker.join()
        gc.collect()


def test_four_threads_allocate_and_copy():
    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            array = rng.integers(0, 255, size=int(rng.integers(1, 20_000)), dtype=np.uint8)
            value = on_device(array)
            other = empty_on_device(array.shape, np.uint8)
            ort.copy_tensors([value], [other])
            np.testing.assert_array_equal(other.numpy(), array)
            del value, other

    with registered():
        on_threads(4, work)


def test_values_outlive_the_session():
    with registered() as found:
        session = session_on(found[:1], affine_model())
        value = on_device(np.arange(100))
        del session
        gc.collect()
        np.testing.assert_array_equal(value.numpy(), np.arange(100))
        del value


@stream_modes
def test_copies_without_a_stream_are_complete_on_return(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    arrays = [filled((1 << 16,), "float32", seed) for seed in range(4)]
    with registered():
        host = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays]
        first = [empty_on_device(array.shape, array.dtype.type) for array in arrays]
        second = [empty_on_device(array.shape, array.dtype.type) for array in arrays]
        back = [ort.OrtValue.ortvalue_from_shape_and_type([1 << 16], np.float32) for _ in arrays]
        ort.copy_tensors(host, first)
        ort.copy_tensors(first, second)
        ort.copy_tensors(second, back)
        for array, value in zip(arrays, back):
            assert bits(value.numpy()) == bits(array)
        del first, second, value


@stream_modes
def test_copies_on_a_stream_keep_their_order(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        stream = found[0].create_sync_stream()
        assert stream.get_handle() != 0
        for seed in range(20):
            array = filled((1 << 14,), "float32", seed)
            host = ort.OrtValue.ortvalue_from_numpy(array)
            first = empty_on_device(array.shape, np.float32)
            second = empty_on_device(array.shape, np.float32)
            back = ort.OrtValue.ortvalue_from_shape_and_type([1 << 14], np.float32)
            ort.copy_tensors([host], [first], stream)
            ort.copy_tensors([first], [second], stream)
            ort.copy_tensors([second], [back], stream)
            assert bits(back.numpy()) == bits(array), seed
            del first, second
        del stream


@stream_modes
def test_an_upload_on_a_stream_copies_the_content_at_the_call(streams, monkeypatch):
    """The caller may reuse pageable memory as soon as the call returns."""
    set_streams(monkeypatch, streams)
    with registered() as found:
        stream = found[0].create_sync_stream()
        for seed in range(20):
            array = filled((1 << 14,), "int32", seed)
            wanted = array.copy()
            host = ort.OrtValue.ortvalue_from_numpy(array)
            device = empty_on_device(array.shape, np.int32)
            back = ort.OrtValue.ortvalue_from_shape_and_type([1 << 14], np.int32)
            ort.copy_tensors([host], [device], stream)
            array[:] = -1
            ort.copy_tensors([device], [back], stream)
            np.testing.assert_array_equal(back.numpy(), wanted)
            del device
        del stream


def test_zero_size_copies_do_nothing():
    with registered():
        source = on_device(np.empty((0, 4), np.float32))
        target = empty_on_device((0, 4), np.float32)
        ort.copy_tensors([source], [target])
        assert target.numpy().shape == (0, 4)
        del source, target


def test_copy_between_different_sizes_is_refused_or_harmless():
    with registered():
        guard = on_device(np.full(64, 7, np.uint8))
        source = on_device(np.arange(1000, dtype=np.uint8))
        target = empty_on_device((10,), np.uint8)
        with contextlib.suppress(Exception):
            ort.copy_tensors([source], [target])
        np.testing.assert_array_equal(guard.numpy(), np.full(64, 7, np.uint8))
        del guard, source, target


@pytest.mark.since("1.31")
def test_host_accessible_memory_is_read_by_the_cpu_and_the_device():
    with registered() as found:
        info = found[0].memory_info(HOST_ACCESSIBLE)
        pinned = ort.OrtValue.ortvalue_from_shape_and_type([64], np.float32, memory_info=info)
        wanted = np.arange(64, dtype=np.float32)
        ort.copy_tensors([ort.OrtValue.ortvalue_from_numpy(wanted)], [pinned])
        device = empty_on_device((64,), np.float32)
        ort.copy_tensors([pinned], [device])
        np.testing.assert_array_equal(device.numpy(), wanted)
        ort.copy_tensors([device], [pinned])
        np.testing.assert_array_equal(pinned.numpy(), wanted)
        del pinned, device


@pytest.mark.environment(AMDGPU_EP_HOST_DEVICES="2")
@stream_modes
def test_copies_between_two_devices(streams, monkeypatch):
    set_streams(monkeypatch, streams)
    with registered() as found:
        if len(found) < 2:
            pytest.skip("this driver has one device")
        array = filled((3, 1000), "int64")
        first = on_device(array, 0)
        second = empty_on_device(array.shape, np.int64, 1)
        third = empty_on_device(array.shape, np.int64, 0)
        ort.copy_tensors([first], [second])
        np.testing.assert_array_equal(second.numpy(), array)
        ort.copy_tensors([second], [third])
        np.testing.assert_array_equal(third.numpy(), array)
        del first, second, third
