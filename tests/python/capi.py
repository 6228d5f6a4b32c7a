"""The parts of ONNX Runtime's C API, through ctypes, that are needed to call the library's two exports with bad
arguments."""
import ctypes
import glob
import os

import onnxruntime

INVALID_ARGUMENT = 2
EP_FAIL = 11

# Positions in the OrtApi table, which only grows at its end.
CREATE_STATUS, GET_ERROR_CODE, GET_ERROR_MESSAGE, CREATE_ENV = 0, 1, 2, 3
RELEASE_ENV, RELEASE_STATUS, RELEASE_MEMORY_INFO, CREATE_MEMORY_INFO_V2 = 92, 93, 94, 320

GetApi = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
GetVersionString = ctypes.CFUNCTYPE(ctypes.c_void_p)


class ApiBase(ctypes.Structure):
    _fields_ = [("get_api", GetApi), ("get_version_string", GetVersionString)]


class Runtime:
    """The C library of the wheel, with its own environment."""

    def __init__(self):
        folder = os.path.join(os.path.dirname(onnxruntime.__file__), "capi")
        library = ctypes.CDLL(glob.glob(os.path.join(folder, "libonnxruntime.so.*"))[0])
        library.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
        self.base = library.OrtGetApiBase()
        self.version = int(onnxruntime.__version__.split(".")[1])
        self.table = self.base.contents.get_api(self.version)
        self.environment = ctypes.c_void_p()
        self.check(self.call(CREATE_ENV, 3, b"tests", ctypes.byref(self.environment)))

    def call(self, index, *arguments, returns=ctypes.c_void_p):
        return word_call(self.table, index, *arguments, returns=returns)

    def check(self, status):
        assert not status, self.read(status)

    def read(self, status):
        """Returns the code and message of a status, and releases it."""
        code = self.call(GET_ERROR_CODE, ctypes.c_void_p(status), returns=ctypes.c_int)
        text = self.call(GET_ERROR_MESSAGE, ctypes.c_void_p(status), returns=ctypes.c_char_p).decode()
        self.call(RELEASE_STATUS, ctypes.c_void_p(status), returns=None)
        return code, text

    def memory_info(self, device_type, vendor, device, memory_type):
        info = ctypes.c_void_p()
        arguments = (b"test", device_type, ctypes.c_uint32(vendor), device, memory_type, ctypes.c_size_t(0), 0)
        self.check(self.call(CREATE_MEMORY_INFO_V2, *arguments, ctypes.byref(info)))
        return info


def word_call(table, index, *arguments, returns=ctypes.c_void_p):
    """Calls the function whose pointer is word `index` of `table`."""
    address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[index]
    assert address, f"slot {index} is empty"
    return ctypes.CFUNCTYPE(returns)(address)(*arguments)


class Plugin:
    """The library's two exports."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        self.library.CreateEpFactories.restype = ctypes.c_void_p
        self.library.ReleaseEpFactory.restype = ctypes.c_void_p

    def create(self, name, base, room=4, factories=True, count=True):
        """Returns status, factories and count; `factories` and `count` say whether to pass the pointers or null."""
        buffer = (ctypes.c_void_p * max(room, 1))()
        number = ctypes.c_size_t(77)
        status = self.library.CreateEpFactories(
            name,
            base,
            None,
            buffer if factories else None,
            ctypes.c_size_t(room),
            ctypes.byref(number) if count else None,
        )
        return status, list(buffer), number.value

    def release(self, factory):
        return self.library.ReleaseEpFactory(ctypes.c_void_p(factory))
