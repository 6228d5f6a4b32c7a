"""A model under construction: values whose shapes may depend on run-time sizes, and ways to choose among them."""
import random
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper, numpy_helper

DTYPES = {
    "f32": (TensorProto.FLOAT, np.float32),
    "f16": (TensorProto.FLOAT16, np.float16),
    "i32": (TensorProto.INT32, np.int32),
    "i64": (TensorProto.INT64, np.int64),
    "bool": (TensorProto.BOOL, np.bool_),
}
FLOATS, INTS = ("f32", "f16"), ("i32", "i64")
MAX_ELEMENTS = 20_000
# Above this, differences between sums and products cannot be distinguished from rounding errors.
MAX_MAGNITUDE = 1e4


@dataclass(frozen=True)
class Dim:
    """An extent: a number times powers of the run-time sizes `N` and `S`."""

    factor: int
    sizes: tuple = ()

    def at(self, sizes):
        extent = self.factor
        for name in self.sizes:
            extent *= sizes[name]
        return extent

    def times(self, other):
        return Dim(self.factor * other.factor, tuple(sorted(self.sizes + other.sizes)))

    @property
    def fixed(self):
        return not self.sizes


ONE = Dim(1)
LARGEST = {"N": 5, "S": 7}


@dataclass
class Value:
    name: str
    dtype: str
    shape: tuple
    # An upper bound on the magnitude of the elements, as far as the operators determine it.
    magnitude: float
    # Every correct implementation gives the same bits: only such values may be compared, rounded or sorted.
    exact: bool = True
    used: bool = field(default=False, compare=False)

    @property
    def rank(self):
        return len(self.shape)

    def is_fixed(self):
        return all(dim.fixed for dim in self.shape)


def elements(shape):
    count = 1
    for dim in shape:
        count *= dim.at(LARGEST)
    return count


class Maker:
    def __init__(self, seed, opset):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.opset = opset
        self.inputs, self.values, self.nodes, self.constants = [], [], [], []
        # Names of values with rounding errors of half precision, regardless of their type.
        self.coarse = set()

    def input(self, dtype, shape):
        value = Value(f"in{len(self.inputs)}", dtype, tuple(shape), 3.0 if dtype != "bool" else 1.0)
        self.inputs.append(value)
        self.values.append(value)

    def feeds(self, sizes, numbers):
        return {value.name: self.draw(value.dtype, [dim.at(sizes) for dim in value.shape], numbers) for value in self.inputs}

    @staticmethod
    def draw(dtype, shape, numbers):
        if dtype in FLOATS:
            return np.asarray(np.clip(numbers.normal(size=shape), -3, 3), DTYPES[dtype][1])
        if dtype == "bool":
            return np.asarray(numbers.random(size=shape) < 0.5)
        return np.asarray(numbers.integers(-3, 4, size=shape), DTYPES[dtype][1])

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *numbers):
        return self.constant(np.array(numbers, np.int64))

    def weight(self, dtype, shape, scale=1.0):
        return self.constant((self.numbers.normal(size=shape) * scale).astype(DTYPES[dtype][1]))

    def node(self, op_type, inputs, outputs=1, domain="", **attributes):
        """Adds a node; `inputs` are values or names of constants. Returns the names of its outputs."""
        names = []
        for value in inputs:
            if isinstance(value, Value):
                value.used = True
            names.append(value.name if isinstance(value, Value) else value)
        results = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op_type, names, results, domain=domain, **attributes))
        if self.coarse.intersection(names):
            self.coarse.update(results)
        return results[0] if outputs == 1 else results

    def add(self, name, dtype, shape, magnitude, exact):
        """Makes a node's output available to other nodes."""
        if dtype == "f16":
            self.coarse.add(name)
            exact = False
        value = Value(name, dtype, tuple(shape), magnitude, exact)
        self.values.append(value)
        return value

    def pick(self, *dtypes, where=lambda value: True):
        """A value to use as an input, preferably a recent one; None if there is none."""
        found = [value for value in self.values if value.dtype in dtypes and value.magnitude <= MAX_MAGNITUDE and where(value)]
        if not found:
            return None
        return found[-1 - min(int(self.random.expovariate(0.35)), len(found) - 1)]

    def fits(self, shape):
        return len(shape) <= 6 and elements(shape) <= MAX_ELEMENTS

    def model(self):
        outputs = [value for value in self.values if not value.used or self.random.random() < 0.1]
        outputs = [value for value in outputs if value not in self.inputs] or [self.values[-1]]
        described = [helper.make_tensor_value_info(value.name, DTYPES[value.dtype][0], None) for value in outputs]

        def extent(dim):
            return dim.factor if dim.fixed else "".join(dim.sizes)

        given = [
            helper.make_tensor_value_info(value.name, DTYPES[value.dtype][0], [extent(dim) for dim in value.shape])
            for value in self.inputs
        ]
        graph = helper.make_graph(self.nodes, "random", given, described, self.constants)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)
