"""Converts tensors of types that NumPy lacks (bfloat16, float8, float4, 2- and 4-bit integers) to and from ONNX
Runtime.

ONNX's tests store such a tensor as an array of an `ml_dtypes` type, with one or two bytes per element. ONNX Runtime
uses its own format, which packs several small elements into a byte, the first in the low bits.
"""
import ctypes

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

PER_BYTE = {
    TensorProto.INT4: 2,
    TensorProto.UINT4: 2,
    TensorProto.FLOAT4E2M1: 2,
    getattr(TensorProto, "INT2", None): 4,
    getattr(TensorProto, "UINT2", None): 4,
}


def is_raw(value):
    """Whether NumPy knows the array's type only through `ml_dtypes`."""
    return isinstance(value, np.ndarray) and value.dtype.isbuiltin != 1 and value.dtype.kind not in "OUS"


def to_ort(array):
    """An OrtValue with the array's elements. It borrows the memory of an array that it keeps alive."""
    if not is_raw(array):
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    onnx_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    # ONNX Runtime reads only the bytes it needs; the array has one item per element, so that the shape is right.
    held = np.zeros(array.shape, np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    packed = pack(array, PER_BYTE.get(onnx_type, 1))
    held.reshape(-1).view(np.uint8)[: packed.size] = packed
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(held, onnx_type)


def from_ort(value):
    """The elements of an OrtValue as an array."""
    if not value.is_tensor():
        return value.numpy()
    onnx_type = value.element_type()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(onnx_type)
    if onnx_type == TensorProto.STRING or dtype.isbuiltin == 1:
        return value.numpy()
    per_byte = PER_BYTE.get(onnx_type, 1)
    count = int(np.prod(value.shape(), dtype=np.int64))
    size = -(-count // per_byte) * (1 if per_byte > 1 else dtype.itemsize)
    data = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8)
    return unpack(data, per_byte)[: count * dtype.itemsize].view(dtype).reshape(value.shape())


def pack(array, per_byte):
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if per_byte == 1:
        return data
    bits = 8 // per_byte
    data = np.append(data & ((1 << bits) - 1), np.zeros(-data.size % per_byte, np.uint8)).reshape(-1, per_byte)
    return np.bitwise_or.reduce(data << np.arange(0, 8, bits, dtype=np.uint8), axis=1)


def unpack(data, per_byte):
    """Unpacks to one byte per element; `ml_dtypes` reads only the low bits."""
    if per_byte == 1:
        return data
    bits = 8 // per_byte
    return ((data[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)).astype(np.uint8).reshape(-1)
