"""The library's two exports, called directly with arguments that no sane host would pass."""
import ctypes

import pytest
from capi import EP_FAIL, INVALID_ARGUMENT, ApiBase, GetApi, GetVersionString, Plugin, Runtime, word_call
from support import LIBRARY, on_threads

NAME = b"AMDGPUExecutionProvider"
GET_NAME, GET_VENDOR, GET_VENDOR_ID, GET_VERSION = 1, 2, 6, 7
CREATE_EP, CREATE_ALLOCATOR, RELEASE_ALLOCATOR = 4, 9, 10
CPU, GPU = 0, 1
DEFAULT, HOST_ACCESSIBLE = 0, 5


def test_loading_without_calling_leaves_nothing_behind():
    for _ in range(50):
        plugin = Plugin(LIBRARY)
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(plugin.library._handle))


def test_the_factory_reports_its_name_vendor_and_version():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    status, factories, count = plugin.create(NAME, runtime.base)
    runtime.check(status)
    assert count == 1 and factories[0] and not any(factories[1:])
    factory = factories[0]
    this = ctypes.c_void_p(factory)
    supported = ctypes.cast(factory, ctypes.POINTER(ctypes.c_uint32))[0]
    assert 24 <= supported <= 31
    assert word_call(factory, GET_NAME, this, returns=ctypes.c_char_p) == NAME
    assert word_call(factory, GET_VENDOR, this, returns=ctypes.c_char_p) == b"AMD"
    assert word_call(factory, GET_VENDOR_ID, this, returns=ctypes.c_uint32) == 0x1002
    assert word_call(factory, GET_VERSION, this, returns=ctypes.c_char_p).count(b".") == 2
    runtime.check(plugin.release(factory))


def test_null_api_base_gives_zero_factories():
    plugin = Plugin(LIBRARY)
    status, factories, count = plugin.create(NAME, None)
    assert not status and count == 0 and not any(factories)
    status, _, _ = plugin.create(NAME, None, count=False)
    assert not status


@pytest.mark.parametrize(
    "arguments",
    [{"name": None}, {"name": b""}, {"factories": False}, {"room": 0}, {"count": False}],
    ids=["null-name", "empty-name", "null-buffer", "no-room", "null-count"],
)
def test_bad_arguments_are_invalid_argument(arguments):
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    status, factories, _ = plugin.create(**{"name": NAME, "base": runtime.base, **arguments})
    assert status and not any(factories)
    code, text = runtime.read(status)
    assert code == INVALID_ARGUMENT and text, (code, text)


def test_a_name_that_is_not_utf8_is_an_error():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    status, factories, count = plugin.create(b"\xff\xfe", runtime.base)
    if status:
        assert runtime.read(status)[0] == INVALID_ARGUMENT
    else:
        assert count == 1
        runtime.check(plugin.release(factories[0]))


def runtime_that_says(version, newest, runtime):
    """Returns an API base that reports `version` and knows the API up to `newest`."""
    text = ctypes.create_string_buffer(version) if version is not None else None
    get_api = GetApi(lambda wanted: runtime.base.contents.get_api(min(wanted, runtime.version)) if wanted <= newest else None)
    get_version = GetVersionString(lambda: ctypes.addressof(text) if text is not None else None)
    base = ApiBase(get_api, get_version)
    base.kept = (text, get_api, get_version)
    return base


@pytest.mark.parametrize("version", [b"1.23.2", b"1.17.0", b"1.5"])
def test_a_runtime_that_is_too_old_is_refused(version):
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    base = runtime_that_says(version, 23, runtime)
    status, factories, _ = plugin.create(NAME, ctypes.byref(base))
    assert status and not any(factories)
    code, text = runtime.read(status)
    assert code == EP_FAIL and "1.24" in text and version.decode() in text, (code, text)


@pytest.mark.parametrize("version", [b"", b"nonsense", b"1.", b"1.99999999999999999999.0", b"2.0.0", None])
def test_unreadable_runtime_version_is_no_reason_to_fail(version):
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    base = runtime_that_says(version, runtime.version, runtime)
    status, factories, count = plugin.create(NAME, ctypes.byref(base))
    if status:
        code, text = runtime.read(status)
        assert code == EP_FAIL and text
    else:
        assert count == 1
        runtime.check(plugin.release(factories[0]))


def test_runtime_without_any_api_does_not_crash_us():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    base = runtime_that_says(b"1.31.0", 0, runtime)
    status, factories, count = plugin.create(NAME, ctypes.byref(base))
    assert not status and count == 0 and not any(factories), "no status can be made without an API"


def test_releasing_null_does_nothing():
    plugin = Plugin(LIBRARY)
    assert not plugin.release(None)
    runtime = Runtime()
    _, factories, _ = plugin.create(NAME, runtime.base)
    assert not plugin.release(None)
    runtime.check(plugin.release(factories[0]))


def test_several_factories_live_at_once():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    names = [f"name{index}".encode() for index in range(5)]
    factories = [plugin.create(name, runtime.base)[1][0] for name in names]
    assert len(set(factories)) == len(names)
    for name, factory in zip(names, factories):
        assert word_call(factory, GET_NAME, ctypes.c_void_p(factory), returns=ctypes.c_char_p) == name
    for factory in factories[1::2] + factories[0::2]:
        runtime.check(plugin.release(factory))


def test_factories_are_created_and_released_on_four_threads():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    def work(index):
        for _ in range(50):
            status, factories, count = plugin.create(f"name{index}".encode(), runtime.base)
            assert not status and count == 1
            assert not plugin.release(factories[0])

    on_threads(4, work)


@pytest.mark.parametrize(
    "memory",
    [(GPU, 0x10DE, 0, DEFAULT), (GPU, 0x1002, 77, DEFAULT), (CPU, 0, 0, DEFAULT), (GPU, 0, 0, HOST_ACCESSIBLE)],
    ids=["other-vendor", "no-such-device", "cpu", "no-vendor"],
)
def test_allocator_for_foreign_memory_is_refused(memory):
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    status, factories, _ = plugin.create(NAME, runtime.base)
    runtime.check(status)
    factory = factories[0]
    this = ctypes.c_void_p(factory)
    allocator = ctypes.c_void_p()
    info = runtime.memory_info(*memory)
    status = word_call(factory, CREATE_ALLOCATOR, this, info, None, ctypes.byref(allocator))
    assert status and not allocator.value
    code, text = runtime.read(status)
    assert code == INVALID_ARGUMENT and text, (code, text)
    runtime.check(plugin.release(factory))


def test_a_session_without_devices_is_refused():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    _, factories, _ = plugin.create(NAME, runtime.base)
    factory, ep = factories[0], ctypes.c_void_p()
    nothing = [None, None, ctypes.c_size_t(0), None, None]
    status = word_call(factory, CREATE_EP, ctypes.c_void_p(factory), *nothing, ctypes.byref(ep))
    assert status and not ep.value
    code, text = runtime.read(status)
    assert code == EP_FAIL and "found no device" in text, (code, text)
    runtime.check(plugin.release(factory))


def test_null_arguments_of_factory_functions_are_handled():
    runtime, plugin = Runtime(), Plugin(LIBRARY)
    _, factories, _ = plugin.create(NAME, runtime.base)
    factory = factories[0]
    this = ctypes.c_void_p(factory)
    allocator = ctypes.c_void_p()
    status = word_call(factory, CREATE_ALLOCATOR, this, None, None, ctypes.byref(allocator))
    assert status and runtime.read(status)[0] == INVALID_ARGUMENT
    word_call(factory, RELEASE_ALLOCATOR, this, None, returns=None)
    release_ep = 5
    word_call(factory, release_ep, this, None, returns=None)
    runtime.check(plugin.release(factory))
