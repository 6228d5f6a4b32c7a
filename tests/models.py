"""Runs real models on a backend: correct results, the share of nodes on the device, and speed compared with the CPU
provider.

    python tests/models.py --library libhip-backend.so [--only silero_vad,…] [--bench]
    python tests/models.py --library libmigraphx-backend.so --option target=ref
    python tests/models.py --library libhip-backend.so --hipdnn [--only …]

A model is right if its outputs are within its tolerance of the recorded ones, or of the CPU provider's if there are
none, and if it does what tests/behaviour.py expects. Recorded outputs of quantised models come from the CPU provider's fused integer kernels. Models in UNFUSED may
instead agree with the CPU provider without graph optimisations, which computes the graph as it is written, as we do.

With --hipdnn, steps are offered to hipDNN, and a model is right only if hipDNN runs all of its float convolutions.

Models of Python packages always run (tests/packaged_models.py). The collection of public models with recorded outputs
is not part of the repository; its models run if it is beside the repository (../shared).
"""
import argparse
import collections
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import comparison
import packaged_models
from behaviour import EXPECTED

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
NAME = "ModelsExecutionProvider"
UNFUSED = ("mobilenet_v2_qdq",)


def collection():
    """The models of the collection, copied once to target/, with their inputs and recorded outputs. Those of packages
    are in tests/packaged_models.py."""
    if not SHARED.is_dir():
        return []
    folder = ROOT / "target" / "models"
    tools = SHARED / "tools"
    if not (folder / "manifest.json").exists():
        subprocess.run([sys.executable, tools / "get_models.py", folder], check=True, stdout=subprocess.DEVNULL)
    sys.path.append(str(tools))
    import make_golden

    models = json.loads((folder / "manifest.json").read_text())["models"]
    models = [model for model in models if model["source"]["kind"] != "wheel"]
    for model in models:
        model["path"] = folder / model["file"]
        model["feeds"], model["golden"] = make_golden.load_golden(make_golden.GOLDEN / f"{model['id']}.npz")
    return models


OPTIONS = {}


def session(ort, path, devices, optimised=True, stages=""):
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.hip.dump_dir", stages)
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    if devices:
        entries = {key: value for key, value in OPTIONS.items() if "." in key}
        for key, value in entries.items():
            options.add_session_config_entry(key, value)
        options.add_provider_for_devices(devices, {key: value for key, value in OPTIONS.items() if key not in entries})
    return ort.InferenceSession(str(path), sess_options=options, enable_fallback=0)


def medians(sessions, feeds, seconds):
    """The median time of one run of each session; the sessions take turns."""
    times = [[] for _ in sessions]
    for one in sessions:
        one.run(None, feeds)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for one, list_ in zip(sessions, times):
            start = time.perf_counter()
            one.run(None, feeds)
            list_.append(time.perf_counter() - start)
    return [statistics.median(list_) for list_ in times]


def runner(one):
    """Returns a function that runs the session on inputs and returns its outputs by name."""
    names = [output.name for output in one.get_outputs()]
    return lambda feeds: comparison.arrays(dict(zip(names, one.run(names, feeds))))


def full(outputs):
    """Outputs in the format of recorded ones, for comparisons."""
    return {name: {"full": value} for name, value in outputs.items()}


def one_node_overhead(ort, devices):
    """The time of a warm run of one small Add, as a multiple of the CPU provider's."""
    import numpy as np
    import onnx

    value = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [16])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "y"], ["z"])], "one", [value("x"), value("y")], [value("z")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.onnx"
        onnx.save(model, path)
        sessions = [session(ort, path, devices), session(ort, path, None)]
    ours, theirs = medians(sessions, {name: np.ones(16, np.float32) for name in "xy"}, 2.0)
    return ours / theirs


def arena(folder):
    """The size of the largest plan's arena and its peak usage in bytes, from the stages written to a folder."""
    plans = [re.match(r"arena of (\d+) bytes, (\d+) in use at once", file.read_text()) for file in Path(folder).glob("*.txt")]
    sizes = [tuple(map(int, plan.groups())) for plan in plans if plan]
    return max(sizes, default=(0, 0))


def run_by_hipdnn(file):
    """Summarises what hipDNN ran of a model with recorded steps; fails if it did not run every float convolution."""
    lines = [json.loads(line) for line in Path(file).read_text().splitlines()]
    steps = [step for line in lines for step in line.get("steps", [])]
    taken = lambda steps: sum(step["run_by"].startswith("hipDNN: ") for step in steps)
    convolutions = [step for step in steps if step["step"].removeprefix("fused_").startswith("conv")]
    others = [step for step in convolutions if not taken([step])]
    assert not others, f"hipDNN does not run {others[0]['step']} {others[0]['node']}: {others[0]['reason']}"
    return f"  hipDNN: {taken(convolutions)} convolutions, {taken(steps)} of {len(steps)} steps"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=os.path.abspath)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--least-share", type=float, default=0, help="fail if a smaller share of all nodes is on the device")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the backend; with a dot in the key, a session-config entry")
    parser.add_argument("--hipdnn", action="store_true", help="offer steps to hipDNN; it must run every convolution")
    parser.add_argument("--bench", action="store_true", help="also measure speed")
    arguments = parser.parse_args()
    OPTIONS.update(option.split("=", 1) for option in arguments.option)
    import onnxruntime as ort

    collected = collection()
    models = packaged_models.models(ROOT / "target" / "packaged-models", arguments.only)
    models += [model for model in collected if not arguments.only or model["id"] in arguments.only]
    # Options name only files of this script.
    os.environ["AMDGPU_EP_TRUST_OPTIONS"] = "1"
    ort.register_execution_provider_library(NAME, arguments.library)
    devices = [device for device in ort.get_ep_devices() if device.ep_name == NAME]
    print(f"{'model':22}{'ours':>7}{'others':>8}{'parts':>7}{'error':>10}{'cosine':>9}{'arena MiB':>11}{'/ live':>8}  {'':6}{'ms':>9}{'CPU ms':>9}{'speed':>7}")
    bad, ratios, arenas, totals = [], [], [], collections.Counter()
    for model in models:
        feeds, golden = model["feeds"], model.get("golden")
        note, speed, relative, cosine, placed = "", "", float("nan"), float("nan"), collections.Counter()
        stages = tempfile.TemporaryDirectory()
        record = Path(stages.name) / "explain.jsonl"
        if arguments.hipdnn:
            OPTIONS.update({"ep.hip.hipdnn": "on", "ep.hip.explain_file": str(record)})
        try:
            ours = session(ort, model["path"], devices, stages=stages.name)
            run = runner(ours)
            placed = collections.Counter()
            for item in ours.get_provider_graph_assignment_info():
                placed[item.ep_name == NAME] += len(item.get_nodes())
                placed["parts"] += item.ep_name == NAME
            outputs = run(feeds)
            if golden is None:
                golden = full(runner(session(ort, model["path"], None))(feeds))
            found = comparison.compared(outputs, golden)
            right = comparison.passes(found, model["tol"])
            relative, cosine = comparison.worst(found)
            if not right and model["id"] in UNFUSED:
                unfused = runner(session(ort, model["path"], None, optimised=False))(feeds)
                found = comparison.compared(outputs, full(unfused))
                right = comparison.passes(found, model["tol"])
                note = f"  {comparison.worst(found)[0]:.1e} from the CPU provider without graph optimisations"
            if model["id"] in EXPECTED:
                note = f"  {EXPECTED[model['id']](outputs, lambda other: run({**feeds, **other}))}{note}"
            if arguments.hipdnn:
                note = f"{note}{run_by_hipdnn(record)}"
            if arguments.bench:
                mine, theirs = medians([ours, session(ort, model["path"], None)], feeds, 2.0)
                ratios.append(theirs / mine)
                speed = f"{mine * 1e3:9.2f}{theirs * 1e3:9.2f}{theirs / mine:7.2f}"
        except Exception as error:
            right, note = False, f"  {str(error)[:300]}"
        bytes, live = arena(stages.name)
        stages.cleanup()
        arenas.append(bytes / live if live else 1)
        totals += placed
        if not right:
            bad.append(model["id"])
        state = "ok" if right else "WRONG"
        print(f"{model['id']:22}{placed[True]:7}{placed[False]:8}{placed['parts']:7}{relative:10.1e}{cosine:9.5f}{bytes / 2**20:11.2f}{arenas[-1]:8.2f}  {state:6}{speed}{note}")
    if ratios:
        print(f"\ngeometric mean of the speeds {statistics.geometric_mean(ratios):.2f}, lowest {min(ratios):.2f} (1 = the CPU provider)")
    print(f"\nthe largest arena is {max(arenas, default=1):.2f} times what is in use at once")
    share = totals[True] / max(totals[True] + totals[False], 1)
    wrong = f"; wrong: {', '.join(bad)}" if bad else ""
    if arguments.bench:
        print(f"a warm run of one node takes {one_node_overhead(ort, devices):.2f} times as long as on the CPU provider")
    alone = "" if collected else "; skipped: the collection of public models (../shared) is not beside the repository"
    print(f"\n{len(models) - len(bad)} of {len(models)} models are right, {share:.1%} of their nodes on the device{wrong}{alone}")
    if share < arguments.least_share:
        print(f"fewer than {arguments.least_share:.0%} of the nodes are on the device")
        return 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
