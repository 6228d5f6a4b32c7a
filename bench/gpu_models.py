"""Networks on a GPU: an ONNX Runtime session with tensors bound to the device, compared with PyTorch if it is
installed.

All take turns in one process, and each run is waited for; times are medians of the host's clock. PyTorch runs as a CUDA
graph, eager and compiled. The row "PyTorch" is the module in the network's own file; "BertModel" is the class of the
package transformers, if installed, with both kinds of attention. Results are compared with PyTorch in single precision,
or with ONNX Runtime's CPU provider if there is no PyTorch. The backend's record (`ep.hip.explain_file`) shows what runs
the steps of a network. --tuned adds a row for a session that measures its steps first (`ep.hip.tune`). --tiny uses
small networks with the same layers.

usage: AMDGPU_EP_DRIVER=nvidia python bench/gpu_models.py LIBRARY [--tiny] [--compile] [--tuned] [--steps] [--option KEY=VALUE ...] [--only NAME]
"""
import argparse
import collections
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parent))
import step_times
from networks import bert, bert_transformers, resnet50

NAME = "AMDGPUExecutionProvider"
AMD = 0x1002


def medians(runs, rounds, warm_ups):
    """The median time of each run in milliseconds; the runs take turns."""
    for run in runs.values():
        for _ in range(warm_ups):
            run()
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter_ns()
            run()
            times[name].append((time.perf_counter_ns() - start) / 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def session(model, options):
    settings = ort.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    device = next(device for device in ort.get_ep_devices() if device.ep_name == NAME)
    # A backend's keys, which begin with "ep.", are session entries; the others are provider options.
    for key, value in options.items():
        if key.startswith("ep."):
            settings.add_session_config_entry(key, value)
    own = {key: value for key, value in options.items() if not key.startswith("ep.")}
    settings.add_provider_for_devices([device], own)
    start = time.perf_counter()
    made = ort.InferenceSession(model, sess_options=settings, enable_fallback=0)
    return made, time.perf_counter() - start


def runners(record):
    """The number of steps that each implementation runs, in the plans made so far."""
    steps = [step for line in Path(record).read_text().splitlines() for step in json.loads(line).get("steps", [])]
    counts = collections.Counter(step["run_by"] for step in steps)
    return ", ".join(f"{count} × {who}" for who, count in counts.most_common())


def bound(running, feeds):
    """A run on tensors that stay on the device, and its result."""
    binding = running.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, AMD))
    shape = running.get_outputs()[0].shape
    result = ort.OrtValue.ortvalue_from_shape_and_type(shape, np.float16, "gpu", 0, AMD)
    binding.bind_ortvalue_output("y", result)
    return lambda: running.run_with_iobinding(binding), lambda: result.numpy()


def with_torch(torch, network, made, feeds, compiled):
    """PyTorch's runs with their results, and the network's result in single precision."""
    single = network.torch_module(made).cuda()
    half = network.torch_module(made).cuda().half()
    half, arguments = network.for_torch(torch, half, feeds)
    runs = {}
    with torch.inference_mode():
        exact = single(*(a.float() if a.is_floating_point() else a for a in arguments)).double().cpu().numpy()
        runs["PyTorch"] = as_graph(torch, half, arguments)
        if compiled:
            runs["PyTorch compiled"] = as_graph(torch, torch.compile(half), arguments)
        if network is bert:
            others, reason = bert_transformers.modules(torch, made, feeds)
            if reason:
                print(reason)
            for name, module, given in others:
                given = [a.half() if a.is_floating_point() else a for a in given]
                try:
                    runs[name] = as_graph(torch, module.half(), given)
                except RuntimeError as error:
                    print(f"no {name}: {str(error).splitlines()[0]}")
    return runs, exact


def recorded(torch, module, arguments):
    """A CUDA graph of a call, and its output."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            module(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = module(*arguments)
    return graph, made


def as_graph(torch, module, arguments):
    graph, made = recorded(torch, module, arguments)

    def run():
        graph.replay()
        torch.cuda.synchronize()

    return run, lambda: made.cpu().numpy()


def on_cpu(model, feeds):
    """The result of ONNX Runtime's CPU provider, which computes half precision in single precision."""
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[0].astype(np.float64)


def profile(model, feeds, options, record):
    running, _ = session(model, {**options, step_times.ENTRY: str(record)})
    run, _ = bound(running, feeds)
    for _ in range(4):
        run()
    step_times.show(record)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small networks and few rounds, for slow devices")
    parser.add_argument("--compile", action="store_true", help="also compiled PyTorch, which takes a minute")
    parser.add_argument("--tuned", action="store_true", help="also a tuned session, which takes some seconds to create")
    parser.add_argument("--steps", action="store_true", help="also time the steps, in a separate session")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    try:
        import torch
        torch = torch if torch.cuda.is_available() else None
    except ImportError:
        torch = None
    # Options name only files of this script.
    os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    ort.register_execution_provider_library(NAME, str(arguments.library.resolve()))
    options = {"profile": "hip", **dict(option.split("=", 1) for option in arguments.option)}
    failed, folder = False, tempfile.mkdtemp()
    print(f"{'network':<28}{'who':<25}{'ms':>9}{'ours is':>10}   error")
    for network in (resnet50, bert):
        if arguments.only.lower() not in network.NAME.lower():
            continue
        if arguments.tiny:
            network.shrink()
        made = network.weights()
        for batch in network.BATCHES[:1] if arguments.tiny else network.BATCHES:
            feeds = network.inputs(batch)
            record = Path(folder) / f"{network.NAME} {batch}"
            model = network.onnx_model(made, batch)
            untuned = {"ep.hip.tune": "off"} if arguments.tuned else {}
            running, seconds = session(model, {**options, **untuned, "ep.hip.explain_file": str(record)})
            run, result = bound(running, feeds)
            run()
            others, exact = with_torch(torch, network, made, feeds, arguments.compile) if torch else ({}, on_cpu(model, feeds))
            all_runs = {"amdgpu-ep": (run, result)}
            if arguments.tuned:
                tuned_record = Path(f"{record} tuned")
                tuned, _ = session(model, {**options, "ep.hip.tune": "on", "ep.hip.explain_file": str(tuned_record)})
                all_runs["amdgpu-ep tuned"] = bound(tuned, feeds)
            all_runs |= others
            found = medians({name: run for name, (run, _) in all_runs.items()}, 3 if arguments.tiny else 100, 1 if arguments.tiny else 5)
            for name, (_, made_by) in all_runs.items():
                distance = np.linalg.norm(made_by().astype(np.float64) - exact) / np.linalg.norm(exact)
                failed |= not distance < 1e-2
                error = f"{distance:.1e} of the norm" + ("" if distance < 1e-2 else " WRONG")
                ratio = "" if name.startswith("amdgpu-ep") else f"{found[name] / found['amdgpu-ep']:.2f}x"
                label = f"{network.NAME}, batch {batch}" if name == "amdgpu-ep" else ""
                print(f"{label:<28}{name:<25}{found[name]:>9.3f}{ratio:>10}   {error}")
            print(f"{'':<28}session made in {seconds:.2f} s; steps: {runners(record)}")
            if arguments.tuned:
                print(f"{'':<28}tuned: {runners(tuned_record)}")
                del tuned
            del running, run, result, all_runs, made_by
            if arguments.steps:
                profile(model, feeds, options, Path(folder) / "times")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
