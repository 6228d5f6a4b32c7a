"""Decoders on a GPU: the time of a token and of a prompt in an ONNX Runtime session, and whether results are right.

A decoder is a folder that ONNX Runtime GenAI loads. With --make, the script makes decoders with the
shape of a Llama with a billion weights, in half precision and with 4-bit weights. It runs a decoder
without GenAI but in the same way: every tensor is bound to the device, past and present caches share their buffers, and
the mask has the cache's width. Each run is waited for; times are medians of the host's clock. The bytes are the minimum
that a token reads: the weights and the cached rows. A prompt of 32 tokens and the token after it are compared with ONNX
Runtime's CPU provider, and the attention over a cache of --long tokens with NumPy in double precision. Prompts are
measured again with a session that promises to read only the logits of the last token (ep.hip.last_logits); these are
compared with those of the full run.

usage: AMDGPU_EP_DRIVER=amd python bench/gpu_llm.py LIBRARY [FOLDER ...] [--make] [--tiny] [--contexts 512,2048] [--prompts 512,2048] [--batches 1,8]
           [--long 32768] [--rounds N] [--steps] [--no-check] [--option KEY=VALUE ...]
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_models
import step_times

CHECKED_PROMPT = 32
MAKER = Path(__file__).resolve().parent.parent / "tests" / "tiny_models.py"


def session(model, options):
    return gpu_models.session(model, options)[0]


class Decoder:
    """A folder's model, and the shapes of its inputs and outputs."""

    def __init__(self, folder):
        self.path = str(Path(folder) / "model.onnx")
        graph = onnx.load(self.path, load_external_data=False).graph
        self.inputs, self.outputs = graph.input, graph.output
        self.longest = next((weight.dims[0] for weight in graph.initializer if weight.name == "cos_cache"), 0)
        weights = {weight.name: self.size(weight) for weight in graph.initializer}
        looked_up = {node.input[0] for node in graph.node if node.op_type in ("Gather", "GatherBlockQuantized")}
        others = {name for node in graph.node if node.op_type not in ("Gather", "GatherBlockQuantized") for name in node.input}
        self.weight_bytes = sum(size for name, size in weights.items() if name in others or name not in looked_up)

    @staticmethod
    def size(weight):
        count = int(np.prod(weight.dims, dtype=np.int64))
        return count * helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize

    def shape(self, info, batch, length, total):
        extents = dict(batch_size=batch, sequence_length=length, total_sequence_length=total, past_sequence_length=total)
        extents["past_sequence_length + sequence_length"] = total
        return [dim.dim_value or extents[dim.dim_param] for dim in info.type.tensor_type.shape.dim]

    def cache_bytes(self, context, batch):
        """The bytes of the cached rows that a token reads."""
        return sum(self.array_bytes(info, batch, context) for info in self.inputs if info.name.startswith("past"))

    def array_bytes(self, info, batch, total):
        kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        return int(np.prod(self.shape(info, batch, 1, total), dtype=np.int64)) * kind.itemsize

    def feeds(self, batch, length, context, total, seed=2):
        """The inputs for `length` new tokens after `context` others, in a cache of `total` rows."""
        random, made = np.random.default_rng(seed), {}
        for info in self.inputs:
            kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            shape = self.shape(info, batch, length, total)
            if info.name == "input_ids":
                made[info.name] = random.integers(10, 500, shape).astype(kind)
            elif info.name == "attention_mask":
                made[info.name] = (np.arange(total) < context + length).astype(kind)[None].repeat(batch, 0)
            elif info.name == "position_ids":
                made[info.name] = np.arange(context, context + length, dtype=kind)[None].repeat(batch, 0)
            else:
                made[info.name] = np.zeros(shape, kind)
                made[info.name][:, :, :context] = random.standard_normal((*shape[:2], context, shape[3]), np.float32) / 4
        return made


class Bound:
    """A session's run on tensors in the provider's memory; presents overwrite their pasts."""

    def __init__(self, running, decoder, feeds, batch, length, total, ours=True):
        place = ("gpu", 0, gpu_models.AMD) if ours else ("cpu", 0)
        self.running, self.binding = running, running.io_binding()
        self.values = {name: ort.OrtValue.ortvalue_from_numpy(array, *place) for name, array in feeds.items()}
        for name, value in self.values.items():
            self.binding.bind_ortvalue_input(name, value)
        for info in decoder.outputs:
            if info.name.startswith("present"):
                value = self.values[info.name.replace("present", "past_key_values")]
            else:
                kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
                value = ort.OrtValue.ortvalue_from_shape_and_type(decoder.shape(info, batch, length, total), kind, *place)
                self.logits = value
            self.binding.bind_ortvalue_output(info.name, value)

    def run(self):
        self.running.run_with_iobinding(self.binding)

    def result(self):
        return self.logits.numpy().astype(np.float64)

    def last(self):
        return self.logits.numpy()[:, -1].astype(np.float64)


def milliseconds(run, rounds, warm_ups=5):
    for _ in range(warm_ups):
        run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return statistics.median(times)


def check(decoder, running):
    """The largest difference from the CPU provider's logits, relative to the largest one: of a prompt and of a
    token."""
    total, errors = CHECKED_PROMPT + 1, []
    theirs = ort.InferenceSession(decoder.path, providers=["CPUExecutionProvider"])
    for length, context in ((CHECKED_PROMPT, 0), (1, CHECKED_PROMPT)):
        feeds = decoder.feeds(1, length, context, total)
        found, wanted = (Bound(each, decoder, feeds, 1, length, total, ours) for each, ours in ((running, True), (theirs, False)))
        found.run()
        wanted.run()
        errors.append(np.abs(found.result() - wanted.result()).max() / np.abs(wanted.result()).max())
    return errors


def profile(decoder, options, batch, length, context, total):
    """Prints the time of each step of a run."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "profile"
        running = session(decoder.path, {**options, step_times.ENTRY: str(record)})
        bound = Bound(running, decoder, decoder.feeds(batch, length, context, total), batch, length, total)
        for _ in range(4):
            bound.run()
        print(f"  {length} tokens behind {context}, batch {batch}:", end="")
        step_times.show(record)


def long_attention(length, options):
    """Compares one token's attention over a long cache with NumPy in double precision."""
    heads, shared, size = 32, 8, 64
    value = helper.make_tensor_value_info
    half, whole = TensorProto.FLOAT16, TensorProto.INT32
    cache = [1, shared, length, size]
    node = helper.make_node(
        "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "last", "total"], ["y", "present_k", "present_v"],
        domain="com.microsoft", num_heads=heads, kv_num_heads=shared)
    graph = helper.make_graph(
        [node], "attention",
        [value("q", half, [1, 1, heads * size]), *(value(name, half, [1, 1, shared * size]) for name in "kv"),
         *(value(f"past_{name}", half, cache) for name in "kv"), value("last", whole, [1]), value("total", whole, [])],
        [value("y", half, [1, 1, heads * size]), *(value(f"present_{name}", half, cache) for name in "kv")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    running = session(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), options)
    random = np.random.default_rng(5)
    normal = lambda *shape: random.standard_normal(shape, np.float32).astype(np.float16)
    feeds = {"q": normal(1, 1, heads * size) * 2, "k": normal(1, 1, shared * size), "v": normal(1, 1, shared * size),
             "past_k": normal(*cache), "past_v": normal(*cache),
             "last": np.array([length - 1], np.int32), "total": np.array(length, np.int32)}
    found = running.run(["y"], feeds)[0].astype(np.float64).reshape(heads, size)
    keys, values = (feeds[f"past_{name}"][0].astype(np.float64) for name in "kv")
    for past, new in ((keys, "k"), (values, "v")):
        past[:, -1] = feeds[new].reshape(shared, size)
    queries = feeds["q"].astype(np.float64).reshape(heads, size)
    wanted = np.empty_like(found)
    for head in range(heads):
        scores = keys[head * shared // heads] @ queries[head] / np.sqrt(size)
        weights = np.exp(scores - scores.max())
        wanted[head] = weights @ values[head * shared // heads] / weights.sum()
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


def make(folder, tiny):
    """Makes decoders with random weights, in half precision and with 4-bit weights."""
    size = ["--size", "nano"] if tiny else ["--size", "1b", "--context", "40960"]
    for precision in ("fp16", "int4"):
        path = Path(folder) / f"{size[1]}-{precision}"
        formats = ["--precision", precision, "--activations", "fp16"]
        subprocess.run([sys.executable, MAKER, "--to", path, *size, *formats], check=True)
        yield path


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("decoders", nargs="*")
    parser.add_argument("--make", action="store_true", help="make decoders of two precisions, and measure them")
    parser.add_argument("--tiny", action="store_true", help="make small decoders; short contexts and few rounds")
    parser.add_argument("--contexts", type=numbers, default=[512, 2048])
    parser.add_argument("--prompts", type=numbers, default=[512, 2048])
    parser.add_argument("--batches", type=numbers, default=[1, 8])
    parser.add_argument("--long", type=int, default=32768, help="also a long context, for batch 1")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", action="store_true", help="also time the steps by kind, in separate sessions")
    parser.add_argument("--no-check", action="store_true", help="do not compare with the CPU provider")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    if given.tiny:
        given.contexts, given.prompts, given.batches, given.long, given.rounds = [32], [32], [1, 2], 64, 2
    options = {"profile": "llm", **dict(option.split("=", 1) for option in given.option)}
    # Only this script uses the file for step times.
    os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    ort.register_execution_provider_library(gpu_models.NAME, str(given.library.resolve()))
    wrong, made = False, tempfile.TemporaryDirectory()
    for folder in [*given.decoders, *(make(made.name, given.tiny) if given.make else [])]:
        decoder = Decoder(folder)
        seconds = []
        for _ in range(2):
            start = time.perf_counter()
            running = session(decoder.path, options)
            seconds.append(time.perf_counter() - start)
        print(f"{Path(folder).name}: session made in {seconds[0]:.2f} s, once more in {seconds[1]:.2f} s", flush=True)
        if not given.no_check:
            errors = check(decoder, running)
            wrong |= not max(errors) < 0.05
            print(f"  logits beside the CPU provider: prompt {errors[0]:.1e}, token {errors[1]:.1e} of the largest"
                  f"{'' if max(errors) < 0.05 else ' WRONG'}", flush=True)
        for batch in given.batches:
            further = [given.long] if batch == 1 and 0 < given.long <= decoder.longest else []
            for context in [*given.contexts, *further]:
                bound = Bound(running, decoder, decoder.feeds(batch, 1, context - 1, context + 64), batch, 1, context + 64)
                time_ms = milliseconds(bound.run, given.rounds)
                size = decoder.weight_bytes + decoder.cache_bytes(context, batch)
                print(f"  token, batch {batch}, context {context:6}: {time_ms:8.3f} ms, {size / 1e6:7.0f} MB, "
                      f"{size / time_ms / 1e6:6.0f} GB/s", flush=True)
                del bound
        wanted = {}
        for last_only in (False, True):
            if last_only:
                del running
                running = session(decoder.path, {**options, "ep.hip.last_logits": "on"})
            for prompt in given.prompts:
                bound = Bound(running, decoder, decoder.feeds(1, prompt, 0, prompt + 64), 1, prompt, prompt + 64)
                time_ms = milliseconds(bound.run, max(3, given.rounds // 5), 2)
                found = bound.last()
                error = np.abs(found - wanted.setdefault(prompt, found)).max() / np.abs(found).max()
                wrong |= not error < 0.05
                beside = f", logits of the last token only, {error:.1e} from before" if last_only else ""
                print(f"  prompt of {prompt:6}: {time_ms:8.3f} ms{beside}{'' if error < 0.05 else ' WRONG'}", flush=True)
                del bound
        del running
        if given.steps:
            context, prompt = given.contexts[0], given.prompts[-1]
            profile(decoder, options, 1, 1, context - 1, context + 64)
            profile(decoder, options, given.batches[-1], 1, context - 1, context + 64)
            profile(decoder, options, 1, prompt, 0, prompt + 64)
    if given.long:
        error = long_attention(given.long, options)
        wrong |= not error < 5e-3
        print(f"attention over {given.long} rows: {error:.1e} of the norm{'' if error < 5e-3 else ' WRONG'}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
