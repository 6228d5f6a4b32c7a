"""Matrix products of language models on the host device, compared with the CPU provider: single nodes and decoders.

Both take turns in one process on one thread. Times are medians of that thread's CPU time, so that other load on the
machine has little effect. A decoder is a folder that ONNX Runtime GenAI loads; it is run without GenAI, with its own
cache, for one token after a context and for a whole prompt.

usage: AMDGPU_EP_DRIVER=host python bench/host_products.py LIBRARY [DECODER ...] [--rounds N] [--prompt N] [--option KEY=VALUE ...]
"""
import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

NAME = "AMDGPUExecutionProvider"
AMD = 0x1002
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64, "tensor(int32)": np.int32}


def settings(options, ours):
    made = ort.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 3
    if ours:
        for key, value in options.items():
            made.add_session_config_entry(key, value)
        made.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        device = next(device for device in ort.get_ep_devices() if device.ep_name == NAME)
        made.add_provider_for_devices([device], {})
    return made


def session(model, options, ours):
    providers = None if ours else ["CPUExecutionProvider"]
    return ort.InferenceSession(model, sess_options=settings(options, ours), providers=providers)


def bound(running, feeds, shapes, ours):
    """A run on tensors in the provider's memory, and its first result."""
    place = ("gpu", 0, AMD) if ours else ("cpu", 0)
    binding = running.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, *place))
    results = []
    for output in running.get_outputs():
        kind = TYPES[output.type]
        results.append(ort.OrtValue.ortvalue_from_shape_and_type(shapes[output.name], kind, *place))
        binding.bind_ortvalue_output(output.name, results[-1])
    return lambda: running.run_with_iobinding(binding), lambda: results[0].numpy()


def milliseconds(runs, rounds):
    times = [[] for _ in runs]
    for run in runs:
        run()
        run()
    for _ in range(rounds):
        for at, run in enumerate(runs):
            start = time.thread_time_ns()
            run()
            times[at].append((time.thread_time_ns() - start) / 1e6)
    return [statistics.median(each) for each in times]


def compare(title, model, feeds, shapes, options, rounds, allowed):
    sides = [bound(session(model, options, ours), feeds, shapes, ours) for ours in (True, False)]
    ours, theirs = milliseconds([run for run, _ in sides], rounds)
    found, wanted = (result().astype(np.float64) for _, result in sides)
    error = np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-9)
    print(f"{title:44} {ours:9.3f} ms {theirs:9.3f} ms  {theirs / ours:5.2f} x  error {error:.1e}", flush=True)
    assert error <= allowed, f"{title}: results are {error} apart"


def product(rows, depth, columns, bits, level):
    """A product with constant weights: 4 or 8 bits, or single precision if `bits` is None."""
    generator = np.random.default_rng(1)
    value = helper.make_tensor_value_info
    if bits is None:
        weights = {"b": generator.standard_normal((depth, columns), np.float32)}
        node = helper.make_node("MatMul", ["a", "b"], ["y"])
    else:
        blocks = depth // 32
        weights = {
            "b": generator.integers(0, 256, (columns, blocks, 32 * bits // 8), np.uint8),
            "s": generator.standard_normal((columns, blocks)).astype(np.float32) / 100,
        }
        attributes = dict(K=depth, N=columns, bits=bits, block_size=32, accuracy_level=level)
        node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node], "product",
        [value("a", TensorProto.FLOAT, [rows, depth])], [value("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model, {"a": generator.standard_normal((rows, depth), np.float32)}, {"y": [rows, columns]}


def decoder(folder, length, context):
    """The model of a folder, and its inputs for `length` tokens after `context` others."""
    path = str(Path(folder) / "model.onnx")
    graph = onnx.load(path, load_external_data=False).graph
    extents = dict(batch_size=1, sequence_length=length, total_sequence_length=context + length,
                   past_sequence_length=context)
    extents["past_sequence_length + sequence_length"] = context + length

    def shape(info):
        dims = info.type.tensor_type.shape.dim
        return [dim.dim_value or extents[dim.dim_param] for dim in dims]

    feeds = {}
    generator = np.random.default_rng(2)
    for info in graph.input:
        kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if info.name == "input_ids":
            feeds[info.name] = generator.integers(10, 500, shape(info)).astype(kind)
        elif info.name == "attention_mask":
            feeds[info.name] = np.ones(shape(info), kind)
        elif info.name == "position_ids":
            feeds[info.name] = np.arange(context, context + length, dtype=kind)[None]
        else:
            feeds[info.name] = (generator.standard_normal(shape(info)) / 4).astype(kind)
    shapes = {info.name: shape(info) for info in graph.output}
    return path, feeds, shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    options = dict(option.split("=", 1) for option in given.option)
    ort.register_execution_provider_library(NAME, given.library)
    print(f"{'':44} {'ours':>12} {'CPU':>12}  {'speed':>7}")
    shapes = [(768, 1280), (768, 4096), (2048, 768), (768, 16384)]
    for rows in (1, given.prompt):
        for depth, columns in shapes:
            for bits, level in ((4, 4), (4, 0), (8, 4), (None, 0)):
                kind = "fp32" if bits is None else f"int{bits}, level {level}"
                title = f"{rows} x {depth} x {columns}, {kind}"
                rounds = given.rounds if rows == 1 else max(3, given.rounds // 6)
                compare(title, *product(rows, depth, columns, bits, level), options, rounds, 2e-2 if level else 1e-4)
    for folder in given.decoders:
        name = Path(folder).name
        one = decoder(folder, 1, given.context)
        compare(f"{name}: a token behind {given.context}", *one, options, given.rounds, 0.2)
        compare(f"{name}: a prompt of {given.prompt}", *decoder(folder, given.prompt, 0), options,
                max(3, given.rounds // 10), 0.2)


if __name__ == "__main__":
    main()
