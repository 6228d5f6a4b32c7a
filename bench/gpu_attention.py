"""Attention over a whole prompt on a GPU, compared with PyTorch's scaled_dot_product_attention, in half precision.

Runs one node in an ONNX Runtime session with tensors bound to the device, once with our own kernels and once with its
steps offered to hipDNN, and PyTorch as a CUDA graph. They take turns in one process; times are medians. `waited` is a
run that is waited for, including the time to launch and to synchronise; `queued` is the time per run if many runs are
waited for together, which is the device time. `attention` is softmax(q·kᵀ)·v. `causal` is the same over keys up to the
query's position. `decoder` is GroupQueryAttention with a cache, which is causal and also copies keys and values into
the cache. For it, PyTorch has one row with attention alone, and one that copies first. The backend's record
(`ep.hip.explain_file`) shows what ran the offered steps, with the reason if it was not hipDNN. With `--option
ep.hip.hipdnn=…`, there is only one session, with that setting. Without PyTorch, results are compared with ONNX
Runtime's CPU provider.

usage: AMDGPU_EP_DRIVER=nvidia python bench/gpu_attention.py LIBRARY [--tiny] [--steps] [--option KEY=VALUE ...]
"""
import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_models
import step_times

# The number of runs that are waited for together.
QUEUED = 20
HALF, WHOLE = TensorProto.FLOAT16, TensorProto.INT32
# Kind, heads of queries, heads of keys, tokens, head size.
CASES = [(kind, 32, shared, 2048, size) for kind, shared in (("attention", 32), ("causal", 32), ("decoder", 8)) for size in (64, 128)]
TINY = [("attention", 2, 2, 64, 64), ("causal", 2, 2, 64, 64), ("decoder", 4, 2, 64, 64)]


def model(kind, heads, shared, length, size):
    value = helper.make_tensor_value_info
    inputs = [value("q", HALF, [1, length, heads * size]), *(value(name, HALF, [1, length, shared * size]) for name in "kv")]
    outputs = [value("y", HALF, [1, length, heads * size])]
    if kind != "decoder":
        node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", num_heads=heads,
                                unidirectional=int(kind == "causal"))
    else:
        cache = [1, shared, length, size]
        inputs += [*(value(f"past_{name}", HALF, cache) for name in "kv"), value("last", WHOLE, [1]), value("total", WHOLE, [])]
        outputs += [value(f"present_{name}", HALF, cache) for name in "kv"]
        node = helper.make_node("GroupQueryAttention", [info.name for info in inputs], [info.name for info in outputs],
                                domain="com.microsoft", num_heads=heads, kv_num_heads=shared)
    graph = helper.make_graph([node], kind, inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def feeds(kind, heads, shared, length, size):
    random = np.random.default_rng(3)
    normal = lambda count: random.standard_normal((1, length, count * size), np.float32).astype(np.float16)
    made = {"q": normal(heads), "k": normal(shared), "v": normal(shared)}
    if kind == "decoder":
        made |= {f"past_{name}": np.zeros((1, shared, length, size), np.float16) for name in "kv"}
        made |= {"last": np.array([length - 1], np.int32), "total": np.array(length, np.int32)}
    return made


def bound(running, made):
    binding, device = running.io_binding(), ("gpu", 0, gpu_models.AMD)
    values = {name: ort.OrtValue.ortvalue_from_numpy(array, *device) for name, array in made.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    result = ort.OrtValue.ortvalue_from_numpy(np.full(made["q"].shape, np.nan, np.float16), *device)
    binding.bind_ortvalue_output("y", result)
    for name in "kv" if "past_k" in values else "":
        binding.bind_ortvalue_output(f"present_{name}", values[f"past_{name}"])
    unwaited = ort.RunOptions()
    unwaited.add_run_config_entry("disable_synchronize_execution_providers", "1")
    unwaited.add_run_config_entry("gpu_graph_id", "0")
    waited = lambda: running.run_with_iobinding(binding)
    return (waited, queued(lambda: running.run_with_iobinding(binding, unwaited), waited)), lambda: result.numpy()


def queued(begin, run):
    """Queues many runs and waits for the last, and so for all of them."""
    def runs():
        for _ in range(QUEUED - 1):
            begin()
        run()
    return runs


def by_torch(torch, kind, made, heads, shared, size):
    """PyTorch's runs, and the result in double precision without its fused kernels."""
    from torch.nn.functional import scaled_dot_product_attention as attend
    split = lambda name, count: torch.from_numpy(made[name]).cuda().view(1, -1, count, size).transpose(1, 2)
    arguments = split("q", heads), split("k", shared), split("v", shared)
    call = lambda q, k, v: attend(q, k, v, is_causal=kind != "attention", enable_gqa=heads != shared)
    cache = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in arguments[1:]]
    into_cache = lambda q, k, v: call(q, cache[0].copy_(k), cache[1].copy_(v))
    q, k, v = (each.double() for each in arguments)
    k, v = (each.repeat_interleave(heads // shared, 1) for each in (k, v))
    scores = q @ k.transpose(2, 3) / size**0.5
    if kind != "attention":
        scores += torch.full(scores.shape[2:], -torch.inf, device="cuda", dtype=torch.float64).triu(1)
    exact = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2).cpu().numpy()
    calls = {"PyTorch": call, **({"into a cache": into_cache} if kind == "decoder" else {})}
    return {name: replays(torch, call, arguments) for name, call in calls.items()}, exact


def replays(torch, call, arguments):
    graph = gpu_models.recorded(torch, call, arguments)[0]

    def waited():
        graph.replay()
        torch.cuda.synchronize()
    return waited, queued(graph.replay, waited)


def ran(record):
    """What ran the steps of the plans made so far, and why nothing else did."""
    steps = [step for line in Path(record).read_text().splitlines() for step in json.loads(line).get("steps", [])]
    said = [step["run_by"] + (f" ({step['reason']})" if step.get("reason") else "") for step in steps]
    return ", ".join(dict.fromkeys(said))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--tiny", action="store_true", help="few tokens and rounds, for slow devices")
    parser.add_argument("--steps", action="store_true", help="also time the steps, in separate sessions")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    try:
        import torch
        torch = torch if torch.cuda.is_available() else None
    except ImportError:
        torch = None
    # Options name only files of this script.
    os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    ort.register_execution_provider_library(gpu_models.NAME, str(given.library.resolve()))
    options = {"profile": "hip", **dict(option.split("=", 1) for option in given.option)}
    chosen = options.get("ep.hip.hipdnn")
    ways = {f"hipdnn={chosen}": chosen} if chosen else {"ours": "off", "hipDNN": "on"}
    wrong = False
    print(f"{'':46}{'':14}{'waited':>9}{'queued':>9}{'Tflop/s':>9}  PyTorch's over ours, waited and queued; error")
    with tempfile.TemporaryDirectory() as folder:
        for kind, heads, shared, length, size in TINY if given.tiny else CASES:
            made = feeds(kind, heads, shared, length, size)
            text = model(kind, heads, shared, length, size)
            runs, results, records = {}, {}, {}
            for name, mode in ways.items():
                records[name] = Path(folder) / f"{kind} {size} {mode}"
                own = {**options, "ep.hip.hipdnn": mode, "ep.hip.explain_file": str(records[name])}
                runs[name], results[name] = bound(gpu_models.session(text, own)[0], made)
                runs[name][0]()
            peers = {}
            if torch:
                peers, exact = by_torch(torch, kind, made, heads, shared, size)
            else:
                exact = gpu_models.on_cpu(text, made)
            runs |= peers
            rounds, warm_ups = (3, 1) if given.tiny else (100, 5)
            waited = gpu_models.medians({name: run[0] for name, run in runs.items()}, rounds, warm_ups)
            queued = gpu_models.medians({name: run[1] for name, run in runs.items()}, max(3, rounds // 5), 1)
            flops = 4 * heads * length**2 * size / (1 if kind == "attention" else 2)
            title = f"{kind}, {heads} heads of {size} on {shared}, {length} tokens"
            for name in runs:
                took, beside = queued[name] / QUEUED, ""
                if name in results:
                    distance = np.linalg.norm(results[name]().astype(np.float64) - exact) / np.linalg.norm(exact)
                    wrong |= not distance < 5e-3
                    ratios = [f"{peer}: {waited[peer] / waited[name]:.2f}, {queued[peer] / queued[name]:.2f}" for peer in peers]
                    beside = "; ".join([*ratios, f"{distance:.1e}{'' if distance < 5e-3 else ' WRONG'}"])
                print(f"{title:46}{name:14}{waited[name]:>9.3f}{took:>9.3f}{flops / took / 1e9:>9.1f}  {beside}", flush=True)
                title = ""
            for name in [name for name, mode in ways.items() if mode != "off"]:
                print(f"{'':46}{name}: {ran(records[name])}", flush=True)
            for name, mode in ways.items() if given.steps else ():
                steps = Path(folder) / "steps"
                watched, _ = bound(gpu_models.session(text, {**options, "ep.hip.hipdnn": mode, step_times.ENTRY: str(steps)})[0], made)
                for _ in range(4):
                    watched[0]()
                print(f"  {name}:")
                step_times.show(steps)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
